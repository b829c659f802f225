"""`/api/tasks`: lists of tasks, one task with its event log, and actions.

Actions go through the service of the task's agent, like any A2A request.
"""

from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from accord.a2a import Caller
from accord.api import chats, queries, text_of
from accord.api.access import SKILL_KEYS
from accord.api.queries import ListedTask, ListedTaskPage, TaskHead, TaskListQuery
from accord.console import task_details
from accord.console.routing import ApiReply, ApiRequest, ApiSection, route, view_of
from accord.console.server_context import ServerContext
from accord.console.task_details import TaskAccess
from accord.console.views import STATES, Action, Limit, StateName, TaskRow, Timeline, View, check_question, task_row
from accord.errors import InvalidParams, PermissionDenied, TaskNotFound, UnsupportedOperation
from accord.http.files import download
from accord.model import (
    Artifact,
    ArtifactUpdate,
    CancelRequest,
    Event,
    Message,
    MessageUpdate,
    Part,
    Role,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    Task,
    TaskState,
)
from accord.model.base import timestamp_ms
from accord.model.metadata_keys import CREATED_AT, HOLD, USAGE
from accord.protocol import lifecycle
from accord.protocol.codec import invalid_field
from accord.protocol.operations import Operation
from accord.workflows.channel import QuestionOrigin

TASKS = "/api/tasks"
ORIGIN = "v1"
"""Origin of tasks that are created here: the model and webhooks of A2A 1.0."""

AT_ONCE = SendConfiguration(return_immediately=True)

CHILDREN = 200

TASK = f"{TASKS}/(?P<task>[^/]{{1,128}})"
_STATE_OF = {name: state for state, name in STATES.items()}


class TaskRowPage(View, frozen=True, kw_only=True):
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


class TaskQuery(Struct, frozen=True, kw_only=True, rename="camel"):
    """Filters of the list of tasks. `q` is searched in titles and ids, and `top=1` omits child tasks."""

    state: list[StateName] = []
    agent: list[str] = []
    context_id: str | None = None
    q: Annotated[str, Meta(max_length=200)] = ""
    since: str | None = None
    parent: str | None = None
    top: bool = False
    page: Annotated[str, Meta(max_length=512)] | None = None
    limit: Limit = 50


class LogQuery(Struct, frozen=True, kw_only=True):
    """Range of a task's event log."""

    after: Annotated[int, Meta(ge=0)] = 0
    limit: Limit = 100


class FileQuery(Struct, frozen=True, kw_only=True):
    """Options of a file download. With `inline`, harmless types are shown in the browser."""

    inline: bool = False


class MessageContent(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Content of a message: a text, data, or the parts of an A2A 1.0 message."""

    text: str | None = None
    data: Any | UnsetType = UNSET
    parts: tuple[Part, ...] = ()

    def all_parts(self) -> tuple[Part, ...]:
        """Return all parts. Raises InvalidParams for an empty message."""
        parts = [] if self.text is None else [Part(text=self.text)]
        if self.data is not UNSET:
            parts.append(Part(data=self.data, media_type="application/json"))
        if not parts and not self.parts:
            raise InvalidParams("The message is empty: it needs `text`, `data` or `parts`")
        return (*parts, *self.parts)


class NewTask(MessageContent, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A task to create, held until it is executed if `hold` is set. `agent` is the name in its path.

    `skill` selects a skill of the agent: some roles allow only some skills.
    """

    agent: str
    skill: str | None = None
    context_id: str | None = None
    hold: bool = False


class TaskReply(MessageContent, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An answer.

    `question` is the id of the answered message: it is refused if the task asks another question by now.
    """

    question: str | None = None


class Cancellation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason of a cancellation."""

    reason: str | None = None


_failure = msgspec.json.Decoder(FailureView)


class TasksApi(ApiSection):
    """Tasks and actions on them."""

    def __init__(self, server: ServerContext) -> None:
        """Create the handlers for `server`."""
        self._server = server
        self._access = TaskAccess(server)

    # --- reading --------------------------------------------------------------------------------------------------

    @route("GET", TASKS)
    async def page(self, request: ApiRequest, query: TaskQuery) -> TaskRowPage:
        """List tasks of all agents, newest first."""
        feed, served = self._server.feed.seq, self._server.agents
        # An agent that is not served here is named as given.
        agents = tuple(served[slug].profile.name if slug in served else slug for slug in query.agent)
        search = TaskListQuery(
            states=tuple(_STATE_OF[state] for state in query.state),
            agents=agents or None,
            context_id=query.context_id or None,
            parent_id=query.parent or None,
            is_top=query.top,
            since=None if query.since is None else _milliseconds(query.since),
            words=query.q.strip(),
            before=query.page or None,
            limit=query.limit,
        )
        page = await self._list(request.caller, search)
        return TaskRowPage(items=self._rows(page.items), next=page.next, total=page.total, feed=feed)

    async def _list(self, caller: Caller, search: TaskListQuery) -> ListedTaskPage:
        visible = self._server.visibility.visible_tasks(caller)
        return await queries.list_task_page(self._server.store, caller.tenant, visible, search)

    def _rows(self, tasks: list[ListedTask]) -> list[TaskRow]:
        return [task_row(task, self._server.visibility) for task in tasks]

    @route("GET", TASK)
    async def get(self, request: ApiRequest) -> TaskView:
        """Show a task with all details."""
        return await self._view(request.caller, request.parts["task"])

    async def _view(self, caller: Caller, task_id: str) -> TaskView:
        store, feed = self._server.store, self._server.feed.seq
        stored, listed, task = await self._access.whole(task_id, caller)
        children = await self._children(task_id, caller)
        chat = await chats.find_by_context(store, caller.tenant, caller.owner, stored.context_id)
        is_working = listed.state is TaskState.WORKING
        job = await queries.job_status(store, caller.tenant, task_id) if is_working else None
        return view_of(
            TaskView,
            task_row(listed, self._server.visibility),
            failure=await self._failure(listed, caller),
            waits_to_resume=job is not None and job.is_left,
            result=_result(task),
            task=task_details.task_with_urls(task, f"{TASKS}/{task_id}/files"),
            actions=self._actions(listed, caller),
            children=children,
            chat_id=chat,
            webhooks=stored.pushes,
            feed=feed,
        )

    async def _failure(self, listed: ListedTask, caller: Caller) -> FailureView | None:
        """Return the exception that failed a task, for operators: its text may contain secrets."""
        if listed.state is not TaskState.FAILED or not self._server.visibility.is_operator(caller):
            return None
        entry = await queries.find_step(self._server.store, caller.tenant, listed.id, queries.FAILURE_STEP)
        return None if entry is None else _failure.decode(entry)

    async def _children(self, task_id: str, caller: Caller) -> list[TaskRow]:
        page = await self._list(caller, TaskListQuery(parent_id=task_id, limit=CHILDREN))
        return self._rows(page.items[::-1])

    def _actions(self, task: ListedTask, caller: Caller) -> list[Action]:
        """Return the actions that the caller may take on a task in its current state."""
        visibility, is_asking = self._server.visibility, task.state in lifecycle.INTERRUPTED
        can_send = task.owner == caller.owner and visibility.allows(caller, task.agent, Operation.SEND)
        can_send = can_send and task.agent in self._server.host.services
        can_cancel = visibility.allows(caller, task.agent, Operation.CANCEL)
        can_cancel = can_cancel and visibility.visible_tasks(caller, Operation.CANCEL).sees(task.agent, task.owner)
        is_approval = is_asking and task_row(task, visibility).waiting == "approval"
        is_root = task.parent_id is None and self._access.is_served(task.agent)
        offered: list[tuple[Action, bool]] = [
            ("execute", can_send and task.is_held),
            ("approve", can_send and is_approval and not QuestionOrigin.of(task.message).is_ruled),
            ("reply", can_send and is_asking),
            ("cancel", can_cancel and task.state not in lifecycle.TERMINAL),
            ("retry", can_send and task.state in lifecycle.ENDED and is_root),
        ]
        return [action for action, is_offered in offered if is_offered]

    @route("GET", f"{TASK}/events")
    async def events(self, request: ApiRequest, query: LogQuery) -> LogPage:
        """Show a task's event log."""
        tenant, task_id = request.caller.tenant, request.parts["task"]
        head = await self._access.head(task_id, request.caller)
        # Include the previous event, to compute the gap before the first.
        begin = max(query.after - 1, 0)
        log = await self._server.host.tasks.events(tenant, task_id, begin, query.limit + 1)
        before = {later.seq: _ms(earlier) for earlier, later in pairwise(log)}
        items = [_log_event(event, before.get(event.seq)) for event in log if event.seq > query.after]
        return LogPage(items=items[: query.limit], first=head.min_seq, last=head.last_seq)

    @route("GET", f"{TASK}/timeline")
    async def timeline(self, request: ApiRequest) -> Timeline:
        """Show a task's timeline."""
        caller, task_id, store = request.caller, request.parts["task"], self._server.store
        _, listed, _ = await self._access.whole(task_id, caller)
        statuses = await queries.task_statuses(store, caller.tenant, {task_id: 0})
        attempts = await queries.list_delivery_attempts(store, caller.tenant, task_id, None, CHILDREN)
        row, children = task_row(listed, self._server.visibility), await self._children(task_id, caller)
        lanes = task_details.task_lanes(row, statuses, children, attempts)
        return Timeline(lanes=lanes, now=timestamp_ms(self._server.now_ms()))

    @route("GET", f"{TASK}/files/message/(?P<message>.+)/(?P<at>[0-9]{{1,6}})")
    @route("GET", f"{TASK}/files/(?P<artifact>.+)/(?P<at>[0-9]{{1,6}})")
    async def file(self, request: ApiRequest, query: FileQuery) -> ApiReply:
        """Send a file of a task, as a download unless its type is harmless and `inline` is set."""
        *_, task = await self._access.whole(request.parts["task"], request.caller)
        artifact, message, at = request.parts.get("artifact"), request.parts.get("message"), int(request.parts["at"])
        part = task_details.part_at(task, artifact, message, at)
        data, headers = download(part, f"{artifact or message}-{at}", inline=query.inline)
        return ApiReply(data=data, headers=headers)

    # --- actions --------------------------------------------------------------------------------------------------

    @route("POST", TASKS, status=201)
    async def create(self, request: ApiRequest, body: NewTask) -> TaskView:
        """Create a task, held until it is executed if `hold` is set. Returns without waiting for it."""
        if body.agent not in self._server.services:
            raise invalid_field("agent", "There is no such agent here")
        message = self._message(body, context_id=body.context_id or None)
        metadata = ({HOLD: True} if body.hold else {}) | ({SKILL_KEYS[0]: body.skill} if body.skill else {})
        return await self._create(body.agent, message, request.caller, metadata or None)

    @route("POST", f"{TASK}/retry", status=201)
    async def retry(self, request: ApiRequest) -> TaskView:
        """Retry a task that has ended: send its first message as a new task in the same context."""
        caller = request.caller
        stored, _, task = await self._access.whole(request.parts["task"], caller)
        if stored.task_state not in lifecycle.ENDED or stored.parent_id is not None or not task.history:
            raise UnsupportedOperation("Only a task that has ended and is not a child task can be retried")
        if stored.owner != caller.owner or not self._access.is_served(stored.agent):
            raise UnsupportedOperation("Only the owner of a task can retry it, while its agent is served")
        message = replace(task.history[0], message_id=self._new_id(), task_id=None, context_id=task.context_id)
        metadata = {key: value for key, value in (task.metadata or {}).items() if key not in (USAGE, CREATED_AT, HOLD)}
        return await self._create(self._server.visibility.slug(stored.agent), message, caller, metadata or None)

    async def _create(self, slug: str, message: Message, caller: Caller, metadata: dict[str, Any] | None) -> TaskView:
        """Send a message that creates a task, and return the task."""
        request = SendRequest(message=message, configuration=AT_ONCE, metadata=metadata)
        task = await self._server.services[slug].send(request, replace(caller, origin=ORIGIN))
        if isinstance(task, Message):
            raise UnsupportedOperation("This agent answers without a task")
        return await self._view(caller, task.id)

    @route("POST", f"{TASK}/cancel")
    async def cancel(self, request: ApiRequest, body: Cancellation | None) -> TaskView:
        """Cancel a task and its child tasks."""
        task_id = request.parts["task"]
        metadata = None if body is None or body.reason is None else {"reason": body.reason}
        head = await self._access.head(task_id, request.caller, Operation.CANCEL)
        service, caller = self._access.service(head, request.caller)
        await service.cancel(CancelRequest(id=task_id, metadata=metadata), caller)
        return await self._view(request.caller, task_id)

    @route("POST", f"{TASK}/reply")
    async def reply(self, request: ApiRequest, body: TaskReply) -> TaskView:
        """Answer a task that waits for input."""
        head = await self._own(request)
        if head.task_state not in lifecycle.INTERRUPTED:
            raise UnsupportedOperation("The task asks nothing at the moment")
        if body.question is not None:
            for listed in await queries.task_rows(self._server.store, request.caller.tenant, [head.id]):
                check_question(body.question, listed.message)
        message = self._message(body, context_id=head.context_id, task_id=head.id)
        service, caller = self._access.service(head, request.caller)
        await service.send(SendRequest(message=message, configuration=AT_ONCE), replace(caller, origin=ORIGIN))
        return await self._view(request.caller, head.id)

    @route("POST", f"{TASK}/execute")
    async def execute(self, request: ApiRequest) -> TaskView:
        """Start a held task."""
        head = await self._own(request)
        if not self._access.is_served(head.agent):
            raise TaskNotFound("The agent of this task is no longer served")
        await self._server.services[self._server.visibility.slug(head.agent)].start_held_task(head.id, request.caller)
        return await self._view(request.caller, head.id)

    async def _own(self, request: ApiRequest) -> TaskHead:
        """Return a task of the caller. A task of another owner raises the same error as a missing one."""
        caller, task_id = request.caller, request.parts["task"]
        head = await queries.read_task_head(self._server.store, caller.tenant, task_id)
        if head is None or head.owner != caller.owner:
            raise TaskNotFound(metadata={"taskId": task_id})
        if not self._server.visibility.allows(caller, head.agent, Operation.SEND):
            raise PermissionDenied("Your roles do not allow messaging this agent")
        return head

    def _message(self, content: MessageContent, **fields: Any) -> Message:
        return Message(message_id=self._new_id(), role=Role.USER, parts=content.all_parts(), **fields)

    def _new_id(self) -> str:
        return self._server.host.node.make_id()


def _result(task: Task) -> Any:
    """Return the result of a task: the data or text of its last artifact, else the text of its final message."""
    if task.status.state not in lifecycle.ENDED:
        return None
    if task.artifacts:
        parts = task.artifacts[-1].parts
        data = [part.data for part in parts if part.data is not UNSET]
        return data[0] if data else text_of(parts) or None
    message = task.status.message
    is_answer = message is not None and task.status.state is TaskState.COMPLETED
    return text_of(message.parts) or None if message is not None and is_answer else None


def _log_event(event: Event, before: int | None) -> LogEvent:
    body = msgspec.to_builtins(event.body)
    kind: Literal["status", "artifact", "message", "task", "other"] = "other"
    match event.body:
        case StatusUpdate(status=status):
            kind = "status"
            if status.message is not None:
                _remove_bytes(body["status"]["message"], status.message)
        case ArtifactUpdate(artifact=artifact):
            kind = "artifact"
            _remove_bytes(body["artifact"], artifact)
        case MessageUpdate(message=message):
            kind = "message"
            _remove_bytes(body["message"], message)
        case Task():
            kind = "task"
    gap = None if before is None else max(0, _ms(event) - before)
    return LogEvent(seq=event.seq, kind=kind, at=event.at or "", gap_ms=gap, body=body)


def _remove_bytes(encoded: dict[str, Any], decoded: Artifact | Message) -> None:
    encoded["parts"] = [task_details.part_with_url(part, None) for part in decoded.parts]


def _ms(event: Event) -> int:
    return 0 if event.at is None else _milliseconds(event.at)


def _milliseconds(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise invalid_field("since", "Not an ISO 8601 time") from None
