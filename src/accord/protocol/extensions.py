"""The A2A extensions that Accord defines, by their URI.

Two are guarantees on a card (A2A 1.0, 4.6) that change nothing on the wire, so requests need not declare them. The
server's cards state them, the client relies on them. The route is metadata that our servers add to messages and read.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from accord.model.base import Metadata
from accord.model.message import Message, Role

IDEMPOTENT_SEND = "urn:accord:a2a:idempotent-send:1"
"""The same message, with the same id and content, from the same caller is the same task: it may be sent again."""

NUMBERED_EVENTS = "urn:accord:a2a:numbered-events:1"
"""The `id` of a server-sent event is its number in the task's own event log. A client that subscribes after a number
(`Last-Event-ID`) gets the task as of that number, under that number, and every later event once.
"""

ROUTE = "urn:accord:a2a:route:1"
"""Message metadata: `{"hops", "servers"}`, the servers that have forwarded the work of the message."""


class TaskRoute(Struct, frozen=True):
    """The servers that have forwarded a task, so that servers which call each other do not loop."""

    hops: int = 0
    """Number of servers that forwarded it."""

    servers: tuple[str, ...] = ()
    """Each as `server id/agent`, the first one first. A server of another make may have left some out."""

    def after(self, server: str) -> "TaskRoute":
        """Return the route after a server has forwarded the task."""
        return TaskRoute(max(self.hops, len(self.servers)) + 1, (*self.servers, server))

    def added_to(self, metadata: Metadata | None) -> Metadata:
        """Return a message's metadata with this route."""
        return {**(metadata or {}), ROUTE: msgspec.to_builtins(self)}


def route_of(history: Iterable[Message]) -> TaskRoute | None:
    """Return the longest route of a task's messages; an invalid route is ignored."""
    longest: TaskRoute | None = None
    for message in history:
        if message.role is not Role.USER or message.metadata is None or ROUTE not in message.metadata:
            continue
        try:
            route = msgspec.convert(message.metadata[ROUTE], TaskRoute, strict=False)  # protobuf has fractions only
        except msgspec.ValidationError:
            continue
        if longest is None or route.hops > longest.hops:
            longest = route
    return longest
