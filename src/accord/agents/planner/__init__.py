"""Planner: turns a prompt into held tasks of other agents.

    [agents.planner]
    type = "planner"

Without a model it uses the `rules`. With one, the model chooses among the three `tools`, and the rest is the same. It
waits for no task.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from accord.agents.chat import ChatOptions, ModelCall
from accord.agents.messages import append_answer, conversation_history, finish_answer
from accord.agents.planner import rules
from accord.agents.planner.rules import PlanCommand
from accord.agents.planner.tools import (
    CANCELED,
    EXECUTED,
    TOOLS,
    PlannedTask,
    PlannerTools,
    TaskDraft,
    ToolRequest,
    parse_calls,
)
from accord.api import TEXT, AgentEnvironment, Context, Failed, Rejected, ServedAgent
from accord.api.agent_types import JSON, AgentArguments, AgentType, Options, profile
from accord.errors import AccordError
from accord.model import Part
from accord.outbound import open_transport

__all__ = ["AGENT_TYPE", "PlannerAgent", "PlannerOptions", "planner"]


PROMPT = """You plan work for a team of agents. Break what the user wants into at most {most} tasks that can be done \
independently, and plan them with planTasks; name for each the agent that suits it best. Tasks do not begin by \
themselves: use updateTask with the status "working" when the user wants one to begin, "canceled" to drop it, and \
"completed" or "failed" with a result when the user says how it went. Answer questions in a sentence or two.

The agents:
{agents}

The tasks so far:
{tasks}"""
"""System prompt of the model."""


class PlannerOptions(Options, frozen=True, kw_only=True):
    """Options of a planner.

    `agents` are the names of the agents that it plans for [default: all agents of this server].
    `default` is the agent for tasks that match no other. With a `model`, the planner calls it at `base_url`, over
    OpenAI's API.
    """

    SECRET = frozenset({"api_key", "headers"})

    agents: tuple[str, ...] = ()
    default: str | None = None
    most: Annotated[int, Meta(ge=1, le=50)] = 8
    """Maximum number of tasks for one prompt; a person must be able to review them."""

    model: str | None = None
    base_url: str = "http://localhost:11434/v1"
    api_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    temperature: Annotated[float, Meta(ge=0)] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError("`base_url` must begin with http:// or https://")
        if self.model is None and (self.api_key or self.headers or self.extra):
            raise ValueError("`api_key`, `headers` and `extra` have no effect without a `model`")

    def asking(self, system_prompt: str, tools: list[dict[str, Any]]) -> ChatOptions:
        """Return the options for a call of the model."""
        return ChatOptions(
            model=self.model or "",
            base_url=self.base_url,
            api_key=self.api_key,
            headers=self.headers,
            temperature=self.temperature,
            system_prompt=system_prompt,
            extra={"tools": tools, **self.extra},
        )


RESULT = 200
"""Maximum number of characters shown of a task's result."""

EXECUTABLE, OPEN = frozenset({"submitted"}), frozenset({"submitted", "working", "input-required", "auth-required"})

HOW = 'Shall they begin? Say "yes" or "execute 2" to begin, "cancel 2" to drop one, "status" to see how they stand.'


class PlannerAgent:
    """An agent that plans tasks for other agents."""

    def __init__(self, given: AgentArguments) -> None:
        self.profile = profile(
            given,
            name="planner",
            description="Turns what you want into tasks of the agents here, and begins them when you say so.",
            skills=("plan", "tasks"),
            input_modes=(TEXT, JSON),
            output_modes=(TEXT, JSON),
        )
        self._options: PlannerOptions = given.options
        self._transport = open_transport("aiohttp", silent_seconds=120.0) if self._options.model else None

    async def start(self, node: AgentEnvironment) -> None:
        """Do nothing; connections are opened on demand."""

    async def stop(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.close()

    async def run(self, ctx: Context) -> None:
        """Plan the tasks in the message, or execute a command on planned tasks."""
        tools = await PlannerTools.open(ctx)
        if self._transport is not None:
            await self._plan_by_model(ctx, tools)
            return
        command = rules.parse_command(ctx.text) if tools.plan else None
        if command is not None:
            await self._execute_command(ctx, tools, command)
        else:
            await self._plan(ctx, tools)

    # --- by rules -------------------------------------------------------------------------------------------------

    async def _plan(self, ctx: Context, tools: PlannerTools) -> None:
        titles = rules.split_prompt(ctx.text)
        if not titles:
            raise Rejected("Say what is to be done: a sentence, or a line for each task")
        agents = self._agents(ctx)
        default = self._default(agents)
        most = self._options.most
        drafts = [TaskDraft(title=title, agent=rules.pick_agent(title, agents, default)) for title in titles[:most]]
        planned = await tools.plan_tasks(ctx.text, drafts)
        await self._write_plan(ctx, tools, planned, left_out=titles[most:])

    async def _execute_command(self, ctx: Context, tools: PlannerTools, command: PlanCommand) -> None:
        if command.verb == "status":
            await self._status(ctx, tools)
            return
        status = {"execute": EXECUTED, "cancel": CANCELED, "done": "completed"}[command.verb]
        open_states = OPEN if command.verb == "cancel" else EXECUTABLE
        tasks = await self._chosen(tools, command.numbers, open_states)
        lines = [await self._updated(tools, task, status, command.rest or None) for task in tasks]
        missing = sorted(set(command.numbers) - {task.number for task in tools.plan})
        lines += [f"There is no task {number}." for number in missing]
        await append_answer(ctx, "\n".join(lines) or "There is nothing left to do that with.")
        await self._show_plan(ctx, tools)

    async def _chosen(self, tools: PlannerTools, numbers: Sequence[int], states: frozenset[str]) -> list[PlannedTask]:
        """Return the tasks with these numbers, or without numbers all in one of these states."""
        if numbers:
            return [task for task in tools.plan if task.number in numbers]
        return [task for task, state, _ in await tools.statuses() if state in states]

    async def _updated(self, tools: PlannerTools, planned: PlannedTask, status: str, result: Any = None) -> str:
        try:
            new_status = await tools.update_task(planned.task_id, status, result)
        except AccordError as error:
            return f"{planned.number}. {planned.title}: {error.message}"
        return f"{planned.number}. {planned.title} ({planned.agent}): {new_status}"

    async def _status(self, ctx: Context, tools: PlannerTools) -> None:
        lines = []
        for task, state, result in await tools.statuses():
            line = " ".join(result.split())
            excerpt = f": {line if len(line) <= RESULT else line[:RESULT] + '…'}" if line else ""
            lines.append(f"{task.number}. {task.title} ({task.agent}) is {state}{excerpt}")
        await append_answer(ctx, "\n".join(lines) or "Nothing is planned yet.")
        await self._show_plan(ctx, tools)

    async def _write_plan(
        self,
        ctx: Context,
        tools: PlannerTools,
        planned: Sequence[PlannedTask],
        left_out: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> None:
        count = "one task, which has" if len(planned) == 1 else f"{len(planned)} tasks, which have"
        lines = [f"I have planned {count} not begun yet:", ""]
        lines += [f"{task.number}. {task.title} ({task.agent})" for task in planned]
        if left_out:
            lines += ["", f"Left out, because I plan {self._options.most} at a time: {'; '.join(left_out)}."]
        await append_answer(ctx, "\n".join([*notes, *lines, "", HOW]))
        await self._show_plan(ctx, tools)

    async def _show_plan(self, ctx: Context, tools: PlannerTools) -> None:
        await finish_answer(ctx)
        plan = [
            {"number": task.number, "title": task.title, "agent": task.agent, "taskId": task.task_id}
            for task in tools.plan
        ]
        await ctx.artifact([Part(data={"tasks": plan}, media_type=JSON)], id="plan", name="Plan")

    # --- by a model -----------------------------------------------------------------------------------------------

    async def _plan_by_model(self, ctx: Context, tools: PlannerTools) -> None:
        has_said, calls = await self._answer(ctx, tools)
        planned: list[PlannedTask] = []
        lines: list[str] = []
        for call in calls:
            if call.wishes:
                agents = self._agents(ctx)
                drafts = [self._assign_agent(draft, agents) for draft in call.wishes[: self._options.most]]
                planned += await tools.plan_tasks(ctx.text, drafts)
            else:
                lines.append(await self._apply_update(tools, call))
        if not (has_said or planned or lines):
            raise Failed("The model returned no answer")
        await append_answer(ctx, "\n\n" if has_said and (planned or lines) else "")
        if planned:
            await self._write_plan(ctx, tools, planned, notes=lines)
        elif lines:
            await append_answer(ctx, "\n".join(lines))
            await self._show_plan(ctx, tools)
        else:
            await finish_answer(ctx)

    async def _answer(self, ctx: Context, tools: PlannerTools) -> tuple[bool, list[ToolRequest]]:
        """Stream the model's text, and return whether there was any, and its tool calls."""
        assert self._transport is not None  # only called with a model
        options = self._options.asking(await self._prompt(ctx, tools), TOOLS)
        call = ModelCall(options, self._transport, {"task_id": ctx.task_id})
        answer = await call.answer(ctx, await conversation_history(ctx))
        await call.report_usage(ctx, answer)
        return bool(answer.text), parse_calls(answer.calls)

    async def _prompt(self, ctx: Context, tools: PlannerTools) -> str:
        agents = (
            "\n".join(f"- {name}: {entry.description}" for name, entry in self._matching_agents(ctx).items())
            or "- none"
        )
        states = [(entry, state) for entry, state, _ in await tools.statuses()] if tools.plan else []
        tasks = "\n".join(
            f"- {entry.task_id}: {entry.number}. {entry.title} ({entry.agent}), {state}" for entry, state in states
        )
        return PROMPT.format(most=self._options.most, agents=agents, tasks=tasks or "- none")

    def _assign_agent(self, draft: TaskDraft, agents: Mapping[str, ServedAgent]) -> TaskDraft:
        """Return a draft for an existing agent, since models invent names."""
        names_by_slug = {rules.slug(name): name for name in agents}
        default = self._default(agents)
        agent = names_by_slug.get(rules.slug(draft.agent)) or rules.pick_agent(draft.title, agents, default)
        return msgspec.structs.replace(draft, agent=agent)

    async def _apply_update(self, tools: PlannerTools, call: ToolRequest) -> str:
        planned = next((task for task in tools.plan if task.task_id == call.task_id), None)
        if planned is None:
            return f"There is no task {call.task_id[:60]}."
        return await self._updated(tools, planned, call.status, call.result)

    # --- agents to plan for -------------------------------------------------------------------------------------------

    def _agents(self, ctx: Context) -> dict[str, ServedAgent]:
        """Return the agents for tasks by name; raises Failed if there are none."""
        agents = self._matching_agents(ctx)
        if not agents:
            raise Failed("There is no agent here to plan for")
        return agents

    def _matching_agents(self, ctx: Context) -> dict[str, ServedAgent]:
        slugs = {rules.slug(name) for name in self._options.agents}
        return {
            name: agent
            for name, agent in ctx.spawning.agents.items()
            if name != self.profile.name and (not slugs or rules.slug(name) in slugs)
        }

    def _default(self, agents: Mapping[str, ServedAgent]) -> str:
        default_slug = rules.slug(self._options.default or "")
        return next((name for name in agents if rules.slug(name) == default_slug), next(iter(agents)))


AGENT_TYPE = AgentType(name="planner", options=PlannerOptions, make=PlannerAgent)

planner = PlannerAgent(AgentArguments(options=PlannerOptions()))
"""A planner that uses rules, for servers that load it by name."""
