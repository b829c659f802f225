"""What a conversation is called outside: where somebody else remembers by that name what was said.

Callers choose their `contextId`s, and those of one owner mean nothing to another. A flow, an executor or a runner that
keeps its memory by that name alone cannot tell them apart, so it is told another name for each. What we keep ourselves
is kept by tenant and owner as well; the kinds are above.
"""

from typing import TypeVar
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec.structs import replace

from accord.engine.context import Context
from accord.model import EventBody, StatusUpdate, Task, TaskStatus

T = TypeVar("T", bound=EventBody)


def outer_context(ctx: Context, *place: str) -> str:
    """Return what others call the conversation of a task, always the same for the same caller; `place` is who they are.

    Callers must not get into each other's by choosing the same name, so theirs is passed on only where nobody is asked
    who they are.
    """
    if not ctx.caller.owner and not ctx.tenant:
        return ctx.context_id
    whose = (ctx.tenant, ctx.caller.owner, *place, ctx.context_id)
    return str(uuid5(NAMESPACE_URL, msgspec.json.encode(whose).decode()))


def in_context(value: T, context_id: str) -> T:
    """Return a task, message or event with this name for its conversation, wherever it says one."""
    return replace(value, **_renamed(value, context_id))


def _renamed(value: EventBody, context_id: str) -> dict[str, object]:
    found: dict[str, object] = {} if value.context_id is None else {"context_id": context_id}
    if isinstance(value, Task | StatusUpdate):
        found["status"] = _status(value.status, context_id)
    if isinstance(value, Task):
        found["history"] = tuple(in_context(message, context_id) for message in value.history)
    return found


def _status(status: TaskStatus, context_id: str) -> TaskStatus:
    return status if status.message is None else replace(status, message=in_context(status.message, context_id))
