"""A workflow as an agent: each run of it is a task.

The agent makes a plan from a request, stores the plan with the run, and lets the runner execute it. A later change of
the file changes no run. The members of a workflow are hosted next to it, and only its runs can call them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from accord.agents import subprocesses
from accord.agents.command_environment import command_variables, document_variables
from accord.api import (
    SYSTEM,
    TEXT,
    Agent,
    AgentEnvironment,
    Approvals,
    Context,
    Crash,
    Failed,
    Profile,
    Rejected,
    Store,
    queries,
)
from accord.api.storage import ORIGIN_STEP
from accord.client.credentials import Credential, KeyManager, Keys
from accord.client.credentials.credential import KEY_FILE_VARIABLE
from accord.model import AgentSkill
from accord.protocol.budgets import Budget
from accord.workflows import agent_access, members, run_request
from accord.workflows.agent_access import fill_secrets
from accord.workflows.agent_definition import AgentDef
from accord.workflows.attempts import RunSetup, SharedValues, run_output
from accord.workflows.decide import RunOutcome
from accord.workflows.document import Document, Workflow
from accord.workflows.executors import Executor
from accord.workflows.findings import BadDocument
from accord.workflows.members import Member
from accord.workflows.plan import Plan, mentioned_events
from accord.workflows.planner import includes_itself, make_plan
from accord.workflows.run_request import PLAN, RunRequest, carry_over_records, read_run_request
from accord.workflows.runner import PREFIX, Runner
from accord.workflows.signals import event_addresses
from accord.workflows.source import load_source
from accord.workflows.state import PlanNode, RunState
from accord.workflows.steps.approval import with_approval_rules
from accord.workflows.values import Unresolved

FAN_IN = 2
"""Minimum number of dependencies for a step to be recorded as a convergence."""


def trajectory_of(plan: Plan, state: RunState) -> dict[str, Any] | None:
    """Return the trajectory of a run; None if the document does not enable trajectories."""
    options = plan.trajectories
    if options is None or not options.enabled:
        return None
    chapters: list[dict[str, Any]] = []
    for node in state.nodes.values():
        if node.last_end is None:
            continue
        if node.barrier is not None:
            if options.reflect_on_barriers:
                chapters.append(_chapter(node, "barrier", waited_for=_statuses_before(state, node)))
            continue
        chapters.append(_chapter(node, "step"))
        if options.reflect_on_converge and len(node.dependencies) >= FAN_IN:
            chapters.append(_chapter(node, "converge", met=_statuses_before(state, node)))
        if options.auto_decisions and _was_skipped_or_retried(node):
            chapters.append(_chapter(node, "decision", because=node.last_end.error or node.last_end.reason))
    chapters.sort(key=lambda one: one["at"])
    return {"workflow": plan.workflow, "pattern": plan.pattern, "chapters": chapters}


def _chapter(node: PlanNode, kind: str, **more: Any) -> dict[str, Any]:
    end = node.last_end
    assert end is not None
    return {"kind": kind, "name": node.name, "at": end.at, "status": end.status, "attempts": end.attempt, **more}


def _statuses_before(state: RunState, node: PlanNode) -> dict[str, str]:
    return {name: end.status for name in node.dependencies if (end := state.nodes[name].last_end) is not None}


def _was_skipped_or_retried(node: PlanNode) -> bool:
    end = node.last_end
    return end is not None and (end.status == "skipped" or end.attempt > 1)


JSON = "application/json"

CHECKED = "flow-preflight"
"""Journal key that says that the preflight of a run has passed."""

ATTEMPTS = 1000
"""Maximum number of executions of a run.

Each continues where the last one was lost. A command that crashes ends only its own process.
"""


class MemberKeys:
    """The credentials that members may name: from the environment, and from the node after startup."""

    def __init__(self, first: Keys) -> None:
        """Look in `first`, then call `more`."""
        self._first = first
        self.more: Callable[[str], Credential | None] = lambda _: None

    def find(self, id: str) -> Credential | None:
        """Return the credential with this id, or None."""
        return self._first.find(id) or self.more(id)


class WorkflowAgent:
    """A document as an agent."""

    def __init__(
        self,
        document: Document,
        *,
        name: str | None = None,
        directory: Path,
        env: Mapping[str, str],
        vars: Mapping[str, Any] | None = None,
        keys: Keys | None = None,
        executors: Mapping[str, Executor] | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Serve a document; raises BadDocument.

        `directory` is the base of relative paths. `text` is set later to the text of the file, if there is one.
        Addresses and other values that are fixed for all runs are filled in here, with `vars`. `env` is the server's
        environment: commands get its common variables and those that the document names.
        """
        self._title, self._document_json = document.name, msgspec.json.encode(document).decode()
        self.text: str | None = None
        self.document = document if name is None else _with_name(document, name)
        self._vars = dict(vars or {})
        self._directory, self._env = directory, document_variables(env)
        self._keys = MemberKeys(keys or KeyManager(env.get(KEY_FILE_VARIABLE) or None, env=env))
        self._executors, self._given_ms = executors or {}, now_ms
        self._now_ms = now_ms or SYSTEM.now_ms
        self._approvals = Approvals()
        self.profile = _profile(document, name or document.name)
        self._hosted = self._definitions()
        self.members: dict[str, Agent] = {
            member: members.make_member_agent(member, one, env, self._keys) for member, one in self._hosted.items()
        }
        self.members.update(self._included_workflows(env))
        own = {variable: fill_secrets(value, self._env, self._keys) for variable, value in document.env.items()}
        self._commands = command_variables(self._env) | own
        self._store: Store
        self._store_files: frozenset[Path] = frozenset()
        self._url = ""

    def _definitions(self) -> dict[str, Member]:
        definitions: dict[str, Member] = {}
        workflows: list[str | None] = [one.name for one in self.document.workflows]
        for workflow in workflows or [None]:
            for name, member in members.define_members(
                self._plan(RunRequest(workflow=workflow), is_outline=True)
            ).items():
                if definitions.setdefault(name, member) != member:
                    raise ValueError(f"{name}: two workflows have a step of that name that say different things of it")
        return definitions

    def _included_workflows(self, env: Mapping[str, str]) -> dict[str, Agent]:
        included: dict[str, Agent] = {}
        for workflow in self.document.workflows:
            for step in members.steps_of(workflow.steps):
                name = f"{self.document.name}/{step.file}"
                if step.kind == "workflow" and step.file is not None and name not in included:
                    path = self._directory / step.file
                    if includes_itself(path):
                        raise ValueError(f"The file {step.file} would run itself for ever: name another file")
                    source = load_source(path)
                    inner = WorkflowAgent(
                        source.document,
                        name=name,
                        directory=path.parent,
                        env=env,
                        vars=self._vars,
                        keys=self._keys,
                    )
                    inner.text = source.text
                    included |= {name: inner, **inner.members}
        return included

    # --- startup and shutdown -------------------------------------------------------------------------------------

    async def start(self, node: AgentEnvironment) -> None:
        """Take the store, the address and the credentials of the node."""
        self._store, self._url, self._approvals = node.store, node.url, node.approvals
        self._now_ms = self._given_ms or node.clock.now_ms
        self._keys.more = node.credential
        self._store_files = node.files

    async def stop(self) -> None:
        """Wait until commands of canceled steps have stopped."""
        await subprocesses.wait_until_stopped()

    # --- runs -----------------------------------------------------------------------------------------------------

    async def run(self, ctx: Context) -> None:
        """Execute a run from its stored state."""
        plan = await self._load_or_make_plan(ctx)
        events = mentioned_events(plan)
        setup = RunSetup(
            flow=self.profile.name,
            plan=plan,
            hosted=self._hosted,
            env=self._env,
            commands=self._commands,
            now_ms=self._now_ms,
            keys=self._keys,
            shared=SharedValues(ctx, plan, self._store),
            run={"id": ctx.task_id, "events": await event_addresses(ctx, events, self._url) if events else {}},
            executors=self._executors,
            store_files=self._store_files,
        )
        await self._run_preflight(ctx, plan)
        await setup.shared.load()
        runner = Runner(ctx, setup)
        outcome = await runner.run()
        if (trajectory := trajectory_of(plan, runner.state)) is not None:
            await ctx.artifact(trajectory, id="trajectory", name="trajectory")
        await self._finish(ctx, runner, outcome, setup)

    async def _load_or_make_plan(self, ctx: Context) -> Plan:
        entry = ctx.journal.entry(PLAN)
        if entry is not None:
            return msgspec.json.decode(entry, type=Plan)
        request = read_run_request(ctx, self.document)
        try:
            plan = self._plan(request)
        except BadDocument as error:
            raise Rejected(str(error)) from error
        for name, member in members.define_members(plan).items():
            if self._hosted.get(name) != member:
                raise Rejected(f"What says where {name} is cannot be given with a run: it is fixed when it is served")
        if not self._url and (events := mentioned_events(plan)):
            raise Rejected(
                f"{{{{run.events.{events[0]}}}}}: only a run on a server has addresses for events "
                "(serve the workflow with `accord serve`, and send it a message)"
            )
        entries = {PLAN: msgspec.json.encode(plan).decode(), **self._origin_entries(plan, request)}
        if request.previous_run is not None or request.start_from is not None:
            entries |= await self._reused_records(ctx, plan, request)
        ctx.journal.note(entries)
        if plan.preflight or plan.check_agents:  # these may take long, so the plan is committed first
            await ctx.journal.write({})
        return plan

    def _origin_entries(self, plan: Plan, request: RunRequest) -> dict[str, str]:
        origin = run_request.RunOrigin(
            name=self._title, workflow=plan.workflow, directory=str(self._directory), vars=self._vars, wish=request
        )
        return run_request.origin_entries(origin, self._document_json, self.text)

    def _plan(self, request: RunRequest, *, is_outline: bool = False) -> Plan:
        plan = make_plan(
            self.document,
            workflow=request.workflow,
            vars={**self._vars, **request.inputs, **request.vars},
            input=request.input,
            base=self._directory,
            env=self._env,
            is_outline=is_outline,
        )
        if self._approvals != Approvals():
            plan = replace(plan, steps=tuple(with_approval_rules(step, self._approvals) for step in plan.steps))
        return replace(plan, check_agents=request.check_agents) if request.check_agents else plan

    async def _reused_records(self, ctx: Context, plan: Plan, request: RunRequest) -> dict[str, str]:
        stored: dict[str, str] = {}
        if request.previous_run is not None:
            head = await queries.read_task_head(self._store, ctx.tenant, request.previous_run)
            if head is not None and head.owner == ctx.caller.owner:
                stored = await queries.load_steps(self._store, ctx.tenant, request.previous_run)
            if ORIGIN_STEP not in stored or run_request.origin_of(stored[ORIGIN_STEP]).name != self._title:
                raise Rejected(f"There is no earlier run {request.previous_run} of {self._title}")
        carried = {key.removeprefix(PREFIX): entry for key, entry in stored.items() if key.startswith(PREFIX)}
        try:
            records = carry_over_records(plan, carried, request.start_from, self._now_ms())
        except ValueError as error:
            raise Rejected(str(error)) from error
        return {PREFIX + record.key: msgspec.json.encode(record).decode() for record in records}

    async def _run_preflight(self, ctx: Context, plan: Plan) -> None:
        """Run the preflight once; raises Failed."""
        if ctx.journal.entry(CHECKED) is not None:
            return
        directory = Path(plan.directory)
        problems: list[str] = []
        if agents := _agents_in_use(plan):
            problems += agent_access.find_missing_commands(agents, self._env, directory)
        if plan.preflight:
            problems += await agent_access.run_preflight_checks(plan.preflight, directory=directory, env=self._commands)
        if plan.check_agents:
            problems += await agent_access.find_missing_agents(_agents_of_steps(plan), self._env, self._keys)
        if problems:
            raise Failed("\n".join(["The preflight has failed", *problems]))
        if plan.preflight or plan.check_agents:
            await ctx.journal.write({CHECKED: "true"})

    async def _finish(self, ctx: Context, runner: Runner, outcome: RunOutcome, setup: RunSetup) -> None:
        if outcome.status == "failed":
            failed = ", ".join(outcome.failed)
            what = f"Failed at {failed}: {outcome.error}" if failed else f"Failed: {outcome.error}"
            raise Failed(what)
        try:
            output = run_output(runner.state, setup.env, setup.run)
        except Unresolved as error:
            raise Failed(f"The output of the workflow: {error}") from error
        await ctx.artifact(output or None, id="result", name="result")


def _agents_in_use(plan: Plan) -> list[AgentDef]:
    names = {step.agent for step in members.steps_of(plan.steps)} | {plan.repair_agent}
    return [agent for agent in plan.agents if agent.name in names]


def _agents_of_steps(plan: Plan) -> list[AgentDef]:
    """Return the agents of the steps, each with the overrides of its step."""
    step_members = (members.member_for(plan, step) for step in members.steps_of(plan.steps))
    return list({member.agent.url: member.agent for member in step_members if member is not None}.values())


def _with_name(document: Document, name: str) -> Document:
    """Return a document under another name. Its shared state keeps the old name as namespace."""
    state = document.state
    if state is not None and state.namespace is None:
        state = replace(state, namespace=document.name)
    return replace(document, name=name, state=state)


def _profile(document: Document, name: str) -> Profile:
    swarm, described = document.swarm, document.description or document.name
    return Profile(
        name=name,
        description=described,
        version=document.version if document.version.count(".") else f"{document.version}.0",
        skills=tuple(_skill(workflow, document) for workflow in document.workflows),
        input_modes=(TEXT, JSON),
        output_modes=(TEXT, JSON),
        crash=Crash.RESUME,
        attempts=ATTEMPTS,
        timeout=swarm.timeout,
        budget=Budget(max_tokens=swarm.token_budget, max_cost=swarm.cost_budget),
    )


def _skill(workflow: Workflow, document: Document) -> AgentSkill:
    described = workflow.description or document.description or workflow.name
    return AgentSkill(
        id=workflow.name, name=workflow.name, description=described, tags=("workflow",), input_schema=schema(document)
    )


def schema(document: Document) -> dict[str, Any] | None:
    """Return the JSON Schema of a document's inputs; None if it has none."""
    if not document.inputs:
        return None
    properties: dict[str, Any] = {}
    for name, one in document.inputs.items():
        stated = {"description": one.description, "default": one.default, "enum": list(one.enum) or None}
        properties[name] = {"type": one.type, **{key: value for key, value in stated.items() if value is not None}}
    required = [name for name, one in document.inputs.items() if one.required and one.default is None]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
