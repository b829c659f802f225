"""Scenarios: reading, listing and cancelling tasks."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from accord.errors import InvalidParams, TaskNotCancelable, TaskNotFound
from accord.model import (
    CancelRequest,
    GetRequest,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
    TaskState,
    metadata_keys,
)
from accord.protocol.operations import ROWS, Operation
from tests.conformance.scene import Scene, begun, opened, outcome, read, refused, saying, states, task_of, text_of
from tests.conformance.wire import Refusal, Wire

S = TaskState
GET, LIST, CANCEL = Operation.GET, Operation.LIST, Operation.CANCEL


async def reads(scene: Scene) -> None:
    sent = await outcome(scene.wire, "tck-artifact-text")
    found = await read(scene.wire, sent.id)
    assert found == sent
    assert [text_of(message) for message in found.history] == ["tck-artifact-text"]


async def reads_the_same_everywhere(scene: Scene) -> None:
    """What one binding and dialect makes, A2A 1.0 over JSON-RPC reads as the same task."""
    made = await outcome(scene.wire, "tck-artifact-file", context_id="shared")
    found = await read(scene.v1, made.id)
    assert (found.id, found.context_id, found.status.state) == (made.id, "shared", made.status.state)
    artifacts = [replace(one, parts=await scene.wire.loaded(one.parts)) for one in made.artifacts]
    assert list(found.artifacts) == artifacts
    assert [message.parts for message in found.history] == [message.parts for message in made.history]


async def reads_some_history(scene: Scene) -> None:
    asked = await outcome(scene.wire, "tck-multi-turn")
    for text in ("more", "done"):
        await outcome(scene.wire, text, task_id=asked.id)
    everything = (await read(scene.wire, asked.id)).history
    assert len(everything) >= 3

    async def history(length: int) -> Any:
        return (await scene.wire.ask(GET, GetRequest(id=asked.id, history_length=length))).history

    assert await history(1) == everything[-1:]
    assert await history(2) == everything[-2:]
    assert await history(1000) == everything
    assert (await read(scene.wire, asked.id)).history == everything


async def reads_no_history(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-complete-task")
    found = await scene.wire.ask(GET, GetRequest(id=task.id, history_length=0))
    assert (found.id, found.history) == (task.id, ())


async def refuses_an_unknown_task(scene: Scene) -> None:
    await refused(scene.wire, TaskNotFound, scene.wire.ask(GET, GetRequest(id="no-such-task")))


async def hides_what_others_have(scene: Scene) -> None:
    """Every operation says of another's task what it says of one that does not exist, word by word."""
    theirs = await outcome(scene.other, "tck-input-required")
    for operation in BY_TASK:
        found = await _refusal(scene.wire, operation, theirs.id)
        missing = await _refusal(scene.wire, operation, "0" * len(theirs.id))
        assert _plain(found, theirs.id) == _plain(missing, "0" * len(theirs.id)), operation
    assert (await read(scene.other, theirs.id)).status.state is S.INPUT_REQUIRED


BY_TASK: dict[Operation, Callable[[str], Any]] = {
    Operation.SEND: lambda task_id: saying("mine", task_id=task_id),
    Operation.STREAM: lambda task_id: saying("mine", task_id=task_id),
    GET: lambda task_id: GetRequest(id=task_id),
    CANCEL: lambda task_id: CancelRequest(id=task_id),
    Operation.SUBSCRIBE: lambda task_id: SubscribeRequest(id=task_id),
    Operation.PUSH_SET: lambda task_id: PushConfig(task_id=task_id, id="p", url="https://example.com/hook"),
    Operation.PUSH_GET: lambda task_id: PushGetRequest(task_id=task_id, id="p"),
    Operation.PUSH_LIST: lambda task_id: PushListRequest(task_id=task_id),
    Operation.PUSH_DELETE: lambda task_id: PushDeleteRequest(task_id=task_id, id="p"),
}
"""What can be asked about one task."""


async def _refusal(wire: Wire, operation: Operation, task_id: str) -> Refusal:
    request = BY_TASK[operation](task_id)
    asking = opened(wire, operation, request) if ROWS[operation].streams else wire.ask(operation, request)
    return await refused(wire, TaskNotFound, asking)


def _plain(refusal: Refusal, task_id: str) -> tuple[Any, ...]:
    facts = {name: value.replace(task_id, "") for name, value in refusal.error.metadata.items()}
    return refusal.code, refusal.status, refusal.error.message.replace(task_id, ""), facts


# --- listing ------------------------------------------------------------------------------------------------------


async def lists_its_own(scene: Scene) -> None:
    made = [await outcome(scene.wire, "tck-complete-task") for _ in range(3)]
    await outcome(scene.other, "tck-complete-task")
    page = await _page(scene)
    assert {task.id for task in _newest_first(page.tasks)} == {task.id for task in made}
    assert (page.total_size, page.next_page_token) == (3, "")
    asked = await outcome(scene.wire, "tck-input-required")
    await outcome(scene.wire, "tck-complete-task")
    changed = await outcome(scene.wire, "tck-complete-task", task_id=asked.id)
    first, *_ = _newest_first((await _page(scene)).tasks)
    assert first.status.timestamp == changed.status.timestamp, "a change makes a task the newest again"


async def filters(scene: Scene) -> None:
    done = await outcome(scene.wire, "tck-complete-task", context_id="c-1")
    waits = await outcome(scene.wire, "tck-input-required", context_id="c-1")
    other = await outcome(scene.wire, "tck-complete-task", context_id="c-2")

    async def found(**wanted: Any) -> set[str]:
        return {task.id for task in (await _page(scene, **wanted)).tasks}

    assert await found(context_id="c-1") == {done.id, waits.id}
    assert await found(status=S.COMPLETED) == {done.id, other.id}
    assert await found(context_id="c-1", status=S.INPUT_REQUIRED) == {waits.id}
    assert await found(context_id="c-3") == set()
    newest = (await read(scene.wire, other.id)).status.timestamp
    assert other.id in await found(status_timestamp_after=newest), "from that moment on, not only later"
    assert await found(status_timestamp_after="2100-01-01T00:00:00.000Z") == set()


async def pages(scene: Scene) -> None:
    made = [await outcome(scene.wire, "tck-complete-task") for _ in range(5)]
    seen: list[Task] = []
    token = None
    for size in (2, 2, 1):
        page = await _page(scene, page_size=2, page_token=token)
        assert (len(page.tasks), page.page_size, page.total_size) == (size, 2, 5)
        seen += page.tasks
        token = page.next_page_token
    assert (token, sorted(task.id for task in _newest_first(seen))) == ("", sorted(task.id for task in made))
    await refused(scene.wire, InvalidParams, _page(scene, page_token="no token of ours"))


async def lists_what_is_asked_for(scene: Scene) -> None:
    made = await outcome(scene.wire, "tck-artifact-text")
    (plain,) = (await _page(scene)).tasks
    assert (plain.id, plain.artifacts) == (made.id, ())
    (whole,) = (await _page(scene, include_artifacts=True)).tasks
    assert text_of(whole) == "Generated text content"
    (short,) = (await _page(scene, history_length=0)).tasks
    assert short.history == ()


def _newest_first(tasks: Sequence[Task]) -> Sequence[Task]:
    """The same tasks, whose last changes go back in time; two may have changed in one millisecond."""
    times = [task.status.timestamp or "" for task in tasks]
    assert all(times)
    assert times == sorted(times, reverse=True)
    return tasks


async def _page(scene: Scene, **wanted: Any) -> TaskPage:
    page: TaskPage = await scene.wire.ask(LIST, TaskFilter(**wanted))
    return page


# --- cancelling ---------------------------------------------------------------------------------------------------


async def cancels_what_runs(scene: Scene) -> None:
    task_id = await begun(scene.wire, "wait")
    await scene.gate.reached.wait()
    await _cancelled(scene.wire, task_id)
    assert text_of(await read(scene.wire, task_id)) == "wait "


async def cancels_what_waits(scene: Scene) -> None:
    asked = await outcome(scene.wire, "tck-input-required")
    await _cancelled(scene.wire, asked.id)
    parked = await begun(scene.wire, "tck-cancel")
    await _cancelled(scene.wire, parked)


async def _cancelled(wire: Wire, task_id: str) -> None:
    answer = await wire.ask(CANCEL, CancelRequest(id=task_id))
    assert isinstance(answer, Task)
    assert (answer.id, answer.status.state) == (task_id, S.CANCELED)
    assert (await read(wire, task_id)).status.state is S.CANCELED


async def tells_followers(scene: Scene) -> None:
    async with scene.wire.follow(Operation.STREAM, saying("wait")) as events:
        first = await anext(events)
        await scene.gate.reached.wait()
        await scene.wire.ask(CANCEL, CancelRequest(id=task_of(first.body)))
        assert states(await events.rest())[-1] is S.CANCELED


async def refuses_to_cancel_twice(scene: Scene) -> None:
    done = await outcome(scene.wire, "tck-complete-task")
    asked = await outcome(scene.wire, "tck-input-required")
    await scene.wire.ask(CANCEL, CancelRequest(id=asked.id))
    for task_id, state in ((done.id, S.COMPLETED), (asked.id, S.CANCELED)):
        await refused(scene.wire, TaskNotCancelable, scene.wire.ask(CANCEL, CancelRequest(id=task_id)))
        assert (await read(scene.wire, task_id)).status.state is state


async def refuses_to_cancel_nothing(scene: Scene) -> None:
    await refused(scene.wire, TaskNotFound, scene.wire.ask(CANCEL, CancelRequest(id="no-such-task")))


async def keeps_the_reason(scene: Scene) -> None:
    asked = await outcome(scene.wire, "tck-input-required")
    await scene.wire.ask(CANCEL, CancelRequest(id=asked.id, metadata={metadata_keys.REASON: "No longer needed"}))
    assert text_of(await read(scene.wire, asked.id)) == "No longer needed"
