"""The gate before the service: roles, tenants, skills, extensions, limits; and that nothing gets around it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from accord.a2a import METHODS, Caller, HostedAgent
from accord.auth.rate_limits import CallerUsage, Quotas
from accord.auth.roles import CallerRole, Roles
from accord.errors import (
    ExtensionSupportRequired,
    PermissionDenied,
    RateLimited,
    RequestTooLarge,
    TaskNotFound,
    TaskTimeout,
)
from accord.model import (
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    SendConfiguration,
    SubscribeRequest,
    Task,
    TaskFilter,
)
from accord.protocol.operations import ROWS, SENDS, Operation
from accord.server.pipeline import pipeline
from tests.cases import each
from tests.engine.conftest import saying
from tests.http.scripted import EVENTS, RESULTS, SAID, TASK, Scripted

ALICE = Caller(tenant="acme", owner="alice", roles=frozenset())
ANYONE = Caller(roams=True)

REQUESTS: dict[Operation, Any] = {
    Operation.SEND: saying("x"),
    Operation.STREAM: saying("x"),
    Operation.GET: GetRequest(id="t-1"),
    Operation.LIST: TaskFilter(),
    Operation.CANCEL: CancelRequest(id="t-1"),
    Operation.SUBSCRIBE: SubscribeRequest(id="t-1"),
    Operation.PUSH_SET: PushConfig(task_id="t-1", url="https://example.com"),
    Operation.PUSH_GET: PushGetRequest(task_id="t-1"),
    Operation.PUSH_LIST: PushListRequest(task_id="t-1"),
    Operation.PUSH_DELETE: PushDeleteRequest(task_id="t-1"),
    Operation.EXTENDED_CARD: CardRequest(),
}
every_operation = each("operation", Operation)


async def ask(guarded: HostedAgent, operation: Operation, request: Any, caller: Caller) -> Any:
    """Do one operation as a binding would; of a stream everything."""
    if ROWS[operation].streams:
        return [event async for event in getattr(guarded, METHODS[operation])(request, caller, None)]
    return await getattr(guarded, METHODS[operation])(request, caller)


def as_role(name: str) -> Caller:
    return replace(ALICE, roles=frozenset({name}))


# --- what passes ----------------------------------------------------------------------------------------------------


@every_operation
async def test_allowed_requests_pass_unchanged(operation: Operation) -> None:
    inner = Scripted()
    answer = await ask(pipeline(inner, "echo"), operation, REQUESTS[operation], ANYONE)
    assert answer == (list(EVENTS) if ROWS[operation].streams else RESULTS[operation])
    assert (inner.calls[-1].operation, inner.calls[-1].request) == (operation, REQUESTS[operation])
    assert inner.calls[-1].caller == ANYONE


async def test_streams_pass_the_cursor_and_close_with_their_reader() -> None:
    inner = Scripted()
    events = pipeline(inner, "echo").subscribe(SubscribeRequest(id="t-1"), ANYONE, after=0)
    assert (await anext(events)).seq == 1
    await events.aclose()  # type: ignore[attr-defined]
    assert (inner.only.after, inner.closed) == (0, 1)


async def test_stream_errors_reach_the_reader() -> None:
    guarded = pipeline(Scripted(broken=TaskNotFound("gone")), "echo")
    seen: list[int] = []

    async def read() -> None:
        async for event in guarded.stream(saying("x"), ANYONE):
            seen.append(event.seq)

    with pytest.raises(TaskNotFound, match="gone"):
        await read()
    assert seen == [0, 1, 2]


# --- tenants --------------------------------------------------------------------------------------------------------


@every_operation
async def test_foreign_tenants_are_refused_first(operation: Operation) -> None:
    inner = Scripted()
    request = replace(REQUESTS[operation], tenant="globex")
    with pytest.raises(PermissionDenied, match="This tenant is not yours"):
        await ask(pipeline(inner, "echo"), operation, request, ALICE)
    assert inner.calls == []


@every_operation
async def test_roaming_callers_enter_the_named_tenant(operation: Operation) -> None:
    inner = Scripted()
    await ask(pipeline(inner, "echo"), operation, replace(REQUESTS[operation], tenant="globex"), ANYONE)
    assert {call.caller.tenant for call in inner.calls} == {"globex"}


async def test_own_and_empty_tenant_names_pass_and_long_ones_fail() -> None:
    inner = Scripted()
    guarded = pipeline(inner, "echo")
    for tenant in ("acme", "", None):
        await guarded.get(GetRequest(id="t", tenant=tenant), ALICE)
    assert {call.caller.tenant for call in inner.calls} == {"acme"}
    with pytest.raises(RequestTooLarge, match="tenant"):
        await guarded.get(GetRequest(id="t", tenant="x" * 1000), ANYONE)


# --- roles ----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("4-25", "3-33")
@every_operation
@pytest.mark.parametrize("role", ["admin", "operator", "user", "caller", "reader", "unknown"])
async def test_an_operation_is_done_exactly_if_a_role_allows_it(operation: Operation, role: str) -> None:
    inner = Scripted()
    guarded = pipeline(inner, "echo")
    right = Roles().rights(frozenset({role}), "echo").get(operation)
    if right is not None:
        await ask(guarded, operation, REQUESTS[operation], as_role(role))
        assert inner.calls[-1].caller.sees_all is right.sees_all
    else:
        with pytest.raises(PermissionDenied, match=operation.value):
            await ask(guarded, operation, REQUESTS[operation], as_role(role))
        assert inner.calls == []


@pytest.mark.proves("4-25")
async def test_a_role_may_be_for_some_agents_only() -> None:
    roles = Roles([CallerRole(name="billing", agents=("billing-*",))])
    for agent, is_allowed in (("billing-eu", True), ("payroll", False)):
        guarded = pipeline(Scripted(), agent, roles=roles)
        if is_allowed:
            await guarded.get(GetRequest(id="t"), as_role("billing"))
        else:
            with pytest.raises(PermissionDenied):
                await guarded.get(GetRequest(id="t"), as_role("billing"))


@pytest.mark.proves("4-25")
@pytest.mark.parametrize("operation", [Operation.SEND, Operation.STREAM])
@pytest.mark.parametrize("task_id", [None, "t-1"])
async def test_inline_webhooks_need_the_push_permission(operation: Operation, task_id: str | None) -> None:
    inner = Scripted()
    configuration = SendConfiguration(task_push_notification_config=PushConfig(url="https://example.com"))
    request = replace(saying("x", task_id=task_id), configuration=configuration)
    await ask(pipeline(inner, "echo"), operation, request, as_role("user"))
    done = len(inner.calls)
    with pytest.raises(PermissionDenied, match=Operation.PUSH_SET.value):
        await ask(pipeline(inner, "echo"), operation, request, as_role("caller"))
    assert len(inner.calls) == done
    await ask(
        pipeline(inner, "echo"), operation, replace(request, configuration=SendConfiguration()), as_role("caller")
    )


@pytest.mark.proves("4-25")
@pytest.mark.parametrize("operation", [Operation.SEND, Operation.STREAM])
async def test_a_role_with_some_skills_must_name_one_of_them(operation: Operation) -> None:
    guarded = pipeline(Scripted(), "echo", roles=Roles([CallerRole(name="clerk", skills=("read", "search.*"))]))
    clerk = as_role("clerk")
    for skill in ("read", "search.web"):
        await ask(guarded, operation, saying("x", metadata={"skill": skill}), clerk)
    for metadata, reason in (
        (None, "name one as `skill`"),
        ({"skill": None}, "name one as `skill`"),
        ({"skill": 5}, "do not include this skill"),
        ({"skill": ["delete"], "skillId": "read"}, "do not include this skill"),
        ({"skill": "delete"}, "do not include this skill"),
        ({"skill": "read", "skillId": "delete"}, "do not include this skill"),
    ):
        with pytest.raises(PermissionDenied, match=reason):
            await ask(guarded, operation, saying("x", metadata=metadata), clerk)
    await guarded.get(GetRequest(id="t"), clerk)


async def test_unrestricted_roles_may_name_any_skill() -> None:
    guarded = pipeline(Scripted(), "echo")
    await guarded.send(saying("x", metadata={"skill": "anything"}), ALICE)
    await guarded.send(saying("x"), ALICE)


# --- extensions -----------------------------------------------------------------------------------------------------

NEEDED = frozenset({"urn:a", "urn:b"})


@pytest.mark.proves("CORE-CAP-004")
@every_operation
async def test_required_extensions_must_be_declared(operation: Operation) -> None:
    guarded = pipeline(Scripted(), "echo", required=NEEDED)
    if operation in SENDS:
        with pytest.raises(ExtensionSupportRequired, match=r"not declared: urn:a, urn:b$"):
            await ask(guarded, operation, REQUESTS[operation], ANYONE)
        with pytest.raises(ExtensionSupportRequired, match=r"not declared: urn:b$"):
            await ask(guarded, operation, REQUESTS[operation], replace(ANYONE, extensions=frozenset({"urn:a"})))
    else:
        await ask(guarded, operation, REQUESTS[operation], ANYONE)
    await ask(guarded, operation, REQUESTS[operation], replace(ANYONE, extensions=NEEDED | {"urn:more"}))


async def test_messages_can_declare_extensions() -> None:
    guarded = pipeline(Scripted(), "echo", required=NEEDED)
    await guarded.send(saying("x", extensions=("urn:b",)), replace(ANYONE, extensions=frozenset({"urn:a"})))


# --- how much -------------------------------------------------------------------------------------------------------


@pytest.mark.proves("4-31")
@every_operation
async def test_every_operation_counts_for_the_rate_and_refusals_do_too(operation: Operation) -> None:
    inner = Scripted()
    guarded = pipeline(inner, "echo", usage=CallerUsage(Quotas(rate=1.0, burst=2), clock=lambda: 0.0))
    with pytest.raises(PermissionDenied):
        await ask(guarded, operation, REQUESTS[operation], as_role("unknown"))
    await ask(guarded, operation, REQUESTS[operation], ALICE)
    done = len(inner.calls)
    with pytest.raises(RateLimited):
        await ask(guarded, operation, REQUESTS[operation], ALICE)
    assert len(inner.calls) == done


async def test_limits_are_shared_by_all_agents() -> None:
    usage = CallerUsage(Quotas(rate=1.0, burst=1), clock=lambda: 0.0)
    await pipeline(Scripted(), "one", usage=usage).get(GetRequest(id="t"), ALICE)
    with pytest.raises(RateLimited):
        await pipeline(Scripted(), "two", usage=usage).get(GetRequest(id="t"), ALICE)


@pytest.mark.parametrize("operation", [operation for operation in Operation if ROWS[operation].streams])
async def test_streams_are_counted_while_they_are_open(operation: Operation) -> None:
    usage = CallerUsage(Quotas(streams=1))
    guarded = pipeline(Scripted(), "echo", usage=usage)
    follow = getattr(guarded, METHODS[operation])
    first = follow(REQUESTS[operation], ANYONE, None)
    await anext(first)
    for caller in (ANYONE, replace(ANYONE, roams=True)):
        with pytest.raises(RateLimited, match="1 streams are open"):
            await anext(follow(replace(REQUESTS[operation], tenant="elsewhere"), caller, None))
    await anext(follow(REQUESTS[operation], ALICE, None))
    await first.aclose()
    again = follow(REQUESTS[operation], ANYONE, None)
    await anext(again)
    await again.aclose()


async def test_a_stream_that_is_refused_or_ends_gives_its_place_back() -> None:
    usage = CallerUsage(Quotas(streams=1))
    refusing, serving = (
        pipeline(Scripted(TaskNotFound()), "a", usage=usage),
        pipeline(Scripted(), "b", usage=usage),
    )
    for _ in range(3):
        with pytest.raises(TaskNotFound):
            await ask(refusing, Operation.SUBSCRIBE, SubscribeRequest(id="t"), ANYONE)
        assert len(await ask(serving, Operation.STREAM, saying("x"), ANYONE)) == 3


async def test_closed_streams_free_their_slot() -> None:
    class Endless(Scripted):
        def __init__(self) -> None:
            super().__init__()
            self.subscribe = self._wait

        async def _wait(self, request: Any, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
            yield EVENTS[0]
            begun.set()
            await asyncio.Event().wait()

    usage, begun = CallerUsage(Quotas(streams=1)), asyncio.Event()
    guarded = pipeline(Endless(), "a", usage=usage)
    reading = asyncio.create_task(ask(guarded, Operation.SUBSCRIBE, SubscribeRequest(id="t"), ANYONE))
    await begun.wait()
    assert usage._streams
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert not usage._streams


async def test_open_task_limits_apply_to_new_tasks_only() -> None:
    async def ten(tenant: str | None, owner: str, limit: int) -> int:
        assert (tenant, owner) == ("acme", "alice")
        return 10

    guarded = pipeline(Scripted(), "echo", usage=CallerUsage(Quotas(open_tasks=10), count=ten))
    for operation in SENDS:
        with pytest.raises(RateLimited, match="10 tasks have not ended"):
            await ask(guarded, operation, saying("x"), ALICE)
        await ask(guarded, operation, saying("x", task_id="t-1"), ALICE)


HOOKED = SendConfiguration(task_push_notification_config=PushConfig(url="https://example.com", id="new"))


async def test_a_task_has_so_many_webhooks_and_no_more() -> None:
    hooks = tuple(PushConfig(url="https://example.com", id=f"w-{number}", task_id="t-1") for number in range(3))
    inner = Scripted(results={Operation.PUSH_LIST: PushPage(configs=hooks)})
    guarded = pipeline(inner, "echo", usage=CallerUsage(Quotas(webhooks=3)))
    await guarded.push_set(hooks[0], ALICE)
    with pytest.raises(RateLimited, match="3 webhooks already"):
        await guarded.push_set(replace(hooks[0], id="w-9"), ALICE)
    with pytest.raises(RateLimited):
        await guarded.push_set(replace(hooks[0], id=None), ALICE)
    with pytest.raises(RateLimited):
        await guarded.send(saying("x", task_id="t-1", configuration=HOOKED), ALICE)
    await guarded.send(saying("x", configuration=HOOKED), ALICE)
    assert [call.operation for call in inner.calls].count(Operation.PUSH_SET) == 1


@pytest.mark.parametrize("operation", [Operation.SEND, Operation.STREAM, Operation.CANCEL, Operation.PUSH_SET])
async def test_oversized_requests_are_refused_first(operation: Operation) -> None:
    inner = Scripted()
    guarded = pipeline(inner, "echo", usage=CallerUsage(Quotas(metadata=10, webhook_field=3)))
    request = REQUESTS[operation]
    too_large = request if operation is Operation.PUSH_SET else replace(request, metadata={"a": "b" * 20})
    with pytest.raises(RequestTooLarge):
        await ask(guarded, operation, too_large, ANYONE)
    assert inner.calls == []


# --- how much is shown ----------------------------------------------------------------------------------------------

LONG = replace(TASK, history=tuple(replace(SAID, message_id=f"m-{number}") for number in range(5)))


async def test_a_key_has_a_bound() -> None:
    keyed = Caller(owner="alice", idempotency_key="k" * 9)
    guarded = pipeline(Scripted(), "echo", usage=CallerUsage(Quotas(identifier=8)))
    with pytest.raises(RequestTooLarge, match="Idempotency-Key"):
        await guarded.send(saying("x", "m"), keyed)


async def test_the_latest_messages_are_shown_and_no_more_than_so_many() -> None:
    page = replace(RESULTS[Operation.LIST], tasks=(LONG, TASK))
    results = {Operation.SEND: LONG, Operation.GET: LONG, Operation.CANCEL: LONG, Operation.LIST: page}
    guarded = pipeline(Scripted(results=results), "echo", usage=CallerUsage(Quotas(history=2)))
    for operation in (Operation.SEND, Operation.GET, Operation.CANCEL):
        task = await ask(guarded, operation, REQUESTS[operation], ANYONE)
        assert [said.message_id for said in task.history] == ["m-3", "m-4"]
    shown = await guarded.list(TaskFilter(), ANYONE)
    assert [len(task.history) for task in shown.tasks] == [2, 1]


async def test_the_first_event_of_a_stream_shows_no_more_either() -> None:
    class Begins(Scripted):
        async def _one(self, request: Any, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
            yield Event(seq=4, body=LONG)

    inner = Begins()
    inner.subscribe = inner._one
    guarded = pipeline(inner, "echo", usage=CallerUsage(Quotas(history=2)))
    (event,) = await ask(guarded, Operation.SUBSCRIBE, SubscribeRequest(id="t"), ANYONE)
    assert isinstance(event.body, Task)
    assert (event.seq, len(event.body.history)) == (4, 2)


async def test_pages_with_artifacts_are_smaller() -> None:
    inner = Scripted()
    guarded = pipeline(inner, "echo", usage=CallerUsage(Quotas(page_with_artifacts=20)))
    for asked, given in ((None, 20), (100, 20), (20, 20), (7, 7)):
        await guarded.list(TaskFilter(include_artifacts=True, page_size=asked), ANYONE)
        assert inner.calls[-1].request.page_size == given
    for asked in (None, 100):
        await guarded.list(TaskFilter(page_size=asked), ANYONE)
        assert inner.calls[-1].request.page_size == asked


@every_operation
async def test_an_error_of_the_service_passes_unchanged(operation: Operation) -> None:
    error = TaskTimeout("what it says")
    with pytest.raises(TaskTimeout) as raised:
        await ask(pipeline(Scripted(error), "echo"), operation, REQUESTS[operation], ANYONE)
    assert raised.value is error
