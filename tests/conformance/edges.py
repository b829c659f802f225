"""Scenarios: what a server says about itself, whom it lets in, and what it refuses before anything is done."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from accord.errors import (
    AuthenticationFailed,
    ContentTypeNotSupported,
    ExtensionSupportRequired,
    InvalidParams,
    MethodNotFound,
    ParseError,
    PermissionDenied,
    RateLimited,
    TaskNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
from accord.model import (
    AgentCard,
    CancelRequest,
    CardRequest,
    GetRequest,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    SubscribeRequest,
    TaskFilter,
    TaskState,
)
from accord.protocol.operations import ROWS, Operation
from tests.conformance.scene import Scene, begun, opened, outcome, read, refused, rested, saying
from tests.conformance.wire import V1, VAULT, HttpWire, JsonRpcWire, Refusal, RestWire, Wire

S = TaskState
SEND, CARD = Operation.SEND, Operation.EXTENDED_CARD
EXTENSION = "https://example.com/extensions/needed"

ANYTHING: dict[Operation, Any] = {
    SEND: saying("hello"),
    Operation.STREAM: saying("hello"),
    Operation.GET: GetRequest(id="t"),
    Operation.LIST: TaskFilter(),
    Operation.CANCEL: CancelRequest(id="t"),
    Operation.SUBSCRIBE: SubscribeRequest(id="t"),
    Operation.PUSH_SET: PushConfig(task_id="t", id="p", url="https://example.com/hook"),
    Operation.PUSH_GET: PushGetRequest(task_id="t", id="p"),
    Operation.PUSH_LIST: PushListRequest(task_id="t"),
    Operation.PUSH_DELETE: PushDeleteRequest(task_id="t", id="p"),
    CARD: CardRequest(),
}
"""A request of every operation."""


async def asked(wire: Wire, operation: Operation, **more: Any) -> Any:
    """Ask for anything at all."""
    request = ANYTHING[operation]
    if ROWS[operation].streams:
        return await opened(wire, operation, request, **more)
    return await wire.ask(operation, request, **more)


# --- cards --------------------------------------------------------------------------------------------------------


async def has_a_card(scene: Scene) -> None:
    for path in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
        card = await _card(scene.stranger, path)
        assert (card.name, bool(card.skills)) == ("Conformance", True)
        assert scene.wire.name is VAULT or card.capabilities.streaming
        if scene.wire.name is V1:
            bindings = {(one.protocol_binding, one.protocol_version) for one in card.supported_interfaces}
            assert bindings == {(name, number) for name in ("JSONRPC", "HTTP+JSON") for number in ("1.0", "0.3")}
            assert "header" in card.security_schemes


async def _card(wire: Wire, path: str) -> AgentCard:
    """Read the card in the wire's dialect, twice: it has not changed."""
    assert isinstance(wire, HttpWire)
    wish = f"dialect={wire.name.value}"
    answer = await wire.get(path, wish)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert {"etag", "last-modified", "cache-control"} <= answer.headers.keys()
    unchanged = await wire.get(path, wish, {"If-None-Match": answer.headers["etag"]})
    assert (unchanged.status, unchanged.body) == (304, b"")
    return wire.dialect.decode_card(answer.body)


async def has_a_card_for_callers(scene: Scene) -> None:
    card = await scene.wire.ask(CARD, CardRequest())
    assert isinstance(card, AgentCard)
    assert [skill.id for skill in card.skills] == ["wait", "hurry"], "with what is not shown to everybody"
    refusal = await refused(scene.stranger, AuthenticationFailed, scene.stranger.ask(CARD, CardRequest()))
    assert "X-Key" in refusal.headers["www-authenticate"]


async def has_no_card_for_callers(scene: Scene) -> None:
    await refused(scene.wire, UnsupportedOperation, scene.wire.ask(CARD, CardRequest()))


# --- versions and extensions --------------------------------------------------------------------------------------


async def knows_its_versions(scene: Scene) -> None:
    versions = ["99.0"]
    if not isinstance(scene.wire, JsonRpcWire):  # where the address chooses a version, another one is refused as well
        versions.append("0.3" if scene.wire.name is V1 else "1.0")
    for version in versions:
        for operation in (SEND, Operation.STREAM):
            asking = asked(scene.wire, operation, headers={"A2A-Version": version})
            await refused(scene.wire, VersionNotSupported, asking)


async def ignores_patch_numbers(scene: Scene) -> None:
    version = "1.0.17" if scene.wire.name is V1 else "0.3.17"
    assert await scene.wire.ask(SEND, saying("tck-complete-task"), headers={"A2A-Version": version})


async def needs_an_extension(scene: Scene) -> None:
    wire = scene.wire
    for operation in (SEND, Operation.STREAM):
        await refused(wire, ExtensionSupportRequired, asked(wire, operation))
    header = "A2A-Extensions" if wire.name is V1 else "X-A2A-Extensions"
    declared = {header: f"https://example.com/other, {EXTENSION}"}
    assert await wire.ask(SEND, saying("tck-complete-task"), headers=declared)
    assert wire.answered[header.lower()] == EXTENSION
    await refused(wire, TaskNotFound, wire.ask(Operation.GET, GetRequest(id="t")))  # needs none: nothing is said


# --- who is let in ------------------------------------------------------------------------------------------------


async def knows_its_callers(scene: Scene) -> None:
    for operation in scene.operations:
        refusal = await refused(scene.stranger, AuthenticationFailed, asked(scene.stranger, operation))
        assert "X-Key" in refusal.headers["www-authenticate"]
        wrong = asked(scene.stranger, operation, headers={"X-Key": "a key of nobody at all"})
        await refused(scene.stranger, AuthenticationFailed, wrong)


async def knows_what_they_may_do(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-complete-task")
    assert (await read(scene.reader, task.id)).id == task.id
    for operation in (SEND, Operation.STREAM, Operation.CANCEL, Operation.PUSH_SET, Operation.PUSH_DELETE):
        await refused(scene.reader, PermissionDenied, asked(scene.reader, operation))


async def knows_when_it_is_enough(scene: Scene) -> None:
    task = await outcome(scene.wire, "tck-input-required")
    config = PushConfig(task_id=task.id, id="p-1", url="https://example.com/hook")
    await scene.wire.ask(Operation.PUSH_SET, config)
    one_more = PushConfig(task_id=task.id, id="p-2", url="https://example.com/hook")
    await refused(scene.wire, RateLimited, scene.wire.ask(Operation.PUSH_SET, one_more))
    await scene.wire.ask(Operation.PUSH_SET, config)


async def keeps_tenants_apart(scene: Scene) -> None:
    """A caller who may name its tenant finds a task only where it made it; one who may not is refused."""
    wire = scene.wire
    task = await wire.ask(SEND, replace(saying("tck-complete-task"), tenant="acme"))
    assert (await wire.ask(Operation.GET, GetRequest(id=task.id, tenant="acme"))).id == task.id
    for tenant in ("globex", None):
        await refused(wire, TaskNotFound, wire.ask(Operation.GET, GetRequest(id=task.id, tenant=tenant)))
        assert (await wire.ask(Operation.LIST, TaskFilter(tenant=tenant))).total_size == 0
    asking = scene.other.ask(Operation.GET, GetRequest(id=task.id, tenant="acme"))
    await refused(scene.other, PermissionDenied, asking)


# --- what is no request -------------------------------------------------------------------------------------------


async def refuses_empty_requests(scene: Scene) -> None:
    """Where something is needed, a request that says nothing is refused, and the answer names what is missing."""
    by_path = isinstance(scene.wire, RestWire)
    without = {Operation.LIST, CARD, *(Operation if by_path else ())} - {SEND, Operation.STREAM}
    for operation in (one for one in scene.operations if one not in without):
        refusal = await refused(scene.wire, InvalidParams, asked(scene.wire, operation, params=b"{}"))
        assert refusal.error.violations, operation


async def refuses_what_is_not_readable(scene: Scene) -> None:
    await refused(scene.wire, ParseError, scene.wire.garble())


async def refuses_what_is_not_there(scene: Scene) -> None:
    wire = scene.wire
    if isinstance(wire, JsonRpcWire):
        body = {"jsonrpc": "2.0", "id": wire.ID, "method": "tasks/dance", "params": {}}
        await refused(wire, MethodNotFound, wire.post(wire.path, json.dumps(body).encode()))
    else:
        assert isinstance(wire, RestWire)
        await refused(wire, MethodNotFound, wire.post(f"{wire.PREFIX[wire.name]}/message:dance", b"{}"))


async def refuses_bodies_that_web_pages_can_send(scene: Scene) -> None:
    """A browser asks before it sends JSON across sites, but not before it sends a text: that is never executed."""
    wire = scene.wire
    assert isinstance(wire, JsonRpcWire | RestWire)
    with pytest.raises(Refusal) as raised:
        await wire.ask(SEND, saying("hello"), headers={"Content-Type": "text/plain"})
    assert isinstance(raised.value.error, ContentTypeNotSupported)
    assert raised.value.status == (400 if isinstance(wire, RestWire) else 415)


# --- dialects -----------------------------------------------------------------------------------------------------


async def is_recognized(scene: Scene) -> None:
    """Who never says what it speaks is told apart by what it sends, and later by the task that it made."""
    wire = scene.unsaid
    sent = await wire.ask(SEND, saying("tck-input-required"))
    await rested(scene.v1, sent.id)
    assert (await read(wire, sent.id)).status.state is S.INPUT_REQUIRED
    cancelled = await wire.ask(Operation.CANCEL, CancelRequest(id=sent.id))
    assert cancelled.status.state is S.CANCELED


async def speaks_the_wished_dialect(scene: Scene) -> None:
    """A task made in one dialect is told in that of whoever asks."""
    task_id = await begun(scene.v1, "tck-cancel")
    assert (await read(scene.wire, task_id)).id == task_id
    cancelled = await scene.wire.ask(Operation.CANCEL, CancelRequest(id=task_id))
    assert cancelled.status.state is S.CANCELED
    assert (await read(scene.v1, task_id)).status.state is S.CANCELED
