"""Views: the JSON structures that the console's pages receive.

The OpenAPI document is made from them, and the front end takes its types from that. Times are ISO 8601 in UTC; states
have the names of A2A 0.3 (`input-required`).
"""

from typing import Annotated, Any, Literal

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
"""What a task or a step waits for, of a person: `execute` is a task that was planned and not begun yet."""

Action = Literal["cancel", "retry", "reply", "execute", "approve"]

Limit = Annotated[int, Meta(ge=1, le=200)]


class View(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all: members are written in camelCase, also those that have nothing to say."""


# --- tasks ------------------------------------------------------------------------------------------------------------


class TaskQuestion(View, frozen=True, kw_only=True):
    """What a waiting task asks: the message `id`, and the JSON Schema of the answer where the agent states one."""

    id: str | None
    text: str
    schema: dict[str, Any] | None


class TaskRow(View, frozen=True, kw_only=True):
    """A task in a list. `seq` is the number of its last event: of two views of a task the one with more is newer.

    `question` is what it asks in the state of this row, so that no page shows a form for another question.
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
    """A page of tasks; `feed` is the number of the feed's last event that it certainly includes."""

    items: list[TaskRow]
    next: str | None
    total: int
    feed: int


class FailureView(View, frozen=True, kw_only=True):
    """The exception that failed a task, for the operators of the server."""

    exception: str
    traceback: str


class TaskView(TaskRow, frozen=True, kw_only=True):
    """All that is shown of a task: `result` is its final artifact or structured result, `task` its A2A 1.0 form.

    Files in it are replaced by addresses below `/api/tasks/ID/files/`. `waits_to_resume` is a task at work whose node
    is gone: it continues when another node takes it over. `failure` is the exception of a failed task; only operators
    of the server, and callers from the machine of an open server, get it.
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
    """An event of a task's log; `gap_ms` is the time since the one before."""

    seq: int
    kind: Literal["status", "artifact", "message", "task", "other"]
    at: str
    gap_ms: int | None
    body: dict[str, Any]


class LogPage(View, frozen=True, kw_only=True):
    """Events in their order; `first` is the first that the log still has, `last` the newest."""

    items: list[LogEvent]
    first: int
    last: int


class Segment(View, frozen=True, kw_only=True):
    """A stretch of time; one without an end goes on."""

    begin: str
    end: str | None
    state: str
    label: str = ""


class Lane(View, frozen=True, kw_only=True):
    """One line of a waterfall; `parent` is the lane below which it is shown, `task_id` what it is about."""

    id: str
    label: str
    kind: Literal["task", "attempt", "wait", "child", "step", "delivery"]
    parent: str | None
    task_id: str | None
    segments: list[Segment]


class Timeline(View, frozen=True, kw_only=True):
    """A waterfall, and the time on the server's clock."""

    lanes: list[Lane]
    now: str


# --- what waits for people --------------------------------------------------------------------------------------------


class Question(View, frozen=True, kw_only=True):
    """Something that waits for a person: a task, or a step of a run that somebody has to decide about.

    Each question has an `id` of its own, also the next one of the same task. `message` is the message that asks it.
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
    """Everything that waits, the oldest first."""

    items: list[Question]
    feed: int


# --- agents -----------------------------------------------------------------------------------------------------------


class Finding(View, frozen=True, kw_only=True):
    """Something about a card: `where` is the member."""

    severity: Literal["error", "warning", "info"]
    where: str
    text: str


class SkillView(View, frozen=True, kw_only=True):
    """What an agent can do; `schema` is the JSON Schema of what it takes, where that is known."""

    id: str
    name: str
    description: str
    tags: list[str]
    examples: list[str]
    schema: dict[str, Any] | None


class HealthView(View, frozen=True, kw_only=True):
    """Whether an agent is there."""

    state: Literal["up", "down", "unknown"]
    detail: str | None
    checked_at: str | None


class AgentRow(View, frozen=True, kw_only=True):
    """An agent in a list; `remote` is the address of one elsewhere, `rate` how many tasks it began in a minute."""

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
    """The agents that somebody may use."""

    items: list[AgentRow]
    feed: int


class AgentView(AgentRow, frozen=True, kw_only=True):
    """All that is shown of an agent: its card in each dialect that has one, and what is to be said about it."""

    url: str
    cards: dict[str, dict[str, Any]]
    findings: list[Finding]


class Template(View, frozen=True, kw_only=True):
    """A request to an agent, to be edited and sent: `path` is below the agent's own, `body` is JSON or none.

    `operation` is A2A's own name of what it asks for, `label` what the binding calls it.
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
    """Requests for every operation, dialect and binding; `task_id` is what stands in them for the id of a task."""

    items: list[Template]
    task_id: str


class Model(View, frozen=True, kw_only=True):
    """An agent as somebody picks it in a chat: it answers while one waits (`stream`), or takes on a `task`."""

    id: str
    name: str
    description: str
    mode: Literal["stream", "task"]
    is_default: bool
    examples: list[str]


# --- webhooks ---------------------------------------------------------------------------------------------------------


class DeliveryRow(View, frozen=True, kw_only=True):
    """A webhook and how its deliveries go; `id` is TASK/WEBHOOK."""

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


class Exchange(View, frozen=True, kw_only=True):
    """What was sent or answered, shortened, secrets left out."""

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
    request: Exchange
    response: Exchange


class DeliveryView(DeliveryRow, frozen=True, kw_only=True):
    """All that is shown of a webhook, the newest attempts first."""

    history: list[AttemptView]


# --- the server -------------------------------------------------------------------------------------------------------


class Way(View, frozen=True, kw_only=True):
    """A way to sign in; `url` is where a browser goes for it, others are posted."""

    kind: Literal["api-key", "password", "oidc"]
    label: str
    url: str | None


class SessionView(View, frozen=True, kw_only=True):
    """Who looks, and what there is to see; `is_open` is a server that asks nobody who they are."""

    signed_in: bool
    is_open: bool
    name: str
    tenant: str
    roams: bool
    roles: list[str]
    ways: list[Way]
    version: str
    url: str
    features: dict[str, bool]


class AuditRow(View, frozen=True, kw_only=True):
    """Who asked for what, and what came of it."""

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
    """What an account stores, and what it may store; a limit is null for any number."""

    tasks: int
    bytes: int
    max_tasks: int | None
    max_bytes: int | None


class OwnerStorage(View, frozen=True, kw_only=True):
    """What an owner stores in a tenant."""

    tenant: str
    owner: str
    tasks: int
    bytes: int


class UsageView(View, frozen=True, kw_only=True):
    """What the caller stores; for callers who see the tasks of everybody, also their tenant and its largest owners."""

    owner: StorageUse
    tenant: StorageUse | None
    owners: list[OwnerStorage] | None


# --- chats ------------------------------------------------------------------------------------------------------------


class ChatRow(View, frozen=True, kw_only=True):
    """A chat in a list; one that `is_active` is being answered."""

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
    """A chat and its messages, which are the AI SDK's UI messages; an answer that is still coming is not among them."""

    chat: ChatRow
    messages: list[dict[str, Any]]
    feed: int
