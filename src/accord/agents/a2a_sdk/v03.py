"""Types of the A2A SDK before 1.0: pydantic models.

Their JSON is A2A 0.3, so it maps nothing by hand. It is imported when an agent is made.
"""

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from accord.api import Context
from accord.model import EventBody, Message, SendRequest, Task
from accord.protocol.dialects.v03 import V03
from accord.protocol.operations import Operation
from accord.protocol.sse import Frame

# This version and 1.x, which is used for type checks, have the same modules with other names in them.
_types: Any = import_module("a2a.types")
_server: Any = import_module("a2a.server.context")
_execution: Any = import_module("a2a.server.agent_execution")
_events: Any = import_module("a2a.server.events")
_users: Any = import_module("a2a.auth.user")
_errors: Any = import_module("a2a.utils.errors")

_DIALECT = V03()


class V03SdkTypes:
    """The types of the SDK 0.3."""

    def request(self, ctx: Context, context_id: str, message: Message | None, task: Task | None) -> Any:
        """Return the context of a call."""
        found = None if task is None else _types.Task.model_validate_json(_DIALECT.push_task(task))
        request = None
        if message is not None:
            sent = SendRequest(message=message, metadata=ctx.task.metadata)
            data = _DIALECT.encode_request(Operation.SEND, sent)
            request = _types.MessageSendParams.model_validate_json(data)
        asked = {*ctx.caller.extensions, *(message.extensions if message else ())}
        call = _server.ServerCallContext(
            user=_V03User(ctx.caller.owner), state={"tenant": ctx.tenant}, requested_extensions=asked
        )
        return _execution.RequestContext(
            request, task_id=ctx.task_id, context_id=context_id, task=found, call_context=call
        )

    def queue(self, put: Callable[[EventBody], Awaitable[None]]) -> Any:
        """Return a queue that passes its events to `put`."""
        return _V03EventQueue(put)

    def told(self, error: Exception) -> str | None:
        """Return the message of an A2A error, or None."""
        if isinstance(error, _errors.ServerError):
            return getattr(error.error, "message", None) or str(error)
        return str(error) if isinstance(error, _errors.A2AServerError) else None


class _V03EventQueue(_events.EventQueue):  # type: ignore[misc]  # see above: it is Any here
    """An event queue that passes each event to `put`."""

    def __init__(self, put: Callable[[EventBody], Awaitable[None]]) -> None:
        super().__init__()
        self._put = put

    async def enqueue_event(self, event: Any) -> None:
        data = event.model_dump_json(by_alias=True, exclude_none=True)
        await self._put(_DIALECT.decode_event(Frame(data=data.encode())))


class _V03User(_users.User):  # type: ignore[misc]  # see above: it is Any here
    """The caller as the SDK's user."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    @property
    def is_authenticated(self) -> bool:
        return bool(self._owner)

    @property
    def user_name(self) -> str:
        return self._owner
