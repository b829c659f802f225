"""Whose tasks a caller sees, through the gate and on every store: its own, unless a role says all of its tenant's.

Every operation is tried, by the table: with a task of somebody else it answers as with one that does not exist.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from accord import Context, agent
from accord.a2a import METHODS, Caller, HostedAgent
from accord.auth.rate_limits import CallerUsage, Quotas, counting
from accord.engine.webhook_delivery import WebhookDelivery
from accord.errors import AccordError, PermissionDenied, RateLimited, TaskNotFound
from accord.model import (
    CancelRequest,
    GetRequest,
    PushConfig,
    PushDeleteRequest,
    PushFormat,
    PushGetRequest,
    PushListRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskState,
)
from accord.protocol.operations import ROWS, Operation
from accord.server.pipeline import pipeline
from accord.service.host import Host
from tests.engine.conftest import AT_ONCE, Hosting, saying

USER, OPERATOR = frozenset({"user"}), frozenset({"operator"})
ALICE = Caller(tenant="acme", owner="alice", roles=USER)
BOB = replace(ALICE, owner="bob")
THEIRS = replace(ALICE, tenant="globex")
WATCH = Caller(tenant="acme", owner="watch", roles=OPERATOR)

URL = "https://example.com/hook"
ABOUT_TASKS: dict[Operation, Any] = {
    Operation.SEND: lambda task_id: saying("x", task_id=task_id),
    Operation.STREAM: lambda task_id: saying("x", task_id=task_id),
    Operation.GET: lambda task_id: GetRequest(id=task_id),
    Operation.CANCEL: lambda task_id: CancelRequest(id=task_id),
    Operation.SUBSCRIBE: lambda task_id: SubscribeRequest(id=task_id),
    Operation.PUSH_SET: lambda task_id: PushConfig(task_id=task_id, url=URL, id="mine"),
    Operation.PUSH_GET: lambda task_id: PushGetRequest(task_id=task_id),
    Operation.PUSH_LIST: lambda task_id: PushListRequest(task_id=task_id),
    Operation.PUSH_DELETE: lambda task_id: PushDeleteRequest(task_id=task_id),
}
"""Every operation that names a task -> its request."""


class Nowhere:
    """A sender that delivers nothing to nobody."""

    def check(self, config: PushConfig) -> None: ...

    def form(self, dialect: str) -> PushFormat:
        return PushFormat.TASK

    async def send(self, delivery: WebhookDelivery) -> None: ...


@agent
async def patient(ctx: Context) -> AsyncIterator[str]:
    """Works until it is told to stop."""
    yield "started"
    await asyncio.Event().wait()


@pytest.fixture
async def host(hosting: Hosting) -> Host:
    return await hosting(patient, sender=Nowhere())


@pytest.fixture
def guarded(host: Host) -> HostedAgent:
    return pipeline(host.default, "patient")


@pytest.fixture
async def task(guarded: HostedAgent) -> Task:
    """A task of Alice's, with a webhook."""
    made = await guarded.send(saying("secret", configuration=AT_ONCE), ALICE)
    assert isinstance(made, Task)
    await guarded.push_set(PushConfig(task_id=made.id, url=URL, id="hers", token="s3cret"), ALICE)
    return made


async def begin(guarded: HostedAgent, operation: Operation, request: Any, caller: Caller) -> Any:
    """Do an operation; of a stream the first event."""
    if ROWS[operation].streams:
        return await anext(getattr(guarded, METHODS[operation])(request, caller, None))
    return await getattr(guarded, METHODS[operation])(request, caller)


async def refusal(guarded: HostedAgent, operation: Operation, task_id: str, caller: Caller) -> tuple[Any, ...]:
    """Everything that an error tells, with the task's id taken out of it."""
    with pytest.raises(AccordError) as refused:
        await begin(guarded, operation, ABOUT_TASKS[operation](task_id), caller)
    error = refused.value
    metadata = {key: value.replace(task_id, "ID") for key, value in error.metadata.items()}
    return type(error), error.message.replace(task_id, "ID"), metadata, error.violations, error.retry_after


def test_every_operation_is_tried() -> None:
    assert set(ABOUT_TASKS) == set(Operation) - {Operation.LIST, Operation.EXTENDED_CARD}


@pytest.mark.proves("4-25")
@pytest.mark.parametrize("stranger", [BOB, THEIRS], ids=["another-owner", "another-tenant"])
async def test_foreign_tasks_look_missing(guarded: HostedAgent, task: Task, stranger: Caller) -> None:
    for operation in ABOUT_TASKS:
        theirs = await refusal(guarded, operation, task.id, stranger)
        nobodys = await refusal(guarded, operation, "0190a0b0-0000-7000-8000-000000000000", stranger)
        assert theirs == nobodys, operation
        assert theirs[0] is TaskNotFound, operation
    page = await guarded.list(TaskFilter(context_id=task.context_id), stranger)
    assert (page.tasks, page.total_size) == ((), 0)
    untouched = await guarded.get(GetRequest(id=task.id), ALICE)
    assert untouched.status.state is not TaskState.CANCELED
    assert len(untouched.history) == 1
    assert [hook.id for hook in (await guarded.push_list(PushListRequest(task_id=task.id), ALICE)).configs] == ["hers"]


async def test_naming_a_tenant_grants_no_access(guarded: HostedAgent, task: Task) -> None:
    for operation, make in ABOUT_TASKS.items():
        with pytest.raises(PermissionDenied, match="This tenant is not yours"):
            await begin(guarded, operation, replace(make(task.id), tenant="acme"), THEIRS)


@pytest.mark.proves("4-25")
async def test_operators_see_and_cancel_tasks_of_their_tenant(guarded: HostedAgent, task: Task) -> None:
    assert (await guarded.get(GetRequest(id=task.id), WATCH)).history[0].parts[0].text == "secret"
    assert [one.id for one in (await guarded.list(TaskFilter(), WATCH)).tasks] == [task.id]
    following = guarded.subscribe(SubscribeRequest(id=task.id), WATCH)
    assert isinstance((await anext(following)).body, Task)
    await following.aclose()  # type: ignore[attr-defined]
    assert (await guarded.cancel(CancelRequest(id=task.id), WATCH)).status.state is TaskState.CANCELED
    assert (await guarded.get(GetRequest(id=task.id), ALICE)).status.state is TaskState.CANCELED


async def test_an_operator_sees_nothing_of_other_tenants(guarded: HostedAgent, task: Task) -> None:
    elsewhere = replace(WATCH, tenant="globex")
    for operation in (Operation.GET, Operation.SUBSCRIBE, Operation.CANCEL):
        assert (await refusal(guarded, operation, task.id, elsewhere))[0] is TaskNotFound
    assert (await guarded.list(TaskFilter(), elsewhere)).total_size == 0


async def test_administrators_cannot_use_foreign_webhooks(guarded: HostedAgent, task: Task) -> None:
    admin = replace(WATCH, roles=frozenset({"admin"}))
    own = (op for op in ABOUT_TASKS if op not in (Operation.GET, Operation.SUBSCRIBE, Operation.CANCEL))
    for operation in own:
        assert (await refusal(guarded, operation, task.id, admin))[0] is TaskNotFound, operation


async def test_open_tasks_are_counted_in_the_store(host: Host, task: Task) -> None:
    count = counting(host.node.store)
    guarded = pipeline(host.default, "patient", usage=CallerUsage(Quotas(open_tasks=3), count=count))
    made = [await guarded.send(saying("x", configuration=AT_ONCE), ALICE) for _ in range(2)]
    with pytest.raises(RateLimited, match="3 tasks have not ended yet"):
        await guarded.send(saying("x", configuration=AT_ONCE), ALICE)
    await guarded.send(saying("x", configuration=AT_ONCE), BOB)
    assert isinstance(made[0], Task)
    await guarded.cancel(CancelRequest(id=made[0].id), ALICE)
    fresh = pipeline(host.default, "patient", usage=CallerUsage(Quotas(open_tasks=3), count=count))
    await fresh.send(saying("x", configuration=AT_ONCE), ALICE)
