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
from accord.console.routing import ApiRequest, ApiRoute, ApiSection, Refusal, Refusals, route, view_of
from accord.console.run_endpoints import RUN, RunSignalsApi
from accord.console.run_views import (
    HookView,
    RerunView,
    RunPage,
    RunRow,
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
from accord.protocol import lifecycle
from accord.protocol.operations import Operation
from accord.protocol.states import LOWER
from accord.workflows.agent import WorkflowAgent, schema
from accord.workflows.attempts import INNER
from accord.workflows.channel import QuestionOrigin
from accord.workflows.records import StepEnded
from accord.workflows.run_request import RunRequest, carry_over_records
from accord.workflows.source import write_document
from accord.workflows.stored_run import StoredRun

EVERY_RUN, WORKFLOWS = RUNS.removesuffix("/"), "/api/workflows"

MAX_CACHED = 2000
"""Rows of lists that are cached: a run without new events is not read again."""

MAX_READS = 3
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


class NewRun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run to start.

    `workflow` is the name in the agent's path, and `name` a workflow of its document [default: the first].
    """

    workflow: str
    name: str | None = None
    input: str = ""
    inputs: dict[str, Any] = {}


class Rerun(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scope of a re-run: unfinished steps, all steps from one on, or with `fresh` all steps."""

    from_: str | None = field(default=None, name="from")
    fresh: bool = False


class RerunQuery(Rerun, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The scope of a re-run to preview."""


class WorkflowsApi(ApiSection):
    """Workflows and their runs."""

    def __init__(self, server: ServerContext, workflows: Mapping[str, WorkflowAgent], signals: RunSignalsApi) -> None:
        """Create the handlers for `workflows`, by the names in their paths, and for stored runs of other workflows."""
        self._server = server
        self._workflows = workflows
        self._signals = signals
        self._rows: OrderedDict[tuple[str, str, int], RunRow] = OrderedDict()

    def routes(self) -> list[ApiRoute]:
        """Return the routes of workflows, runs and their signals."""
        return [*super().routes(), *self._signals.routes()]

    # --- workflows ------------------------------------------------------------------------------------------------

    @route("GET", WORKFLOWS)
    async def workflows(self, request: ApiRequest) -> WorkflowList:
        """List the workflows that the caller may run."""
        visibility, caller = self._server.visibility, request.caller
        items = [
            self._workflow(slug, agent)
            for slug, agent in self._workflows.items()
            if visibility.allows(caller, agent.profile.name, Operation.SEND)
        ]
        return WorkflowList(items=items)

    def _workflow(self, slug: str, agent: WorkflowAgent) -> WorkflowView:
        document, on = agent.document, agent.document.on
        return WorkflowView(
            slug=slug,
            agent=agent.profile.name,
            name=document.name,
            description=document.description or "",
            names=[workflow.name for workflow in document.workflows],
            inputs=schema(document),
            takes_input=not document.workflows or _INPUT.search(msgspec.json.encode(document)) is not None,
            schedules=[view_of(ScheduleView, schedule) for schedule in (on.schedule if on else ())],
            webhooks=[
                HookView(url=f"{self._server.url}{HOOKS}{slug}/{hook.path}", is_signed=hook.secret is not None)
                for hook in (on.webhook if on else ())
            ],
        )

    # --- reading --------------------------------------------------------------------------------------------------

    @route("GET", EVERY_RUN)
    async def page(self, request: ApiRequest, query: RunQuery) -> RunPage:
        """List runs, latest start first."""
        caller, server = request.caller, self._server
        feed, agent = server.feed.seq, self._workflows.get(query.workflow or "")
        # A workflow that is not served here is its own agent name.
        agents = () if query.workflow is None else (query.workflow if agent is None else agent.profile.name,)
        runs = RunListQuery(
            tenant=caller.tenant,
            seen=server.visibility.visible_tasks(caller),
            agents=agents,
            states=tuple(_STATES[name] for name in query.state),
            inner=query.inner,
            before=query.page,
            limit=query.limit + 1,
        )
        listed = await queries.list_runs(server.store, runs)
        items = [await self._row(run) for run in listed[: query.limit]]
        return RunPage(items=items, next=items[-1].id if len(listed) > query.limit else None, feed=feed)

    async def _row(self, listed: ListedRun) -> RunRow:
        key = listed.tenant, listed.task_id, listed.last_seq
        row = self._rows.get(key)
        if row is None:
            records = await queries.load_steps(self._server.store, listed.tenant, listed.task_id)
            row = self._rows[key] = self._row_of(StoredRun(listed, records))
            if len(self._rows) > MAX_CACHED:
                self._rows.popitem(last=False)
        self._rows.move_to_end(key)
        return row

    def _row_of(self, run: StoredRun) -> RunRow:
        return run_views.run_row(run, self._server.visibility.slug(run.task.agent))

    @route("GET", RUN)
    async def show(self, request: ApiRequest) -> RunView:
        """Show a run with its steps."""
        feed, caller, run_id = self._server.feed.seq, request.caller, request.parts["run"]
        head, task, run = await self._read_run(caller, run_id)
        error, actions = _failure(task), self._actions(caller, head, run)
        common = {"error": error, "actions": actions, "feed": feed}
        if run is None:  # it has not started, or was rejected before it started
            slug = self._server.visibility.slug(head.agent)
            agent = self._workflows.get(slug)
            if agent is None or agent.profile.name != head.agent:
                raise _run_not_found(run_id)
            document = agent.text or write_document(agent.document)
            none = dict.fromkeys(("output", "question", "asks", "previous"))
            row = _started_row(head, slug)
            return view_of(RunView, row, steps=[], input="", inputs={}, document=document, **none, **common)
        question = _question(task)
        return view_of(
            RunView,
            self._row_of(run),
            steps=run_views.step_views(run),
            input=run.plan.input,
            inputs=run.plan.inputs,
            output=_result(task),
            question=None if question is None else text_of(question),
            asks=QuestionOrigin.of(question).step,
            document=run.text,
            previous=run.origin.wish.previous_run,
            **common,
        )

    @route("GET", f"{RUN}/timeline")
    async def timeline(self, request: ApiRequest) -> Timeline:
        """Show the timeline of a run's steps, attempt by attempt."""
        run, now = await self._visible_run(request), self._server.now_ms()
        return Timeline(lanes=[], now=timestamp_ms(now)) if run is None else run_views.run_timeline(run, now)

    @route("GET", f"{RUN}/steps/(?P<name>[^/]+)")
    async def step(self, request: ApiRequest) -> StepDetail:
        """Show one step of a run: its input, its output and every attempt."""
        run = await self._visible_run(request)
        detail = None if run is None else run_views.step_detail(run, request.parts["name"])
        if detail is None:
            raise TaskNotFound(f"The run has no step {request.parts['name']}")
        return detail

    async def _read_task(self, caller: Caller, run_id: str) -> tuple[TaskHead, Task]:
        """Return the task of a run. A run of another owner raises the same error as a missing one."""
        pair = await self._server.host.node.task_store.read(caller.tenant, run_id)
        visible = self._server.visibility.visible_tasks(caller, Operation.GET)
        if pair is None or not visible.sees(pair[0].agent, pair[0].owner):
            raise _run_not_found(run_id)
        return pair

    async def _read_run(self, caller: Caller, run_id: str) -> tuple[TaskHead, Task, StoredRun | None]:
        """Return a run's task and its records, read at the same sequence number unless the run changes too quickly."""
        for _ in range(MAX_READS - 1):
            head, task = await self._read_task(caller, run_id)
            run = await self._stored_run(caller, run_id)
            if run is None or run.task.last_seq == head.last_seq:
                return head, task, run
        return *await self._read_task(caller, run_id), await self._stored_run(caller, run_id)

    async def _visible_run(self, request: ApiRequest) -> StoredRun | None:
        """Return the requested run, or None for a workflow's task without records."""
        await self._read_task(request.caller, request.parts["run"])
        return await self._stored_run(request.caller, request.parts["run"])

    async def _stored_run(self, caller: Caller, run_id: str) -> StoredRun | None:
        store = self._server.store
        query = RunListQuery(tenant=caller.tenant, task_id=run_id, inner=True, limit=1)
        listed = await queries.list_runs(store, query)
        return StoredRun(listed[0], await queries.load_steps(store, caller.tenant, run_id)) if listed else None

    def _actions(self, caller: Caller, head: TaskHead, run: StoredRun | None) -> list[Any]:
        """Return the actions that the caller may take on a run."""
        if head.task_state not in lifecycle.ENDED:
            visible = self._server.visibility.visible_tasks(caller, Operation.CANCEL)
            is_served = self._server.visibility.slug(head.agent) in self._server.services
            can_cancel = head.parent_id is None and is_served and visible.sees(head.agent, head.owner)
            asking = [] if run is None else [wait.step for wait in run.waits() if wait.is_approval]
            can_decide = run is not None and any(self._signals.allows(caller, run, step) for step in asking)
            return ["cancel"] * can_cancel + ["approve"] * can_decide
        if run is None or self._rerun_refusal(caller, run) is not None:
            return []
        return ["again"] if run.task.state is TaskState.COMPLETED else ["rerun", "again"]

    # --- starting -------------------------------------------------------------------------------------------------

    @route("POST", EVERY_RUN, status=201)
    async def start(self, request: ApiRequest, body: NewRun) -> RunRow:
        """Start a run, and return without waiting for it."""
        if body.workflow not in self._workflows:
            raise TaskNotFound(f"There is no workflow {body.workflow}")
        parts = [Part(text=body.input)] if body.input or not body.inputs else []
        parts += [Part(data=body.inputs)] if body.inputs else []
        metadata = None if body.name is None else {SKILL_KEYS[0]: body.name}
        return await self._send(body.workflow, parts, metadata, request.caller)

    @route("POST", f"{RUN}/rerun", status=201)
    async def rerun(self, request: ApiRequest, body: Rerun | None) -> RunRow:
        """Start a run that reuses completed steps of another run and executes the others."""
        run = await self._ended_run(request)
        parts = [Part(data=to_builtins(_rerun_request(run, body or Rerun())))]
        metadata = {INNER: True, SKILL_KEYS[0]: run.origin.workflow}
        caller = replace(request.caller, origin=None)  # the request is made here, so all of its members are allowed
        return await self._send(self._server.visibility.slug(run.task.agent), parts, metadata, caller)

    @route("GET", f"{RUN}/rerun")
    async def preview(self, request: ApiRequest, query: RerunQuery) -> RerunView:
        """Preview a re-run: the steps that it runs again, and the approvals that it does not ask for again."""
        run = await self._ended_run(request)
        is_fresh = _rerun_request(run, query).previous_run is None
        records = [] if is_fresh else carry_over_records(run.plan, run.records, query.from_, 0)
        ended = {record.step for record in records if isinstance(record, StepEnded)}
        return RerunView(
            again=[step.name for step in run.plan.steps if step.name not in ended],
            kept=[step.name for step in run.plan.steps if step.name in ended],
            approvals=[step.name for step in run.plan.steps if step.name in ended and step.type == "approval"],
        )

    async def _ended_run(self, request: ApiRequest) -> StoredRun:
        """Return a run that the caller may run again."""
        run = await self._visible_run(request)
        if run is None:
            raise CannotRerun("The run never started: start a new run instead")
        if (refusal := self._rerun_refusal(request.caller, run)) is not None:
            raise CannotRerun(refusal)
        return run

    def _rerun_refusal(self, caller: Caller, run: StoredRun) -> str | None:
        """Return why the caller cannot run a run again, or None."""
        task, visibility = run.task, self._server.visibility
        agent = self._workflows.get(visibility.slug(task.agent))
        if task.state not in lifecycle.TERMINAL:
            return "The run has not ended: cancel it first"
        if task.parent_id is not None:
            return f"The run is part of {task.parent_id}: run that again"
        if agent is None or agent.profile.name != task.agent:
            return f"Its workflow is not served here: accord runs resume {task.task_id}"
        if task.owner != caller.owner or not visibility.allows(caller, task.agent, Operation.SEND):
            return "Only the owner of a run can run it again"
        return None

    async def _send(self, slug: str, parts: list[Part], metadata: dict[str, Any] | None, caller: Caller) -> RunRow:
        message = Message(message_id=new_id(), role=Role.USER, parts=tuple(parts), metadata=metadata)
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        task = await self._server.services[slug].send(request, caller)
        assert isinstance(task, Task)  # a workflow never answers with a message alone
        head, _ = await self._read_task(caller, task.id)
        return _started_row(head, slug)


def _run_not_found(run_id: str) -> TaskNotFound:
    return TaskNotFound(f"There is no run {run_id}")


def _rerun_request(run: StoredRun, scope: Rerun) -> RunRequest:
    """Return the request of a re-run: the original request, and the steps it reuses."""
    original = replace(run.origin.wish, start_from=None, previous_run=None)
    if scope.fresh:
        return original
    if scope.from_ is None and run.task.state is TaskState.COMPLETED:
        raise CannotRerun("The run has completed: name the step to run again from, or start all steps with `fresh`")
    try:
        carry_over_records(run.plan, run.records, scope.from_, 0)
    except ValueError as error:
        raise InvalidParams(str(error)) from None
    return replace(original, start_from=scope.from_, previous_run=run.task.task_id)


def _started_row(head: TaskHead, slug: str) -> RunRow:
    """Return the row of a run from its task alone."""
    at = timestamp_ms(head.updated_at)
    return view_of(
        RunRow,
        head,
        workflow=head.agent,
        slug=slug,
        status=LOWER[head.task_state],
        begin=at,
        updated_at=at,
        counts={},
        waits=[],
        seq=head.last_seq,
    )


def _result(task: Task) -> str | None:
    """Return the result of a run."""
    parts = next((artifact.parts for artifact in task.artifacts if artifact.artifact_id == RESULT), None)
    return None if parts is None else "".join(part.text or "" for part in parts)


def _failure(task: Task) -> str | None:
    """Return why a run failed or was canceled or rejected."""
    has_failed = task.status.state in lifecycle.TERMINAL and task.status.state is not TaskState.COMPLETED
    return text_of(task.status.message) if has_failed and task.status.message is not None else None


def _question(task: Task) -> Message | None:
    """Return the pending question of a run."""
    return task.status.message if task.status.state in lifecycle.INTERRUPTED else None
