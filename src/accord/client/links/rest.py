"""An agent over HTTP+JSON, in A2A 1.0 or 0.3: every operation has an address and a verb of its own.

It knows addresses only, which are those of `operations.TABLE`; `http` sends, the dialect writes and reads.
"""

from functools import cached_property
from typing import ClassVar
from urllib.parse import quote, urlencode

from accord.client.links.http import JSON, Headers, HttpLink, lacking
from accord.client.wire import Outgoing, Reply
from accord.errors import AccordError, RemoteError, TaskNotCancelable, TaskNotFound
from accord.model import CancelRequest, CardRequest, EventBody, Request, Result, SendRequest, TaskFilter
from accord.protocol.dialects import REST_DIALECTS
from accord.protocol.operations import ROWS, DialectName, Operation, RestRoute
from accord.protocol.rest_query import path_of, to_query
from accord.protocol.sse import Frame

V03_PREFIX = "/v1"


class RestLink(HttpLink):
    """One agent over HTTP+JSON."""

    binding: ClassVar = "HTTP+JSON"
    codecs: ClassVar = REST_DIALECTS

    @cached_property
    def _base(self) -> str:
        """The address below which all others are; some cards of 0.3 already name the version that they begin with."""
        base = self.url.rstrip("/")
        return base.removesuffix(V03_PREFIX) + V03_PREFIX if self.dialect is DialectName.V03 else base

    @cached_property
    def _accepting(self) -> Headers:
        return (("Accept", ", ".join(REST_DIALECTS[self.dialect].media_types)), *self.headers)

    def outgoing(self, operation: Operation, request: Request, seconds: float | None) -> Outgoing:
        """Return the request of an operation: the address holds what its route names, body or query the rest."""
        route = self._route(operation)
        params = self.codec.encode_request(operation, request)
        url = self._base + self._tenant(request) + path_of(route, request)
        if route.verb == "POST":
            return Outgoing(method="POST", url=url, headers=(JSON, *self._accepting), body=params, seconds=seconds)
        query = urlencode(to_query(route, params))
        return Outgoing(
            method=route.verb, url=f"{url}?{query}" if query else url, headers=self._accepting, seconds=seconds
        )

    def _tenant(self, request: Request) -> str:
        """Return the prefix that names a tenant, which 1.0 has (11.3)."""
        tenant = request.tenant if self.dialect is DialectName.V1 else None
        return f"/{quote(tenant, safe='')}" if tenant else ""

    def _route(self, operation: Operation) -> RestRoute:
        row = ROWS[operation]
        routes = row.rest if self.dialect is DialectName.V1 else row.rest_v03
        if not routes:
            raise lacking(operation, self.dialect)
        return routes[0]

    def result(self, operation: Operation, body: bytes, request: Request) -> Result:
        """Read the body of an answer."""
        return self.codec.decode_result(operation, body, request)

    def whole_event(self, body: bytes) -> EventBody:
        """Read the body of an answer as the only event."""
        return self.codec.decode_event(Frame(data=body))

    def stated_error(self, reply: Reply, request: Request) -> AccordError | None:
        """Read the error in an answer; servers that do not say which one mean the task that was named."""
        found = REST_DIALECTS[self.dialect].decode_http_error(reply.body)
        if not isinstance(found, RemoteError):
            return found
        if reply.status == 404 and _names_task(request):
            return TaskNotFound(found.message, metadata=found.metadata)
        if reply.status == 409 and isinstance(request, CancelRequest):
            return TaskNotCancelable(found.message, metadata=found.metadata)
        return found


def _names_task(request: Request) -> bool:
    if isinstance(request, SendRequest):
        return request.message.task_id is not None
    return not isinstance(request, CardRequest | TaskFilter)
