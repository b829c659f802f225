"""A workflow as an agent: each of its runs is a task, and its members are agents beside it that only runs reach.

It says who it is, makes a plan of what it is asked, and has the plan driven; the plan is written down with the run, so
that a file which changes meanwhile changes no run. Served, called, listed and cancelled it is like any other agent.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from accord.agents.command_environment import command_variables, document_variables
from accord.agents.process import subprocesses
from accord.client.keys import Credential, KeyManager, Keys
from accord.client.keys.variables import KEY_FILE
from accord.engine.agent import TEXT, Agent, Approvals, Crash, Node, Profile
from accord.engine.clock import SYSTEM
from accord.engine.context import Context, Failed, Rejected
from accord.model import AgentSkill
from accord.protocol.budgets import Budget
from accord.storage.commands import steps, tasks
from accord.storage.commands.journal import ORIGIN
from accord.storage.store import Store
from accord.workflows import members, origin, preflight, trajectory
from accord.workflows.circles import runs_itself
from accord.workflows.decide import Outcome
from accord.workflows.defaults import ruled
from accord.workflows.document import AgentDef, Document, Workflow
from accord.workflows.driving import PREFIX, Drive
from accord.workflows.earlier import carried_over
from accord.workflows.elsewhere import filled
from accord.workflows.findings import BadDocument
from accord.workflows.handing import addresses, mentioned_events
from accord.workflows.known import values_of_run
from accord.workflows.means import EXECUTORS, Means
from accord.workflows.members import Member
from accord.workflows.namespace import Shared
from accord.workflows.origin import PLAN, Wish
from accord.workflows.plan import Plan
from accord.workflows.planning import plan
from accord.workflows.reading import open_source
from accord.workflows.steps.kinds import Executor
from accord.workflows.values import Unresolved
from accord.workflows.wishes import wish_of

JSON = "application/json"

CHECKED = "flow-preflight"
"""What is kept under it: that the preflight of a run has passed."""

ATTEMPTS = 1000
"""How often a run may be lost: each goes on where the last one was, and a step that kills its process is its own."""


_EMPTY: Mapping[str, Any] = {
    "string": "",
    "number": 0,
    "integer": 0,
    "boolean": False,
    "array": [],
    "object": {},
}
"""Type of an input -> a value of it: who the members are may depend on no input."""


class Known:
    """The credentials that a workflow's members may name: of the environment, and later those that its node has."""

    def __init__(self, first: Keys) -> None:
        """Look in `first`, and then where `more` says."""
        self._first = first
        self.more: Callable[[str], Credential | None] = lambda _: None

    def find(self, id: str) -> Credential | None:
        """Return what is known under an id."""
        return self._first.find(id) or self.more(id)


class WorkflowAgent:
    """A document, as an agent."""

    def __init__(
        self,
        document: Document,
        *,
        name: str | None = None,
        directory: Path,
        env: Mapping[str, str],
        vars: Mapping[str, Any] | None = None,
        keys: Keys | None = None,
        executors: Mapping[str, Executor] = EXECUTORS,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Serve a document; `directory` is where relative paths begin. `text` is what its file says, if it has one.

        What is fixed for all of its runs, such as addresses, is filled in here: with `vars`. `env` is the server's
        environment: commands get the common variables of it, and those that the document names. Raises BadDocument.
        """
        self._title, self._told = document.name, msgspec.json.encode(document).decode()
        self.text: str | None = None
        self.document = document if name is None else _renamed(document, name)
        self._vars = dict(vars or {})
        self._directory, self._env = directory, document_variables(env)
        self._keys = Known(keys or KeyManager(env.get(KEY_FILE) or None, env=env))
        self._executors, self._given_ms = executors, now_ms
        self._now_ms = now_ms or SYSTEM.now_ms
        self._approvals = Approvals()
        self.profile = _profile(document, name or document.name)
        self._hosted = self._definitions()
        self.members: dict[str, Agent] = {
            member: members.made(member, one, env, self._keys) for member, one in self._hosted.items()
        }
        self.members.update(self._files(env))
        own = {variable: filled(value, self._env, self._keys) for variable, value in document.env.items()}
        self._commands = command_variables(self._env) | own
        self._store: Store
        self._store_files: frozenset[Path] = frozenset()
        self._url = ""

    def _definitions(self) -> dict[str, Member]:
        found: dict[str, Member] = {}
        workflows: list[str | None] = [one.name for one in self.document.workflows]
        for workflow in workflows or [None]:
            for name, member in members.definitions(self._plan(Wish(workflow=workflow), is_outline=True)).items():
                if found.setdefault(name, member) != member:
                    raise ValueError(f"{name}: two workflows have a step of that name that say different things of it")
        return found

    def _files(self, env: Mapping[str, str]) -> dict[str, Agent]:
        """Return the workflows of other files that this one has among its steps."""
        found: dict[str, Agent] = {}
        for one in self.document.workflows:
            for step in members.steps_of(one.steps):
                name = f"{self.document.name}/{step.file}"
                if step.kind == "workflow" and step.file is not None and name not in found:
                    path = self._directory / step.file
                    if runs_itself(path):
                        raise ValueError(f"The file {step.file} would run itself for ever: name another file")
                    source = open_source(path)
                    inner = WorkflowAgent(
                        source.document,
                        name=name,
                        directory=path.parent,
                        env=env,
                        vars=self._vars,
                        keys=self._keys,
                    )
                    inner.text = source.text
                    found |= {name: inner, **inner.members}
        return found

    # --- startup, shutdown ----------------------------------------------------------------------------------------

    async def start(self, node: Node) -> None:
        """Be ready to look at earlier runs, and to say where events can be posted."""
        self._store, self._url, self._approvals = node.store, node.url, node.approvals
        self._now_ms = self._given_ms or node.clock.now_ms
        self._keys.more = node.credential
        self._store_files = node.files

    async def stop(self) -> None:
        """Wait for commands of steps that are being ended."""
        await subprocesses.wait_until_stopped()

    # --- a run ----------------------------------------------------------------------------------------------------

    async def run(self, ctx: Context) -> None:
        """Do the work of one run, from wherever it stands."""
        made = await self._begun(ctx)
        means = Means(
            flow=self.profile.name,
            plan=made,
            hosted=self._hosted,
            env=self._env,
            commands=self._commands,
            now_ms=self._now_ms,
            keys=self._keys,
            shared=Shared(ctx, made, self._store),
            run={"id": ctx.task_id, "events": await addresses(ctx, made, self._url)},
            executors=self._executors,
            store_files=self._store_files,
        )
        await self._checked(ctx, made)
        await means.shared.load()
        drive = Drive(ctx, means)
        outcome = await drive.go()
        if (told := trajectory.told(made, drive.state)) is not None:
            await ctx.artifact(told, id="trajectory", name="trajectory")
        await self._finish(ctx, drive, outcome, means)

    async def _begun(self, ctx: Context) -> Plan:
        """Return the plan of a run, as it was made when it began."""
        entry = ctx.journal.entry(PLAN)
        if entry is not None:
            return msgspec.json.decode(entry, type=Plan)
        wish = wish_of(ctx, self.document)
        try:
            made = self._plan(wish)
        except BadDocument as error:
            raise Rejected(str(error)) from error
        for name, member in members.definitions(made).items():
            if self._hosted.get(name) != member:
                raise Rejected(f"What says where {name} is cannot be given with a run: it is fixed when it is served")
        if not self._url and (events := mentioned_events(made)):
            raise Rejected(
                f"{{{{run.events.{events[0]}}}}}: only a run on a server has addresses for events "
                "(serve the workflow with `accord serve`, and send it a message)"
            )
        entries = {PLAN: msgspec.json.encode(made).decode(), **self._origin(made, wish)}
        if wish.previous_run is not None or wish.start_from is not None:
            entries |= await self._earlier(ctx, made, wish)
        ctx.journal.note(entries)
        if made.preflight or made.check_agents:  # which may take its time
            await ctx.journal.write({})
        return made

    def _origin(self, made: Plan, wish: Wish) -> dict[str, str]:
        """Return where a run comes from."""
        found = origin.Origin(
            name=self._title, workflow=made.workflow, directory=str(self._directory), vars=self._vars, wish=wish
        )
        return origin.entries(found, self._told, self.text)

    def _plan(self, wish: Wish, *, is_outline: bool = False) -> Plan:
        made = plan(
            self.document,
            workflow=wish.workflow,
            vars={**self._vars, **wish.inputs, **wish.vars},
            input=wish.input,
            base=self._directory,
            env=self._env,
            is_outline=is_outline,
        )
        steps = tuple(ruled(step, self._approvals) for step in made.steps)
        return replace(made, check_agents=wish.check_agents, steps=steps)

    async def _earlier(self, ctx: Context, made: Plan, wish: Wish) -> dict[str, str]:
        """Return what an earlier run has done already and this one need not do again."""
        found: dict[str, str] = {}
        if wish.previous_run is not None:
            head = await self._store.read(tasks.read_head, ctx.tenant, wish.previous_run)
            if head is not None and head.owner == ctx.caller.owner:
                found = await self._store.read(steps.load, ctx.tenant, wish.previous_run)
            if ORIGIN not in found or origin.origin_of(found[ORIGIN]).name != self._title:
                raise Rejected(f"There is no earlier run {wish.previous_run} of {self._title}")
        kept = {key.removeprefix(PREFIX): entry for key, entry in found.items() if key.startswith(PREFIX)}
        try:
            records = carried_over(made, kept, wish.start_from, self._now_ms())
        except ValueError as error:
            raise Rejected(str(error)) from error
        return {PREFIX + record.key: msgspec.json.encode(record).decode() for record in records}

    async def _checked(self, ctx: Context, made: Plan) -> None:
        """Look once whether a run can succeed at all."""
        if ctx.journal.entry(CHECKED) is not None:
            return
        directory = Path(made.directory)
        problems = preflight.missing_commands(_used(made), self._env, directory)
        problems += await preflight.checked(made.preflight, directory=directory, env=self._commands)
        if made.check_agents:
            problems += await preflight.absent(_asked(made), self._env, self._keys)
        if problems:
            raise Failed("\n".join(["The preflight has failed", *problems]))
        if made.preflight or made.check_agents:
            await ctx.journal.write({CHECKED: "true"})

    async def _finish(self, ctx: Context, drive: Drive, outcome: Outcome, means: Means) -> None:
        if outcome.status == "failed":
            failed = ", ".join(outcome.failed)
            what = f"Failed at {failed}: {outcome.error}" if failed else f"Failed: {outcome.error}"
            raise Failed(what)
        try:
            said = values_of_run(drive.state, means.env, means.run)
        except Unresolved as error:
            raise Failed(f"The output of the workflow: {error}") from error
        await ctx.artifact(said or None, id="result", name="result")


def _used(made: Plan) -> list[AgentDef]:
    """Return the agents that a run may need."""
    wanted = {step.agent for step in members.steps_of(made.steps)} | {made.repair_agent}
    return [agent for agent in made.agents if agent.name in wanted]


def _asked(made: Plan) -> list[AgentDef]:
    """Return the agents that steps are for, each as its step has it."""
    found = (members.member_for(made, step) for step in members.steps_of(made.steps))
    return list({member.agent.url: member.agent for member in found if member is not None}.values())


def _renamed(document: Document, name: str) -> Document:
    """Return a document under another name; what its runs have in common stays under its own."""
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
        skills=tuple(_skill(one, document) for one in document.workflows),
        input_modes=(TEXT, JSON),
        output_modes=(TEXT, JSON),
        crash=Crash.RESUME,
        attempts=ATTEMPTS,
        timeout=swarm.timeout,
        budget=Budget(max_tokens=swarm.token_budget, max_cost=swarm.cost_budget),
    )


def _skill(workflow: Workflow, document: Document) -> AgentSkill:
    """Return a workflow as a skill, with what its runs may be given as a schema."""
    described = workflow.description or document.description or workflow.name
    return AgentSkill(
        id=workflow.name, name=workflow.name, description=described, tags=("workflow",), input_schema=schema(document)
    )


def schema(document: Document) -> dict[str, Any] | None:
    """Return the JSON Schema of what a run of a document may be given."""
    if not document.inputs:
        return None
    properties: dict[str, Any] = {}
    for name, one in document.inputs.items():
        stated = {"description": one.description, "default": one.default, "enum": list(one.enum) or None}
        properties[name] = {"type": one.type, **{key: value for key, value in stated.items() if value is not None}}
    required = [name for name, one in document.inputs.items() if one.required and one.default is None]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
