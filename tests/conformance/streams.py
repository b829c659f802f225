"""Scenarios: following what happens, from the beginning, in the middle and after an interruption."""

from accord.errors import InvalidParams, TaskNotFound, UnsupportedOperation
from accord.model import ArtifactUpdate, GetRequest, Message, SubscribeRequest, Task, TaskState
from accord.protocol.operations import Operation
from tests.conformance.scene import (
    Scene,
    begun,
    folded,
    opened,
    outcome,
    read,
    refused,
    saying,
    spoken,
    state_of,
    states,
    task_of,
    text_of,
    until,
)
from tests.conformance.wire import VAULT, Seen, Wire

S = TaskState
STREAM, SUBSCRIBE = Operation.STREAM, Operation.SUBSCRIBE


def begins(wire: Wire, first: Seen, task_id: str | None = None) -> None:
    """The first event is the task; AgentVault's profile has no event for it, so its status stands for it."""
    assert wire.name is VAULT or isinstance(first.body, Task)
    assert task_id in (None, task_of(first.body))


async def streams(scene: Scene) -> None:
    scene.gate.go.set()
    events = await opened(scene.wire, STREAM, saying("hello"))
    begins(scene.wire, events[0])
    assert [states(events)[0], states(events)[-1]] == [S.SUBMITTED, S.COMPLETED]
    assert state_of(events[-1].body) is S.COMPLETED
    assert spoken(events) == "hello to the end"
    pieces = [seen.body for seen in events if isinstance(seen.body, ArtifactUpdate)]
    assert [piece.append for piece in pieces[1:]] == [True] * (len(pieces) - 1)
    assert [piece.last_chunk for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    found = await read(scene.wire, task_of(events[0].body))
    assert (found.status.state, text_of(found)) == (S.COMPLETED, "hello to the end")
    if isinstance(events[0].body, Task):
        assert folded(events) == found


async def comes_as_it_happens(scene: Scene) -> None:
    async with scene.wire.follow(STREAM, saying("slowly")) as events:
        seen = [await anext(events)]
        while not isinstance(seen[-1].body, ArtifactUpdate):
            seen.append(await anext(events))
        assert not scene.gate.go.is_set()
        scene.gate.go.set()
        assert states(await events.rest())[-1] is S.COMPLETED


async def answers_alone(scene: Scene) -> None:
    (seen,) = await opened(scene.wire, STREAM, saying("tck-message-response"))
    assert isinstance(seen.body, Message)
    assert text_of(seen.body) == "Direct message response"


async def ends_with_a_question(scene: Scene) -> None:
    events = await opened(scene.wire, STREAM, saying("tck-input-required"))
    assert state_of(events[-1].body) is S.INPUT_REQUIRED
    task_id = task_of(events[0].body)
    more = await opened(scene.wire, STREAM, saying("tck-complete-task", task_id=task_id))
    begins(scene.wire, more[0], task_id)
    assert state_of(more[-1].body) is S.COMPLETED


async def subscribes(scene: Scene) -> None:
    task_id = await begun(scene.wire, "wait")
    await scene.gate.reached.wait()
    async with scene.wire.follow(SUBSCRIBE, SubscribeRequest(id=task_id)) as events:
        first = await anext(events)
        begins(scene.wire, first, task_id)
        assert state_of(first.body) is (S.SUBMITTED if scene.wire.dialect.replays else S.WORKING)
        scene.gate.go.set()
        rest = await events.rest()
    assert state_of(rest[-1].body) is S.COMPLETED
    if isinstance(first.body, Task):
        assert folded([first, *rest]) == await read(scene.wire, task_id)


async def refuses_what_has_ended(scene: Scene) -> None:
    done = await outcome(scene.wire, "tck-complete-task")
    asking = opened(scene.wire, SUBSCRIBE, SubscribeRequest(id=done.id))
    await refused(scene.wire, UnsupportedOperation, asking)


async def misses_nothing(scene: Scene) -> None:
    """In AgentVault's profile nobody can follow a task before it exists, so who comes late is told what was."""
    scene.gate.go.set()
    done = await outcome(scene.wire, "hello")
    events = await opened(scene.wire, SUBSCRIBE, SubscribeRequest(id=done.id))
    assert [states(events)[0], states(events)[-1]] == [S.SUBMITTED, S.COMPLETED]
    assert spoken(events) == "hello to the end"


async def refuses_what_is_not_there(scene: Scene) -> None:
    asking = opened(scene.wire, SUBSCRIBE, SubscribeRequest(id="no-such-task"))
    await refused(scene.wire, TaskNotFound, asking)


async def tells_all_the_same(scene: Scene) -> None:
    wire = scene.wire
    async with wire.follow(STREAM, saying("wait")) as sender:
        task_id = task_of((await anext(sender)).body)
        await scene.gate.reached.wait()
        wanted = SubscribeRequest(id=task_id)
        async with (
            wire.follow(SUBSCRIBE, wanted) as one,
            wire.follow(SUBSCRIBE, wanted) as two,
        ):
            async with wire.follow(SUBSCRIBE, wanted) as gone:
                for stream in (one, two, gone):
                    begins(wire, await anext(stream), task_id)
            scene.gate.go.set()
            told = [await stream.rest() for stream in (one, two, sender)]
    assert state_of(told[0][-1].body) is S.COMPLETED
    assert told[0] == told[1]
    assert told[2][-len(told[0]) :] == told[0], "who was there from the beginning saw the same, and more before it"


async def stays_through_a_question(scene: Scene) -> None:
    asked = await outcome(scene.wire, "tck-input-required")
    async with scene.wire.follow(SUBSCRIBE, SubscribeRequest(id=asked.id)) as events:
        before = await until(events, S.INPUT_REQUIRED)
        begins(scene.wire, before[0], asked.id)
        await outcome(scene.wire, "tck-complete-task", task_id=asked.id)
        assert states(await events.rest()) == [S.WORKING, S.COMPLETED]


async def takes_up_where_it_was_cut(scene: Scene) -> None:
    async with scene.wire.follow(STREAM, saying("wait")) as events:
        task_id = task_of((await anext(events)).body)
        cut = events.last_seen
    assert cut is not None
    await scene.gate.reached.wait()
    scene.gate.go.set()
    await opened_until_end(scene, task_id)
    missed = await opened(scene.wire, SUBSCRIBE, SubscribeRequest(id=task_id), after=cut)
    begins(scene.wire, missed[0], task_id)
    assert state_of(missed[0].body) is S.SUBMITTED, "the task as it was when the stream was cut"
    assert state_of(missed[-1].body) is S.COMPLETED
    assert spoken(missed) == "wait to the end"
    numbers = [seen.seq for seen in missed if seen.seq is not None]
    assert numbers == list(range(cut, cut + len(numbers)))


async def opened_until_end(scene: Scene, task_id: str) -> None:
    """Wait for the end, from outside of the stream that was cut."""
    async with scene.v1.follow(SUBSCRIBE, SubscribeRequest(id=task_id), after=0) as events:
        await until(events, S.COMPLETED)


async def goes_on_after_the_middle(scene: Scene) -> None:
    """A stream that numbers its events is taken up after any of them."""
    async with scene.wire.follow(STREAM, saying("wait")) as events:
        seen = [await anext(events)]
        while not isinstance(seen[-1].body, ArtifactUpdate):
            seen.append(await anext(events))
        cut = events.last_seen
    task_id = task_of(seen[0].body)
    async with scene.wire.follow(SUBSCRIBE, SubscribeRequest(id=task_id), after=cut) as again:
        first = await anext(again)
        assert first.seq == cut
        begins(scene.wire, first, task_id)
        scene.gate.go.set()
        rest = await again.rest()
    assert cut is not None
    assert [one.seq for one in rest] == list(range(cut + 1, cut + 1 + len(rest)))
    assert state_of(rest[-1].body) is S.COMPLETED


async def is_sent_again(scene: Scene) -> None:
    """Whoever sends the same message again, with the number of the last event, misses and repeats nothing."""
    message = saying("wait", message_id="again")
    async with scene.wire.follow(STREAM, message) as events:
        task_id = task_of((await anext(events)).body)
        cut = events.last_seen
    assert cut is not None
    await scene.gate.reached.wait()
    scene.gate.go.set()
    await opened_until_end(scene, task_id)
    rest = await opened(scene.wire, STREAM, message, after=cut)
    begins(scene.wire, rest[0], task_id)
    assert spoken(rest) == "wait to the end"
    numbers = [seen.seq for seen in rest if seen.seq is not None]
    assert numbers == list(range(cut, cut + len(numbers)))
    assert (state_of(rest[-1].body), scene.gate.runs) == (S.COMPLETED, 1)
    assert (await scene.wire.ask(Operation.GET, GetRequest(id=task_id))).status.state is S.COMPLETED


async def refuses_a_number_that_is_none(scene: Scene) -> None:
    asked = await outcome(scene.wire, "tck-input-required")
    asking = opened(scene.wire, SUBSCRIBE, SubscribeRequest(id=asked.id), after="yesterday")
    await refused(scene.wire, InvalidParams, asking)


async def is_refused_where_it_is_not_offered(scene: Scene) -> None:
    asked = await outcome(scene.wire, "tck-input-required") if scene.wire.name is not VAULT else None
    task_id = asked.id if asked else "any"
    await refused(scene.wire, UnsupportedOperation, opened(scene.wire, STREAM, saying("tck-complete-task")))
    await refused(scene.wire, UnsupportedOperation, opened(scene.wire, SUBSCRIBE, SubscribeRequest(id=task_id)))
