"""A2A 0.3 for callers that name things by members, as 1.0 does, and not by `kind`: fasta2a's own client is one.

It calls the methods of 0.3 with messages and parts that have no `kind`, and looks for answers under `task`, `message`,
`statusUpdate` and `artifactUpdate`. They are there, beside what 0.3 says: others may leave `kind` out by mistake.
"""

from msgspec.structs import replace

from accord.model import ArtifactUpdate, Event, EventBody, Message, Result, StatusUpdate, Task
from accord.protocol.dialects.v03.codec import V03
from accord.protocol.operations import Operation
from accord.protocol.sse import Frame

MEMBERS = {Task: b"task", Message: b"message", StatusUpdate: b"statusUpdate", ArtifactUpdate: b"artifactUpdate"}


class V03Members(V03):
    """A2A 0.3 whose answers to a send are found by their members as well."""

    def encode_result(self, operation: Operation, result: Result) -> bytes:
        """Write the answer of an operation."""
        data = super().encode_result(operation, result)
        return _twice(data, result) if operation is Operation.SEND and isinstance(result, Task | Message) else data

    def encode_event(self, event: Event) -> Frame | None:
        """Write one stream event."""
        frame = super().encode_event(event)
        return None if frame is None else replace(frame, data=_twice(frame.data, event.body))


def _twice(data: bytes, body: EventBody) -> bytes:
    """Return an object that is also a member of itself."""
    return b"%b,%b:%b}" % (data[:-1], b'"%b"' % MEMBERS[type(body)], data)
