"""One agent over one binding in one dialect: an operation out, its result or its events back.

A link is one exchange each time: it repeats nothing, falls back to nothing and decides nothing. The client above does;
`exchange` below adds credentials, `protocol` has the shapes.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from accord.model import Event, Request, Result
from accord.protocol.operations import DialectName, Operation


class Link(Protocol):
    """A way to talk to one agent.

    What the agent refuses is raised as an `AccordError`, what never reached it or came back incomplete as
    `wire.Unreachable`, and an answer that cannot be understood as `InvalidAgentResponse`.
    """

    @property
    def dialect(self) -> DialectName:
        """The version of A2A that it speaks."""

    @property
    def binding(self) -> str:
        """What carries it, as cards name it: `JSONRPC`, `HTTP+JSON` or `GRPC`."""

    @property
    def resumable(self) -> bool:
        """Whether events carry numbers of the agent's own, which `follow(after=...)` may name.

        It is known from the first event on; before that, and where `Event.seq` is only a running count, it is False.
        """

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Ask once and return the answer; `seconds` replaces the link's own patience."""

    def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Ask for a stream and yield its events; `after` is the number of the last event that was seen.

        It ends when the agent ended it as it should, and raises `wire.Broken` when the stream was cut.
        """

    async def close(self) -> None:
        """Let go of what is this link's alone; a transport that it was given stays open."""
