"""`/api/workflows` and `/api/runs`: workflows, their runs, and starting them.

A run starts with a message to the workflow's agent, through the same guarded service as any other message.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from accord.a2a import Caller
from accord.api import new_id, queries
from accord.api.access import SKILL_KEYS
from accord.api.queries import ListedRun, RunListQuery, TaskHead
from accord.client.text import text_of
from accord.console import HOOKS, RUNS, run_views
from accord.console.routing import ApiReply, ApiRequest, ApiRoute, Refusal, Refusals
from accord.console.run_signals import RUN, RunSignalsApi
from accord.console.run_views import (
    HookView,
    RerunView,
    RunPage,
    RunRow,
    RunStepViews,
    RunView,
    ScheduleView,
    StepDetail,
    WorkflowList,
    WorkflowView,
)
from accord.console.server_context import ServerContext
from accord.console.views import Limit, StateName, Timeline
from accord.errors import InvalidParams, TaskNotFound
from accord.model import Message, Part, Role, SendConfiguration, SendRequest, Task, TaskState
from accord.model.base import timestamp_ms
from accord.protocol import codec, lifecycle
from accord.protocol.operations import Operation
from accord.protocol.states import LOWER
from accord.workflows.agent import WorkflowAgent, schema
from accord.workflows.attempts import INNER
from accord.workflows.channel import METADATA
from accord.workflows.records import StepEnded
from accord.workflows.run_request import RunRequest, carry_over_records, origin_of
from accord.workflows.source import write_document
from accord.workflows.stored_run import StoredRun

WORKFLOWS = "/api/workflows"

KNOWN_ROWS = 2000
"""Rows of lists that are cached: a run without new events is not read again."""

LOOKS = 3
"""Maximum reads of a run that changes between two reads. Pages are notified of newer changes, and read again."""

RESULT = "result"
"""The artifact with the result of a run (`workflows.agent`)."""

_INPUT = re.compile(rb"\{\{[^}]*\binput\b")
_STATES: Mapping[str, TaskState] = {name: state for state, name in LOWER.items()}


class CannotRerun(Exception):
    """The run cannot be run again, yet or on this server."""


REFUSALS: Refusals = {CannotRerun: Refusal(409, "CANNOT_RERUN")}


class RunQuery(Struct, frozen=True, kw_only=True):
    """Filters of the list of runs.

    `workflow` is the name in the agent's path, and `inner` includes runs that are steps.
    """

    workflow: str | None = None
    state: list[StateName] = field(default_factory=list)
    inner: bool = False
    page: str | None = None
    limit: Limit = 50


class Start(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to start.

    `workflow` is the name in the agent's path, and `name` a workflow of its document [default: the first].
    """

    workflow: str
    name: str | None = None
    input: str = ""
    inputs: dict[str, Any] = {}


class Again(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scope of a re-run: unfinished steps, all steps from one on, or with `fresh` all steps."""

    from_: str | None = field(default=None, name="from")
    fresh: bool = False


class RerunQuery(Again, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The scope of a re-run to preview."""


_start, _again = msgspec.json.Decoder(Start), msgspec.json.Decoder(Again)


class WorkflowsApi:
    """Workflows and their runs."""

    def __init__(self, house: ServerContext, flows: Mapping[str, WorkflowAgent], runs: RunSignalsApi) -> None:
        """Create the handlers for `flows`, by the names in their paths, and for stored runs of other workflows."""
        self._house = house
        self._flows = flows
        self._runs = runs
        self._rows: OrderedDict[tuple[str, str, int], RunRow] = OrderedDict()

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        every = RUNS.removesuffix("/")
        return (
            ApiRoute("GET", WORKFLOWS, self.workflows, gives=WorkflowList),
            ApiRoute("GET", every, self.browse, finds=RunQuery, gives=RunPage),
            ApiRoute("POST", every, self.start, takes=Start, gives=RunRow, status=201),
            ApiRoute("GET", RUN, self.show, gives=RunView),
            ApiRoute("GET", f"{RUN}/timeline", self.timeline, gives=Timeline),
            ApiRoute("GET", f"{RUN}/steps/(?P<name>[^/]+)", self.step, gives=StepDetail),
            ApiRoute("GET", f"{RUN}/rerun", self.preview, finds=RerunQuery, gives=RerunView),
            ApiRoute("POST", f"{RUN}/rerun", self.rerun, takes=Again, gives=RunRow, status=201),
            *self._runs.routes(),
        )

    # --- workflows ------------------------------------------------------------------------------------------------

    async def workflows(self, asked: ApiRequest) -> ApiReply:
        """List the workflows that the caller may run."""
        sight, caller = self._house.sight, asked.known
        found = [
            self._workflow(slug, flow)
            for slug, flow in self._flows.items()
            if sight.may(caller, flow.profile.name, Operation.SEND)
        ]
        return ApiReply(body=WorkflowList(items=found))

    def _workflow(self, slug: str, flow: WorkflowAgent) -> WorkflowView:
        document, on = flow.document, flow.document.on
        return WorkflowView(
            slug=slug,
            agent=flow.profile.name,
            name=document.name,
            description=document.description or "",
            names=[one.name for one in document.workflows],
            inputs=schema(document),
            takes_input=not document.workflows or _INPUT.search(msgspec.json.encode(document)) is not None,
            schedules=[ScheduleView(cron=one.cron, timezone=one.timezone) for one in (on.schedule if on else ())],
            webhooks=[
                HookView(url=f"{self._house.url}{HOOKS}{slug}/{one.path}", is_signed=one.secret is not None)
                for one in (on.webhook if on else ())
            ],
        )

    # --- looking --------------------------------------------------------------------------------------------------

    async def browse(self, asked: ApiRequest) -> ApiReply:
        """List runs, latest start first."""
        wanted, caller, house = asked.found(RunQuery, "state"), asked.known, self._house
        feed = house.feed.seq
        runs = RunListQuery(
            tenant=caller.tenant,
            seen=house.sight.seen(caller),
            agents=() if wanted.workflow is None else self._agents(wanted.workflow),
            states=tuple(_STATES[name] for name in wanted.state),
            inner=wanted.inner,
            before=wanted.page,
            limit=wanted.limit + 1,
        )
        found = await queries.list_runs(house.store, runs)
        items = [await self._row(one) for one in found[: wanted.limit]]
        more = items[-1].id if len(found) > wanted.limit else None
        return ApiReply(body=RunPage(items=items, next=more, feed=feed))

    def _agents(self, workflow: str) -> tuple[str, ...]:
        """Return the agents of a workflow's runs. A workflow that is not served here is its own agent name."""
        flow = self._flows.get(workflow)
        return (workflow,) if flow is None else (flow.profile.name,)

    async def _row(self, noted: ListedRun) -> RunRow:
        key = noted.tenant, noted.task_id, noted.last_seq
        row = self._rows.get(key)
        if row is None:
            found = StoredRun(noted, await queries.load_steps(self._house.store, noted.tenant, noted.task_id))
            row = self._rows[key] = self._row_of(RunStepViews(found))
            if len(self._rows) > KNOWN_ROWS:
                self._rows.popitem(last=False)
        self._rows.move_to_end(key)
        return row

    def _row_of(self, stands: RunStepViews) -> RunRow:
        noted = stands.found.task
        slug, waits = self._house.sight.slug(noted.agent), stands.found.waits()
        return run_views.run_row(noted, origin_of(noted.origin), slug, stands.lines, waits)

    async def show(self, asked: ApiRequest) -> ApiReply:
        """Show a run with its steps."""
        feed, caller, run = self._house.feed.seq, asked.known, asked.parts["run"]
        head, task, found = await self._both(caller, run)
        if found is None:
            return ApiReply(body=self._queued(caller, head, task, feed))
        stands = RunStepViews(found)
        origin, question = found.origin, _question(task)
        view = RunView(
            **_row_members(self._row_of(stands)),
            steps=stands.views(),
            input=stands.state.plan.input,
            inputs=stands.state.plan.inputs,
            output=_result(task),
            error=_failure(task),
            question=None if question is None else text_of(question),
            asks=None if question is None else _step_of(question),
            document=found.text,
            previous=origin.wish.previous_run,
            actions=self._actions(caller, head, found),
            feed=feed,
        )
        return ApiReply(body=view)

    async def timeline(self, asked: ApiRequest) -> ApiReply:
        """Show the timeline of a run's steps, attempt by attempt."""
        await self._task(asked.known, asked.parts["run"])
        found = await self._stands(asked.known, asked.parts["run"])
        now = self._house.now_ms()
        if found is None:
            return ApiReply(body=Timeline(lanes=[], now=timestamp_ms(now)))
        return ApiReply(body=run_views.run_timeline(RunStepViews(found), now))

    async def step(self, asked: ApiRequest) -> ApiReply:
        """Show one step of a run: its input, its output and every attempt."""
        await self._task(asked.known, asked.parts["run"])
        found = await self._stands(asked.known, asked.parts["run"])
        detail = None if found is None else RunStepViews(found).detail(asked.parts["name"])
        if detail is None:
            raise TaskNotFound(f"The run has no step {asked.parts['name']}")
        return ApiReply(body=detail)

    async def _task(self, caller: Caller, run: str) -> tuple[TaskHead, Task]:
        """Return the task of a run. A run of another owner raises the same error as a missing one."""
        found = await self._house.host.engine.archive.read(caller.tenant, run)
        if found is None or not self._house.sight.seen(caller, Operation.GET).sees(found[0].agent, found[0].owner):
            raise TaskNotFound(f"There is no run {run}")
        return found

    async def _both(self, caller: Caller, run: str) -> tuple[TaskHead, Task, StoredRun | None]:
        """Return a run's task and its records, read at the same sequence number unless the run changes too quickly."""
        left = LOOKS
        while True:
            left -= 1
            head, task = await self._task(caller, run)
            found = await self._stands(caller, run)
            if found is None or found.task.last_seq == head.last_seq or not left:
                return head, task, found

    async def _stands(self, caller: Caller, run: str) -> StoredRun | None:
        """Return a stored run, or None for a workflow's task without records."""
        store = self._house.store
        noted = await queries.list_runs(store, RunListQuery(tenant=caller.tenant, task_id=run, inner=True, limit=1))
        return StoredRun(noted[0], await queries.load_steps(store, caller.tenant, run)) if noted else None

    def _queued(self, caller: Caller, head: TaskHead, task: Task, feed: int) -> RunView:
        """Return a run that has not started, or was rejected before it started."""
        slug = self._house.sight.slug(head.agent)
        flow = self._flows.get(slug)
        if flow is None or flow.profile.name != head.agent:
            raise TaskNotFound(f"There is no run {head.id}")
        return RunView(
            **_row_members(_started_row(head, slug)),
            steps=[],
            input="",
            inputs={},
            output=None,
            error=_failure(task),
            question=None,
            asks=None,
            document=flow.text or write_document(flow.document),
            previous=None,
            actions=self._actions(caller, head, None),
            feed=feed,
        )

    def _actions(self, caller: Caller, head: TaskHead, found: StoredRun | None) -> list[Any]:
        """Return the actions that the caller may take on a run."""
        sight, slug = self._house.sight, self._house.sight.slug(head.agent)
        if head.task_state not in lifecycle.ENDED:
            crosses = sight.seen(caller, Operation.CANCEL).sees(head.agent, head.owner)
            may_cancel = head.parent_id is None and slug in self._house.services and crosses
            asking = [] if found is None else [wait.step for wait in found.waits() if wait.is_approval]
            may_decide = found is not None and any(self._runs.allows(caller, found, step) for step in asking)
            return ["cancel"] * may_cancel + ["approve"] * may_decide
        if found is None or self._cannot(caller, found) is not None:
            return []
        return ["again"] if found.task.state is TaskState.COMPLETED else ["rerun", "again"]

    # --- starting -------------------------------------------------------------------------------------------------

    async def start(self, asked: ApiRequest) -> ApiReply:
        """Start a run, and return without waiting for it."""
        wanted = codec.decode(asked.body, _start)
        flow = self._flows.get(wanted.workflow)
        if flow is None:
            raise TaskNotFound(f"There is no workflow {wanted.workflow}")
        parts = [Part(text=wanted.input)] if wanted.input or not wanted.inputs else []
        parts += [Part(data=wanted.inputs)] if wanted.inputs else []
        metadata = None if wanted.name is None else {SKILL_KEYS[0]: wanted.name}
        message = Message(message_id=new_id(), role=Role.USER, parts=tuple(parts), metadata=metadata)
        return await self._sent(wanted.workflow, message, asked.known)

    async def rerun(self, asked: ApiRequest) -> ApiReply:
        """Start a run that reuses completed steps of another run and executes the others."""
        wanted = codec.decode(asked.body, _again) if asked.body else Again()
        caller, found = asked.known, await self._ended(asked)
        message = Message(
            message_id=new_id(),
            role=Role.USER,
            parts=(Part(data=to_builtins(_rerun_request(found, wanted))),),
            metadata={INNER: True, SKILL_KEYS[0]: found.origin.workflow},
        )
        ours = replace(caller, origin=None)  # the request is made here, so all of its members are allowed
        return await self._sent(self._house.sight.slug(found.task.agent), message, ours)

    async def preview(self, asked: ApiRequest) -> ApiReply:
        """Preview a re-run: the steps that it runs again, and the approvals that it does not ask for again."""
        wanted, found = asked.found(RerunQuery), await self._ended(asked)
        wish = _rerun_request(found, wanted)
        records = [] if wish.previous_run is None else carry_over_records(found.plan, found.records, wanted.from_, 0)
        ended = {record.step for record in records if isinstance(record, StepEnded)}
        kept = [step for step in found.plan.steps if step.name in ended]
        view = RerunView(
            again=[step.name for step in found.plan.steps if step.name not in ended],
            kept=[step.name for step in kept],
            approvals=[step.name for step in kept if step.row.has_decision],
        )
        return ApiReply(body=view)

    async def _ended(self, asked: ApiRequest) -> StoredRun:
        """Return a run that the caller may run again."""
        caller, run = asked.known, asked.parts["run"]
        await self._task(caller, run)
        found = await self._stands(caller, run)
        if found is None:
            raise CannotRerun("It was never begun: begin a run instead")
        if (why := self._cannot(caller, found)) is not None:
            raise CannotRerun(why)
        return found

    def _cannot(self, caller: Caller, found: StoredRun) -> str | None:
        """Return why the caller cannot run a run again, or None."""
        task, sight = found.task, self._house.sight
        flow = self._flows.get(sight.slug(task.agent))
        if task.state not in lifecycle.TERMINAL:
            return "It has not ended: cancel it first"
        if task.parent_id is not None:
            return f"It is part of {task.parent_id}: run that again"
        if flow is None or flow.profile.name != task.agent:
            return f"Its workflow is not served here: accord runs resume {task.task_id}"
        if task.owner != caller.owner or not sight.may(caller, task.agent, Operation.SEND):
            return "Only whoever began it can run it again"
        return None

    async def _sent(self, slug: str, message: Message, caller: Caller) -> ApiReply:
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        task = await self._house.services[slug].send(request, caller)
        assert isinstance(task, Task)  # a workflow never answers with a message alone
        head, _ = await self._task(caller, task.id)
        return ApiReply(201, _started_row(head, slug))


def _rerun_request(found: StoredRun, wanted: Again) -> RunRequest:
    """Return the request of a re-run: the original request, and the steps it reuses."""
    was = replace(found.origin.wish, start_from=None, previous_run=None)
    if wanted.fresh:
        return was
    if wanted.from_ is None and found.task.state is TaskState.COMPLETED:
        raise CannotRerun("It has completed: say from which step it is to be done again")
    try:
        carry_over_records(found.plan, found.records, wanted.from_, 0)
    except ValueError as error:
        raise InvalidParams(str(error)) from None
    return replace(was, start_from=wanted.from_, previous_run=found.task.task_id)


def _started_row(head: TaskHead, slug: str) -> RunRow:
    """Return the row of a run from its task alone."""
    at = timestamp_ms(head.updated_at)
    return RunRow(
        id=head.id,
        workflow=head.agent,
        agent=head.agent,
        slug=slug,
        status=LOWER[head.task_state],  # type: ignore[arg-type]  # all of them are states
        begin=at,
        updated_at=at,
        owner=head.owner,
        parent_id=head.parent_id,
        counts={},
        waits=[],
        seq=head.last_seq,
    )


def _row_members(row: RunRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in RunRow.__struct_fields__}


def _result(task: Task) -> str | None:
    """Return the result of a run."""
    parts = next((one.parts for one in task.artifacts if one.artifact_id == RESULT), None)
    return None if parts is None else "".join(part.text or "" for part in parts)


def _failure(task: Task) -> str | None:
    """Return why a run failed or was canceled or rejected."""
    is_amiss = task.status.state in lifecycle.TERMINAL and task.status.state is not TaskState.COMPLETED
    return text_of(task.status.message) if is_amiss and task.status.message is not None else None


def _question(task: Task) -> Message | None:
    """Return the pending question of a run."""
    return task.status.message if task.status.state in lifecycle.INTERRUPTED else None


def _step_of(asked: Message) -> str | None:
    about = (asked.metadata or {}).get(METADATA)
    step = about.get("step") if isinstance(about, dict) else None
    return step if isinstance(step, str) else None
