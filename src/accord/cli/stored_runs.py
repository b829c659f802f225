"""Runs in a store: tables and logs, and decisions, signals, answers and cancels.

Only the store is needed. A node that hosts the workflow continues the run. If none does within seconds, the command
reports that.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from accord.api import SYSTEM, Store, administration, new_id, queries, wait_key
from accord.api.queries import decode_event
from accord.cli import agent_output, tables
from accord.cli.failures import Exit
from accord.cli.run_display import RunEvent, format_duration, run_events
from accord.cli.run_host import RunCommand
from accord.cli.tables import OutputFormat, printable, time_of
from accord.errors import TaskNotFound
from accord.model import Message, Part, Role, TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.states import LOWER
from accord.workflows import stored_run
from accord.workflows.channel import QuestionOrigin
from accord.workflows.run_request import origin_of
from accord.workflows.signals import NotWaiting, RunSignals
from accord.workflows.stored_run import StoredRun, StoredStep, encode_decision

if TYPE_CHECKING:
    from accord.api import Store
    from accord.api.queries import ListedRun
    from accord.model import Event
    from accord.workflows.stored_run import StoredRun


COLUMNS = ("run", "workflow", "state", "started", "duration", "waits_for")

FOLLOW_SECONDS = 0.5
"""Seconds between two polls of a log: a command receives no notifications."""

WAITS_FOR_NODE = "a node: accord runs resume"
"""Shown for a run that is ready but has no node."""


async def run_row(store: "Store", run: "ListedRun") -> dict[str, Any]:
    """Return a run as a list row."""
    origin = origin_of(run.origin)
    is_over = run.state in ENDED
    return {
        "run": run.task_id,
        "workflow": origin.title,
        "state": LOWER[run.state],
        "started": time_of(run.begun_at),
        "duration": format_duration(((run.updated_at if is_over else SYSTEM.now_ms()) - run.begun_at) / 1000),
        "waits_for": [] if is_over else await run_waits(store, run),
        "tenant": run.tenant,
        "agent": run.agent,
        "parent": run.parent_id,
    }


async def run_waits(store: "Store", run: "ListedRun") -> list[str]:
    """Return the signals, approvals or answers that an unfinished run waits for."""
    held = await queries.job_status(store, run.tenant, run.task_id)
    if held is not None and held.is_left:
        return [WAITS_FOR_NODE]
    found = await stored_run.load_stored_run(store, run.task_id)
    told = [] if found is None else [str(wait) for wait in found.waits()]
    if run.state in INTERRUPTED and not told:
        return ["credentials" if run.state is TaskState.AUTH_REQUIRED else "an answer"]
    return told


def show_list(rows: list[dict[str, Any]], form: OutputFormat) -> None:
    """Print runs."""
    if form is OutputFormat.TEXT:
        rows = [{**one, "waits_for": ", ".join(one["waits_for"])} for one in rows]
    tables.print_rows(rows, COLUMNS, form)


async def show_run(store: "Store", found: "StoredRun", form: OutputFormat) -> None:
    """Print a run and its steps."""
    about = await run_row(store, found.task)
    lines = found.lines()
    if form is OutputFormat.JSON:
        stored = await queries.read_task(store, found.task.tenant, found.task.task_id)
        said = None if stored is None else stored.task().status.message
        message = None if said is None else agent_output.text_of(said.parts)
        agent_output.write(
            agent_output.compact({**about, "message": message, "steps": [_step_json(line) for line in lines]}) + "\n"
        )
        return
    shown = ("run", "workflow", "state", "started", "duration", "waits_for", "parent")
    told = {name: ", ".join(about[name]) if name == "waits_for" else about[name] for name in shown}
    agent_output.lines(
        agent_output.field(name.replace("_", " ").capitalize(), value) for name, value in told.items() if value
    )
    agent_output.write("\n")
    tables.print_rows(
        [_step_row(line) for line in lines], ("step", "type", "status", "duration", "attempts", "task", "error"), form
    )


def _step_json(line: StoredStep) -> dict[str, Any]:
    from msgspec import to_builtins

    found: dict[str, Any] = to_builtins(line)
    return found if line.seconds is None else {**found, "seconds": round(line.seconds, 3)}


def _step_row(line: StoredStep) -> dict[str, Any]:
    took = line.seconds
    if took is None and line.status == "running" and line.begun_at is not None:
        took = (SYSTEM.now_ms() - line.begun_at) / 1000
    return {
        "step": "  " * line.depth + line.name,
        "type": line.type,
        "status": line.status,
        "duration": None if took is None else format_duration(took),
        "attempts": line.attempts or None,
        "task": line.child,
        "error": None if line.error is None else agent_output.line(line.error),
    }


# --- logs -------------------------------------------------------------------------------------------------------------


async def show_log(store: "Store", found: "StoredRun", step: str | None, form: OutputFormat, *, follow: bool) -> bool:
    """Print the log of a run. Returns whether there was any."""
    is_any = False
    async for event in _events(store, found, follow=follow):
        for run_event in run_events(event):
            if step is None or (run_event.step or "").partition("[")[0] == step or run_event.step == step:
                is_any = True
                _print(run_event, form)
    return is_any


def _print(run_event: RunEvent, form: OutputFormat) -> None:
    if form is OutputFormat.JSON:
        agent_output.write(agent_output.compact(run_event) + "\n")
        return
    if run_event.event == "output":
        return  # it is part of the step's end
    said = run_event.text or (run_event.event if run_event.error is None else run_event.error)
    for line in agent_output.safe(said).splitlines() or [""]:
        agent_output.write(f"{run_event.at or '-'}  {agent_output.line(run_event.step or '-')}  {line}\n")


async def _events(store: "Store", found: "StoredRun", *, follow: bool) -> "AsyncIterator[Event]":
    """Yield the events of a run, with `follow` until it ends."""
    import asyncio

    tenant, run_id, after = found.task.tenant, found.task.task_id, 0
    while True:
        head = await queries.read_task_head(store, tenant, run_id)  # before its events, so that none is missed
        rows = await queries.events_after(store, tenant, run_id, after)
        for one in rows:
            event = decode_event(one)
            after = event.seq
            yield event
        if rows:
            continue
        if head is None or not follow or head.task_state in ENDED:
            return
        await asyncio.sleep(FOLLOW_SECONDS)


CLAIM_SECONDS = 2.5
"""Seconds for a node to claim the job, before the command reports that none did: nodes poll every second."""

POLL_SECONDS = 0.1


class RunControl:
    """Controls one run. Each method prints its result and returns the exit code."""

    def __init__(self, command: str, store: Store, run: StoredRun, command_line: RunCommand) -> None:
        """Print results as `command`, with commands of `command_line` for copying."""
        self._command, self._store, self._run, self._command_line = command, store, run, command_line
        self._id, self._tenant = run.task.task_id, run.task.tenant
        self._signals = RunSignals(store, self._wake, {run.task.agent})

    async def decide(self, step: str | None, *, is_approved: bool, comment: str) -> Exit:
        """Approve or reject a step [default: the only one with a pending approval]."""
        if self._run.is_over:
            return self._refuse_ended(self._run.task.state)
        asking = [wait.step for wait in self._run.waits() if wait.is_approval]
        helper = await self._asking_for_another()
        if step is None:
            asking += [] if helper is None else [helper]
            if len(asking) != 1:
                several = f"several steps wait for approval: {', '.join(asking)}"
                return self._refuse(several if asking else "no step waits for approval")
            step = asking[0]
        what = f"{step} is {'approved' if is_approved else 'rejected'}"
        if step == helper:
            return await self._send(Part(data=encode_decision(is_approved=is_approved, comment=comment)), what)
        return await self._deliver(self._signals.decide(self._run, step, approved=is_approved, comment=comment), what)

    async def signal(self, event: str, data: str) -> Exit:
        """Send a signal. Its data is JSON, or text if it is not valid JSON."""
        try:
            value = msgspec.json.decode(data)
        except msgspec.DecodeError:
            value = data
        return await self._deliver(self._signals.tell(self._run, event, value), f"signal {event} is sent")

    async def answer(self, text: str) -> Exit:
        """Answer the pending question of the run."""
        if self._run.is_over:
            return self._refuse_ended(self._run.task.state)
        if self._run.task.state not in INTERRUPTED:
            return self._refuse(f"{self._id} has no pending question")
        return await self._send(Part(text=text), f"{self._id} is answered")

    async def cancel(self, reason: str | None) -> Exit:
        """Cancel the run and its child tasks."""
        at = SYSTEM.now_ms()
        said = Message(message_id=new_id(), role=Role.AGENT, parts=(Part(text=reason or ""),), task_id=self._id)
        status = TaskStatus(state=TaskState.CANCELED, message=said if reason else None, timestamp=timestamp_ms(at))
        try:
            await administration.end_task(
                self._store, self._tenant, administration.EndRequest(task_id=self._id, status=status, at=at)
            )
        except administration.TaskHasEnded as error:
            return self._refuse_ended(error.state)
        typer.echo(f"{self._id} is canceled")
        return Exit.DONE

    # --- delivery -------------------------------------------------------------------------------------------------

    async def _asking_for_another(self) -> str | None:
        """Return the step whose agent, or workflow, asks for an approval that the run passes on."""
        stored = await queries.read_task(self._store, self._tenant, self._id)
        status = None if stored is None else stored.task().status
        if status is None or status.state not in INTERRUPTED or status.message is None:
            return None
        origin = QuestionOrigin.of(status.message)
        return origin.step if origin.is_approval and origin.task is not None else None

    async def _wake(self, tenant: str, task_id: str, key: str, value: Any) -> bool:
        output = msgspec.json.encode(value).decode()
        signal = administration.TaskSignal(task_id=task_id, key=wait_key(key), output=output, at=SYSTEM.now_ms())
        return await administration.deliver_signal(self._store, tenant, signal)

    async def _deliver(self, work: Awaitable[None], what: str) -> Exit:
        """Deliver a signal or decision, if the run waits for it."""
        try:
            await work
        except (TaskNotFound, NotWaiting) as error:
            return self._refuse(str(error))
        return await self._report(what)

    async def _send(self, part: Part, what: str) -> Exit:
        """Send a message to the run, as its owner."""
        message = Message(message_id=new_id(), role=Role.USER, parts=(part,), task_id=self._id)
        work = administration.JobOptions(queue=self._run.task.agent)
        try:
            await administration.add_message(
                self._store,
                self._tenant,
                administration.MessageRequest(task_id=self._id, message=message, work=work, at=SYSTEM.now_ms()),
            )
        except administration.TaskHasEnded as error:
            return self._refuse_ended(error.state)
        return await self._report(what)

    def _refuse_ended(self, state: TaskState) -> Exit:
        return self._refuse(f"{self._id} has ended: it is {LOWER[state]}")

    def _refuse(self, why: str) -> Exit:
        typer.echo(f"{self._command}: {printable(why)}", err=True)
        return Exit.FAILED

    async def _report(self, what: str) -> Exit:
        """Print the result, and a hint if no node continues the run."""
        typer.echo(printable(what))
        if not await self._is_claimed():
            typer.echo(
                f"No node is available to resume the run: {self._command_line.shell_command('runs resume')}", err=True
            )
        return Exit.DONE

    async def _is_claimed(self) -> bool:
        """Whether a node has claimed the run's job."""
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                while True:
                    held = await queries.job_status(self._store, self._tenant, self._id)
                    if held is None or not held.is_left:
                        return True
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            return False


def run_control(command: str, store: Store, run: StoredRun, url: str | None) -> RunControl:
    """Return the control of a run of the store at `url`."""
    command_line = RunCommand(url, OutputFormat.TEXT)
    command_line.run_id = run.task.task_id
    return RunControl(command, store, run, command_line)
