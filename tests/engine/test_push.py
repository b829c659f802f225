"""Webhooks: in order, at least once, every change of state, and none delays another."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from accord import Context, agent
from accord.a2a import Caller
from accord.engine import webhook_delivery
from accord.engine.hooks import Delivered as Told
from accord.engine.hooks import Hooks
from accord.engine.outcome import Failed, Rejected
from accord.engine.webhook_delivery import Exchange, ExchangeSide, NotDelivered, WebhookDelivery, WebhookDispatcher
from accord.model import (
    ArtifactUpdate,
    PushConfig,
    PushFormat,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    Task,
    TaskState,
)
from accord.service.host import Host
from accord.storage.commands import retention, webhooks
from accord.storage.commands.webhooks import Webhook
from accord.storage.store import Store
from tests.engine.conftest import ALICE, Hosting, said, saying, state
from tests.engine.doubles import Meddler, Watch, change, rows, sent, times, until

S = TaskState
URL = "https://example.com/hook"

Refuses = Callable[[WebhookDelivery], Exception | None]


class Recorder:
    """A sender that keeps what it delivers, refuses what it is told to and can be held up."""

    def __init__(self, refuses: Refuses = lambda _: None, told_as: PushFormat = PushFormat.TASK) -> None:
        self.refuses = refuses
        self.told_as = told_as
        self.tried: list[WebhookDelivery] = []
        self.got: list[WebhookDelivery] = []
        self.held: dict[str, asyncio.Event] = {}
        self._more = asyncio.Event()

    def check(self, config: PushConfig) -> None: ...

    def form(self, dialect: str) -> PushFormat:
        return self.told_as

    async def send(self, delivery: WebhookDelivery) -> Exchange:
        self.tried.append(delivery)
        self._more.set()
        if gate := self.held.get(delivery.config.id or ""):
            await gate.wait()
        if error := self.refuses(delivery):
            raise error
        self.got.append(delivery)
        self._more.set()
        return Exchange(request=ExchangeSide(body="posted"), status=204)

    async def until(self, check: Callable[[], bool]) -> None:
        while not check():
            self._more.clear()
            await self._more.wait()

    def states(self, id: str = "w") -> list[TaskState]:
        """The states that a webhook was told."""
        bodies = [delivery.event.body for delivery in self.got if delivery.config.id == id]
        return [body.status.state for body in bodies if isinstance(body, StatusUpdate | Task)]

    async def told(self, last: TaskState, id: str = "w") -> list[TaskState]:
        """Wait until a webhook was told a state."""
        await self.until(lambda: last in self.states(id))
        return self.states(id)


class Between:
    store: Meddler

    def __call__(self, store: Store) -> Meddler:
        self.store = Meddler(store)
        return self.store

    def delays(self) -> list[int | None]:
        """How long what failed was put off."""
        return [args[2] for name, args in self.store.given if name == "webhooks.fail"]

    async def until_failed(self, count: int) -> None:
        """Wait until so many failures were noted."""

        async def has_failed() -> bool:
            return len(self.delays()) >= count

        await until(has_failed)


def failing(count: int, **fields: Any) -> Refuses:
    """Refuse the first deliveries."""
    left = [count]

    def refuses(_: WebhookDelivery) -> Exception | None:
        left[0] -= 1
        return NotDelivered("503", **fields) if left[0] >= 0 else None

    return refuses


@agent
async def asks(ctx: Context) -> str:
    await ctx.artifact("draft", id="draft")
    return f"{await ctx.ask('Well?')}"


@agent
async def tells(ctx: Context) -> AsyncIterator[str]:
    yield "one "
    await ctx.status("half way")
    yield "two"


QUICK_RETRIES = replace(webhook_delivery.RETRIES, first_seconds=0.02)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let retries follow soon."""
    monkeypatch.setattr(webhook_delivery, "RETRIES", QUICK_RETRIES)
    monkeypatch.setattr(webhook_delivery, "POLL_SECONDS", 0.1)


def with_hook(word: str = "x", id: str = "w", **fields: Any) -> SendRequest:
    """A message that brings its own webhook."""
    config = PushConfig(url=URL, id=id, **fields)
    return saying(word, configuration=SendConfiguration(task_push_notification_config=config))


async def hook(host: Host, task: Task, id: str = "w") -> Webhook:
    """A webhook as it is kept."""
    found = await host.node.store.read(webhooks.list_webhooks, "acme", task.id)
    return next(webhook for webhook in found if webhook.config.id == id)


async def rests(host: Host, task: Task, id: str = "w") -> Webhook:
    """Wait until a webhook has nothing to deliver."""

    async def is_idle() -> bool:
        return (None, None) in await rows(host.node.store, f"push WHERE id = '{id}'", "due_at, node")

    await until(is_idle)
    return await hook(host, task, id)


# --- what is delivered --------------------------------------------------------------------------------------------


@pytest.mark.proves("3-20", "C-13", "PUSH-DELIVER-002", "PUSH-CREATE-002")
async def test_webhooks_get_every_state_in_order(hosting: Hosting) -> None:
    sender, watch = Recorder(), Watch()
    host = await hosting(asks, sender=sender, hooks=Hooks((watch,)))
    task = await sent(host.default, with_hook(), ALICE)
    await sender.told(S.INPUT_REQUIRED)
    await host.default.send(saying("good", task_id=task.id), ALICE)
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.INPUT_REQUIRED, S.WORKING, S.COMPLETED]
    assert [delivery.task.status.state for delivery in sender.got] == sender.states()
    assert {(got.tenant, got.dialect, got.attempt, got.task.id) for got in sender.got} == {("acme", "v1", 1, task.id)}
    numbers = [delivery.event.seq for delivery in sender.got]
    assert numbers == sorted(set(numbers))
    told = await watch.until(Told, 4)
    assert [(detail.config_id, detail.seq, detail.error) for detail in told] == [("w", seq, None) for seq in numbers]
    assert (await rests(host, task)).cursor >= numbers[-1]


async def test_a_webhook_may_want_events(hosting: Hosting) -> None:
    sender = Recorder()
    host = await hosting(tells, sender=sender)
    task = await sent(host.default, with_hook(payload_format=PushFormat.EVENT), ALICE)
    await sender.told(S.COMPLETED)
    assert [type(got.event.body) for got in sender.got] == [
        StatusUpdate,
        ArtifactUpdate,
        StatusUpdate,
        ArtifactUpdate,
        StatusUpdate,
    ]
    assert [got.event.seq for got in sender.got] == [1, 2, 3, 4, 5]
    assert state(task) is S.COMPLETED


async def test_later_webhooks_get_later_events(hosting: Hosting) -> None:
    sender = Recorder()
    host = await hosting(asks, sender=sender)
    task = await sent(host.default, saying("x"), ALICE)
    await host.default.push_set(PushConfig(url=URL, id="w", task_id=task.id), ALICE)
    await host.default.send(saying("good", task_id=task.id), ALICE)
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.COMPLETED]


async def test_events_during_a_delivery_are_sent_in_order(hosting: Hosting) -> None:
    sender, between = Recorder(), Between()
    runs = await hosting(asks)
    sends = await hosting(asks, sender=sender, wrap=between)
    task = await sent(runs.default, saying("x"), ALICE)
    await sends.default.push_set(PushConfig(url=URL, id="w", task_id=task.id), ALICE)
    await rests(sends, task)
    gate = between.store.waits["tasks.read_task"] = asyncio.Event()
    looked = between.store.begun.count("tasks.read_task")
    await runs.node.store.do(webhooks.redeliver, "acme", task.id, "w")

    async def looks() -> bool:
        return between.store.begun.count("tasks.read_task") > looked

    await until(looks)
    await runs.default.send(saying("good", task_id=task.id), ALICE)
    gate.set()
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.COMPLETED]


# --- what fails ---------------------------------------------------------------------------------------------------


async def delivering(hosting: Hosting, sender: Recorder, between: Between, **options: Any) -> Host:
    """A host whose webhooks are delivered as a test wants it."""
    host = await hosting(asks, tells, sender=sender, wrap=between)
    assert host.pusher is not None
    await host.pusher.stop()
    host.pusher = WebhookDispatcher(host.node, sender, **options)
    host.pusher.start()
    return host


@pytest.mark.usefixtures("impatient")
async def test_failed_deliveries_back_off(hosting: Hosting) -> None:
    sender, between = Recorder(failing(5)), Between()
    retries = replace(QUICK_RETRIES, max_seconds=0.1)
    host = await delivering(hosting, sender, between, retries=retries, jitter=lambda: 0.25)
    task = await sent(host.services["tells"], with_hook(), ALICE)
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.WORKING, S.COMPLETED]
    assert [(tried.event.seq, tried.attempt) for tried in sender.tried] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 4),
        (1, 5),
        (1, 6),
        (3, 1),
        (5, 1),
    ]
    assert between.delays() == [15, 30, 60, 75, 75]
    found = await rests(host, task)
    assert (found.attempts, found.last_error, found.is_dead) == (0, None, False)


@pytest.mark.usefixtures("impatient")
async def test_dead_letters_wait_for_redelivery(hosting: Hosting) -> None:
    is_broken = [True]
    sender = Recorder(lambda _: NotDelivered("410 Gone") if is_broken[0] else None)
    host = await delivering(hosting, sender, Between(), retries=replace(QUICK_RETRIES, attempts=3))
    task = await sent(host.default, with_hook(), ALICE)
    await sender.until(lambda: len(sender.tried) == 3)
    dead = await rests(host, task)
    assert (dead.is_dead, dead.attempts, dead.last_error, dead.cursor) == (True, 3, "410 Gone", 0)
    is_broken[0] = False
    await host.default.send(saying("good", task_id=task.id), ALICE)
    assert len(sender.tried) == 3
    assert await host.node.store.do(webhooks.redeliver, "acme", task.id, "w")
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.INPUT_REQUIRED, S.WORKING, S.COMPLETED]
    assert not (await rests(host, task)).is_dead


@pytest.mark.usefixtures("impatient")
async def test_a_receiver_may_ask_to_be_left_alone_for_a_while(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_delivery, "MAX_RETRY_AFTER", 0.2)
    waits = iter([0.1, 3600.0, 0.0, -5.0])
    sender, between = Recorder(lambda _: _not_before(next(waits, None))), Between()
    host = await delivering(hosting, sender, between, jitter=lambda: 0.5)
    await sent(host.services["tells"], with_hook(), ALICE)
    await sender.told(S.COMPLETED)
    assert between.delays() == [100, 200, 80, 160]


def _not_before(seconds: float | None) -> Exception | None:
    return None if seconds is None else NotDelivered("429", retry_after=seconds)


@pytest.mark.proves("0-60")
@pytest.mark.usefixtures("impatient")
async def test_deliveries_of_the_end_are_logged(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "accord")
    ends = iter([NotDelivered("503")])

    def refuses(delivery: WebhookDelivery) -> Exception | None:
        body = delivery.event.body
        return next(ends, None) if isinstance(body, StatusUpdate) and body.status.state is S.COMPLETED else None

    sender, between = Recorder(refuses), Between()
    host = await delivering(hosting, sender, between)
    task = await sent(host.services["tells"], with_hook(), ALICE)
    await sender.told(S.COMPLETED)

    def lines() -> list[tuple[str, str, str, str]]:
        found = [vars(record) for record in caplog.records if record.msg.startswith("push.")]
        return [(one["msg"], one["task_id"], one["webhook"], one["state"]) for one in found]

    about = (task.id, "w", "COMPLETED")
    refused, accepted = "push.end_not_delivered", "push.end_delivered"
    await sender.until(lambda: lines() == [(refused, *about), (accepted, *about)])


@pytest.mark.usefixtures("impatient")
async def test_attempts_are_written_down_for_people(hosting: Hosting) -> None:
    refused = Exchange(request=ExchangeSide(body="posted"), response=ExchangeSide(body="not now"), status=503)
    sender = Recorder(failing(1, sent=refused))
    host = await hosting(asks, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.told(S.INPUT_REQUIRED)
    await rests(host, task)
    tried = [one for _, one in await host.node.store.read(webhooks.list_attempts, "acme", task.id, "w")][::-1]
    assert [(one.attempt, one.status, one.error) for one in tried] == [(1, 503, "503"), (2, 204, None), (1, 204, None)]
    assert tried[0].seq == tried[1].seq < tried[2].seq
    assert '"not now"' in tried[0].detail
    assert '"posted"' in tried[1].detail


async def test_permanent_failures_are_tried_once(hosting: Hosting) -> None:
    sender, between = Recorder(failing(1, is_final=True)), Between()
    host = await delivering(hosting, sender, between)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.until(lambda: len(sender.tried) == 1)
    assert (await rests(host, task)).is_dead
    await between.until_failed(1)
    assert between.delays() == [None]


@pytest.mark.usefixtures("impatient")
async def test_each_event_has_its_own_attempts(hosting: Hosting) -> None:
    refusals = {1: 2, 3: 2}

    def refuses(delivery: WebhookDelivery) -> Exception | None:
        refusals[delivery.event.seq] = refusals.get(delivery.event.seq, 0) - 1
        return NotDelivered("503") if refusals[delivery.event.seq] >= 0 else None

    sender = Recorder(refuses)
    host = await delivering(hosting, sender, Between(), retries=replace(QUICK_RETRIES, attempts=3))
    task = await sent(host.services["tells"], with_hook(), ALICE)
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.WORKING, S.COMPLETED]
    tried = [(delivery.event.seq, delivery.attempt) for delivery in sender.tried]
    assert tried == [(1, 1), (1, 2), (1, 3), (3, 1), (3, 2), (3, 3), (5, 1)]
    assert not (await rests(host, task)).is_dead


@pytest.mark.usefixtures("impatient")
async def test_sender_errors_lose_no_delivery(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> None:
    broken = iter([RuntimeError("a bug"), OSError("a socket")])
    sender = Recorder(lambda _: next(broken, None))
    host = await delivering(hosting, sender, Between())
    await sent(host.services["tells"], with_hook(), ALICE)
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.WORKING, S.COMPLETED]
    assert "a bug" in caplog.text


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "command", ["webhooks.advance", "webhook_deliveries.claim_webhooks", "webhooks.fail", "tasks.events_after"]
)
@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "done-but-lost"])
async def test_a_failing_database_delays_deliveries_only(hosting: Hosting, command: str, is_done: bool) -> None:
    sender, between = Recorder(failing(1)), Between()
    host = await delivering(hosting, sender, between)
    if is_done:
        between.store.loses = times(command, 2)
    else:
        between.store.refuses = times(command, 2)
    task = await sent(host.services["tells"], with_hook(), ALICE)
    found = await sender.told(S.COMPLETED)
    assert [told for at, told in enumerate(found) if at == 0 or told is not found[at - 1]] == [S.WORKING, S.COMPLETED]
    assert not (await rests(host, task)).is_dead


# --- several ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
async def test_no_webhook_waits_for_another(hosting: Hosting) -> None:
    sender = Recorder(lambda delivery: NotDelivered("503") if delivery.config.id == "failing" else None)
    sender.held["hanging"] = asyncio.Event()
    host = await hosting(asks, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    for id in ("failing", "hanging"):
        await host.default.push_set(PushConfig(url=URL, id=id, task_id=task.id), ALICE)
    await host.default.send(saying("good", task_id=task.id), ALICE)
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.INPUT_REQUIRED, S.WORKING, S.COMPLETED]
    sender.held.pop("hanging").set()
    assert await sender.told(S.COMPLETED, "hanging") == [S.WORKING, S.COMPLETED]
    await sender.until(lambda: sum(tried.config.id == "failing" for tried in sender.tried) >= 3)
    assert sender.states("failing") == []


OTHER = Caller(tenant="globex", owner="carol", origin="v1")


async def test_hanging_webhooks_of_one_tenant_delay_no_other(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_delivery, "CLAIM", 9)
    sender = Recorder()
    sender.held["hanging"] = asyncio.Event()
    host = await hosting(asks, sender=sender)
    for _ in range(2 * webhook_delivery.CLAIM):
        await sent(host.default, with_hook(id="hanging"), ALICE)
    await sender.until(lambda: len(sender.tried) == webhook_delivery.CLAIM // 3)
    await sent(host.default, with_hook(), OTHER)
    assert await sender.told(S.INPUT_REQUIRED) == [S.WORKING, S.INPUT_REQUIRED]
    assert len([one for one in sender.tried if one.config.id == "hanging"]) == webhook_delivery.CLAIM // 3
    sender.held.pop("hanging").set()


@pytest.mark.usefixtures("impatient")
async def test_a_host_that_hangs_gets_one_delivery_at_a_time(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_delivery, "HANG_SECONDS", 0.0)
    hangs = [True]
    sender = Recorder(lambda _: NotDelivered("No answer in time") if hangs[0] else None)
    host = await delivering(hosting, sender, Between())
    task = await sent(host.default, with_hook("one"), ALICE)
    await sender.until(lambda: len(sender.tried) == 1)
    sender.held["probe"] = sender.held["w"] = asyncio.Event()
    for word in ("two", "three", "four"):
        await sent(host.default, with_hook(word, id="probe"), ALICE)
    await sender.until(lambda: len(sender.tried) == 2)
    assert host.pusher is not None
    busy = host.pusher._load()
    assert busy.hung == {(webhooks.caller_of("acme", "alice"), "example.com")}
    assert sum(busy.hosts.values()) == 1
    hangs[0] = False
    sender.held.pop("w").set()
    sender.held.pop("probe")
    await sender.until(lambda: sender.states("probe").count(S.INPUT_REQUIRED) == 3)
    assert await sender.told(S.INPUT_REQUIRED) == [S.WORKING, S.INPUT_REQUIRED]
    assert host.pusher._load().hung == frozenset()
    assert state(task) is S.INPUT_REQUIRED


@pytest.mark.proves("0-27", "0-35")
@pytest.mark.parametrize(
    ("ends", "last"), [(None, S.COMPLETED), (Failed("no paper"), S.FAILED), (Rejected("not me"), S.REJECTED)], ids=str
)
async def test_final_deliveries_contain_the_artifacts(
    hosting: Hosting, ends: Exception | None, last: TaskState
) -> None:
    @agent
    async def ending(ctx: Context) -> None:
        await ctx.artifact({"result": 42}, id="made")
        if ends is not None:
            raise ends

    sender = Recorder()
    host = await hosting(ending, sender=sender)
    await sent(host.default, with_hook(), ALICE)
    await sender.told(last)
    told = sender.got[-1].task
    assert (told.status.state, told.artifacts[0].parts[0].data) == (last, {"result": 42})
    assert ends is None or said(told) == str(ends)


@pytest.mark.proves("3-40")
async def test_replaced_webhooks_use_the_new_address(hosting: Hosting) -> None:
    sender = Recorder(lambda delivery: NotDelivered("503") if delivery.config.url == URL else None)
    host = await hosting(asks, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.until(lambda: len(sender.tried) >= 1)
    other = PushConfig(url="https://example.com/other", id="w", task_id=task.id, token="t")
    assert await host.default.push_set(other, ALICE) == other
    assert await sender.told(S.INPUT_REQUIRED) == [S.WORKING, S.INPUT_REQUIRED]
    assert {(got.config.url, got.config.token) for got in sender.got} == {("https://example.com/other", "t")}


async def test_a_webhook_that_is_replaced_meanwhile_gets_the_rest(hosting: Hosting) -> None:
    sender = Recorder()
    sender.held["w"] = asyncio.Event()
    host = await hosting(tells, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.until(lambda: len(sender.tried) == 1)
    await host.default.push_set(PushConfig(url="https://example.com/other", id="w", task_id=task.id), ALICE)
    sender.held.pop("w").set()
    await sender.told(S.COMPLETED)
    assert [got.config.url for got in sender.got if got.event.seq > 1] == ["https://example.com/other"] * 2
    await rests(host, task)


async def test_a_webhook_that_is_replaced_where_it_is_gets_nothing_twice(hosting: Hosting) -> None:
    """What is being posted is on its way to the same receiver: the new token is for what comes after it."""
    sender = Recorder()
    sender.held["w"] = asyncio.Event()
    host = await hosting(tells, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.until(lambda: len(sender.tried) == 1)
    await host.default.push_set(PushConfig(url=URL, id="w", task_id=task.id, token="new"), ALICE)
    sender.held.pop("w").set()
    await sender.told(S.COMPLETED)
    await rests(host, task)
    assert [got.event.seq for got in sender.tried] == sorted({got.event.seq for got in sender.tried})
    assert [got.config.token for got in sender.got] == [None] + ["new"] * (len(sender.got) - 1)


async def test_replaced_webhooks_retry_failed_deliveries(hosting: Hosting) -> None:
    sender = Recorder(lambda delivery: None if delivery.config.token else NotDelivered("401", is_final=True))
    sender.held["w"] = asyncio.Event()
    host = await hosting(tells, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.until(lambda: len(sender.tried) == 1)
    await host.default.push_set(PushConfig(url=URL, id="w", task_id=task.id, token="new"), ALICE)
    sender.held.pop("w").set()
    assert await sender.told(S.COMPLETED) == [S.WORKING, S.WORKING, S.COMPLETED]
    assert [got.attempt for got in sender.got] == [1] * len(sender.got)
    assert not (await rests(host, task)).is_dead


async def test_a_webhook_that_is_deleted_gets_nothing_more(hosting: Hosting) -> None:
    sender = Recorder()
    host = await hosting(asks, sender=sender)
    task = await sent(host.default, with_hook(), ALICE)
    await sender.told(S.INPUT_REQUIRED)
    await host.default.push_set(PushConfig(url=URL, id="other", task_id=task.id), ALICE)
    await rests(host, task)
    await host.node.store.do(webhooks.delete, "acme", task.id, "w")
    await host.default.send(saying("good", task_id=task.id), ALICE)
    await sender.told(S.COMPLETED, "other")
    assert sender.states() == [S.WORKING, S.INPUT_REQUIRED]


# --- those who deliver --------------------------------------------------------------------------------------------


async def test_another_node_takes_over_deliveries(hosting: Hosting) -> None:
    dying, living = Recorder(), Recorder()
    dying.held["w"] = asyncio.Event()
    first = await hosting(tells, sender=dying)
    task = await sent(first.default, with_hook(), ALICE)
    await dying.until(lambda: len(dying.tried) == 1)
    assert first.pusher is not None
    assert first.pusher._loop is not None
    for loop in (*first.node._loops, first.pusher._loop):
        loop.cancel()
    await asyncio.gather(*first.node._loops, first.pusher._loop, return_exceptions=True)
    await change(first.node.store, f"UPDATE node SET expires_at = 1 WHERE id = '{first.node.node_id}'")
    second = await hosting(tells, sender=living)
    assert await living.told(S.COMPLETED) == [S.WORKING, S.WORKING, S.COMPLETED]
    dying.held.pop("w").set()
    await asyncio.gather(*first.pusher._delivering)
    assert len(dying.tried) == 1
    assert (await rests(second, task)).cursor == 5


async def test_nodes_share_the_deliveries(hosting: Hosting) -> None:
    sender = Recorder()
    hosts = [await hosting(tells, sender=sender) for _ in range(2)]
    for at in range(6):
        await sent(hosts[at % 2].default, with_hook(id=f"w-{at}"), ALICE)
    for at in range(6):
        assert await sender.told(S.COMPLETED, f"w-{at}") == [S.WORKING, S.WORKING, S.COMPLETED]
    assert len(sender.tried) == 18


async def test_undelivered_events_are_delivered_later(hosting: Hosting) -> None:
    slow, quick = Recorder(), Recorder()
    slow.held["w"] = asyncio.Event()
    first = await hosting(tells, sender=slow)
    await sent(first.default, with_hook(), ALICE)
    await slow.until(lambda: len(slow.tried) == 1)
    await first.stop(0)
    await hosting(tells, sender=quick)
    assert await quick.told(S.COMPLETED) == [S.WORKING, S.WORKING, S.COMPLETED]


async def test_a_dead_webhook_outlives_its_log(hosting: Hosting) -> None:
    sender, between = Recorder(failing(1, is_final=True)), Between()
    host = await delivering(hosting, sender, between)
    task = await sent(host.services["tells"], with_hook(), ALICE)
    assert (await rests(host, task)).is_dead
    assert await host.node.store.do(retention.compact, -60_000, 10) == 1
    assert await host.node.store.do(webhooks.redeliver, "acme", task.id, "w")
    assert await sender.told(S.COMPLETED) == [S.COMPLETED]
    assert (await rests(host, task)).cursor == 5
    claims = between.store.done.count("webhooks.advance")
    assert claims <= 4
