"""Webhook deliveries, the audit log, settings and storage use of a server.

A caller who sees a task sees its webhooks, without secrets and the query of their addresses. A caller who may cancel a
task may redeliver its webhooks. A caller who sees all tasks of all agents reads the tenant's audit log. Such a caller
of the server's own tenant also reads the settings, without secrets. Every caller reads its own storage use.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from accord.a2a import Caller
from accord.api import administration, queries
from accord.api.queries import (
    IDLE_FACTOR,
    MAX_ATTEMPTS,
    AuditLogQuery,
    DeliveryListQuery,
    ExchangeSide,
    ListedDelivery,
    StoredAttempt,
    StoredTotal,
)
from accord.console.routing import ApiRequest, read_page, route, split_page, time_of, view_of
from accord.console.server_context import ServerContext, ServerSection
from accord.console.views import Limit, View
from accord.errors import PermissionDenied, TaskNotFound
from accord.protocol.operations import Operation

T = TypeVar("T")

MAX_AT_ONCE = 500
"""Maximum number of webhooks to redeliver in one request."""

MAX_OWNERS = 20
"""Maximum number of owners in a storage view, largest first."""

DELIVERIES = "/api/deliveries"

ShortText = Annotated[str, Meta(max_length=256)]


# --- webhooks ---------------------------------------------------------------------------------------------------------


class DeliveryRow(View, frozen=True, kw_only=True):
    """A webhook and the state of its deliveries. `id` is TASK/WEBHOOK."""

    id: str
    task_id: str
    push_id: str
    url: str
    agent: str
    state: Literal["delivered", "pending", "retrying", "dead"]
    cursor: int
    last_seq: int
    attempts: int
    max_attempts: int
    next_at: str | None
    last_at: str | None
    last_status: int | None
    last_error: str | None


class DeliveryPage(View, frozen=True, kw_only=True):
    """A page of webhooks."""

    items: list[DeliveryRow]
    next: str | None
    feed: int


class HttpMessage(View, frozen=True, kw_only=True):
    """Headers and body of a request or response, shortened and without secrets."""

    headers: dict[str, str]
    body: str


class AttemptView(View, frozen=True, kw_only=True):
    """One attempt to deliver one event."""

    id: int
    seq: int
    attempt: int
    at: str
    duration_ms: int
    status: int | None
    error: str | None
    request: HttpMessage
    response: HttpMessage


class DeliveryView(DeliveryRow, frozen=True, kw_only=True):
    """A webhook with all details, newest attempts first."""

    history: list[AttemptView]


class DeliveryQuery(Struct, frozen=True):
    """Filters of the list of webhooks."""

    state: Literal["delivered", "pending", "retrying", "dead"] | None = None
    task: str | None = None
    url: Annotated[str, Meta(max_length=200)] = ""
    page: str | None = None
    limit: Limit = 50


class Redelivery(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Webhooks to redeliver: the given ids, or all dead letters."""

    ids: Annotated[list[str], Meta(max_length=MAX_AT_ONCE)] = []
    all_dead: bool = False


class RedeliveryCount(View, frozen=True, kw_only=True):
    """The number of webhooks that are redelivered."""

    count: int


_detail = msgspec.json.Decoder(tuple[ExchangeSide, ExchangeSide])


class DeliveriesApi(ServerSection):
    """Webhooks and their deliveries."""

    @route("GET", DELIVERIES)
    async def page(self, request: ApiRequest, query: DeliveryQuery) -> DeliveryPage:
        """List webhooks, those of the newest tasks first."""
        caller, feed = request.caller, self._server.feed.seq
        wanted = DeliveryListQuery(
            state=query.state,
            task_id=query.task or None,
            url=query.url or None,
            before=read_page(query.page, tuple[str, str]),
            limit=query.limit + 1,
        )
        visible = self._server.visibility.visible_tasks(caller, Operation.GET)
        deliveries = await queries.list_deliveries(self._server.store, caller.tenant, visible, wanted)
        rows, more = split_page(deliveries, query.limit, lambda row: (row.task_id, row.id))
        return DeliveryPage(items=[_delivery_row(delivery) for delivery in rows], next=more, feed=feed)

    @route("POST", f"{DELIVERIES}/redeliver", audited="Redeliver")
    async def redeliver(self, request: ApiRequest, body: Redelivery) -> RedeliveryCount:
        """Redeliver webhooks now, each from the first event that it has not received."""
        caller, store = request.caller, self._server.store
        visible = self._server.visibility.visible_tasks(caller, Operation.CANCEL)
        if body.all_dead:
            count = await administration.redeliver_visible(store, caller.tenant, visible, MAX_AT_ONCE)
            return RedeliveryCount(count=count)
        count = 0
        for task_id, _, id in (key.partition("/") for key in body.ids):
            wanted = DeliveryListQuery(task_id=task_id, id=id, limit=1)
            if await queries.list_deliveries(store, caller.tenant, visible, wanted):
                count += await administration.redeliver(store, caller.tenant, task_id, id)
        return RedeliveryCount(count=count)

    @route("GET", f"{DELIVERIES}/(?P<task>[^/]+)/(?P<push>.+)")
    async def show(self, request: ApiRequest) -> DeliveryView:
        """Show a webhook and its latest delivery attempts."""
        caller, task_id, id = request.caller, request.parts["task"], request.parts["push"]
        visible = self._server.visibility.visible_tasks(caller, Operation.GET)
        wanted = DeliveryListQuery(task_id=task_id, id=id, limit=1)
        # Attempts are read first, so the state of the webhook includes their outcome.
        attempts = await queries.list_delivery_attempts(self._server.store, caller.tenant, task_id, id)
        deliveries = await queries.list_deliveries(self._server.store, caller.tenant, visible, wanted)
        if not deliveries:
            raise TaskNotFound("There is no such webhook")
        return view_of(
            DeliveryView, _delivery_row(deliveries[0]), history=[_attempt(attempt) for _, attempt in attempts]
        )


def _delivery_row(delivery: ListedDelivery) -> DeliveryRow:
    return view_of(
        DeliveryRow,
        delivery,
        id=f"{delivery.task_id}/{delivery.id}",
        push_id=delivery.id,
        url=delivery.address,
        max_attempts=MAX_ATTEMPTS,
        next_at=time_of(delivery.due_at),
        last_at=time_of(delivery.last_at),
    )


def _attempt(attempt: StoredAttempt) -> AttemptView:
    request, response = (view_of(HttpMessage, side) for side in _detail.decode(attempt.detail))
    return view_of(AttemptView, attempt, at=time_of(attempt.at), request=request, response=response)


# --- audit log, settings and storage use ------------------------------------------------------------------------------


class AuditRow(View, frozen=True, kw_only=True):
    """An audit entry: caller, operation and outcome."""

    id: int
    at: str
    owner: str
    scheme: str | None
    peer: str | None
    dialect: str | None
    agent: str
    operation: str
    task_id: str | None
    outcome: str


class AuditPage(View, frozen=True, kw_only=True):
    """A page of the audit log, newest first."""

    items: list[AuditRow]
    next: str | None


class StorageUse(View, frozen=True, kw_only=True):
    """Storage use of an account, and its limits. A null limit means unlimited."""

    tasks: int
    bytes: int
    max_tasks: int | None
    max_bytes: int | None


class OwnerStorage(View, frozen=True, kw_only=True):
    """Storage use of an owner in a tenant."""

    tenant: str
    owner: str
    tasks: int
    bytes: int


class UsageView(View, frozen=True, kw_only=True):
    """Storage use of the caller. Callers who see all tasks also get their tenant and its largest owners."""

    owner: StorageUse
    tenant: StorageUse | None
    owners: list[OwnerStorage] | None


class AuditQuery(Struct, frozen=True):
    """Filters of the audit log."""

    owner: ShortText | None = None
    operation: ShortText | None = None
    task: ShortText | None = None
    outcome: ShortText | None = None
    page: str | None = None
    limit: Limit = 50


class CachedSums:
    """Sums over tasks, read one at a time and cached, so that reloading a page costs the store little."""

    def __init__(self, server: ServerContext) -> None:
        """Read from the store of `server`."""
        self._server = server
        self._cached: dict[tuple[Any, ...], tuple[float, Any]] = {}
        self._lock = asyncio.Lock()

    async def read(self, query: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Return the result of a query, from the cache if it is fresh."""
        key = (query, *arguments)
        async with self._lock:
            begin = time.monotonic()
            until, value = self._cached.get(key, (begin, None))
            if begin < until:
                return cast(T, value)
            fresh = await query(self._server.store, *arguments)
            now = time.monotonic()
            self._cached = {key: entry for key, entry in self._cached.items() if entry[0] > now}
            self._cached[key] = (now + IDLE_FACTOR * (now - begin), fresh)
            return fresh


class RecordsApi(ServerSection):
    """The audit log, settings and storage use."""

    def __init__(self, server: ServerContext) -> None:
        """Create the handlers for `server`."""
        super().__init__(server)
        self._sums = CachedSums(server)

    @route("GET", "/api/audit")
    async def log(self, request: ApiRequest, query: AuditQuery) -> AuditPage:
        """List audit entries, newest first."""
        caller = self._supervisor(request)
        wanted = AuditLogQuery(
            owner=query.owner,
            operation=query.operation,
            task_id=query.task,
            outcome=query.outcome,
            before=read_page(query.page, tuple[int, int]),
            limit=query.limit + 1,
        )
        entries = await queries.find_audit(self._server.store, caller.tenant, wanted)
        rows, more = split_page(entries, query.limit, lambda entry: (entry.at, entry.id))
        return AuditPage(items=[view_of(AuditRow, entry, at=time_of(entry.at)) for entry in rows], next=more)

    @route("GET", "/api/settings")
    async def settings(self, request: ApiRequest) -> dict[str, Any]:
        """Show the settings in effect."""
        if not self._supervisor(request).is_of_server:
            raise PermissionDenied("Only operators of the whole server may read its settings")
        return self._server.settings()

    @route("GET", "/api/usage")
    async def usage(self, request: ApiRequest) -> UsageView:
        """Show storage use and quotas."""
        caller, quotas, sums = request.caller, self._server.quotas, self._sums
        own = await sums.read(queries.stored_total, *caller.account)
        owner = _storage_use(own, quotas.owner_tasks, quotas.owner_bytes)
        if not self._sees_all_tasks(caller):
            return UsageView(owner=owner, tenant=None, owners=None)
        total = await sums.read(queries.stored_total, caller.tenant, None)
        owners = await sums.read(queries.stored_by_owner, caller.tenant, MAX_OWNERS)
        tenant = _storage_use(total, quotas.tenant_tasks, quotas.tenant_bytes)
        return UsageView(owner=owner, tenant=tenant, owners=[view_of(OwnerStorage, row) for row in owners])

    def _supervisor(self, request: ApiRequest) -> Caller:
        """Return a caller who sees all tasks. Raises PermissionDenied for any other."""
        if not self._sees_all_tasks(request.caller):
            raise PermissionDenied("Only callers who see all tasks may read this")
        return request.caller

    def _sees_all_tasks(self, caller: Caller) -> bool:
        visible = self._server.visibility.visible_tasks(caller, Operation.LIST)
        return caller.roles is None or (visible.sees_all and not visible.others and not visible.hidden)


def _storage_use(stored: StoredTotal, max_tasks: int, max_bytes: int) -> StorageUse:
    return StorageUse(tasks=stored.tasks, bytes=stored.bytes, max_tasks=max_tasks or None, max_bytes=max_bytes or None)
