"""What a webhook is told: which events, from which one on, and the task as it was after each."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from accord import Context, agent
from accord.engine.webhook_delivery import STATES, WebhookDelivery, check_events, is_subscribed
from accord.errors import InvalidParams
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    EventBody,
    GetRequest,
    Message,
    MessageUpdate,
    Part,
    PushConfig,
    PushFormat,
    Role,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskState,
    TaskStatus,
)
from accord.service.host import Host
from accord.storage.commands import retention, webhooks
from tests.cases import each
from tests.engine.conftest import ALICE, Hosting, all_of, saying, text
from tests.engine.doubles import rows, sent, until
from tests.engine.test_push import URL, Recorder, asks, hook, rests, tells, with_hook

S = TaskState
LARGE = b"\1" * 100_000


# --- which events -----------------------------------------------------------------------------------------------------


def status(state: TaskState) -> StatusUpdate:
    return StatusUpdate(task_id="t", context_id="c", status=TaskStatus(state=state))


ARTIFACT = Artifact(artifact_id="a", parts=(Part(text="x"),))
CHUNK = ArtifactUpdate(task_id="t", context_id="c", artifact=ARTIFACT)
HEARD = MessageUpdate(
    task_id="t", context_id="c", message=Message(message_id="m", role=Role.USER, parts=(Part(text="x"),))
)
WHOLE = Task(id="t", status=TaskStatus(state=S.COMPLETED), artifacts=(ARTIFACT,))


@each(
    ("names", "wanted", "unwanted"),
    [
        (["completed"], [status(S.COMPLETED), WHOLE], [status(S.WORKING), status(S.FAILED), CHUNK, HEARD]),
        (["COMPLETED", "TASK_STATE_WORKING"], [status(S.COMPLETED), status(S.WORKING)], [status(S.FAILED)]),
        (["failed"], [status(S.FAILED), status(S.REJECTED), status(S.UNKNOWN)], [status(S.CANCELED)]),
        (["cancelled"], [status(S.CANCELED)], [status(S.FAILED)]),
        (["canceled"], [status(S.CANCELED)], [status(S.FAILED)]),
        (["running"], [status(S.WORKING), status(S.INPUT_REQUIRED)], [status(S.SUBMITTED)]),
        (["input-required"], [status(S.INPUT_REQUIRED), status(S.AUTH_REQUIRED)], [status(S.WORKING)]),
        (["auth-required"], [status(S.AUTH_REQUIRED)], [status(S.INPUT_REQUIRED)]),
        (["INPUT_REQUIRED"], [status(S.INPUT_REQUIRED)], [status(S.WORKING)]),
        (["status"], [status(S.WORKING), status(S.FAILED), WHOLE], [CHUNK, HEARD]),
        (["task_artifact"], [CHUNK, WHOLE], [status(S.COMPLETED), HEARD, replace(WHOLE, artifacts=())]),
        (["statusUpdate", "artifact-update"], [status(S.WORKING), CHUNK], [HEARD]),
        (["message"], [HEARD], [CHUNK, status(S.WORKING), WHOLE]),
        (["*"], [HEARD, CHUNK, status(S.WORKING), WHOLE], []),
        ([], [status(S.WORKING), WHOLE], [CHUNK, HEARD]),
    ],
)
def test_webhooks_can_filter_events(names: list[str], wanted: list[EventBody], unwanted: list[EventBody]) -> None:
    config = PushConfig(url=URL, events=tuple(names))
    check_events(names)
    assert [is_subscribed(Event(seq=1, body=body), config) for body in wanted] == [True] * len(wanted)
    assert [is_subscribed(Event(seq=1, body=body), config) for body in unwanted] == [False] * len(unwanted)


def test_every_state_has_a_name_in_every_dialect() -> None:
    assert {state: "completed" in names for state, names in STATES.items() if "completed" in names} == {
        S.COMPLETED: True
    }
    assert STATES[S.AUTH_REQUIRED] >= {"authrequired", "inputrequired", "running", "taskstateauthrequired"}


def test_without_names_events_include_artifacts() -> None:
    config = PushConfig(url=URL, payload_format=PushFormat.EVENT)
    assert is_subscribed(Event(seq=1, body=CHUNK), config)
    assert not is_subscribed(Event(seq=1, body=HEARD), config)
    named = replace(config, events=("completed",))
    assert not is_subscribed(Event(seq=1, body=CHUNK), named)


async def test_only_named_events_are_delivered(hosting: Hosting) -> None:
    sender = Recorder()
    host = await hosting(tells, sender=sender)
    task = await sent(host.default, with_hook(events=("completed", "artifact")), ALICE)
    await sender.told(S.COMPLETED)
    kinds = [type(got.event.body) for got in sender.got]
    assert kinds == [ArtifactUpdate] * (len(kinds) - 1) + [StatusUpdate]
    assert len(kinds) >= 3
    last = (await host.default.get(GetRequest(id=task.id), ALICE)).status
    assert (await rests(host, task)).cursor == sender.got[-1].event.seq
    assert sender.got[-1].task.status == last


async def test_a_webhook_that_would_never_be_called_is_refused(hosting: Hosting) -> None:
    host = await hosting(asks, sender=Recorder())
    task = await sent(host.default, saying("x"), ALICE)
    config = PushConfig(url=URL, task_id=task.id, events=("completed", "finished"))
    with pytest.raises(InvalidParams, match="'finished'") as refused:
        await host.default.push_set(config, ALICE)
    assert refused.value.violations[0].field == "events"
    with pytest.raises(InvalidParams, match="'finished'"):
        await host.default.send(with_hook(events=("finished",)), ALICE)
    assert await rows(host.node.store, "push", "id") == []


# --- from which one on ------------------------------------------------------------------------------------------------


def continuing(task: Task, id: str = "w") -> SendRequest:
    """A message to a task that brings a webhook."""
    config = PushConfig(url=URL, id=id)
    return saying("good", task_id=task.id, configuration=SendConfiguration(task_push_notification_config=config))


async def test_webhooks_set_with_an_answer_get_its_events(hosting: Hosting) -> None:
    sender = Recorder()
    host = await hosting(asks, sender=sender)
    task = await sent(host.default, saying("x"), ALICE)
    other = replace(ALICE, origin="v03")
    await host.default.send(continuing(task), other)
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.COMPLETED]
    assert {got.dialect for got in sender.got} == {"v03"}, "as whoever set it speaks"


# --- artifacts, where events are the form of the dialect --------------------------------------------------------------

MANY = 2000


@agent
async def streams(ctx: Context) -> AsyncIterator[str]:
    for number in range(MANY):
        yield f"{number} "
        if number == MANY // 2:
            await ctx.status("half way")


def kinds(sender: Recorder) -> list[str]:
    """What a webhook was told, each in a word."""
    bodies = [got.event.body for got in sender.got]
    return [body.status.state.name if isinstance(body, StatusUpdate) else type(body).__name__ for body in bodies]


def in_order(sender: Recorder) -> bool:
    numbers = [got.event.seq for got in sender.got]
    return numbers == sorted(set(numbers))


@pytest.mark.proves("B-10", "PUSH-DELIVER-002")
async def test_streamed_artifacts_are_delivered_whole_and_once(hosting: Hosting) -> None:
    sender = Recorder(told_as=PushFormat.EVENT)
    host = await hosting(streams, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.told(S.COMPLETED)
    assert kinds(sender) == ["WORKING", "WORKING", "ArtifactUpdate", "COMPLETED"]
    told = sender.got[2].event.body
    assert isinstance(told, ArtifactUpdate)
    assert (told.append, told.last_chunk) == (False, True)
    assert (told.artifact,) == (await host.default.get(GetRequest(id=task.id), ALICE)).artifacts
    assert in_order(sender)


@pytest.mark.proves("B-10")
async def test_unfinished_artifacts_are_delivered_at_suspension(hosting: Hosting) -> None:
    """The artifact goes on after the question: nobody says that it is whole, but there is something to read."""
    sender = Recorder(told_as=PushFormat.EVENT)
    host = await hosting(writes, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.told(S.INPUT_REQUIRED)
    assert kinds(sender) == ["WORKING", "WORKING", "ArtifactUpdate", "WORKING", "Task"]
    asked = sender.got[-1]
    assert asked.event.body == asked.task
    assert text(asked.task) == "one two "
    await host.default.send(saying("three", task_id=task.id), ALICE)
    await sender.told(S.COMPLETED)
    again = ["WORKING", "ArtifactUpdate", "WORKING"]  # what it says before it asks, a second time
    assert kinds(sender)[5:] == ["WORKING", *again, "WORKING", "ArtifactUpdate", "COMPLETED"]
    whole = sender.got[-2].event.body
    assert isinstance(whole, ArtifactUpdate)
    assert [whole.artifact] == [one for one in sender.got[-1].task.artifacts if one.artifact_id != "large"]
    assert in_order(sender)


@pytest.mark.proves("B-10")
async def test_unchanged_artifacts_are_not_delivered_again(hosting: Hosting) -> None:
    @agent
    async def drafts(ctx: Context) -> None:
        if not ctx.task.artifacts:
            await ctx.artifact("a draft", id="draft", last_chunk=False)
        await ctx.ask("Well?")
        await ctx.ask("Really?")

    sender = Recorder(told_as=PushFormat.EVENT)
    host = await hosting(drafts, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    for word in ("yes", "yes"):
        task = await sent(host.default, saying(word, task_id=task.id), ALICE)
    await sender.told(S.COMPLETED)
    assert kinds(sender) == ["WORKING", "Task", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"]


@pytest.mark.parametrize("names", [("artifact",), ("*",)], ids=str)
async def test_webhooks_for_artifacts_get_every_chunk(hosting: Hosting, names: tuple[str, ...]) -> None:
    sender = Recorder(told_as=PushFormat.EVENT)
    host = await hosting(tells, sender=sender)
    await sent(host.default, with_hook(events=(*names, "completed")), ALICE)
    await sender.told(S.COMPLETED)
    told = [got.event.body for got in sender.got if isinstance(got.event.body, ArtifactUpdate)]
    assert [update.append for update in told] == [False, True]


# --- the task as it was -----------------------------------------------------------------------------------------------


@agent
async def writes(ctx: Context) -> AsyncIterator[str]:
    yield "one "
    await ctx.status("first")
    await ctx.artifact(Part(raw=LARGE, media_type="x/y"), id="large")
    yield "two "
    await ctx.status("second")
    yield f"{await ctx.ask('Well?')} "
    await ctx.status("third")
    yield "four"


async def as_of(host: Host, delivery: WebhookDelivery) -> Task:
    """The task after the event of a delivery, as somebody sees it who begins to follow there."""
    request = SubscribeRequest(id=delivery.task.id)
    events = await all_of(host.default.subscribe(request, ALICE, delivery.event.seq))
    assert isinstance(events[0].body, Task)
    return events[0].body


@pytest.mark.parametrize("form", [PushFormat.TASK, PushFormat.EVENT, None])
async def test_a_delivery_has_the_task_as_it_was_then(hosting: Hosting, form: PushFormat | None) -> None:
    sender = Recorder(told_as=PushFormat.EVENT)
    host = await hosting(writes, sender=sender)
    task = await sent(host.default, with_hook(payload_format=form), ALICE)
    await host.default.send(saying("three", task_id=task.id), ALICE)
    await sender.told(S.COMPLETED)
    assert [got.task for got in sender.got] == [await as_of(host, got) for got in sender.got]
    whole = sender.got[-1].task
    assert whole == await host.default.get(GetRequest(id=task.id), ALICE)
    asked = next(got.task for got in sender.got if got.task.status.state is S.INPUT_REQUIRED)
    assert text(asked) == "one two "
    assert [len(part.raw or b"") for part in asked.artifacts[1].parts] == [len(LARGE)]
    assert sender.got[0].task.artifacts == ()


@pytest.mark.parametrize("told_as", PushFormat)
async def test_late_deliveries_keep_the_original_event(hosting: Hosting, told_as: PushFormat) -> None:
    sender = Recorder(told_as=told_as)
    host = await hosting(writes, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await host.default.send(saying("three", task_id=task.id), ALICE)
    await sender.told(S.COMPLETED)
    await rests(host, task)
    punctual, sender.got = sender.got, []
    for after in range(len(punctual)):
        sender.got = []
        seq = punctual[after].event.seq - 1
        assert await host.node.store.do(webhooks.redeliver, "acme", task.id, "w", seq)
        await sender.told(S.COMPLETED)
        await rests(host, task)
        assert sender.got == punctual[after:]


async def test_compacted_logs_deliver_the_task(hosting: Hosting) -> None:
    sender = Recorder()
    host = await hosting(tells, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.told(S.COMPLETED)
    await rests(host, task)
    assert await host.node.store.do(retention.compact, -60_000, 10) == 1
    sender.got = []
    assert await host.node.store.do(webhooks.redeliver, "acme", task.id, "w", 1)
    await sender.told(S.COMPLETED)
    assert [got.task for got in sender.got] == [await host.default.get(GetRequest(id=task.id), ALICE)]


async def test_a_log_that_goes_while_it_is_delivered_leaves_the_task(hosting: Hosting) -> None:
    """The events are at hand, but what they did before can no longer be told."""
    sender = Recorder()
    host = await hosting(tells, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.told(S.COMPLETED)
    await rests(host, task)
    task_store, events = host.node.task_store, await host.node.task_store.events("acme", task.id, 0)
    assert await host.node.store.do(retention.compact, -60_000, 10) == 1

    async def as_before(*_: object) -> list[Event]:
        return events if not sender.got else []

    sender.got = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_store, "events", as_before)
        assert await host.node.store.do(webhooks.redeliver, "acme", task.id, "w", 0)
        await sender.until(lambda: len(sender.got) == 3)
        await until(lambda: _is_idle(host, task))
    whole = await host.default.get(GetRequest(id=task.id), ALICE)
    assert [got.task.status.state for got in sender.got] == [S.WORKING, S.WORKING, S.COMPLETED]
    assert {got.task.artifacts for got in sender.got} == {whole.artifacts}


async def _is_idle(host: Host, task: Task) -> bool:
    found = await hook(host, task)
    return found.cursor >= 5
