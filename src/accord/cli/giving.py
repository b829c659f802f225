"""Giving a run what it waits for, and ending it, with nothing but its store.

What is given is written down; whichever node hosts the workflow goes on with the run, and if none does, that is said.
What may be asked of it is `cli.runs`, and what a run waits for `workflows.signals`.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec
import typer

from accord.cli.exits import Exit
from accord.cli.going import Going
from accord.cli.tables import Output, plain
from accord.engine.clock import SYSTEM
from accord.engine.context import APPROVAL, wait_key
from accord.engine.ids import new_id
from accord.errors import TaskNotFound
from accord.model import Message, Part, Role, TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.protocol.lifecycle import INTERRUPTED
from accord.protocol.states import LOWER
from accord.storage.commands import endings, journal, runs, tasks
from accord.storage.store import Store
from accord.workflows.channel import METADATA
from accord.workflows.signals import NotWaiting, RunSignals
from accord.workflows.stored_run import StoredRun, encode_decision

TAKEN_SECONDS = 2.5
"""How long a node may take to see that there is something to do, before it is said that there is none: they look every
second."""

LOOK_SECONDS = 0.1


class Giving:
    """One run that is given something; each method says what it has done and returns how the command ends."""

    def __init__(self, command: str, store: Store, run: StoredRun, going: Going) -> None:
        """Speak for `command`; `going` knows how to go on with the run."""
        self._command, self._store, self._run, self._going = command, store, run, going
        self._id, self._tenant = run.task.task_id, run.task.tenant
        self._handing = RunSignals(store, self._wake, {run.task.agent})

    async def decide(self, step: str | None, *, is_approved: bool, comment: str) -> Exit:
        """Approve or refuse what a step asks: the only one that does, if none is named."""
        if self._run.is_over:
            return self._refuse_ended(self._run.task.state)
        asking = [wait.step for wait in self._run.waits() if wait.is_approval]
        helper = await self._asking_for_another()
        if step is None:
            asking += [] if helper is None else [helper]
            if len(asking) != 1:
                several = f"several steps ask: {', '.join(asking)}"
                return self._refuse(several if asking else "no step asks for approval")
            step = asking[0]
        what = f"{step} is {'approved' if is_approved else 'rejected'}"
        if step == helper:
            return await self._say(Part(data=encode_decision(is_approved=is_approved, comment=comment)), what)
        return await self._hand(self._handing.decide(self._run, step, approved=is_approved, comment=comment), what)

    async def signal(self, event: str, data: str) -> Exit:
        """Hand in an event, with what is JSON as that and all else as text."""
        try:
            value = msgspec.json.decode(data)
        except msgspec.DecodeError:
            value = data
        return await self._hand(self._handing.tell(self._run, event, value), f"{event} is handed in")

    async def answer(self, text: str) -> Exit:
        """Answer what the run asks."""
        if self._run.is_over:
            return self._refuse_ended(self._run.task.state)
        if self._run.task.state not in INTERRUPTED:
            return self._refuse(f"{self._id} asks nothing")
        return await self._say(Part(text=text), f"{self._id} is answered")

    async def cancel(self, reason: str | None) -> Exit:
        """End the run, and all that it has begun."""
        at = SYSTEM.now_ms()
        said = Message(message_id=new_id(), role=Role.AGENT, parts=(Part(text=reason or ""),), task_id=self._id)
        status = TaskStatus(state=TaskState.CANCELED, message=said if reason else None, timestamp=timestamp_ms(at))
        try:
            await self._store.do(endings.end, self._tenant, endings.Ending(task_id=self._id, status=status, at=at))
        except endings.HasEnded as error:
            return self._refuse_ended(error.state)
        typer.echo(f"{self._id} is canceled")
        return Exit.DONE

    # --- how it gets there ----------------------------------------------------------------------------------------

    async def _asking_for_another(self) -> str | None:
        """Return the step whose agent, or workflow, asks for an approval that the run has passed on."""
        stored = await self._store.read(tasks.read_task, self._tenant, self._id)
        status = None if stored is None else stored.task().status
        if status is None or status.state not in INTERRUPTED or status.message is None:
            return None
        known = status.message.metadata or {}
        about = known.get(METADATA) or {}
        return str(about["step"]) if known.get(APPROVAL) is True and "task" in about else None

    async def _wake(self, tenant: str, task_id: str, key: str, value: Any) -> bool:
        output = msgspec.json.encode(value).decode()
        news = runs.News(task_id=task_id, key=wait_key(key), output=output, at=SYSTEM.now_ms())
        return await self._store.do(runs.wake, tenant, news)

    async def _hand(self, work: Awaitable[None], what: str) -> Exit:
        """Hand something in, if that is waited for."""
        try:
            await work
        except (TaskNotFound, NotWaiting) as error:
            return self._refuse(str(error))
        return await self._tell(what)

    async def _say(self, part: Part, what: str) -> Exit:
        """Say something to the run, as whoever has begun it would."""
        message = Message(message_id=new_id(), role=Role.USER, parts=(part,), task_id=self._id)
        work = runs.Work(queue=self._run.task.agent)
        try:
            await self._store.do(
                runs.say, self._tenant, runs.Say(task_id=self._id, message=message, work=work, at=SYSTEM.now_ms())
            )
        except endings.HasEnded as error:
            return self._refuse_ended(error.state)
        return await self._tell(what)

    def _refuse_ended(self, state: TaskState) -> Exit:
        return self._refuse(f"{self._id} has ended: it is {LOWER[state]}")

    def _refuse(self, why: str) -> Exit:
        typer.echo(f"{self._command}: {plain(why)}", err=True)
        return Exit.FAILED

    async def _tell(self, what: str) -> Exit:
        """Say what was done, and if nobody goes on with the run."""
        typer.echo(plain(what))
        if not await self._is_taken():
            typer.echo(f"No node is there to go on with the run: {self._going.again('runs resume')}", err=True)
        return Exit.DONE

    async def _is_taken(self) -> bool:
        """Whether a node goes on with the run."""
        try:
            async with asyncio.timeout(TAKEN_SECONDS):
                while True:
                    held = await self._store.read(journal.held, self._tenant, self._id)
                    if held is None or not held.is_left:
                        return True
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            return False


def giving(command: str, store: Store, run: StoredRun, url: str | None) -> Giving:
    """Return what gives a run of the store at `url` what it waits for."""
    going = Going(url, Output.TEXT)
    going.run_id = run.task.task_id
    return Giving(command, store, run, going)
