"""Tasks as the console shows them in a list: from what the store found to what a page is given.

It only translates; which tasks somebody gets to see is decided before. Lists, the feed and the inbox are made of these.
"""

from typing import Any

from msgspec.structs import replace

from accord.console.sight import Sight
from accord.console.views import ChatRow, State, TaskQuestion, TaskRow, Waiting
from accord.engine.context import APPROVAL
from accord.engine.messages import text_of
from accord.errors import UnsupportedOperation
from accord.model import Message, TaskState
from accord.model.base import timestamp_ms
from accord.model.metadata_keys import SCHEMA
from accord.protocol import lifecycle
from accord.protocol.states import LOWER
from accord.storage.commands.browsing import Changed, Found
from accord.storage.commands.chats import Chat

STATES: dict[TaskState, State] = dict(LOWER)  # type: ignore[arg-type]  # they are the names of A2A 0.3
"""State -> how the console calls it."""

SAID = 500
"""Characters of what a status says that a row shows: all of it is in the task."""

ASKED = 8000
"""Characters of a question in a row: the feed sends it to every page that lists the task."""


def row_of(found: Found, sight: Sight) -> TaskRow:
    """Return a task as a row."""
    at = timestamp_ms(found.updated_at)
    return TaskRow(
        id=found.id,
        context_id=found.context_id,
        agent=found.agent,
        slug=sight.slug(found.agent),
        title=found.title,
        status=STATES[found.state],
        status_message=words_of(found.message),
        created_at=found.created_at or at,
        updated_at=at,
        owner=found.owner,
        parent_id=found.parent_id,
        is_run=found.is_run,
        waiting="execute" if found.is_held else waiting(found.state, found.message),
        question=question_of(found.state, found.message),
        seq=found.seq,
    )


def moved(row: TaskRow, change: Changed) -> TaskRow:
    """Return a row after a later status."""
    status = change.status
    return replace(
        row,
        status=STATES[status.state],
        status_message=words_of(status.message),
        updated_at=timestamp_ms(change.at),
        is_run=row.is_run or change.is_run,
        waiting=waiting(status.state, status.message),
        question=question_of(status.state, status.message),
        seq=change.seq,
    )


def waiting(state: TaskState, message: Message | None) -> Waiting | None:
    """Return what of a person a task in this state waits for."""
    if state is TaskState.AUTH_REQUIRED:
        return "auth"
    if state is not TaskState.INPUT_REQUIRED:
        return None
    return "approval" if message is not None and (message.metadata or {}).get(APPROVAL) is True else "input"


def question_of(state: TaskState, message: Message | None) -> TaskQuestion | None:
    """Return what a task in this state asks, None for one that asks nothing."""
    if state not in lifecycle.INTERRUPTED:
        return None
    text = "" if message is None else text_of(message.parts)[:ASKED]
    return TaskQuestion(id=None if message is None else message.message_id, text=text, schema=schema_of(message))


def check_question(question: str | None, message: Message | None) -> None:
    """Refuse an answer whose question is not what the task asks now; one without `question` answers any."""
    if question is not None and (message is None or message.message_id != question):
        raise UnsupportedOperation("The task does not ask this any more. Read what it asks now")


def schema_of(message: Message | None) -> dict[str, Any] | None:
    """Return the JSON Schema of an answer, as the question or a part of it states it."""
    if message is None:
        return None
    stated = [message.metadata or {}, *(part.metadata or {} for part in message.parts)]
    return next((found for one in stated if isinstance(found := one.get(SCHEMA), dict)), None)


def words_of(message: Message | None) -> str | None:
    """Return what a status says, shortened."""
    text = "" if message is None else text_of(message.parts)
    return text[:SAID] or None


def chat_row_of(chat: Chat) -> ChatRow:
    """Return a chat as lists show it."""
    return ChatRow(
        id=chat.id,
        title=chat.title,
        agent=chat.agent,
        context_id=chat.context_id,
        created_at=timestamp_ms(chat.created_at),
        updated_at=timestamp_ms(chat.updated_at),
        is_active=chat.is_active,
    )
