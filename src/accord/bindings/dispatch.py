"""The operations of an agent by name, for bindings: each is one row away from the method that does it.

Bindings know framing and dialects meaning; neither lists the operations a second time.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from accord.core.interface import A2A, Caller
from accord.model import Event
from accord.protocol.operations import Operation

LONG = frozenset({Operation.SEND})
"""What may take as long as an agent works, so that it matters whether its caller is still there."""

Answering = Callable[[Any, Caller], Awaitable[Any]]
Streaming = Callable[[Any, Caller, int | None], AsyncIterator[Event]]


def answering(agent: A2A) -> dict[Operation, Answering]:
    """Return the operations that answer once."""
    return {
        Operation.SEND: agent.send,
        Operation.GET: agent.get,
        Operation.LIST: agent.list,
        Operation.CANCEL: agent.cancel,
        Operation.PUSH_SET: agent.push_set,
        Operation.PUSH_GET: agent.push_get,
        Operation.PUSH_LIST: agent.push_list,
        Operation.PUSH_DELETE: agent.push_delete,
        Operation.EXTENDED_CARD: agent.extended_card,
    }


def streaming(agent: A2A) -> dict[Operation, Streaming]:
    """Return the operations that answer with a stream; the last argument is the event after which it goes on."""
    return {Operation.STREAM: agent.stream, Operation.SUBSCRIBE: agent.subscribe}
