"""The audit log, settings and storage use of a server.

A caller who sees all tasks of all agents reads the tenant's audit log. Such a caller of the server's own tenant also
reads the settings, without secrets. Every caller reads its own storage use.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar, cast

from msgspec import Meta, Struct

from accord.a2a import Caller
from accord.api import queries
from accord.api.queries import IDLE_FACTOR, AuditLogQuery, StoredAuditEntry, StoredTotal
from accord.console.routing import ApiReply, ApiRequest, ApiRoute, PageToken, time_of
from accord.console.server_context import ServerContext
from accord.console.views import AuditPage, AuditRow, Limit, OwnerStorage, StorageUse, UsageView
from accord.errors import PermissionDenied
from accord.protocol.operations import Operation

T = TypeVar("T")

MAX_OWNERS = 20
"""Maximum number of owners in a storage view, largest first."""

ShortText = Annotated[str, Meta(max_length=256)]


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

    def __init__(self, house: ServerContext) -> None:
        """Read from the store of `house`."""
        self._house = house
        self._known: dict[tuple[Any, ...], tuple[float, Any]] = {}
        self._lock = asyncio.Lock()

    async def read(self, query: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Return the result of a query, from the cache if it is fresh."""
        key = (query, *arguments)
        async with self._lock:
            begun = time.monotonic()
            until, found = self._known.get(key, (begun, None))
            if begun < until:
                return cast(T, found)
            fresh = await query(self._house.store, *arguments)
            now = time.monotonic()
            self._known = {one: kept for one, kept in self._known.items() if kept[0] > now}
            self._known[key] = (now + IDLE_FACTOR * (now - begun), fresh)
            return fresh


class RecordsApi:
    """The audit log, settings and storage use."""

    def __init__(self, house: ServerContext) -> None:
        """Create the handlers for `house`."""
        self._house = house
        self._sums = CachedSums(house)

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        return (
            ApiRoute("GET", "/api/audit", self.log, finds=AuditQuery, gives=AuditPage),
            ApiRoute("GET", "/api/settings", self.settings, gives=dict[str, Any]),
            ApiRoute("GET", "/api/usage", self.usage, gives=UsageView),
        )

    async def log(self, asked: ApiRequest) -> ApiReply:
        """List audit entries, newest first."""
        caller, search = self._trusted(asked), asked.found(AuditQuery)
        query = AuditLogQuery(
            owner=search.owner,
            operation=search.operation,
            task_id=search.task,
            outcome=search.outcome,
            before=PageToken.read(search.page, tuple[int, int]),
            limit=search.limit + 1,
        )
        found = await queries.find_audit(self._house.store, caller.tenant, query)
        shown = found[: search.limit]
        more = PageToken.write((shown[-1].at, shown[-1].id)) if len(found) > search.limit else None
        return ApiReply(body=AuditPage(items=[_audit_row(one) for one in shown], next=more))

    async def settings(self, asked: ApiRequest) -> ApiReply:
        """Show the settings in effect."""
        if not self._trusted(asked).is_of_server:
            raise PermissionDenied("This is for those who look after the whole server, not after one tenant of it")
        return ApiReply(body=self._house.settings())

    async def usage(self, asked: ApiRequest) -> ApiReply:
        """Show storage use and quotas."""
        caller, quotas, sums = asked.known, self._house.quotas, self._sums
        own = await sums.read(queries.stored_total, *caller.account)
        owner = _storage_use(own, quotas.owner_tasks, quotas.owner_bytes)
        if not self._sees_everybody(caller):
            return ApiReply(body=UsageView(owner=owner, tenant=None, owners=None))
        everybody = await sums.read(queries.stored_total, caller.tenant, None)
        owners = await sums.read(queries.stored_by_owner, caller.tenant, MAX_OWNERS)
        tenant = _storage_use(everybody, quotas.tenant_tasks, quotas.tenant_bytes)
        rows = [OwnerStorage(tenant=one.tenant, owner=one.owner, tasks=one.tasks, bytes=one.bytes) for one in owners]
        return ApiReply(body=UsageView(owner=owner, tenant=tenant, owners=rows))

    def _trusted(self, asked: ApiRequest) -> Caller:
        if not self._sees_everybody(asked.known):
            raise PermissionDenied("This is for those who see the tasks of everybody")
        return asked.known

    def _sees_everybody(self, caller: Caller) -> bool:
        seen = self._house.sight.seen(caller, Operation.LIST)
        return caller.roles is None or (seen.sees_all and not seen.others and not seen.hidden)


def _storage_use(stored: StoredTotal, max_tasks: int, max_bytes: int) -> StorageUse:
    return StorageUse(tasks=stored.tasks, bytes=stored.bytes, max_tasks=max_tasks or None, max_bytes=max_bytes or None)


def _audit_row(found: StoredAuditEntry) -> AuditRow:
    return AuditRow(
        id=found.id,
        at=time_of(found.at) or "",
        owner=found.owner,
        scheme=found.scheme,
        peer=found.peer,
        dialect=found.dialect,
        agent=found.agent,
        operation=found.operation,
        task_id=found.task_id,
        outcome=found.outcome,
    )
