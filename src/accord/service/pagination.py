"""Pages of task lists and their tokens.

A token holds a position, not a number of rows: later changes neither repeat nor hide a task.
"""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from accord.errors import InvalidParams
from accord.model import PushConfig, PushListRequest, PushPage, Task, TaskFilter, TaskPage
from accord.protocol import lifecycle
from accord.protocol.codec import invalid_field
from accord.storage.commands.task_lists import TaskListQuery
from accord.storage.commands.tasks import StoredTask

DEFAULT_PAGE_SIZE = 50
"""A2A 1.0, 3.1.4."""


def task_query(request: TaskFilter, *, owner: str | None, agent: str | None) -> TaskListQuery:
    """Return the store query of a list request."""
    before_at, before = _position(request.page_token) or (None, None)
    return TaskListQuery(
        owner=owner,
        agents=None if agent is None else (agent,),
        context_id=request.context_id or None,
        states=() if request.status is None else (request.status,),
        since=None if request.status_timestamp_after is None else _milliseconds(request.status_timestamp_after),
        before=before,
        before_at=before_at,
        limit=_size(request) + 1,
    )


def task_page(found: Sequence[StoredTask], tasks: Sequence[Task], total: int, request: TaskFilter) -> TaskPage:
    """Return a page of the found tasks. An extra task after the page means that there are more."""
    size = _size(request)
    limited = found[:size]
    token = _token(limited[-1]) if len(found) > size else ""
    return TaskPage(
        tasks=tuple(_limited(task, request) for task in tasks[:size]),
        next_page_token=token,
        page_size=size,
        total_size=total,
    )


def push_page(configs: Sequence[PushConfig], request: PushListRequest) -> PushPage:
    """Return a page of webhooks, which are ordered by id."""
    after = _read(request.page_token)
    rest = [config for config in configs if after is None or (config.id or "") > after]
    size = request.page_size or len(rest) or 1
    token = _write(rest[size - 1].id or "") if len(rest) > size else ""
    return PushPage(configs=tuple(rest[:size]), next_page_token=token)


def _size(request: TaskFilter) -> int:
    return request.page_size or DEFAULT_PAGE_SIZE


def _limited(task: Task, request: TaskFilter) -> Task:
    limited = lifecycle.limit_history(task, request.history_length)
    return limited if request.include_artifacts else replace(limited, artifacts=())


def _milliseconds(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


def _token(last: StoredTask) -> str:
    return _write(f"{last.updated_at}~{last.id}")


def _position(token: str | None) -> tuple[int, str] | None:
    text = _read(token)
    if text is None:
        return None
    at, separator, identifier = text.partition("~")
    if not separator or not at.isdecimal() or len(at) > 16:
        raise _refused()
    return int(at), identifier


def _write(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(token: str | None) -> str | None:
    if not token:
        return None
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise _refused() from None


def _refused() -> InvalidParams:
    return invalid_field("pageToken", "Not a token that this server gave out")
