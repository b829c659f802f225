"""Runs as commands print them: a table, a tree of steps, a log; or JSON.

It reads and prints; what runs are told is `cli.runs`.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from accord.cli import output, tables
from accord.cli.steps import News, news_of, spelled
from accord.cli.tables import Output, time_of
from accord.engine.clock import SYSTEM
from accord.model import TaskState
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.states import LOWER
from accord.storage.commands import journal, tasks
from accord.storage.records import decode_event
from accord.workflows import stored_run
from accord.workflows.run_request import origin_of
from accord.workflows.stored_run import StoredStep

if TYPE_CHECKING:
    from accord.model import Event
    from accord.storage.commands.journal import Begun
    from accord.storage.store import Store
    from accord.workflows.stored_run import StoredRun

COLUMNS = ("run", "workflow", "state", "started", "duration", "waits_for")

FOLLOW_SECONDS = 0.5
"""How often it is looked whether there is more of a log: a command has nobody to tell it."""

LEFT = "a node: accord runs resume"
"""What a run waits for that nobody works on though there is something to do."""


async def row(store: "Store", run: "Begun") -> dict[str, Any]:
    """Return a run as a list shows it."""
    origin = origin_of(run.origin)
    is_over = run.state in ENDED
    return {
        "run": run.task_id,
        "workflow": origin.name if origin.name == origin.workflow else f"{origin.name}/{origin.workflow}",
        "state": LOWER[run.state],
        "started": time_of(run.begun_at),
        "duration": spelled(((run.updated_at if is_over else SYSTEM.now_ms()) - run.begun_at) / 1000),
        "waits_for": [] if is_over else await waits(store, run),
        "tenant": run.tenant,
        "agent": run.agent,
        "parent": run.parent_id,
    }


async def waits(store: "Store", run: "Begun") -> list[str]:
    """Return what a run that has not ended waits for."""
    held = await store.read(journal.held, run.tenant, run.task_id)
    if held is not None and held.is_left:
        return [LEFT]
    found = await stored_run.load_stored_run(store, run.task_id)
    told = [] if found is None else [str(wait) for wait in found.waits()]
    if run.state in INTERRUPTED and not told:
        return ["credentials" if run.state is TaskState.AUTH_REQUIRED else "an answer"]
    return told


def show_list(rows: list[dict[str, Any]], form: Output) -> None:
    """Print runs."""
    if form is Output.TEXT:
        rows = [{**one, "waits_for": ", ".join(one["waits_for"])} for one in rows]
    tables.show(rows, COLUMNS, form)


async def show_run(store: "Store", found: "StoredRun", form: Output) -> None:
    """Print a run and its steps."""
    about = await row(store, found.task)
    lines = found.lines()
    if form is Output.JSON:
        stored = await store.read(tasks.read_task, found.task.tenant, found.task.task_id)
        said = None if stored is None else stored.task().status.message
        message = None if said is None else output.text_of(said.parts)
        output.write(output.compact({**about, "message": message, "steps": [_whole(line) for line in lines]}) + "\n")
        return
    shown = ("run", "workflow", "state", "started", "duration", "waits_for", "parent")
    told = {name: ", ".join(about[name]) if name == "waits_for" else about[name] for name in shown}
    output.lines(output.field(name.replace("_", " ").capitalize(), value) for name, value in told.items() if value)
    output.write("\n")
    tables.show(
        [_row(line) for line in lines], ("step", "type", "status", "duration", "attempts", "task", "error"), form
    )


def _whole(line: StoredStep) -> dict[str, Any]:
    from msgspec import to_builtins

    found: dict[str, Any] = to_builtins(line)
    return found if line.seconds is None else {**found, "seconds": round(line.seconds, 3)}


def _row(line: StoredStep) -> dict[str, Any]:
    took = line.seconds
    if took is None and line.status == "running" and line.begun_at is not None:
        took = (SYSTEM.now_ms() - line.begun_at) / 1000
    return {
        "step": "  " * line.depth + line.name,
        "type": line.type,
        "status": line.status,
        "duration": None if took is None else spelled(took),
        "attempts": line.attempts or None,
        "task": line.child,
        "error": None if line.error is None else output.line(line.error),
    }


# --- logs -------------------------------------------------------------------------------------------------------------


async def show_log(store: "Store", found: "StoredRun", step: str | None, form: Output, *, follow: bool) -> bool:
    """Print what was said in a run; false if that is nothing."""
    is_any = False
    async for event in _events(store, found, follow=follow):
        for news in news_of(event):
            if step is None or (news.step or "").partition("[")[0] == step or news.step == step:
                is_any = True
                _print(news, form)
    return is_any


def _print(news: News, form: Output) -> None:
    if form is Output.JSON:
        output.write(output.compact(news) + "\n")
        return
    if news.event == "output":
        return  # it is in the end of the step
    said = news.text or (news.event if news.error is None else news.error)
    for line in output.safe(said).splitlines() or [""]:
        output.write(f"{news.at or '-'}  {output.line(news.step or '-')}  {line}\n")


async def _events(store: "Store", found: "StoredRun", *, follow: bool) -> "AsyncIterator[Event]":
    """Yield the log of a run, and what comes while it has not ended."""
    import asyncio

    tenant, run_id, after = found.task.tenant, found.task.task_id, 0
    while True:
        head = await store.read(tasks.read_head, tenant, run_id)  # before its events: none that came first is missed
        rows = await store.read(tasks.events_after, tenant, run_id, after)
        for one in rows:
            event = decode_event(one)
            after = event.seq
            yield event
        if rows:
            continue
        if head is None or not follow or head.task_state in ENDED:
            return
        await asyncio.sleep(FOLLOW_SECONDS)
