"""Every operation over every link, against our own server."""

from contextlib import aclosing

import pytest

from accord.client.grpc_link import GrpcLink
from accord.client.peer import AgentLink
from accord.errors import InvalidParams, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from accord.model import (
    ArtifactUpdate,
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
    TaskState,
)
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName, Operation
from tests.client.links.conftest import WAYS, all_of, each_standard, each_way, saying

HOOK = "https://example.com/hook"


async def settled(link: AgentLink, request: object) -> Task:
    """Send, and return the task as it is in the end; some dialects tell little of it in the answer."""
    task = await link.ask(Operation.SEND, saying(str(request)))
    assert isinstance(task, Task)
    if task.status.state in (TaskState.SUBMITTED, TaskState.WORKING):
        await all_of(link.follow(Operation.SUBSCRIBE, SubscribeRequest(id=task.id)))
    found = await link.ask(Operation.GET, GetRequest(id=task.id))
    assert isinstance(found, Task)
    return found


async def held(link: AgentLink) -> Task:
    """Begin a task that does not end by itself."""
    async with aclosing(link.follow(Operation.STREAM, saying("hold"))) as events:  # type: ignore[type-var]  # a generator
        async for event in events:
            match event.body:
                case StatusUpdate(status=status) if status.message is not None:
                    return Task(id=event.body.task_id, status=status)
    raise AssertionError("it ended")


def text(task: Task) -> str:
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


def streamed(events: list[Event]) -> str:
    updates = [event.body for event in events if isinstance(event.body, ArtifactUpdate)]
    return "".join(part.text or "" for update in updates for part in update.artifact.parts)


def last(events: list[Event]) -> TaskState:
    body = events[-1].body
    assert isinstance(body, StatusUpdate)
    return body.status.state


@each_way
@pytest.mark.proves("1-10", "2-06")
async def test_a_message_is_answered(link: AgentLink) -> None:
    task = await settled(link, "hello")
    assert (task.status.state, text(task)) == (TaskState.COMPLETED, "you said hello")


@each_way
@pytest.mark.proves("2-22")
async def test_a_stream_is_read_to_its_end(link: AgentLink) -> None:
    events = await all_of(link.follow(Operation.STREAM, saying("chunks")))
    assert (streamed(events), last(events)) == ("one two three", TaskState.COMPLETED)
    numbers = [event.seq for event in events]
    assert numbers == sorted(set(numbers))
    assert link.resumable is not isinstance(link, GrpcLink)


@each_way
async def test_a_stream_ends_where_the_agent_asks(link: AgentLink) -> None:
    events = await all_of(link.follow(Operation.STREAM, saying("ask")))
    assert last(events) is TaskState.INPUT_REQUIRED


@each_standard
async def test_answers_continue_the_task(link: AgentLink) -> None:
    asked = await link.ask(Operation.SEND, saying("ask"))
    assert isinstance(asked, Task)
    assert asked.status.state is TaskState.INPUT_REQUIRED
    done = await link.ask(Operation.SEND, saying("this", task_id=asked.id))
    assert isinstance(done, Task)
    assert (done.id, text(done)) == (asked.id, "so this")


@each_way
async def test_streams_resume_after_the_last_event(link: AgentLink) -> None:
    events = await all_of(link.follow(Operation.STREAM, saying("chunks")))
    task_id = next(event.body.task_id for event in events if isinstance(event.body, ArtifactUpdate))
    seen = next(event.seq for event in events if isinstance(event.body, ArtifactUpdate))
    if isinstance(link, GrpcLink):
        seen -= 1  # it counts from one, the agent's own numbers begin with zero
    rest = await all_of(link.follow(Operation.SUBSCRIBE, SubscribeRequest(id=task_id), after=seen))
    assert (streamed(rest), last(rest)) == ("two three", TaskState.COMPLETED)


@each_way
@pytest.mark.proves("1-13")
async def test_a_task_is_cancelled_and_its_followers_learn_it(link: AgentLink) -> None:
    task = await held(link)
    async with aclosing(link.follow(Operation.SUBSCRIBE, SubscribeRequest(id=task.id))) as events:  # type: ignore[type-var]  # a generator
        await anext(events)
        await link.ask(Operation.CANCEL, CancelRequest(id=task.id))
        assert last(await all_of(events)) is TaskState.CANCELED
    found = await link.ask(Operation.GET, GetRequest(id=task.id))
    assert isinstance(found, Task)
    assert found.status.state is TaskState.CANCELED
    with pytest.raises(TaskNotCancelable):
        await link.ask(Operation.CANCEL, CancelRequest(id=task.id))


@each_way
async def test_tasks_are_listed_in_pages(link: AgentLink) -> None:
    if (link.binding, link.dialect) == ("GRPC", DialectName.V03):
        with pytest.raises(UnsupportedOperation, match="ListTasks does not exist in dialect v03"):
            await link.ask(Operation.LIST, TaskFilter())
        return
    made = [(await settled(link, number)).id for number in range(3)]
    page = await link.ask(Operation.LIST, TaskFilter(page_size=2, include_artifacts=True, status=TaskState.COMPLETED))
    assert isinstance(page, TaskPage)
    assert [task.id for task in page.tasks] == made[:0:-1]
    assert all(text(task).startswith("you said") for task in page.tasks)
    more = await link.ask(
        Operation.LIST, TaskFilter(page_size=1, page_token=page.next_page_token, status=TaskState.COMPLETED)
    )
    assert isinstance(more, TaskPage)
    assert ([task.id for task in more.tasks], more.tasks[0].artifacts) == (made[:1], ())


@each_way
@pytest.mark.proves("B-11")
async def test_webhooks_are_set_read_listed_and_removed(link: AgentLink) -> None:
    task = await held(link)
    made = await link.ask(Operation.PUSH_SET, PushConfig(url=HOOK, token="x", id="mine", task_id=task.id))
    assert isinstance(made, PushConfig)
    assert (made.url, made.task_id) == (HOOK, task.id)
    found = await link.ask(Operation.PUSH_GET, PushGetRequest(task_id=task.id, id=made.id))
    assert isinstance(found, PushConfig)
    assert (found.url, found.id) == (HOOK, made.id)
    page = await link.ask(Operation.PUSH_LIST, PushListRequest(task_id=task.id))
    assert isinstance(page, PushPage)
    assert [config.id for config in page.configs] == [made.id]
    assert await link.ask(Operation.PUSH_DELETE, PushDeleteRequest(task_id=task.id, id=made.id)) == 1
    page = await link.ask(Operation.PUSH_LIST, PushListRequest(task_id=task.id))
    assert isinstance(page, PushPage)
    assert page.configs == ()


@each_way
async def test_webhooks_are_removed_by_url_only_in_vault(link: AgentLink) -> None:
    task = await held(link)
    await link.ask(Operation.PUSH_SET, PushConfig(url=HOOK, id="mine", task_id=task.id))
    removing = PushDeleteRequest(task_id=task.id, url=HOOK)
    if link.dialect in (DialectName.VAULT, DialectName.GEN):
        assert await link.ask(Operation.PUSH_DELETE, removing) == 1
        return
    with pytest.raises(InvalidParams, match="removes a webhook by its id"):
        await link.ask(Operation.PUSH_DELETE, removing)


@each_way
@pytest.mark.proves("B-15")
async def test_refusals_have_their_names(link: AgentLink) -> None:
    with pytest.raises(TaskNotFound, match=r"^Task not found$") as refused:
        await link.ask(Operation.GET, GetRequest(id="none"))
    assert "none" in refused.value.metadata.values()
    with pytest.raises(TaskNotFound):
        await all_of(link.follow(Operation.SUBSCRIBE, SubscribeRequest(id="none")))
    with pytest.raises(UnsupportedOperation):
        await link.ask(Operation.EXTENDED_CARD, CardRequest())


@each_way
async def test_failed_tasks_are_not_request_errors(link: AgentLink) -> None:
    task = await settled(link, "fail")
    assert task.status.state is TaskState.FAILED
    assert last(await all_of(link.follow(Operation.STREAM, saying("fail")))) is TaskState.FAILED


@each_way
async def test_ids_may_hold_anything(link: AgentLink) -> None:
    """An address, a header and a resource name must not take a part of an id for something else."""
    for odd in ("a/b", "a:cancel", "a?b=c", "ä #%2F"):
        with pytest.raises((TaskNotFound, InvalidParams)):
            await link.ask(Operation.GET, GetRequest(id=odd))


@each_standard
async def test_history_length_is_respected(link: AgentLink) -> None:
    task = await settled(link, "hello")
    found = await link.ask(Operation.GET, GetRequest(id=task.id, history_length=0))
    assert isinstance(found, Task)
    if (link.binding, link.dialect) != ("GRPC", DialectName.V03):  # it cannot say zero
        assert found.history == ()
    sent = await link.ask(Operation.SEND, saying("hello", history_length=1))
    assert isinstance(sent, Task)
    assert len(sent.history) == 1


def test_every_dialect_is_tried() -> None:
    assert {way.dialect for way in WAYS} == set(DIALECTS)
