"""The audit log and the settings of a server, for those who look after it.

Whoever may see everybody's tasks of every agent may read what was asked for in the tenant. Settings are those of all
tenants: they are shown to such callers of the server itself, as they are in effect, without secrets; where a value
comes from is known to `accord config show` alone.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from accord.console.house import House
from accord.console.pages import Token
from accord.console.routing import Asked, Reply, Route, time_of
from accord.console.views import AuditPage, AuditRow, Limit
from accord.core.interface import Caller
from accord.errors import PermissionDenied
from accord.protocol.operations import Operation
from accord.storage.commands import audit
from accord.storage.commands.audit import Found, Query

Word = Annotated[str, Meta(max_length=256)]


class Search(Struct, frozen=True):
    """Which entries."""

    owner: Word | None = None
    operation: Word | None = None
    task: Word | None = None
    outcome: Word | None = None
    page: str | None = None
    limit: Limit = 50


class RecordsApi:
    """The handlers."""

    def __init__(self, house: House) -> None:
        """Answer about `house`."""
        self._house = house

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        return (
            Route("GET", "/api/audit", self.log, finds=Search, gives=AuditPage),
            Route("GET", "/api/settings", self.settings, gives=dict[str, Any]),
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

    def _trusted(self, asked: Asked) -> Caller:
        caller = asked.known
        seen = self._house.sight.seen(caller, Operation.LIST)
        is_open = caller.roles is None
        if not is_open and not (seen.sees_all and not seen.others and not seen.hidden):
            raise PermissionDenied("This is for those who see the tasks of everybody")
        return caller


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
