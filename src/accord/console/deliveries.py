"""`/api/deliveries`: webhooks, their delivery attempts and redelivery.

A caller who sees a task sees its webhooks, without secrets and the query of their addresses. A caller who may cancel a
task may redeliver its webhooks.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from accord.api import administration, queries
from accord.api.queries import MAX_ATTEMPTS, DeliveryListQuery, ExchangeSide, ListedDelivery, StoredAttempt
from accord.console.routing import ApiReply, ApiRequest, ApiRoute, PageToken, time_of
from accord.console.server_context import ServerContext
from accord.console.views import AttemptView, DeliveryPage, DeliveryRow, DeliveryView, Exchange, Limit, View
from accord.errors import TaskNotFound
from accord.protocol import codec
from accord.protocol.operations import Operation

MAX_AT_ONCE = 500
"""Maximum number of webhooks that one request redelivers."""

_BASE = "/api/deliveries"


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


class Tries(View, frozen=True, kw_only=True):
    """The number of webhooks that are redelivered."""

    count: int


_redelivery = msgspec.json.Decoder(Redelivery)
_detail = msgspec.json.Decoder(tuple[ExchangeSide, ExchangeSide])


class DeliveriesApi:
    """Webhooks and their deliveries."""

    def __init__(self, house: ServerContext) -> None:
        """Create the handlers for `house`."""
        self._house = house

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        one = f"{_BASE}/(?P<task>[^/]+)/(?P<push>.+)"
        return (
            ApiRoute("GET", _BASE, self.list, finds=DeliveryQuery, gives=DeliveryPage),
            ApiRoute("POST", f"{_BASE}/redeliver", self.again, noted="Redeliver", takes=Redelivery, gives=Tries),
            ApiRoute("GET", one, self.show, gives=DeliveryView),
        )

    async def list(self, asked: ApiRequest) -> ApiReply:
        """List webhooks, those of the newest tasks first."""
        search, caller, feed = asked.found(DeliveryQuery), asked.known, self._house.feed.seq
        wanted = DeliveryListQuery(
            state=search.state,
            task_id=search.task or None,
            url=search.url or None,
            before=PageToken.read(search.page, tuple[str, str]),
            limit=search.limit + 1,
        )
        seen = self._house.sight.seen(caller, Operation.GET)
        found = await queries.list_deliveries(self._house.store, caller.tenant, seen, wanted)
        shown = found[: search.limit]
        more = PageToken.write((shown[-1].task_id, shown[-1].id)) if len(found) > search.limit else None
        return ApiReply(body=DeliveryPage(items=[self._row(one) for one in shown], next=more, feed=feed))

    async def show(self, asked: ApiRequest) -> ApiReply:
        """Show a webhook and its latest delivery attempts."""
        caller, (task_id, id) = asked.known, (asked.parts["task"], asked.parts["push"])
        seen, wanted = self._house.sight.seen(caller, Operation.GET), DeliveryListQuery(task_id=task_id, id=id, limit=1)
        # Attempts are read first, so the state of the webhook includes their outcome.
        tried = await queries.list_delivery_attempts(self._house.store, caller.tenant, task_id, id)
        found = await queries.list_deliveries(self._house.store, caller.tenant, seen, wanted)
        if not found:
            raise TaskNotFound("There is no such webhook")
        row = msgspec.structs.asdict(self._row(found[0]))
        return ApiReply(body=DeliveryView(**row, history=[_attempt(one) for _, one in tried]))

    async def again(self, asked: ApiRequest) -> ApiReply:
        """Redeliver webhooks now, each from the first event that it has not received."""
        body, caller, store = codec.decode(asked.body, _redelivery), asked.known, self._house.store
        seen = self._house.sight.seen(caller, Operation.CANCEL)
        if body.all_dead:
            count = await administration.redeliver_visible(store, caller.tenant, seen, MAX_AT_ONCE)
            return ApiReply(body=Tries(count=count))
        count = 0
        for task_id, _, id in (one.partition("/") for one in body.ids):
            if await queries.list_deliveries(
                store,
                caller.tenant,
                seen,
                DeliveryListQuery(task_id=task_id, id=id, limit=1),
            ):
                count += await administration.redeliver(store, caller.tenant, task_id, id)
        return ApiReply(body=Tries(count=count))

    def _row(self, found: ListedDelivery) -> DeliveryRow:
        return DeliveryRow(
            id=f"{found.task_id}/{found.id}",
            task_id=found.task_id,
            push_id=found.id,
            url=found.address,
            agent=found.agent,
            state=found.state,  # type: ignore[arg-type]  # one of `deliveries.STATES`
            cursor=found.cursor,
            last_seq=found.last_seq,
            attempts=found.attempts,
            max_attempts=MAX_ATTEMPTS,
            next_at=time_of(found.due_at),
            last_at=time_of(found.last_at),
            last_status=found.last_status,
            last_error=found.last_error,
        )


def _attempt(tried: StoredAttempt) -> AttemptView:
    request, response = _detail.decode(tried.detail)
    return AttemptView(
        id=tried.id,
        seq=tried.seq,
        attempt=tried.attempt,
        at=time_of(tried.at) or "",
        duration_ms=tried.duration_ms,
        status=tried.status,
        error=tried.error,
        request=Exchange(headers=request.headers, body=request.body),
        response=Exchange(headers=response.headers, body=response.body),
    )
