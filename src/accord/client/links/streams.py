"""An event stream over HTTP, without the HTTP: bytes in, numbered events out, and whether it reached its end.

It knows Server-Sent Events and when A2A ends a stream; how an event looks is the dialect's. It never reconnects: the
client above decides what a cut means.
"""

from collections.abc import Callable, Iterator

from accord.client.wire import Broken, EndedEarly, Unreachable
from accord.errors import InvalidAgentResponse
from accord.model import ArtifactUpdate, Event, EventBody, Message, StatusUpdate, Task, TaskState
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.sse import MAX_EVENT_BYTES, Decoder, Frame, FrameTooLarge

RESTING = ENDED | INTERRUPTED
"""States in which A2A ends a stream: nothing more comes until the caller speaks."""

SILENT = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
"""Names of events that some servers send only to keep the connection open."""

MAX_DIGITS = 18
"""Digits of an event's number; a longer one is no sequence."""

Read = Callable[[Frame], EventBody]


class Stream:
    """The events of one stream, from the bytes it is made of."""

    def __init__(self, read: Read, *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        """Read events with `read`; one may have `max_bytes`."""
        self.is_numbered = False
        self._read = read
        self._decoder = Decoder(max_bytes=max_bytes)
        self._state: TaskState | None = None
        self._is_answered = self._has_begun = False
        self._count = 0

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that some bytes complete; an error that the agent reports is raised in its place."""
        try:
            frames, failure = self._decoder.feed(piece), None
        except FrameTooLarge as error:
            frames, failure = error.frames, error
        for frame in frames:
            if frame.data and frame.event not in SILENT:
                yield self.numbered(self._read(frame), frame.id)
        if failure is not None:
            raise InvalidAgentResponse(f"An event has more than {failure.limit} bytes")

    def cut(self, error: Unreachable) -> None:
        """Raise what cut the stream off, unless nothing is missing: the task has ended."""
        if not self._has_reached(ENDED):
            raise error

    def finish(self) -> None:
        """Raise `Broken` if the stream must not end yet, `EndedEarly` before its first event."""
        if not self._has_reached(RESTING):
            raise (Broken if self._has_begun else EndedEarly)("The stream ended before the task did")

    def numbered(self, body: EventBody, number: str | None) -> Event:
        """Return an event under the agent's own number, or under a running one where it gives none."""
        self._has_begun = True
        if type(body) is not ArtifactUpdate:
            self._note(body)
        if number is not None and number.isdecimal() and number.isascii() and len(number) <= MAX_DIGITS:
            self.is_numbered = True
            return Event(seq=int(number), body=body)
        self._count += 1
        return Event(seq=self._count, body=body)

    def _note(self, body: EventBody) -> None:
        if isinstance(body, StatusUpdate | Task):
            self._state = body.status.state
        elif isinstance(body, Message):
            self._is_answered = True

    def _has_reached(self, states: frozenset[TaskState]) -> bool:
        return self._is_answered or self._state in states
