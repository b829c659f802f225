"""Views: the JSON structures that the console's pages receive.

The OpenAPI document is made from them, and the front end takes its types from that. Times are ISO 8601 in UTC. States
have the names of A2A 0.3 (`input-required`).
"""

from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

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


V = TypeVar("V", bound=Struct)


def view_of(kind: type[V], source: Any, /, **fields: Any) -> V:
    """Return a view with these fields, and the members of `source` that have the names of the others."""
    return kind(**fields, **{name: getattr(source, name) for name in kind.__struct_fields__ if name not in fields})


# --- tasks ------------------------------------------------------------------------------------------------------------


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


class TaskPage(View, frozen=True, kw_only=True):
    """A page of tasks. `feed` is the number of the last feed event that it certainly includes."""

    items: list[TaskRow]
    next: str | None
    total: int
    feed: int


class FailureView(View, frozen=True, kw_only=True):
    """The exception that failed a task, for the operators of the server."""

    exception: str
    traceback: str


class TaskView(TaskRow, frozen=True, kw_only=True):
    """A task with all details. `result` is its final artifact or structured result, `task` its A2A 1.0 form.

    Files in it are replaced by URLs below `/api/tasks/ID/files/`. `waits_to_resume` is a working task whose node is
    gone: it continues when another node claims it. `failure` is the exception of a failed task, for operators of the
    server, and for callers from the machine of an open server.
    """

    waits_to_resume: bool
    failure: FailureView | None
    result: Any
    task: dict[str, Any]
    actions: list[Action]
    children: list[TaskRow]
    chat_id: str | None
    webhooks: int
    feed: int


class LogEvent(View, frozen=True, kw_only=True):
    """An event of a task's log. `gap_ms` is the time since the previous event."""

    seq: int
    kind: Literal["status", "artifact", "message", "task", "other"]
    at: str
    gap_ms: int | None
    body: dict[str, Any]


class LogPage(View, frozen=True, kw_only=True):
    """Events in order. `first` is the first sequence number that the log still has, `last` the newest."""

    items: list[LogEvent]
    first: int
    last: int


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


# --- inbox ------------------------------------------------------------------------------------------------------------


class Question(View, frozen=True, kw_only=True):
    """A question for a person: of a task, or about an approval of a run's step.

    Each question has a unique `id`, also the next one of the same task. `message` is the message that asks it.
    """

    id: str
    message: str | None
    kind: WaitingReason
    text: str
    since: str
    task: TaskRow
    run: str | None
    step: str | None
    schema: dict[str, Any] | None


class Inbox(View, frozen=True, kw_only=True):
    """All questions for a person, oldest first."""

    items: list[Question]
    feed: int


# --- agents -----------------------------------------------------------------------------------------------------------


class FindingView(View, frozen=True, kw_only=True):
    """A finding about a card. `where` is the member."""

    severity: Literal["error", "warning", "info"]
    where: str
    text: str


class SkillView(View, frozen=True, kw_only=True):
    """A skill of an agent. `schema` is the JSON Schema of its input, if known."""

    id: str
    name: str
    description: str
    tags: list[str]
    examples: list[str]
    schema: dict[str, Any] | None


class HealthView(View, frozen=True, kw_only=True):
    """The availability of an agent."""

    state: Literal["up", "down", "unknown"]
    detail: str | None
    checked_at: str | None


class AgentRow(View, frozen=True, kw_only=True):
    """An agent in a list. `remote` is the URL of a remote agent, and `rate` its number of new tasks per minute."""

    slug: str
    name: str
    description: str
    version: str
    kind: str
    is_default: bool
    remote: str | None
    health: HealthView
    bindings: list[str]
    dialects: list[str]
    skills: list[SkillView]
    rate: float
    open: int


class AgentList(View, frozen=True, kw_only=True):
    """The agents that the caller may use."""

    items: list[AgentRow]
    feed: int


class AgentView(AgentRow, frozen=True, kw_only=True):
    """An agent with all details: its card in each dialect, and the findings about it."""

    url: str
    cards: dict[str, dict[str, Any]]
    findings: list[FindingView]


class Template(View, frozen=True, kw_only=True):
    """A request to edit and send. `path` is below the agent's own, and `body` is JSON or null.

    `operation` is its name in A2A, and `label` its name in the binding.
    """

    operation: str
    label: str
    dialect: str
    binding: Literal["JSONRPC", "HTTP+JSON"]
    streams: bool
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any] | None


class TemplateList(View, frozen=True, kw_only=True):
    """Requests for each operation, dialect and binding. `task_id` is their placeholder for a task id."""

    items: list[Template]
    task_id: str


class Model(View, frozen=True, kw_only=True):
    """An agent that chats offer. Its mode is an immediate answer (`stream`) or a `task`."""

    id: str
    name: str
    description: str
    mode: Literal["stream", "task"]
    is_default: bool
    examples: list[str]


# --- webhooks ---------------------------------------------------------------------------------------------------------


class DeliveryRow(View, frozen=True, kw_only=True):
    """A webhook and the state of its deliveries. `id` is TASK/WEBHOOK."""

    id: str
    task_id: str
    push_id: str
    url: str
    agent: str
    state: Literal["delivered", "pending", "retrying", "dead"]
    cursor: int
    last_seq: int
    attempts: int
    max_attempts: int
    next_at: str | None
    last_at: str | None
    last_status: int | None
    last_error: str | None


class DeliveryPage(View, frozen=True, kw_only=True):
    """A page of webhooks."""

    items: list[DeliveryRow]
    next: str | None
    feed: int


class HttpMessage(View, frozen=True, kw_only=True):
    """Headers and body of a request or response, shortened and without secrets."""

    headers: dict[str, str]
    body: str


class AttemptView(View, frozen=True, kw_only=True):
    """One attempt to deliver one event."""

    id: int
    seq: int
    attempt: int
    at: str
    duration_ms: int
    status: int | None
    error: str | None
    request: HttpMessage
    response: HttpMessage


class DeliveryView(DeliveryRow, frozen=True, kw_only=True):
    """A webhook with all details, newest attempts first."""

    history: list[AttemptView]


# --- the server -------------------------------------------------------------------------------------------------------


class SignInOption(View, frozen=True, kw_only=True):
    """A sign-in method. `url` is a page for the browser. Methods without one post credentials."""

    kind: Literal["api-key", "password", "oidc"]
    label: str
    url: str | None


class SessionView(View, frozen=True, kw_only=True):
    """The current caller, sign-in methods and features. With `is_open`, callers need no credentials."""

    signed_in: bool
    is_open: bool
    name: str
    tenant: str
    roams: bool
    roles: list[str]
    ways: list[SignInOption]
    version: str
    url: str
    features: dict[str, bool]


class AuditRow(View, frozen=True, kw_only=True):
    """An audit entry: caller, operation and outcome."""

    id: int
    at: str
    owner: str
    scheme: str | None
    peer: str | None
    dialect: str | None
    agent: str
    operation: str
    task_id: str | None
    outcome: str


class AuditPage(View, frozen=True, kw_only=True):
    """A page of the audit log, newest first."""

    items: list[AuditRow]
    next: str | None


# --- storage ----------------------------------------------------------------------------------------------------------


class StorageUse(View, frozen=True, kw_only=True):
    """Storage use of an account, and its limits. A null limit means unlimited."""

    tasks: int
    bytes: int
    max_tasks: int | None
    max_bytes: int | None


class OwnerStorage(View, frozen=True, kw_only=True):
    """Storage use of an owner in a tenant."""

    tenant: str
    owner: str
    tasks: int
    bytes: int


class UsageView(View, frozen=True, kw_only=True):
    """Storage use of the caller. Callers who see all tasks also get their tenant and its largest owners."""

    owner: StorageUse
    tenant: StorageUse | None
    owners: list[OwnerStorage] | None


# --- chats ------------------------------------------------------------------------------------------------------------


class ChatRow(View, frozen=True, kw_only=True):
    """A chat in a list. With `is_active` an answer is pending."""

    id: str
    title: str
    agent: str
    context_id: str
    created_at: str
    updated_at: str
    is_active: bool


class ChatPage(View, frozen=True, kw_only=True):
    """A page of chats."""

    items: list[ChatRow]
    next: str | None
    feed: int


class ChatView(View, frozen=True, kw_only=True):
    """A chat and its messages, which are UI messages of the AI SDK. A pending answer is not included."""

    chat: ChatRow
    messages: list[dict[str, Any]]
    feed: int
