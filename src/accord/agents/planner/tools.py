"""The three tools of a planner: `planTasks`, `createTask` and `updateTask`, done once each and told as they are done.

Planned tasks are the caller's own, in the conversation of the plan, and held until somebody executes them; here only
those are changed. What is to be done is decided by `agent`; front ends know the tools by their names.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from accord.engine.context import Context
from accord.engine.messages import text_of
from accord.errors import AccordError, TaskNotFound
from accord.model import Task, TaskState
from accord.protocol.states import LOWER

PLAN, CREATE, UPDATE = "planTasks", "createTask", "updateTask"
KEY = "plan"
"""What is kept of a conversation."""

KEPT = 200
"""Tasks that a plan remembers: a conversation that plans more forgets its first ones."""

GONE = "gone"
"""The status of a task that is not kept any more."""

EXECUTED, CANCELED, ENDED = (
    "working",
    LOWER[TaskState.CANCELED],
    {"completed": TaskState.COMPLETED, "failed": TaskState.FAILED},
)
"""What a task's status may be changed to, and what that means."""


class Planned(Struct, frozen=True, kw_only=True, rename="camel"):
    """A planned task: its number in the conversation, and the turn that planned it."""

    number: int
    title: str
    agent: str
    task_id: str
    turn: str = ""


class Wish(Struct, frozen=True, kw_only=True):
    """A task as it is to be planned; `text` is what its agent is told, if that is more than the title."""

    title: str
    agent: str
    text: str = ""


_plans = msgspec.json.Decoder(list[Planned])


class Tools:
    """What a planner does in one turn."""

    def __init__(self, ctx: Context, plan: Sequence[Planned]) -> None:
        """Go on with a plan."""
        self.plan = [one for one in plan if one.turn != ctx.task_id]
        self._ctx = ctx
        self._calls = 0

    @classmethod
    async def open(cls, ctx: Context) -> "Tools":
        """Return the tools for what is planned in a conversation so far."""
        kept = await ctx.recall_context(KEY)
        return cls(ctx, [] if kept is None else _plans.decode(kept))

    async def plan_tasks(self, prompt: str, wishes: Sequence[Wish]) -> list[Planned]:
        """Plan tasks, and make each."""
        named = [{"title": wish.title, "agent": wish.agent} for wish in wishes]
        await self._tell(PLAN, {"prompt": prompt}, {"tasks": named})
        return [await self.create_task(wish) for wish in wishes]

    async def create_task(self, wish: Wish) -> Planned:
        """Make one task, which is held, and remember it."""
        number = len(self.plan) + 1
        call = await self._begin(CREATE, given := {"title": wish.title, "agent": wish.agent})
        task_id = await self._ctx.spawn(wish.agent, wish.text or wish.title, key=f"task-{number}", hold=True)
        made = Planned(number=number, title=wish.title, agent=wish.agent, task_id=task_id, turn=self._ctx.task_id)
        self.plan.append(made)
        await self._ctx.remember_context(KEY, self._with_mine)
        await self._end(CREATE, call, given, self._row(made, LOWER[TaskState.SUBMITTED]))
        return made

    async def update_task(self, task_id: str, status: str, result: Any = None) -> str:
        """Change the status of a task of this conversation, and return what it is then; raises AccordError."""
        call = await self._begin(UPDATE, given := {"taskId": task_id, "status": status})
        known = next((one for one in self.plan if one.task_id == task_id), None)
        try:
            if known is None:
                raise TaskNotFound(metadata={"taskId": task_id})
            now = LOWER[(await self._changed(task_id, status, result)).status.state]
        except AccordError as error:
            await self._ctx.status(metadata=_activity(UPDATE, call, given, error=error.message))
            raise
        await self._end(UPDATE, call, given, self._row(known, now))
        return now

    async def standing(self) -> list[tuple[Planned, str, str]]:
        """Tell and return how all that is planned stands, and what came of it."""
        found = [(one, *await self._state(one)) for one in self.plan]
        rows = [{**self._row(one, state), "number": one.number} for one, state, _ in found]
        await self._tell(PLAN, {}, {"tasks": rows})
        return found

    async def _changed(self, task_id: str, status: str, result: Any) -> Task:
        spawning = self._ctx.spawning
        if status in ENDED:
            return await spawning.conclude(task_id, ENDED[status], result)
        if status == CANCELED:
            return await spawning.cancel(task_id)
        return await spawning.execute(task_id)

    async def _state(self, planned: Planned) -> tuple[str, str]:
        try:
            task = await self._ctx.spawning.read(planned.task_id)
        except TaskNotFound:
            return GONE, ""
        said = text_of(task.status.message.parts) if task.status.message else ""
        return LOWER[task.status.state], text_of(part for one in task.artifacts for part in one.parts) or said

    def _with_mine(self, kept: str | None) -> str:
        """Return what is to be remembered, with what another turn may have planned at the same time."""
        others = [] if kept is None else [one for one in _plans.decode(kept) if one.turn != self._ctx.task_id]
        mine = [one for one in self.plan if one.turn == self._ctx.task_id]
        return msgspec.json.encode([*others, *mine][-KEPT:]).decode()

    def _row(self, planned: Planned, status: str) -> dict[str, Any]:
        return {"taskId": planned.task_id, "status": status, "title": planned.title, "agent": planned.agent}

    # --- telling --------------------------------------------------------------------------------------------------

    async def _tell(self, tool: str, given: dict[str, Any], output: dict[str, Any]) -> None:
        await self._end(tool, await self._begin(tool, given), given, output)

    async def _begin(self, tool: str, given: dict[str, Any]) -> str:
        self._calls += 1
        call = f"{tool}-{self._ctx.place}-{self._calls}"
        await self._ctx.status(metadata=_activity(tool, call, given))
        return call

    async def _end(self, tool: str, call: str, given: dict[str, Any], output: dict[str, Any]) -> None:
        await self._ctx.status(metadata=_activity(tool, call, given, output=output))


def _activity(tool: str, call: str, given: dict[str, Any], **outcome: Any) -> dict[str, Any]:
    return {"tool": {"name": tool, "callId": call, "input": given, **outcome}}
