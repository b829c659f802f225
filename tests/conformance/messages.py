"""Scenarios: sending messages, and what becomes of them."""

import asyncio

from accord.errors import ContentTypeNotSupported, InvalidParams, TaskNotFound, UnsupportedOperation
from accord.model import Message, Part, Role, SendConfiguration, StatusUpdate, SubscribeRequest, Task, TaskState
from accord.protocol.operations import Operation
from tests.conformance.scene import Scene, begun, opened, outcome, read, refused, rested, saying, task_of, text_of

S = TaskState
SEND, STREAM = Operation.SEND, Operation.STREAM


async def completes(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-artifact-text")
    assert (task.status.state, text_of(task)) == (S.COMPLETED, "Generated text content")
    assert task.id
    assert task.context_id
    assert task.status.timestamp
    assert task.status.timestamp.endswith("Z")
    again = await outcome(scene.wire, "tck-artifact-text")
    assert again.id != task.id


async def makes_every_kind(scene: Scene) -> None:
    name, kind = "output.txt", "text/plain"
    files = {
        "tck-artifact-file": Part(raw=b"Generated file content", filename=name, media_type=kind),
        "tck-artifact-file-url": Part(url="https://example.com/output.txt", filename=name, media_type=kind),
    }
    for wish, file in files.items():
        (made,) = (await outcome(scene.wire, wish)).artifacts
        assert await scene.wire.loaded(made.parts) == (file,)
    (made,) = (await outcome(scene.wire, "tck-artifact-data")).artifacts
    assert [part.data for part in made.parts] == [{"key": "value", "count": 42}]


async def keeps_every_kind(scene: Scene) -> None:
    parts = (
        Part(text="zażółć gęślą jaźń 日本語 🙂"),
        Part(data={"list": [1, 2.5, None, "x"], "flag": True}),
        Part(raw=b"\x00\xff bytes", filename="a.json", media_type="application/json"),
        Part(url="https://example.com/a.txt", filename="a.txt", media_type="text/plain"),
    )
    task = await outcome(scene.wire, "", parts=parts)
    assert task.status.state is S.COMPLETED
    assert task.history[0].role is Role.USER
    assert await scene.wire.loaded(task.history[0].parts) == parts


async def fails(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-task-failure")
    assert (task.status.state, text_of(task)) == (S.FAILED, "Failed on request")


async def rejects(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-reject-task")
    assert (task.status.state, text_of(task)) == (S.REJECTED, "rejected")


async def answers_alone(scene: Scene) -> None:
    answer = await scene.wire.ask(SEND, saying("tck-message-response"))
    assert isinstance(answer, Message)
    assert (answer.role, text_of(answer), answer.task_id) == (Role.AGENT, "Direct message response", None)


async def shows_the_task(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-message-response")
    assert (task.status.state, text_of(task)) == (S.COMPLETED, "Direct message response")
    assert [message.role for message in task.history] == [Role.USER]
    events = await opened(scene.wire, Operation.SUBSCRIBE, SubscribeRequest(id=task.id))
    assert task_of(events[-1].body) == task.id
    assert isinstance(events[-1].body, StatusUpdate)
    assert events[-1].body.status.message is not None
    assert text_of(events[-1].body.status.message) == "Direct message response"


async def waits_for_the_end(scene: Scene) -> None:
    sending = asyncio.ensure_future(scene.wire.ask(SEND, saying("wait")))
    await scene.gate.reached.wait()
    assert not sending.done()
    scene.gate.go.set()
    task = await sending
    assert (task.status.state, text_of(task)) == (S.COMPLETED, "wait to the end")


async def waits_for_a_question(scene: Scene) -> None:
    for wish, state in (("tck-input-required", S.INPUT_REQUIRED), ("tck-auth-required", S.AUTH_REQUIRED)):
        task = await outcome(scene.wire, wish)
        assert task.status.state is state
        answered = await outcome(scene.wire, "tck-complete-task", task_id=task.id)
        assert (answered.id, answered.status.state) == (task.id, S.COMPLETED)


async def returns_at_once(scene: Scene) -> None:
    task = await scene.wire.ask(SEND, saying("wait", at_once=True))
    assert isinstance(task, Task)
    assert task.status.state in (S.SUBMITTED, S.WORKING)
    await scene.gate.reached.wait()
    assert (await read(scene.wire, task.id)).status.state is S.WORKING
    scene.gate.go.set()
    assert text_of(await rested(scene.wire, task.id)) == "wait to the end"


async def continues(scene: Scene) -> None:
    first = await outcome(scene.wire, "tck-multi-turn")
    assert first.status.state is S.INPUT_REQUIRED
    second = await outcome(scene.wire, "go on", task_id=first.id)
    assert (second.id, second.context_id, second.status.state) == (first.id, first.context_id, S.INPUT_REQUIRED)
    third = await outcome(scene.wire, "done", task_id=first.id, context_id=first.context_id)
    assert (third.id, third.context_id, third.status.state) == (first.id, first.context_id, S.COMPLETED)
    spoken = [text_of(message) for message in third.history if message.role is Role.USER]
    assert spoken == ["tck-multi-turn", "go on", "done"]


async def keeps_the_context(scene: Scene) -> None:
    one = await outcome(scene.wire, "tck-complete-task", context_id="c-of-the-caller")
    two = await outcome(scene.wire, "tck-complete-task", context_id="c-of-the-caller")
    assert (one.context_id, two.context_id, one.id == two.id) == ("c-of-the-caller", "c-of-the-caller", False)


async def refuses_another_context(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-input-required")
    reply = saying("tck-complete-task", task_id=task.id, context_id="another")
    refusal = await refused(scene.wire, InvalidParams, scene.wire.ask(SEND, reply))
    assert [violation.field for violation in refusal.error.violations] == ["message.contextId"]
    assert (await read(scene.wire, task.id)).status.state is S.INPUT_REQUIRED


async def refuses_an_unknown_task(scene: Scene) -> None:
    reply = saying("tck-complete-task", task_id="no-such-task")
    await refused(scene.wire, TaskNotFound, scene.wire.ask(SEND, reply))


async def refuses_a_finished_task(scene: Scene) -> None:
    for wish in ("tck-complete-task", "tck-reject-task", "tck-task-failure"):
        task = await outcome(scene.wire, wish)
        reply = saying("tck-complete-task", task_id=task.id)
        await refused(scene.wire, UnsupportedOperation, scene.wire.ask(SEND, reply))


async def takes_a_message_once(scene: Scene) -> None:
    scene.gate.go.set()
    tasks = [await outcome(scene.wire, "once", message_id="the-same") for _ in range(2)]
    assert (tasks[0].id, scene.gate.runs) == (tasks[1].id, 1)
    assert await begun(scene.wire, "once", message_id="the-same") == tasks[0].id
    other = await outcome(scene.wire, "something else", message_id="the-same")
    assert (other.id == tasks[0].id, scene.gate.runs) == (False, 2)
    theirs = await outcome(scene.other, "once", message_id="the-same")
    assert (theirs.id == tasks[0].id, scene.gate.runs) == (False, 3)


async def takes_a_key_once(scene: Scene) -> None:
    """The client makes a new id for each attempt, but says by its key that it is the same."""
    scene.gate.go.set()
    wire, key = scene.wire, {"Idempotency-Key": "the-same"}
    answers = [task_of(await wire.ask(SEND, saying("once"), headers=key)) for _ in range(2)]
    async with wire.follow(STREAM, saying("once"), headers=key) as events:
        answers.append(task_of((await anext(events)).body))
    await rested(wire, answers[0])
    assert (len(set(answers)), scene.gate.runs) == (1, 1)
    await refused(wire, InvalidParams, wire.ask(SEND, saying("something else"), headers=key))
    again = task_of(await wire.ask(SEND, saying("once"), headers={"Idempotency-Key": "another"}))
    theirs = task_of(await scene.other.ask(SEND, saying("once"), headers=key))
    for task_id, whose in ((again, wire), (theirs, scene.other)):
        await rested(whose, task_id)
    assert (len({answers[0], again, theirs}), scene.gate.runs) == (3, 3)


async def refuses_a_media_type(scene: Scene) -> None:
    parts = (Part(raw=b"x", filename="x.bin", media_type="application/x-unsupported-tck-type"),)
    asking = scene.wire.ask(SEND, saying("", parts=parts))
    await refused(scene.wire, ContentTypeNotSupported, asking)


async def limits_its_history(scene: Scene) -> None:
    question = await outcome(scene.wire, "tck-input-required")
    short = SendConfiguration(history_length=0)
    answer = await outcome(scene.wire, "tck-complete-task", task_id=question.id, configuration=short)
    assert (answer.status.state, answer.history) == (S.COMPLETED, ())
    assert len((await read(scene.wire, question.id)).history) >= 2
    assert task_of(answer) == question.id
