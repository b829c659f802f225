"""Types of the A2A SDK 1.x: protobuf messages.

Their JSON is A2A 1.0, so it maps nothing by hand. It is imported when an agent is made.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from a2a.auth.user import User
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError
from google.protobuf import json_format

from accord.api import Context
from accord.model import EventBody, Message, SendRequest, Task
from accord.protocol.dialects.v1 import V1
from accord.protocol.operations import Operation
from accord.protocol.sse import Frame

_DIALECT = V1()
_MEMBERS = {
    pb.Task: "task",
    pb.Message: "message",
    pb.TaskStatusUpdateEvent: "status_update",
    pb.TaskArtifactUpdateEvent: "artifact_update",
}


class V1SdkTypes:
    """The types of the SDK 1.x."""

    def request(self, ctx: Context, context_id: str, message: Message | None, task: Task | None) -> RequestContext:
        """Return the context of a call."""
        found = None if task is None else _parsed(_DIALECT.push_task(task), pb.StreamResponse()).task
        request = None
        if message is not None:
            sent = SendRequest(message=message, metadata=ctx.task.metadata)
            request = _parsed(_DIALECT.encode_request(Operation.SEND, sent), pb.SendMessageRequest())
        asked = {*ctx.caller.extensions, *(message.extensions if message else ())}
        call = ServerCallContext(user=_V1User(ctx.caller.owner), tenant=ctx.tenant, requested_extensions=asked)
        return RequestContext(call, request, task_id=ctx.task_id, context_id=context_id, task=found)

    def queue(self, put: Callable[[EventBody], Awaitable[None]]) -> EventQueue:
        """Return a queue that passes its events to `put`."""
        return _V1EventQueue(put)

    def told(self, error: Exception) -> str | None:
        """Return the message of an A2A error, or None."""
        return error.message if isinstance(error, A2AError) else None


class _V1EventQueue(EventQueue):
    """An event queue that passes each event to `put`."""

    def __init__(self, put: Callable[[EventBody], Awaitable[None]]) -> None:
        self._put = put

    async def enqueue_event(self, event: Any) -> None:
        member = _MEMBERS.get(type(event))
        if member is None:
            raise TypeError(f"An executor cannot report {type(event).__name__}")
        data = json_format.MessageToJson(pb.StreamResponse(**{member: event}), indent=None)
        await self._put(_DIALECT.decode_event(Frame(data=data.encode())))


class _V1User(User):
    """The caller as the SDK's user."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    @property
    def is_authenticated(self) -> bool:
        return bool(self._owner)

    @property
    def user_name(self) -> str:
        return self._owner


def _parsed(data: bytes, into: Any) -> Any:
    return json_format.Parse(data, into, ignore_unknown_fields=True)
