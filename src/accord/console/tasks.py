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
from accord.api.queries import ListedTask, TaskHead, TaskSearch
from accord.console import task_details
from accord.console.routing import ApiReply, ApiRequest, ApiRoute
from accord.console.server_context import ServerContext
from accord.console.task_details import TaskAccess
from accord.console.task_rows import STATES, check_question, task_row
from accord.console.views import (
    Action,
    FailureView,
    Limit,
    LogEvent,
    LogPage,
    StateName,
    TaskPage,
    TaskRow,
    TaskView,
    Timeline,
)
from accord.errors import InvalidParams, PermissionDenied, TaskNotFound, UnsupportedOperation
from accord.http.files import download
from accord.model import (
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
from accord.protocol import codec, lifecycle
from accord.protocol.codec import invalid_field
from accord.protocol.operations import Operation
from accord.workflows.channel import METADATA

TASKS = "/api/tasks"
ORIGIN = "v1"
"""Origin of tasks that are created here: the model and webhooks of A2A 1.0."""

CHILDREN = 200

_ID = "(?P<task>[^/]{1,128})"
_STATE_OF = {name: state for state, name in STATES.items()}


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


class Said(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Content of a message: a text, data, or the parts of an A2A 1.0 message."""

    text: str | None = None
    data: Any | UnsetType = UNSET
    parts: tuple[Part, ...] = ()

    def all_parts(self) -> tuple[Part, ...]:
        """Return all parts. Raises InvalidParams for an empty message."""
        found = [] if self.text is None else [Part(text=self.text)]
        if self.data is not UNSET:
            found.append(Part(data=self.data, media_type="application/json"))
        if not found and not self.parts:
            raise InvalidParams("Say something: `text`, `data` or `parts`")
        return (*found, *self.parts)


class NewTask(Said, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A task to create, held until it is executed if `hold` is set. `agent` is the name in its path.

    `skill` selects a skill of the agent: some roles allow only some skills.
    """

    agent: str
    skill: str | None = None
    context_id: str | None = None
    hold: bool = False


class Answered(Said, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An answer.

    `question` is the id of the answered message: it is refused if the task asks another question by now.
    """

    question: str | None = None


class Reason(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason of a cancellation."""

    reason: str | None = None


_new = msgspec.json.Decoder(NewTask)
_answered = msgspec.json.Decoder(Answered)
_reason = msgspec.json.Decoder(Reason)
_failure = msgspec.json.Decoder(FailureView)


class TasksApi:
    """Tasks and actions on them."""

    def __init__(self, house: ServerContext) -> None:
        """Create the handlers for `house`."""
        self._house = house
        self._finding = TaskAccess(house)

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        one = f"{TASKS}/{_ID}"
        return (
            ApiRoute("GET", TASKS, self.page, finds=TaskQuery, gives=TaskPage),
            ApiRoute("POST", TASKS, self.create, takes=NewTask, gives=TaskView, status=201),
            ApiRoute("GET", one, self.get, gives=TaskView),
            ApiRoute("GET", f"{one}/events", self.events, finds=LogQuery, gives=LogPage),
            ApiRoute("GET", f"{one}/timeline", self.timeline, gives=Timeline),
            ApiRoute("GET", f"{one}/files/message/(?P<message>.+)/(?P<at>[0-9]{{1,6}})", self.file, finds=FileQuery),
            ApiRoute("GET", f"{one}/files/(?P<artifact>.+)/(?P<at>[0-9]{{1,6}})", self.file, finds=FileQuery),
            ApiRoute("POST", f"{one}/cancel", self.cancel, takes=Reason, gives=TaskView),
            ApiRoute("POST", f"{one}/retry", self.retry, gives=TaskView, status=201),
            ApiRoute("POST", f"{one}/reply", self.reply, takes=Answered, gives=TaskView),
            ApiRoute("POST", f"{one}/execute", self.execute, gives=TaskView),
        )

    # --- reading --------------------------------------------------------------------------------------------------

    async def page(self, asked: ApiRequest) -> ApiReply:
        """List tasks of all agents, newest first."""
        caller, listed = asked.known, asked.found(TaskQuery, "state", "agent")
        feed = self._house.feed.seq
        found = await queries.list_task_page(
            self._house.store, caller.tenant, self._house.sight.seen(caller), self._wanted(listed)
        )
        return ApiReply(body=TaskPage(items=self._rows(found.items), next=found.next, total=found.total, feed=feed))

    def _wanted(self, listed: TaskQuery) -> TaskSearch:
        return TaskSearch(
            states=tuple(_STATE_OF[state] for state in listed.state),
            agents=self._agents(listed.agent) if listed.agent else None,
            context_id=listed.context_id or None,
            parent_id=listed.parent or None,
            is_top=listed.top,
            since=None if listed.since is None else _milliseconds(listed.since),
            words=listed.q.strip(),
            before=listed.page or None,
            limit=listed.limit,
        )

    def _agents(self, slugs: list[str]) -> tuple[str, ...]:
        """Return the names of agents. An agent that is not served here is named as given."""
        known = self._house.agents
        return tuple(known[slug].profile.name if slug in known else slug for slug in slugs)

    def _rows(self, found: list[ListedTask]) -> list[TaskRow]:
        return [task_row(one, self._house.sight) for one in found]

    async def get(self, asked: ApiRequest) -> ApiReply:
        """Show a task with all details."""
        return ApiReply(body=await self._view(asked, asked.parts["task"]))

    async def _view(self, asked: ApiRequest, task_id: str) -> TaskView:
        caller, store = asked.known, self._house.store
        feed = self._house.feed.seq
        stored, found, task = await self._finding.whole(task_id, caller)
        children = await self._children(task_id, caller)
        chat = await chats.find_by_context(store, caller.tenant, caller.owner, stored.context_id)
        row = task_row(found, self._house.sight)
        holder = await queries.job_status(store, caller.tenant, task_id) if found.state is TaskState.WORKING else None
        return TaskView(
            **msgspec.structs.asdict(row),
            failure=await self._failure(found, caller),
            waits_to_resume=holder is not None and holder.is_left,
            result=_result(task),
            task=task_details.task_with_urls(task, f"{TASKS}/{task_id}/files"),
            actions=self._actions(found, caller),
            children=children,
            chat_id=chat,
            webhooks=stored.pushes,
            feed=feed,
        )

    async def _failure(self, found: ListedTask, caller: Caller) -> FailureView | None:
        """Return the exception that failed a task, for operators: its text may contain secrets."""
        if found.state is not TaskState.FAILED or not self._house.sight.operates(caller):
            return None
        entry = await queries.find_step(self._house.store, caller.tenant, found.id, queries.FAILURE_STEP)
        return None if entry is None else _failure.decode(entry)

    async def _children(self, task_id: str, caller: Caller) -> list[TaskRow]:
        wanted = TaskSearch(parent_id=task_id, limit=CHILDREN)
        page = await queries.list_task_page(self._house.store, caller.tenant, self._house.sight.seen(caller), wanted)
        return self._rows(page.items[::-1])

    def _actions(self, found: ListedTask, caller: Caller) -> list[Action]:
        """Return the actions that the caller may take on a task in its current state."""
        sight, is_own = self._house.sight, found.owner == caller.owner
        may_say = is_own and sight.may(caller, found.agent, Operation.SEND) and found.agent in self._house.host.services
        is_asking = found.state in lifecycle.INTERRUPTED
        approves = is_asking and task_row(found, sight).waiting == "approval" and not _is_approval(found.message)
        has_ended = found.state in lifecycle.ENDED
        may_end = sight.may(caller, found.agent, Operation.CANCEL) and sight.seen(caller, Operation.CANCEL).sees(
            found.agent, found.owner
        )
        offered: list[tuple[Action, bool]] = [
            ("execute", may_say and found.is_held),
            ("approve", may_say and approves),
            ("reply", may_say and is_asking),
            ("cancel", may_end and found.state not in lifecycle.TERMINAL),
            ("retry", may_say and has_ended and found.parent_id is None and self._finding.is_served(found.agent)),
        ]
        return [action for action, is_offered in offered if is_offered]

    async def events(self, asked: ApiRequest) -> ApiReply:
        """Show a task's event log."""
        caller, wanted, task_id = asked.known, asked.found(LogQuery), asked.parts["task"]
        head = await self._finding.head(task_id, caller)
        archive = self._house.host.engine.archive
        # Include the previous event, to compute the gap before the first.
        begin = max(wanted.after - 1, 0)
        found = await archive.events(caller.tenant, task_id, begin, wanted.limit + 1)
        before = {later.seq: _ms(earlier) for earlier, later in pairwise(found)}
        items = [_log_event(event, before.get(event.seq)) for event in found if event.seq > wanted.after]
        return ApiReply(body=LogPage(items=items[: wanted.limit], first=head.min_seq, last=head.last_seq))

    async def timeline(self, asked: ApiRequest) -> ApiReply:
        """Show a task's timeline."""
        caller, task_id, store = asked.known, asked.parts["task"], self._house.store
        _, found, _ = await self._finding.whole(task_id, caller)
        statuses = await queries.task_statuses(store, caller.tenant, {task_id: 0})
        tried = await queries.list_delivery_attempts(store, caller.tenant, task_id, None, CHILDREN)
        row, children = task_row(found, self._house.sight), await self._children(task_id, caller)
        now = timestamp_ms(self._house.now_ms())
        return ApiReply(body=Timeline(lanes=task_details.task_lanes(row, statuses, children, tried), now=now))

    async def file(self, asked: ApiRequest) -> ApiReply:
        """Send a file of a task, as a download unless its type is harmless and `inline` is set."""
        *_, task = await self._finding.whole(asked.parts["task"], asked.known)
        artifact, message, at = asked.parts.get("artifact"), asked.parts.get("message"), int(asked.parts["at"])
        part = task_details.part_at(task, artifact, message, at)
        name = f"{artifact or message}-{at}"
        data, headers = download(part, name, inline=asked.found(FileQuery).inline)
        return ApiReply(data=data, headers=headers)

    # --- actions --------------------------------------------------------------------------------------------------

    async def create(self, asked: ApiRequest) -> ApiReply:
        """Create a task, held until it is executed if `hold` is set. Returns without waiting for it."""
        new = codec.decode(asked.body, _new)
        if new.agent not in self._house.services:
            raise invalid_field("agent", "There is no such agent here")
        message = _message(new.all_parts(), self._new_id(), context_id=new.context_id or None)
        told = ({HOLD: True} if new.hold else {}) | ({SKILL_KEYS[0]: new.skill} if new.skill else {})
        made = await self._sent(new.agent, message, asked.known, told or None)
        return ApiReply(201, await self._view(asked, made))

    async def retry(self, asked: ApiRequest) -> ApiReply:
        """Retry a task that has ended: send its first message as a new task in the same context."""
        caller = asked.known
        stored, _, task = await self._finding.whole(asked.parts["task"], caller)
        if stored.task_state not in lifecycle.ENDED or stored.parent_id is not None or not task.history:
            raise UnsupportedOperation("Only a task that has ended, and that no other began, can be begun anew")
        if stored.owner != caller.owner or not self._finding.is_served(stored.agent):
            raise UnsupportedOperation("This task is not yours to begin anew, or its agent is not served any more")
        first = replace(task.history[0], message_id=self._new_id(), task_id=None, context_id=task.context_id)
        kept = {key: value for key, value in (task.metadata or {}).items() if key not in (USAGE, CREATED_AT, HOLD)}
        made = await self._sent(self._house.sight.slug(stored.agent), first, caller, kept or None)
        return ApiReply(201, await self._view(asked, made))

    async def _sent(self, slug: str, message: Message, caller: Caller, metadata: dict[str, Any] | None) -> str:
        """Send a message that creates a task, and return the task's id."""
        at_once = SendConfiguration(return_immediately=True)
        request = SendRequest(message=message, configuration=at_once, metadata=metadata)
        made = await self._house.services[slug].send(request, replace(caller, origin=ORIGIN))
        if isinstance(made, Message):
            raise UnsupportedOperation("This agent answers without a task")
        return made.id

    async def cancel(self, asked: ApiRequest) -> ApiReply:
        """Cancel a task and its child tasks."""
        caller, task_id = asked.known, asked.parts["task"]
        said = codec.decode(asked.body, _reason) if asked.body else Reason()
        service, known = self._finding.service(await self._finding.head(task_id, caller, Operation.CANCEL), caller)
        metadata = None if said.reason is None else {"reason": said.reason}
        await service.cancel(CancelRequest(id=task_id, metadata=metadata), known)
        return ApiReply(body=await self._view(asked, task_id))

    async def reply(self, asked: ApiRequest) -> ApiReply:
        """Answer a task that waits for input."""
        said = codec.decode(asked.body, _answered)
        head = await self._own(asked)
        if head.task_state not in lifecycle.INTERRUPTED:
            raise UnsupportedOperation("The task asks nothing at the moment")
        if said.question is not None:
            for found in await queries.task_rows(self._house.store, asked.known.tenant, [head.id]):
                check_question(said.question, found.message)
        message = _message(said.all_parts(), self._new_id(), context_id=head.context_id, task_id=head.id)
        service, known = self._finding.service(head, asked.known)
        at_once = SendConfiguration(return_immediately=True)
        await service.send(SendRequest(message=message, configuration=at_once), replace(known, origin=ORIGIN))
        return ApiReply(body=await self._view(asked, head.id))

    async def execute(self, asked: ApiRequest) -> ApiReply:
        """Start a held task."""
        head = await self._own(asked)
        if not self._finding.is_served(head.agent):
            raise TaskNotFound("The agent of this task is not served any more")
        await self._house.services[self._house.sight.slug(head.agent)].execute(head.id, asked.known)
        return ApiReply(body=await self._view(asked, head.id))

    async def _own(self, asked: ApiRequest) -> TaskHead:
        """Return a task of the caller. A task of another owner raises the same error as a missing one."""
        caller, task_id = asked.known, asked.parts["task"]
        head = await queries.read_task_head(self._house.store, caller.tenant, task_id)
        if head is None or head.owner != caller.owner:
            raise TaskNotFound(metadata={"taskId": task_id})
        if not self._house.sight.may(caller, head.agent, Operation.SEND):
            raise PermissionDenied("Your roles do not include speaking to this agent")
        return head

    def _new_id(self) -> str:
        return self._house.host.engine.make_id()


def _is_approval(message: Message | None) -> bool:
    """Whether a question is an approval that no message can decide."""
    about = ((message.metadata or {}) if message is not None else {}).get(METADATA)
    return isinstance(about, dict) and bool(about.get("approvers") or about.get("notByStarter"))


def _message(parts: tuple[Part, ...], message_id: str, **fields: Any) -> Message:
    return Message(message_id=message_id, role=Role.USER, parts=parts, **fields)


def _result(task: Task) -> Any:
    """Return the result of a task: the data or text of its last artifact, else the text of its final message."""
    if task.status.state not in lifecycle.ENDED:
        return None
    if task.artifacts:
        parts = task.artifacts[-1].parts
        data = [part.data for part in parts if part.data is not UNSET]
        return data[0] if data else text_of(parts) or None
    said = task.status.message
    return text_of(said.parts) or None if said is not None and task.status.state is TaskState.COMPLETED else None


_KINDS: dict[type, Literal["status", "artifact", "message", "task"]] = {
    StatusUpdate: "status",
    ArtifactUpdate: "artifact",
    MessageUpdate: "message",
    Task: "task",
}


def _log_event(event: Event, before: int | None) -> LogEvent:
    body = msgspec.to_builtins(event.body)
    for holder, made in _part_holders(body, event.body):
        holder["parts"] = [task_details.part_with_url(part, None) for part in made.parts]
    gap = None if before is None else max(0, _ms(event) - before)
    return LogEvent(seq=event.seq, kind=_KINDS.get(type(event.body), "other"), at=event.at or "", gap_ms=gap, body=body)


def _part_holders(body: dict[str, Any], made: Any) -> list[tuple[dict[str, Any], Any]]:
    """Return the members of an event that have parts, encoded and decoded."""
    match made:
        case ArtifactUpdate():
            return [(body["artifact"], made.artifact)]
        case MessageUpdate():
            return [(body["message"], made.message)]
        case StatusUpdate() if made.status.message is not None:
            return [(body["status"]["message"], made.status.message)]
    return []


def _ms(event: Event) -> int:
    return 0 if event.at is None else _milliseconds(event.at)


def _milliseconds(text: str) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise invalid_field("since", "Not an ISO 8601 time") from None
