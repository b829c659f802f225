"""The audit log, the settings and the storage use of a server.

Whoever may see everybody's tasks of every agent may read what was asked for in the tenant. Settings are those of all
tenants: they are shown to such callers of the server itself, as they are in effect, without secrets; where a value
comes from is known to `accord config show` alone. Callers read their own storage use.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar, cast

from msgspec import Meta, Struct

from accord.a2a import Caller
from accord.console.house import House
from accord.console.pages import Token
from accord.console.routing import Asked, Reply, Route, time_of
from accord.console.views import AuditPage, AuditRow, Limit, OwnerStorage, StorageUse, UsageView
from accord.errors import PermissionDenied
from accord.protocol.operations import Operation
from accord.service.storage_quotas import IDLE_FACTOR
from accord.storage.commands import audit, storage
from accord.storage.commands.audit import Found, Query
from accord.storage.commands.storage import Stored

T = TypeVar("T")

MAX_OWNERS = 20
"""Owners in a view of what is stored, those who store most."""

Word = Annotated[str, Meta(max_length=256)]


class Search(Struct, frozen=True):
    """Which entries."""

    owner: Word | None = None
    operation: Word | None = None
    task: Word | None = None
    outcome: Word | None = None
    page: str | None = None
    limit: Limit = 50


class Sums:
    """Sums over tasks, read one at a time and kept for a while: reloading a page costs the store little."""

    def __init__(self, house: House) -> None:
        """Read in the store of `house`."""
        self._house = house
        self._known: dict[tuple[Any, ...], tuple[float, Any]] = {}
        self._lock = asyncio.Lock()

    async def read(self, command: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Return what a command reads, or what it read a moment ago."""
        key = (command, *arguments)
        async with self._lock:
            begun = time.monotonic()
            until, found = self._known.get(key, (begun, None))
            if begun < until:
                return cast(T, found)
            fresh = await self._house.store.read(command, *arguments)
            now = time.monotonic()
            self._known = {one: kept for one, kept in self._known.items() if kept[0] > now}
            self._known[key] = (now + IDLE_FACTOR * (now - begun), fresh)
            return fresh


class RecordsApi:
    """The handlers."""

    def __init__(self, house: House) -> None:
        """Answer about `house`."""
        self._house = house
        self._sums = Sums(house)

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        return (
            Route("GET", "/api/audit", self.log, finds=Search, gives=AuditPage),
            Route("GET", "/api/settings", self.settings, gives=dict[str, Any]),
            Route("GET", "/api/usage", self.usage, gives=UsageView),
        )

    async def log(self, asked: Asked) -> Reply:
        """List who asked for what, the newest first."""
        caller, search = self._trusted(asked), asked.found(Search)
        query = Query(
            owner=search.owner,
            operation=search.operation,
            task_id=search.task,
            outcome=search.outcome,
            before=Token.read(search.page, tuple[int, int]),
            limit=search.limit + 1,
        )
        found = await self._house.store.read(audit.find, caller.tenant, query)
        shown = found[: search.limit]
        more = Token.write((shown[-1].at, shown[-1].id)) if len(found) > search.limit else None
        return Reply(body=AuditPage(items=[_row(one) for one in shown], next=more))

    async def settings(self, asked: Asked) -> Reply:
        """Show the settings that are in effect."""
        if not self._trusted(asked).is_of_server:
            raise PermissionDenied("This is for those who look after the whole server, not after one tenant of it")
        return Reply(body=self._house.settings())

    async def usage(self, asked: Asked) -> Reply:
        """Show what is stored, and the quotas."""
        caller, quotas, sums = asked.known, self._house.quotas, self._sums
        own = await sums.read(storage.stored, *caller.account)
        owner = _use(own, quotas.owner_tasks, quotas.owner_bytes)
        if not self._sees_everybody(caller):
            return Reply(body=UsageView(owner=owner, tenant=None, owners=None))
        everybody = await sums.read(storage.stored, caller.tenant, None)
        owners = await sums.read(storage.by_owner, caller.tenant, MAX_OWNERS)
        tenant = _use(everybody, quotas.tenant_tasks, quotas.tenant_bytes)
        rows = [OwnerStorage(tenant=one.tenant, owner=one.owner, tasks=one.tasks, bytes=one.bytes) for one in owners]
        return Reply(body=UsageView(owner=owner, tenant=tenant, owners=rows))

    def _trusted(self, asked: Asked) -> Caller:
        if not self._sees_everybody(asked.known):
            raise PermissionDenied("This is for those who see the tasks of everybody")
        return asked.known

    def _sees_everybody(self, caller: Caller) -> bool:
        seen = self._house.sight.seen(caller, Operation.LIST)
        return caller.roles is None or (seen.sees_all and not seen.others and not seen.hidden)


def _use(stored: Stored, max_tasks: int, max_bytes: int) -> StorageUse:
    return StorageUse(tasks=stored.tasks, bytes=stored.bytes, max_tasks=max_tasks or None, max_bytes=max_bytes or None)


def _row(found: Found) -> AuditRow:
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
