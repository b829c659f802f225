"""Somebody else's tasks, over every binding and dialect of a real server: as if they were not there.

`tests/engine/test_guard_owners.py` proves it of the gate; here nothing between the gate and the socket may tell more.
"""

import base64
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from msgspec.structs import replace

from accord.auth.roles import BUILT_IN
from accord.model import (
    CancelRequest,
    CardRequest,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Role,
    SendConfiguration,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskState,
)
from accord.protocol.operations import Operation
from tests.abuse.server import BOUND_SECONDS, Server
from tests.abuse.ways import V1, WAYS, Caller, Way

HOOK = "https://hooks.invalid/alice"
TOKEN = "only-alice-knows-this"
WORDS = "only-alice-said-this"
MINE = Way("jsonrpc", V1)
"""How tests look at things when it does not matter how."""

each_way = pytest.mark.parametrize("way", WAYS, ids=str)
strangers = pytest.mark.parametrize(
    "stranger", ["bob", "other-alice", "other-watch", "other-admin", "reader", "roamer"]
)
"""Everybody who must not know of Alice's tasks: in her tenant, in another where her namesake is, in all of them."""


def saying(text: str, message_id: str | None = None, *, at_once: bool = True, **fields: Any) -> SendRequest:
    message = Message(message_id=message_id or str(uuid4()), role=Role.USER, parts=(Part(text=text),), **fields)
    return SendRequest(message=message, configuration=SendConfiguration(return_immediately=at_once))


ABOUT_TASKS: dict[Operation, Any] = {
    Operation.SEND: lambda id: saying("hello", "same", task_id=id),
    Operation.STREAM: lambda id: saying("hello", "same", task_id=id),
    Operation.GET: lambda id: GetRequest(id=id),
    Operation.CANCEL: lambda id: CancelRequest(id=id),
    Operation.SUBSCRIBE: lambda id: SubscribeRequest(id=id),
    Operation.PUSH_SET: lambda id: PushConfig(task_id=id, url=HOOK, id="hers"),
    Operation.PUSH_GET: lambda id: PushGetRequest(task_id=id, id="hers"),
    Operation.PUSH_LIST: lambda id: PushListRequest(task_id=id),
    Operation.PUSH_DELETE: lambda id: PushDeleteRequest(task_id=id, id="hers"),
}
"""Every operation that names a task -> its request; `hooks.invalid` is a name that nobody can have."""

OTHERS: dict[Operation, Any] = {
    Operation.LIST: lambda _: TaskFilter(),
    Operation.EXTENDED_CARD: lambda _: CardRequest(),
}


class Scene(NamedTuple):
    """What Alice has: one task that waits, with a webhook, and one that has ended, in one context."""

    server: Server
    alice: Caller
    open: Task
    ended: Task

    def caller(self, name: str) -> Caller:
        return Caller(self.server, self.server.keys[name])

    def check(self) -> None:
        """Raise if somebody has touched what Alice has."""
        found = self.alice.ask(MINE, Operation.GET, GetRequest(id=self.open.id)).result
        assert (found.status, len(found.history)) == (self.open.status, 1)
        hooks = self.alice.ask(MINE, Operation.PUSH_LIST, PushListRequest(task_id=self.open.id)).result.configs
        assert [(hook.id, hook.token) for hook in hooks] == [("hers", TOKEN)]


@pytest.fixture(scope="module")
def scene(guarded: Server) -> Iterator[Scene]:
    alice = Caller(guarded, guarded.keys["alice"])
    ended = alice.ask(MINE, Operation.SEND, saying(WORDS, "idempotent", at_once=False)).result
    waiting = alice.ask(MINE, Operation.SEND, saying(f"wait {WORDS}", context_id=ended.context_id)).result
    hook = PushConfig(task_id=waiting.id, url=HOOK, id="hers", token=TOKEN)
    assert alice.ask(MINE, Operation.PUSH_SET, hook).reason is None
    settled = _settled(alice, waiting.id)
    found = Scene(guarded, alice, settled, ended)
    yield found
    found.check()


def _settled(alice: Caller, task_id: str) -> Task:
    """A task that has begun to wait: its first event says what it is, the next that it works."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        task: Task = alice.ask(MINE, Operation.GET, GetRequest(id=task_id)).result
        if task.status.state is not TaskState.SUBMITTED:
            return task
    raise AssertionError("The task has not begun")


def test_every_operation_is_tried() -> None:
    assert set(ABOUT_TASKS) | set(OTHERS) == set(Operation)


def nobodys(id: str) -> str:
    """An id like another that belongs to no task."""
    return id[:-1] + ("0" if id[-1] != "0" else "1")


@pytest.mark.proves("4-25", "AUTH-SCOPE-001", "0-40")
@each_way
@strangers
def test_foreign_tasks_look_missing(scene: Scene, way: Way, stranger: str) -> None:
    caller = scene.caller(stranger)
    for task in (scene.open, scene.ended):
        for operation, request in ABOUT_TASKS.items():
            if not way.offers(operation):
                continue
            theirs = caller.ask(way, operation, request(task.id))
            absent = caller.ask(way, operation, request(nobodys(task.id)))
            expected = "TASK_NOT_FOUND" if _may(stranger, operation) else "PERMISSION_DENIED"
            assert (theirs.reason, absent.reason) == (expected, expected), operation
            assert theirs.said.replace(task.id.encode(), b"ID") == absent.said.replace(nobodys(task.id).encode(), b"ID")
            assert b"alice" not in theirs.said
    scene.check()


def _may(name: str, operation: Operation) -> bool:
    role = {"reader": "reader", "other-watch": "operator"}.get(name, "user")
    operations = next(one.operations for one in BUILT_IN if one.name == role)
    return operations is None or operation in operations


@pytest.mark.parametrize("way", [way for way in WAYS if way.offers(Operation.LIST)], ids=str)
@pytest.mark.parametrize("stranger", ["bob", "other-alice", "other-watch", "other-admin", "roamer"])
def test_lists_show_only_own_tasks(scene: Scene, way: Way, stranger: str) -> None:
    for request in (
        TaskFilter(),
        TaskFilter(context_id=scene.open.context_id),
        TaskFilter(status=TaskState.COMPLETED, include_artifacts=True),
        TaskFilter(page_token=_token(scene.ended)),
    ):
        told = scene.caller(stranger).ask(way, Operation.LIST, request)
        assert told.reason is None
        assert {scene.open.id, scene.ended.id}.isdisjoint(task.id for task in told.result.tasks)
        assert WORDS.encode() not in told.said
        if request.context_id is not None:
            assert (told.result.total_size, told.result.next_page_token) == (0, "")
    own = scene.alice.ask(way, Operation.LIST, TaskFilter(context_id=scene.open.context_id)).result
    assert {task.id for task in own.tasks} == {scene.open.id, scene.ended.id}


def _token(task: Task) -> str:
    """A page token as the server makes them, from what only an owner of the task could know."""
    return base64.urlsafe_b64encode(f"{2**52}~{task.id}".encode()).decode().rstrip("=")


def test_page_tokens_grant_no_access(scene: Scene) -> None:
    whole = TaskFilter(context_id=scene.open.context_id, page_size=1)
    first = scene.alice.ask(MINE, Operation.LIST, whole).result
    assert first.next_page_token
    rest = replace(whole, page_token=first.next_page_token)
    assert len(scene.alice.ask(MINE, Operation.LIST, rest).result.tasks) == 1
    for stranger in ("bob", "other-alice", "other-admin"):
        found = scene.caller(stranger).ask(MINE, Operation.LIST, rest).result
        assert (found.tasks, found.total_size, found.next_page_token) == ((), 0, "")


@each_way
def test_foreign_context_ids_grant_no_access(scene: Scene, way: Way) -> None:
    for stranger in ("bob", "other-alice"):
        caller = scene.caller(stranger)
        told = caller.ask(way, Operation.SEND, saying("hello", at_once=False, context_id=scene.open.context_id))
        assert told.reason is None
        assert WORDS.encode() not in told.said
        made = caller.ask(MINE, Operation.GET, GetRequest(id=told.result.id)).result
        assert (made.context_id, len(made.history)) == (scene.open.context_id, 1)
        seen = caller.ask(MINE, Operation.LIST, TaskFilter(context_id=scene.open.context_id)).result.tasks
        assert not {scene.open.id, scene.ended.id} & {task.id for task in seen}
        assert scene.alice.ask(MINE, Operation.GET, GetRequest(id=made.id)).reason == "TASK_NOT_FOUND"
    hers = scene.alice.ask(MINE, Operation.LIST, TaskFilter(context_id=scene.open.context_id)).result.tasks
    assert {task.id for task in hers} == {scene.open.id, scene.ended.id}


@each_way
def test_message_ids_are_scoped_to_the_owner(scene: Scene, way: Way) -> None:
    hers = saying(WORDS, "idempotent", at_once=False)
    assert scene.alice.ask(MINE, Operation.SEND, hers).result.id == scene.ended.id
    for operation in (Operation.SEND, Operation.STREAM):
        for stranger in ("bob", "other-alice"):
            told = scene.caller(stranger).ask(way, operation, hers)
            assert told.reason is None
            assert _task_of(told.result) != scene.ended.id
            assert scene.ended.id.encode() not in told.said


@each_way
def test_sequence_numbers_open_no_foreign_stream(scene: Scene, way: Way) -> None:
    hers = saying(WORDS, "idempotent", at_once=False)
    for stranger in ("bob", "other-alice", "other-watch", "other-admin"):
        caller = scene.caller(stranger)
        for task in (scene.open, scene.ended):
            for after in (0, 1, 10**17):
                theirs = caller.ask(way, Operation.SUBSCRIBE, SubscribeRequest(id=task.id), after=after)
                absent = caller.ask(way, Operation.SUBSCRIBE, SubscribeRequest(id=nobodys(task.id)), after=after)
                assert theirs.reason == "TASK_NOT_FOUND"
                assert theirs.said.replace(task.id.encode(), b"") == absent.said.replace(nobodys(task.id).encode(), b"")
        if _may(stranger, Operation.STREAM):
            assert _task_of(caller.ask(way, Operation.STREAM, hers, after=1).result) != scene.ended.id
    replayed = scene.alice.ask(way, Operation.SUBSCRIBE, SubscribeRequest(id=scene.ended.id), after=0)
    assert (replayed.reason, _task_of(replayed.result)) == (None, scene.ended.id)


def _task_of(body: Any) -> str:
    """The task that an answer or an event is about."""
    return str(body.id if isinstance(body, Task) else body.task_id)


@pytest.mark.parametrize("way", [way for way in WAYS if way.dialect is V1], ids=str)
@pytest.mark.parametrize("stranger", ["bob", "other-alice", "other-admin"])
def test_a_tenant_that_is_named_is_refused_whether_it_exists_or_not(scene: Scene, way: Way, stranger: str) -> None:
    caller, theirs = scene.caller(stranger), "globex" if stranger == "bob" else "acme"
    for operation, request in (ABOUT_TASKS | OTHERS).items():
        plain = request(scene.open.id)
        told = caller.ask(way, operation, replace(plain, tenant=theirs))
        absent = caller.ask(way, operation, replace(plain, tenant="q" * len(theirs)))
        assert (told.reason, absent.reason) == ("PERMISSION_DENIED", "PERMISSION_DENIED"), operation
        assert told.said == absent.said
        assert theirs.encode() not in told.said
    scene.check()


@pytest.mark.parametrize("way", [way for way in WAYS if way.dialect is V1], ids=str)
def test_roaming_callers_see_only_own_tasks(scene: Scene, way: Way) -> None:
    caller = scene.caller("roamer")
    for operation, request in ABOUT_TASKS.items():
        told = caller.ask(way, operation, replace(request(scene.open.id), tenant="acme"))
        assert told.reason == "TASK_NOT_FOUND", operation
    assert caller.ask(way, Operation.LIST, TaskFilter(tenant="acme")).result.tasks == ()
    scene.check()


@pytest.mark.proves("4-25", "BIND-EQUIV-003", "3-33")
@each_way
@pytest.mark.parametrize("name", ["admin", "watch", "user", "caller", "reader", "stray"])
def test_operations_without_a_role_are_refused_everywhere(scene: Scene, way: Way, name: str) -> None:
    role = {"watch": "operator"}.get(name, name)
    allowed = next((one.operations for one in BUILT_IN if one.name == role), frozenset())
    for operation, request in (ABOUT_TASKS | OTHERS).items():
        if way.offers(operation):
            told = scene.caller(name).ask(way, operation, request(str(uuid4())))
            is_denied = allowed is not None and operation not in allowed
            assert (told.reason == "PERMISSION_DENIED") is is_denied, (operation, told)


@pytest.mark.proves("AUTH-SERVER-002", "3-21", "BIND-EQUIV-004")
@each_way
@pytest.mark.parametrize("key", [None, "", "ak_", "ak_0123456789abcdef_" + "A" * 43, "Bearer x"])
def test_anonymous_callers_learn_nothing(scene: Scene, way: Way, key: str | None) -> None:
    caller = Caller(scene.server, key)
    for operation, request in (ABOUT_TASKS | OTHERS).items():
        if way.offers(operation):
            told = caller.ask(way, operation, request(scene.open.id))
            absent = caller.ask(way, operation, request(nobodys(scene.open.id)))
            assert told.reason == "UNAUTHENTICATED", operation
            assert told.said == absent.said
    scene.check()


@pytest.mark.parametrize("way", [way for way in WAYS if way.binding != "grpc"], ids=str)
def test_a_task_is_found_only_where_its_agent_is(scene: Scene, way: Way) -> None:
    next_door = Caller(scene.server, scene.server.keys["alice"], prefix="/agents/neighbour")
    for operation, request in ABOUT_TASKS.items():
        told = next_door.ask(way, operation, request(scene.open.id))
        assert told.reason == "TASK_NOT_FOUND", operation
    seen = next_door.ask(way, Operation.LIST, TaskFilter()).result
    assert {scene.open.id, scene.ended.id}.isdisjoint(task.id for task in seen.tasks)
    scene.check()
