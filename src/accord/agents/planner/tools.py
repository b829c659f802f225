"""Tools of a planner, and a model's calls of them.

The tools are `planTasks`, `createTask` and `updateTask`. Each call is executed once, and reported meanwhile. Planned
tasks belong to the caller, in the conversation of the plan, and are held until they are executed. Only planned tasks
are changed here. Malformed calls of a model are ignored.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from accord.agents.chat_apis import ToolCall
from accord.api import Context, text_of
from accord.errors import AccordError, TaskNotFound
from accord.model import Task, TaskState
from accord.protocol.states import LOWER

PLAN, CREATE, UPDATE = "planTasks", "createTask", "updateTask"
KEY = "plan"
"""Key of the plan in the conversation's state."""

MAX_PLANNED = 200
"""Maximum number of tasks in a plan; the oldest are dropped."""

GONE = "gone"
"""Status of a task that has been deleted."""

EXECUTED, CANCELED, ENDED = (
    "working",
    LOWER[TaskState.CANCELED],
    {"completed": TaskState.COMPLETED, "failed": TaskState.FAILED},
)
"""Values for a task's new status, and the task states of those that end it."""


class PlannedTask(Struct, frozen=True, kw_only=True, rename="camel"):
    """A planned task: its number in the conversation, and the turn that planned it."""

    number: int
    title: str
    agent: str
    task_id: str
    turn: str = ""


class TaskDraft(Struct, frozen=True, kw_only=True):
    """A task before it is created; `text` is its agent's prompt, if that is more than the title."""

    title: str
    agent: str
    text: str = ""


_plans = msgspec.json.Decoder(list[PlannedTask])


class PlannerTools:
    """The tools of a planner in one turn."""

    def __init__(self, ctx: Context, plan: Sequence[PlannedTask]) -> None:
        """Continue an existing plan."""
        self.plan = [task for task in plan if task.turn != ctx.task_id]
        self._ctx = ctx
        self._calls = 0

    @classmethod
    async def open(cls, ctx: Context) -> "PlannerTools":
        """Return the tools for the plan of a conversation."""
        stored = await ctx.recall_context(KEY)
        return cls(ctx, [] if stored is None else _plans.decode(stored))

    async def plan_tasks(self, prompt: str, drafts: Sequence[TaskDraft]) -> list[PlannedTask]:
        """Plan several tasks, and create each as a held task."""
        named = [{"title": draft.title, "agent": draft.agent} for draft in drafts]
        await self._report(PLAN, {"prompt": prompt}, {"tasks": named})
        return [await self.create_task(draft) for draft in drafts]

    async def create_task(self, draft: TaskDraft) -> PlannedTask:
        """Create one held task, and add it to the plan."""
        number = len(self.plan) + 1
        call = await self._begin(CREATE, arguments := {"title": draft.title, "agent": draft.agent})
        task_id = await self._ctx.spawn(draft.agent, draft.text or draft.title, key=f"task-{number}", hold=True)
        planned = PlannedTask(
            number=number, title=draft.title, agent=draft.agent, task_id=task_id, turn=self._ctx.task_id
        )
        self.plan.append(planned)
        await self._ctx.remember_context(KEY, self._merged_plan)
        await self._end(CREATE, call, arguments, self._row(planned, LOWER[TaskState.SUBMITTED]))
        return planned

    async def update_task(self, task_id: str, status: str, result: Any = None) -> str:
        """Change the status of a planned task, and return its new status; raises AccordError."""
        call = await self._begin(UPDATE, arguments := {"taskId": task_id, "status": status})
        planned = next((task for task in self.plan if task.task_id == task_id), None)
        try:
            if planned is None:
                raise TaskNotFound(metadata={"taskId": task_id})
            new_status = LOWER[(await self._change_task(task_id, status, result)).status.state]
        except AccordError as error:
            await self._ctx.status(metadata=_activity(UPDATE, call, arguments, error=error.message))
            raise
        await self._end(UPDATE, call, arguments, self._row(planned, new_status))
        return new_status

    async def statuses(self) -> list[tuple[PlannedTask, str, str]]:
        """Report and return the status and result of every planned task."""
        listed = [(task, *await self._state(task)) for task in self.plan]
        rows = [{**self._row(task, state), "number": task.number} for task, state, _ in listed]
        await self._report(PLAN, {}, {"tasks": rows})
        return listed

    async def _change_task(self, task_id: str, status: str, result: Any) -> Task:
        spawning = self._ctx.spawning
        if status in ENDED:
            return await spawning.conclude(task_id, ENDED[status], result)
        if status == CANCELED:
            return await spawning.cancel(task_id)
        return await spawning.execute(task_id)

    async def _state(self, planned: PlannedTask) -> tuple[str, str]:
        try:
            task = await self._ctx.spawning.read(planned.task_id)
        except TaskNotFound:
            return GONE, ""
        message_text = text_of(task.status.message.parts) if task.status.message else ""
        return LOWER[task.status.state], text_of(
            part for artifact in task.artifacts for part in artifact.parts
        ) or message_text

    def _merged_plan(self, stored: str | None) -> str:
        """Return the plan to store, merged with tasks that another turn may have added meanwhile."""
        others = [] if stored is None else [task for task in _plans.decode(stored) if task.turn != self._ctx.task_id]
        own_tasks = [task for task in self.plan if task.turn == self._ctx.task_id]
        return msgspec.json.encode([*others, *own_tasks][-MAX_PLANNED:]).decode()

    def _row(self, planned: PlannedTask, status: str) -> dict[str, Any]:
        return {"taskId": planned.task_id, "status": status, "title": planned.title, "agent": planned.agent}

    # --- reporting ----------------------------------------------------------------------------------------------------

    async def _report(self, tool: str, arguments: dict[str, Any], output: dict[str, Any]) -> None:
        await self._end(tool, await self._begin(tool, arguments), arguments, output)

    async def _begin(self, tool: str, arguments: dict[str, Any]) -> str:
        self._calls += 1
        call = f"{tool}-{self._ctx.place}-{self._calls}"
        await self._ctx.status(metadata=_activity(tool, call, arguments))
        return call

    async def _end(self, tool: str, call: str, arguments: dict[str, Any], output: dict[str, Any]) -> None:
        await self._ctx.status(metadata=_activity(tool, call, arguments, output=output))


def _activity(tool: str, call: str, arguments: dict[str, Any], **outcome: Any) -> dict[str, Any]:
    return {"tool": {"name": tool, "callId": call, "input": arguments, **outcome}}


_TEXT = {"type": "string"}
_TASK = {
    "title": {**_TEXT, "description": "What is to be done, in one line"},
    "agent": {**_TEXT, "description": "The name of the agent that does it"},
    "prompt": {**_TEXT, "description": "What the agent is told, if that is more than the title"},
}


def _tool(name: str, description: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    _tool(
        PLAN,
        "Plan several tasks; each waits until the user wants it to begin.",
        {"tasks": {"type": "array", "items": {"type": "object", "properties": _TASK, "required": ["title"]}}},
        "tasks",
    ),
    _tool(CREATE, "Plan one more task.", _TASK, "title"),
    _tool(
        UPDATE,
        "Change a planned task: let it begin, drop it, or note how it went.",
        {
            "taskId": _TEXT,
            "status": {**_TEXT, "enum": [EXECUTED, CANCELED, *ENDED]},
            "result": {**_TEXT, "description": "What came of it"},
        },
        "taskId",
        "status",
    ),
]
"""Tools that a model may call."""


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A tool call of a model: tasks to plan, or a change of one task."""

    wishes: tuple[TaskDraft, ...] = ()
    task_id: str = ""
    status: str = ""
    result: str | None = None


def parse_calls(calls: Iterable[ToolCall]) -> list[ToolRequest]:
    """Return the requests in the tool calls of an answer, in order; each call comes in several pieces."""
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for call in calls:
        names[call.at] = names.get(call.at, "") + call.name
        arguments[call.at] = arguments.get(call.at, "") + call.arguments
    read = [_parse_call(names[at], arguments[at]) for at in sorted(names)]
    return [request for request in read if request is not None]


def _parse_call(name: str, arguments: str) -> ToolRequest | None:
    try:
        decoded = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return None
    if not isinstance(decoded, dict):
        return None
    if name == UPDATE:
        task_id, status, result = decoded.get("taskId"), decoded.get("status"), decoded.get("result")
        if not isinstance(task_id, str) or not isinstance(status, str) or status not in (EXECUTED, CANCELED, *ENDED):
            return None
        return ToolRequest(task_id=task_id, status=status, result=_as_text(result))
    listed = decoded.get("tasks") if name == PLAN else [decoded] if name == CREATE else None
    drafts = [_task_draft(item) for item in listed] if isinstance(listed, list) else []
    valid = tuple(draft for draft in drafts if draft is not None)
    return ToolRequest(wishes=valid) if valid else None


def _task_draft(draft: Any) -> TaskDraft | None:
    if isinstance(draft, str):
        draft = {"title": draft}
    if not isinstance(draft, dict) or not (title := _as_text(draft.get("title"))):
        return None
    return TaskDraft(title=title, agent=_as_text(draft.get("agent")) or "", text=_as_text(draft.get("prompt")) or "")


def _as_text(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()
