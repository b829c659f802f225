"""Scenarios: webhooks, how they are kept and what they are told."""

from typing import Any

from accord.errors import InvalidParams, PushNotSupported, TaskNotFound
from accord.model import (
    ArtifactUpdate,
    Authentication,
    PushConfig,
    PushDeleteRequest,
    PushFormat,
    PushGetRequest,
    PushListRequest,
    PushPage,
    SendConfiguration,
    StatusUpdate,
    Task,
    TaskState,
)
from accord.protocol.operations import Operation
from accord.testing import Webhooks
from tests.conformance.scene import Scene, begun, outcome, refused, saying, task_of, text_of
from tests.conformance.wire import GEN, VAULT, Wire

S = TaskState
SEND = Operation.SEND
SET, READ, LIST, DELETE = Operation.PUSH_SET, Operation.PUSH_GET, Operation.PUSH_LIST, Operation.PUSH_DELETE
HOOK = "https://example.com/hook"


async def keeps(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-input-required")
    authentication = Authentication(scheme="Bearer", credentials="secret")
    wanted = PushConfig(task_id=task.id, id="p-1", url=HOOK, token="token", authentication=authentication)
    assert await scene.wire.ask(SET, wanted) == wanted
    assert await scene.wire.ask(READ, PushGetRequest(task_id=task.id, id="p-1")) == wanted
    nameless = await scene.wire.ask(SET, PushConfig(task_id=task.id, url=HOOK + "/2"))
    assert nameless.id not in (None, "", "p-1")
    page = await scene.wire.ask(LIST, PushListRequest(task_id=task.id))
    assert isinstance(page, PushPage)
    assert {config.id: config.url for config in page.configs} == {"p-1": HOOK, nameless.id: HOOK + "/2"}
    replaced = PushConfig(task_id=task.id, id="p-1", url=HOOK + "/new")
    await scene.wire.ask(SET, replaced)
    assert await scene.wire.ask(READ, PushGetRequest(task_id=task.id, id="p-1")) == replaced


async def replaces_what_has_no_name(scene: Scene) -> None:
    inline = SendConfiguration(task_push_notification_config=PushConfig(url=HOOK + "/0"))
    answer = await scene.wire.ask(SEND, saying("tck-input-required", configuration=inline))
    task_id = task_of(answer)
    for number in range(1, 3):
        made = await scene.wire.ask(SET, PushConfig(task_id=task_id, url=f"{HOOK}/{number}"))
        page = await scene.wire.ask(LIST, PushListRequest(task_id=task_id))
        assert [(config.id, config.url) for config in page.configs] == [(made.id, f"{HOOK}/{number}")]
        assert await scene.wire.ask(READ, PushGetRequest(task_id=task_id, id=made.id)) == page.configs[0]


async def forgets(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-input-required")
    await scene.wire.ask(SET, PushConfig(task_id=task.id, id="p-1", url=HOOK))
    for _ in range(2):
        await scene.wire.ask(DELETE, PushDeleteRequest(task_id=task.id, id="p-1"))
        await refused(scene.wire, TaskNotFound, scene.wire.ask(READ, PushGetRequest(task_id=task.id, id="p-1")))
    assert (await scene.wire.ask(LIST, PushListRequest(task_id=task.id))).configs == ()


async def delivers(scene: Scene) -> None:
    receiver = await scene.receiver()
    task_id = await begun(scene.wire, "wait")
    await scene.gate.reached.wait()
    authentication = Authentication(scheme="Bearer", credentials="secret")
    await scene.wire.ask(
        SET, PushConfig(task_id=task_id, id="p-1", url=receiver.url, token="t-1", authentication=authentication)
    )
    scene.gate.go.set()
    await _completed(scene.wire, receiver, task_id)
    for one in receiver.all:
        assert (one.headers["authorization"], one.headers["x-a2a-notification-token"]) == ("Bearer secret", "t-1")
        assert one.task_id == task_id
    assert len({one.event_id for one in receiver.all}) == len(receiver.all)


async def delivers_to_who_came_with_the_message(scene: Scene) -> None:
    receiver = await scene.receiver()
    hook = PushConfig(url=receiver.url, token="t-2")
    wish = SendConfiguration(task_push_notification_config=hook, return_immediately=True)
    sent = await scene.wire.ask(SEND, saying("tck-artifact-text", configuration=wish))
    bodies = await _completed(scene.wire, receiver, sent.id)
    told = [body.status.state for body in bodies if isinstance(body, Task | StatusUpdate)]
    assert told[-2:] == [S.WORKING, S.COMPLETED], "every change of state is told"
    made = [body for body in bodies if isinstance(body, ArtifactUpdate)]
    if scene.wire.dialect.push_format is PushFormat.EVENT:
        (update,) = made
        assert (update.append, update.last_chunk) == (False, True)
        assert [part.text for part in update.artifact.parts] == ["Generated text content"]
        assert bodies.index(update) == len(bodies) - 2, "and what was made, before the end"
    else:
        assert made == []
    if scene.wire.name is not VAULT:  # whose profile has a url and nothing else
        assert {one.headers["authorization"] for one in receiver.all} == {"Bearer t-2"}
        assert {one.headers["x-a2a-notification-token"] for one in receiver.all} == {"t-2"}


async def _completed(wire: Wire, receiver: Webhooks, task_id: str) -> list[Any]:
    """Wait until a webhook knows that a task has completed, and return what it was told in the wire's own dialect."""

    def bodies() -> list[Any]:
        return [wire.dialect.decode_push(one.body) for one in receiver.all]

    def is_complete() -> bool:
        found = [body.status.state for body in bodies() if isinstance(body, Task | StatusUpdate)]
        return bool(found) and found[-1] is S.COMPLETED

    await receiver.until(is_complete)
    assert {task_of(body) for body in bodies()} == {task_id}
    kind = wire.dialect.push_media_type
    assert {one.headers["content-type"] for one in receiver.all} == {kind}
    last = bodies()[-1]
    if wire.dialect.push_format is PushFormat.TASK:
        assert isinstance(last, Task)
        assert text_of(last)
    else:
        assert isinstance(last, StatusUpdate)
    return bodies()


async def refuses_dangerous_addresses(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-input-required")
    hostile = ["file:///etc/passwd", "http://127.0.0.1:1/", "https://[::1]/", "https://169.254.169.254/", "ftp://x.y/"]
    for url in hostile:
        asking = scene.wire.ask(SET, PushConfig(task_id=task.id, id="p", url=url))
        await refused(scene.wire, InvalidParams, asking)
    split = PushConfig(task_id=task.id, id="p", url=HOOK, token="a\r\nX-Injected: b")
    await refused(scene.wire, InvalidParams, scene.wire.ask(SET, split))
    assert (await scene.wire.ask(LIST, PushListRequest(task_id=task.id))).configs == ()


async def is_refused_where_it_is_not_offered(scene: Scene) -> None:
    wire = scene.wire
    task = await outcome(wire, "tck-input-required")
    requests: dict[Operation, Any] = {
        SET: PushConfig(task_id=task.id, id="p", url=HOOK),
        READ: PushGetRequest(task_id=task.id, id="p"),
        LIST: PushListRequest(task_id=task.id),
        DELETE: PushDeleteRequest(task_id=task.id, id="p"),
    }
    for operation, request in requests.items():
        await refused(wire, PushNotSupported, wire.ask(operation, request))
    if wire.name is not GEN:  # whose messages name no webhook
        wish = SendConfiguration(task_push_notification_config=PushConfig(url=HOOK))
        inline = saying("tck-complete-task", configuration=wish)
        await refused(wire, PushNotSupported, wire.ask(SEND, inline))
