"""Rows of tasks and chats, and the callers who may see them.

Lists and the live feed span agents, so visibility is a condition of the query. Single requests are checked by the
guarded service.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from accord.a2a import Caller
from accord.api import APPROVAL, text_of
from accord.api.access import Roles
from accord.api.chats import Chat
from accord.api.queries import ListedTask, StatusChange, VisibleTasks
from accord.console.views import ChatRow, StateName, TaskQuestion, TaskRow, WaitingReason
from accord.errors import UnsupportedOperation
from accord.model import Message, TaskState
from accord.model.base import timestamp_ms
from accord.model.metadata_keys import SCHEMA
from accord.protocol import lifecycle
from accord.protocol.operations import Operation
from accord.protocol.states import LOWER
from accord.protocol.urls import is_loopback

NO_SLUG = ""
"""Slug of agents that are no longer served. Their tasks remain."""


class TaskVisibility:
    """Decides which tasks a caller may see."""

    def __init__(self, roles: Roles, slugs: Mapping[str, str]) -> None:
        """Use these roles. `slugs` maps agents to their names in paths and roles."""
        self._roles = roles
        self._slugs = slugs

    def slug(self, agent: str) -> str:
        """Return the name of an agent in paths, empty if it is not served."""
        return self._slugs.get(agent, NO_SLUG)

    def seen(self, caller: Caller, operation: Operation = Operation.LIST) -> VisibleTasks:
        """Return the tasks that a caller may list, or use with another operation."""
        if caller.roles is None:
            return VisibleTasks(owner=caller.owner, sees_all=caller.sees_all)
        rest = self._roles.rights(caller.roles, NO_SLUG).get(operation)
        sees_all = rest is not None and rest.sees_all
        hidden, others = [], []
        for agent, slug in self._slugs.items():
            right = self._roles.rights(caller.roles, slug).get(operation)
            if right is None:
                hidden.append(agent)
            elif right.sees_all != sees_all:
                others.append(agent)
        return VisibleTasks(owner=caller.owner, sees_all=sees_all, others=tuple(others), hidden=tuple(hidden))

    def may(self, caller: Caller, agent: str, operation: Operation) -> bool:
        """Whether a caller may use an operation of an agent, at least on its own tasks."""
        return caller.roles is None or operation in self._roles.rights(caller.roles, self.slug(agent))

    def operates(self, caller: Caller) -> bool:
        """Whether the caller operates the server: by a role, or from the machine of an open server."""
        if caller.roles is None:
            return caller.peer is not None and is_loopback(caller.peer)
        seen = self.seen(caller)
        return caller.is_of_server and seen.sees_all and not seen.others and not seen.hidden


STATES: dict[TaskState, StateName] = dict(LOWER)  # type: ignore[arg-type]  # they are the names of A2A 0.3
"""State -> its name in the console."""

STATUS_LENGTH = 500
"""Maximum characters of a status message in a row. The task has all of it."""

QUESTION_LENGTH = 8000
"""Maximum characters of a question in a row: the feed sends it to every page that lists the task."""


def task_row(found: ListedTask, sight: TaskVisibility) -> TaskRow:
    """Return a task as a row."""
    at = timestamp_ms(found.updated_at)
    return TaskRow(
        id=found.id,
        context_id=found.context_id,
        agent=found.agent,
        slug=sight.slug(found.agent),
        title=found.title,
        status=STATES[found.state],
        status_message=short_text(found.message),
        created_at=found.created_at or at,
        updated_at=at,
        owner=found.owner,
        parent_id=found.parent_id,
        is_run=found.is_run,
        waiting="execute" if found.is_held else waiting_reason_of(found.state, found.message),
        question=question_in(found.state, found.message),
        seq=found.seq,
    )


def updated_row(row: TaskRow, change: StatusChange) -> TaskRow:
    """Return a row updated with a later status."""
    status = change.status
    return replace(
        row,
        status=STATES[status.state],
        status_message=short_text(status.message),
        updated_at=timestamp_ms(change.at),
        is_run=row.is_run or change.is_run,
        waiting=waiting_reason_of(status.state, status.message),
        question=question_in(status.state, status.message),
        seq=change.seq,
    )


def waiting_reason_of(state: TaskState, message: Message | None) -> WaitingReason | None:
    """Return the reason why a task in this state waits for a person, or None."""
    if state is TaskState.AUTH_REQUIRED:
        return "auth"
    if state is not TaskState.INPUT_REQUIRED:
        return None
    return "approval" if message is not None and (message.metadata or {}).get(APPROVAL) is True else "input"


def question_in(state: TaskState, message: Message | None) -> TaskQuestion | None:
    """Return the question of a task in this state, or None."""
    if state not in lifecycle.INTERRUPTED:
        return None
    text = "" if message is None else text_of(message.parts)[:QUESTION_LENGTH]
    return TaskQuestion(id=None if message is None else message.message_id, text=text, schema=schema_of(message))


def check_question(question: str | None, message: Message | None) -> None:
    """Raise UnsupportedOperation if an answer is to an earlier question. Without `question` it answers any."""
    if question is not None and (message is None or message.message_id != question):
        raise UnsupportedOperation("The task does not ask this any more. Read what it asks now")


def schema_of(message: Message | None) -> dict[str, Any] | None:
    """Return the JSON Schema of an answer, from the question or one of its parts."""
    if message is None:
        return None
    stated = [message.metadata or {}, *(part.metadata or {} for part in message.parts)]
    return next((found for one in stated if isinstance(found := one.get(SCHEMA), dict)), None)


def short_text(message: Message | None) -> str | None:
    """Return the text of a status message, shortened."""
    text = "" if message is None else text_of(message.parts)
    return text[:STATUS_LENGTH] or None


def chat_row(chat: Chat) -> ChatRow:
    """Return a chat as a row."""
    return ChatRow(
        id=chat.id,
        title=chat.title,
        agent=chat.agent,
        context_id=chat.context_id,
        created_at=timestamp_ms(chat.created_at),
        updated_at=timestamp_ms(chat.updated_at),
        is_active=chat.is_active,
    )
