"""Shared views: rows of tasks and chats, timelines, and the tasks that a caller may see.

Views are the JSON structures that pages receive. The OpenAPI document is made from them, and the front end takes its
types from that. Times are ISO 8601 in UTC. States have the names of A2A 0.3 (`input-required`). Lists and the live feed
span agents, so visibility is a condition of their queries. The guarded service checks single requests.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.a2a import Caller
from accord.api import APPROVAL, text_of
from accord.api.access import Roles
from accord.api.chats import Chat
from accord.api.queries import ListedTask, StatusChange, VisibleTasks
from accord.console.routing import view_of
from accord.errors import UnsupportedOperation
from accord.model import Message, TaskState
from accord.model.base import timestamp_ms
from accord.model.metadata_keys import SCHEMA
from accord.protocol import lifecycle
from accord.protocol.operations import Operation
from accord.protocol.states import LOWER
from accord.protocol.urls import is_loopback

StateName = Literal[
    "submitted",
    "working",
    "input-required",
    "completed",
    "canceled",
    "failed",
    "rejected",
    "auth-required",
    "unknown",
]

WaitingReason = Literal["input", "auth", "approval", "event", "execute"]
"""Why a task or a step waits for a person. `execute` is a held task."""

Action = Literal["cancel", "retry", "reply", "execute", "approve"]

Limit = Annotated[int, Meta(ge=1, le=200)]


class View(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all views. Members are in camelCase, and empty ones are included."""


class TaskQuestion(View, frozen=True, kw_only=True):
    """The question of a waiting task: the message `id`, and the JSON Schema of the answer if the agent states one."""

    id: str | None
    text: str
    schema: dict[str, Any] | None


class TaskRow(View, frozen=True, kw_only=True):
    """A task in a list. `seq` is its last sequence number: of two views the one with the higher number is newer.

    `question` is its question in the state of this row, so that no page shows a form for another question.
    """

    id: str
    context_id: str
    agent: str
    slug: str
    title: str
    status: StateName
    status_message: str | None
    created_at: str
    updated_at: str
    owner: str
    parent_id: str | None
    is_run: bool
    waiting: WaitingReason | None
    question: TaskQuestion | None
    seq: int


class Segment(View, frozen=True, kw_only=True):
    """A period of time. Without an end it is current."""

    begin: str
    end: str | None
    state: str
    label: str = ""


class Lane(View, frozen=True, kw_only=True):
    """A line of a timeline. `parent` is the lane above it, and `task_id` its task."""

    id: str
    label: str
    kind: Literal["task", "attempt", "wait", "child", "step", "delivery"]
    parent: str | None
    task_id: str | None
    segments: list[Segment]


class Timeline(View, frozen=True, kw_only=True):
    """A timeline, and the time on the server's clock."""

    lanes: list[Lane]
    now: str


class ChatRow(View, frozen=True, kw_only=True):
    """A chat in a list. With `is_active` an answer is pending."""

    id: str
    title: str
    agent: str
    context_id: str
    created_at: str
    updated_at: str
    is_active: bool


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

    def visible_tasks(self, caller: Caller, operation: Operation = Operation.LIST) -> VisibleTasks:
        """Return the tasks that a caller may list, or use with another operation."""
        if caller.roles is None:
            return VisibleTasks(owner=caller.owner, sees_all=caller.sees_all)
        default = self._roles.rights(caller.roles, NO_SLUG).get(operation)
        sees_all = default is not None and default.sees_all
        hidden, others = [], []
        for agent, slug in self._slugs.items():
            right = self._roles.rights(caller.roles, slug).get(operation)
            if right is None:
                hidden.append(agent)
            elif right.sees_all != sees_all:
                others.append(agent)
        return VisibleTasks(owner=caller.owner, sees_all=sees_all, others=tuple(others), hidden=tuple(hidden))

    def allows(self, caller: Caller, agent: str, operation: Operation, skill: str | None = None) -> bool:
        """Whether a caller may use an operation of an agent, at least on its own tasks, and a skill if given."""
        if caller.roles is None:
            return True
        right = self._roles.rights(caller.roles, self.slug(agent)).get(operation)
        return right is not None and (skill is None or right.has_skill(skill))

    def shows_agent(self, caller: Caller, agent: str) -> bool:
        """Whether a caller may send to an agent or list its tasks."""
        return any(self.allows(caller, agent, operation) for operation in (Operation.SEND, Operation.LIST))

    def is_operator(self, caller: Caller) -> bool:
        """Whether the caller operates the server: by a role, or from the machine of an open server."""
        if caller.roles is None:
            return caller.peer is not None and is_loopback(caller.peer)
        visible = self.visible_tasks(caller)
        return caller.is_of_server and visible.sees_all and not visible.others and not visible.hidden


STATES: dict[TaskState, StateName] = dict(LOWER)  # type: ignore[arg-type]  # they are the names of A2A 0.3
"""State -> its name in the console."""

STATUS_LENGTH = 500
"""Maximum characters of a status message in a row. The task has all of it."""

QUESTION_LENGTH = 8000
"""Maximum characters of a question in a row: the feed sends it to every page that lists the task."""


def task_row(task: ListedTask, visibility: TaskVisibility) -> TaskRow:
    """Return a task as a row."""
    at = timestamp_ms(task.updated_at)
    return view_of(
        TaskRow,
        task,
        slug=visibility.slug(task.agent),
        status=STATES[task.state],
        status_message=short_text(task.message),
        created_at=task.created_at or at,
        updated_at=at,
        waiting="execute" if task.is_held else waiting_reason_of(task.state, task.message),
        question=question_in(task.state, task.message),
    )


def updated_row(row: TaskRow, change: StatusChange) -> TaskRow:
    """Return a row updated with a later status."""
    state, message = change.status.state, change.status.message
    return replace(
        row,
        status=STATES[state],
        status_message=short_text(message),
        updated_at=timestamp_ms(change.at),
        is_run=row.is_run or change.is_run,
        waiting=waiting_reason_of(state, message),
        question=question_in(state, message),
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
        raise UnsupportedOperation("The task asks another question by now: read its status again")


def schema_of(message: Message | None) -> dict[str, Any] | None:
    """Return the JSON Schema of an answer, from the question or one of its parts."""
    if message is None:
        return None
    metadata = [message.metadata or {}, *(part.metadata or {} for part in message.parts)]
    return next((schema for members in metadata if isinstance(schema := members.get(SCHEMA), dict)), None)


def short_text(message: Message | None) -> str | None:
    """Return the text of a status message, shortened."""
    text = "" if message is None else text_of(message.parts)
    return text[:STATUS_LENGTH] or None


def chat_row(chat: Chat) -> ChatRow:
    """Return a chat as a row."""
    return view_of(ChatRow, chat, created_at=timestamp_ms(chat.created_at), updated_at=timestamp_ms(chat.updated_at))
