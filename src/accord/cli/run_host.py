"""Start or resume a run in this process, and watch it.

A process that ends early leaves the run unchanged and prints how to resume it.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from accord.cli import agent_output
from accord.cli.failures import Exit, shell_command
from accord.cli.tables import OutputFormat
from accord.cli.workflow_files import WorkflowFile, plan_run, report_findings

if TYPE_CHECKING:
    from accord.api import Host
    from accord.model import Task
    from accord.server.settings import Settings
    from accord.server.settings_loader import LoadedSettings
    from accord.workflows.agent import WorkflowAgent
    from accord.workflows.run_request import RunRequest
    from accord.workflows.stored_run import RunWait, StoredRun


class RunCommand:
    """A running command: its options and, once started, the id of its run."""

    def __init__(self, store: str | None, form: OutputFormat) -> None:
        """Create a command without a run."""
        self.store, self.form = store, form
        self.run_id: str | None = None

    @cached_property
    def loaded(self) -> "LoadedSettings":
        """The settings of this process, with their sources."""
        from accord.server.settings_loader import load

        config = os.environ.get("ACCORD_CONFIG")
        return load(Path(config) if config else None, os.environ, {"store": self.store})

    @property
    def settings(self) -> "Settings":
        """The settings of this process."""
        return self.loaded.settings

    def shell_command(self, does: str, *operands: str) -> str:
        """Return a command about the run, for copying."""
        is_said = self.store is not None and self.store != os.environ.get("ACCORD_STORE")
        shown = "URL" if self.store and "@" in self.store else self.store  # it may contain a password
        return shell_command(*does.split(), self.run_id, *operands, *(("--store", shown) if is_said else ()))


def start_run(flow: WorkflowFile, request: "RunRequest", *, store: str | None, output: OutputFormat) -> None:
    """Start a run, watch it, and exit."""
    command_line = RunCommand(store, output)
    _execute(command_line, lambda: _host_new_run(command_line, flow, request))


def resume_run(
    run_id: str, flow: WorkflowFile | None, request: "RunRequest", *, store: str | None, output: OutputFormat
) -> None:
    """Resume a run, watch it, and exit."""
    command_line = RunCommand(store, output)
    _execute(command_line, lambda: _resume(command_line, run_id, flow, request))


def _execute(command_line: RunCommand, work: Callable[[], Coroutine[Any, Any, Exit]]) -> None:
    """Run the work, and exit. A user error is one line. An interrupt prints how to resume the run."""
    from accord.api import StoreRefused, StoreUnavailable
    from accord.api.administration import BadAddress
    from accord.errors import AccordError
    from accord.server.settings_loader import BadSettings
    from accord.telemetry.logs import LineFormatter
    from accord.workflows.findings import BadDocument

    try:
        level = command_line.settings.telemetry.level("error")  # the display shows failed steps
        logging.getLogger("accord").setLevel(level.upper())
        if logging.lastResort is not None:  # it looks up standard error on each record, so it writes above the tree
            logging.lastResort.setFormatter(LineFormatter())
            logging.lastResort.setLevel(level.upper())
        code = asyncio.run(_until_stopped(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        _interrupted(command_line)
        code = Exit.INTERRUPTED
    except BadDocument as error:
        report_findings(error.findings, "the workflow")
        code = Exit.MISUSED
    except BrokenPipeError:
        raise  # the reader closed the pipe; typer exits quietly
    except (BadAddress, BadSettings) as error:
        agent_output.notice(f"accord: {agent_output.line(error)}")
        code = Exit.MISUSED
    except (AccordError, StoreRefused, StoreUnavailable, OSError) as error:
        agent_output.notice(f"accord: {agent_output.line(error)}")
        code = Exit.FAILED
    raise typer.Exit(code)


async def _until_stopped(work: Callable[[], Coroutine[Any, Any, Exit]]) -> Exit:
    """Run the work until a signal such as Ctrl+C, which hands over executions before the end."""
    task = asyncio.current_task()
    assert task is not None  # this is a task
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await work()


def _interrupted(command_line: RunCommand) -> None:
    if command_line.run_id is None:
        agent_output.notice("\naccord: interrupted before the run started")
        return
    agent_output.notice(f"\nRun {command_line.run_id} is stopped and can be resumed.")
    agent_output.notice(f"  resume  {command_line.shell_command('runs resume')}")
    agent_output.notice(f"  cancel  {command_line.shell_command('runs cancel')}")


# --- a new run --------------------------------------------------------------------------------------------------------


async def _host_new_run(command_line: RunCommand, flow: WorkflowFile, request: "RunRequest") -> Exit:
    import msgspec

    from accord.server import workflow_runs

    if request.previous_run is not None:
        await _check_earlier(command_line, flow, request, request.previous_run)
    agent = await _agent(command_line, flow, vars=request.vars)
    async with workflow_runs.host_workflow(agent, command_line.settings, os.environ) as host:
        task = await workflow_runs.start_run(host, agent, msgspec.to_builtins(request))
        command_line.run_id = task.id
        return await _watch_run(command_line, host, workflow_runs.LOCAL_CALLER.tenant)


async def _check_earlier(command_line: RunCommand, flow: WorkflowFile, request: "RunRequest", run_id: str) -> None:
    """Refuse an earlier run that cannot be continued, before any run is started or stored."""
    from accord.api import StoreRefused
    from accord.cli.database import open_existing_store
    from accord.server.workflow_runs import LOCAL_CALLER
    from accord.workflows import stored_run
    from accord.workflows.run_request import carry_over_records

    try:
        async with open_existing_store(command_line.store, read_only=True) as store:
            found = await stored_run.load_stored_run(store, run_id)
    except StoreRefused as error:  # without a database there is no run
        raise _refusal(error) from None
    owned = found is not None and (found.task.tenant, found.task.owner) == (LOCAL_CALLER.tenant, LOCAL_CALLER.owner)
    if found is None or not owned or found.origin.name != flow.document.name:
        raise _refusal(f"Unknown previous run {run_id} of {flow.document.name}")
    try:
        carry_over_records(plan_run(flow, request), found.records, request.start_from, 0)
    except ValueError as error:
        raise _refusal(error) from None


def _refusal(why: object) -> typer.Exit:
    agent_output.notice(f"accord: {agent_output.line(why)}")
    return typer.Exit(Exit.MISUSED)


async def _agent(command_line: RunCommand, flow: WorkflowFile, **more: Any) -> "WorkflowAgent":
    """Return a document as an agent. Exits if a credential of its agents is missing."""
    from accord.agents.command_environment import Environment, close_process
    from accord.cli.credential_places import user_keys
    from accord.client.credentials import KeyManagementError
    from accord.server.workflow_runs import agent_of

    try:
        keys = user_keys()
        close_process()
        env = Environment(os.environ, command_line.loaded.referred)
        return await asyncio.to_thread(agent_of, flow.document, directory=flow.directory, env=env, keys=keys, **more)
    except (KeyManagementError, ValueError) as error:
        agent_output.notice(f"accord: {agent_output.line(flow.file)}: {agent_output.line(error)}")
        raise typer.Exit(Exit.MISUSED) from None


async def _watch_run(command_line: RunCommand, host: "Host", tenant: str) -> Exit:
    """Watch a run, and report its result."""
    from accord.cli.run_display import run_display
    from accord.cli.run_watch import Keyboard, RunWatch, run_summary
    from accord.workflows import stored_run

    assert command_line.run_id is not None  # it has started
    display = run_display(is_json=command_line.form is OutputFormat.JSON)
    keyboard = (
        Keyboard() if command_line.form is OutputFormat.TEXT and sys.stdin.isatty() and sys.stderr.isatty() else None
    )
    display.start(command_line.run_id)
    try:
        task = await RunWatch(
            host, tenant, command_line.run_id, display, keyboard, partial(_how_to_signal, command_line)
        ).wait()
        found = await stored_run.load_stored_run(host.store, task.id)
        display.end(run_summary(task, found))
    finally:
        display.pause()
        if keyboard is not None:
            keyboard.close()
    return _report_end(command_line, task, [] if found is None else found.waits())


def _report_end(command_line: RunCommand, task: "Task", waits: "list[RunWait]") -> Exit:
    from accord.model import TaskState
    from accord.protocol.lifecycle import ENDED

    if task.status.state is TaskState.COMPLETED:
        return Exit.DONE
    if task.status.state in ENDED:
        agent_output.notice(f"To retry the incomplete steps: {command_line.shell_command('runs resume')}")
        return Exit.FAILED
    _how_to_answer(command_line, task, waits)
    return Exit.WAITS


def _how_to_signal(command_line: RunCommand, event: str) -> None:
    """Print how to send a signal that the run waits for."""
    agent_output.notice(
        f"The run waits for the signal {agent_output.line(event)}: {command_line.shell_command('runs signal', event)}"
    )


def _how_to_answer(command_line: RunCommand, task: "Task", waits: "list[RunWait]") -> None:
    """Print how to answer the pending question of a run, and its other approvals and signals."""
    from accord.workflows.channel import QuestionOrigin

    asked = task.status.message
    origin = QuestionOrigin.of(asked)
    step = origin.step or ""
    text = "" if asked is None else agent_output.text_of(asked.parts)
    agent_output.notice(f"\nThe run waits for an answer. {agent_output.line(step)} asks: {agent_output.line(text)}")
    if not origin.is_approval:
        agent_output.notice(f"  answer   {command_line.shell_command('runs answer', 'TEXT')}")
    others = [wait.step for wait in waits if wait.is_approval and wait.step != step]
    for one in [step, *others] if origin.is_approval else others:
        agent_output.notice(f"  approve  {command_line.shell_command('runs approve', one)}")
        agent_output.notice(f"  reject   {command_line.shell_command('runs reject', one)}")
    for event in dict.fromkeys(wait.event for wait in waits if wait.event is not None):
        agent_output.notice(f"  signal   {command_line.shell_command('runs signal', event)}")
    agent_output.notice(f"  resume   {command_line.shell_command('runs resume')}")


# --- an existing run --------------------------------------------------------------------------------------------------


async def _resume(command_line: RunCommand, run_id: str, flow: WorkflowFile | None, request: "RunRequest") -> Exit:
    from accord.cli.database import open_existing_store
    from accord.model import TaskState
    from accord.protocol.lifecycle import TERMINAL
    from accord.workflows import stored_run

    async with open_existing_store(command_line.store, read_only=True) as store:
        found = await stored_run.load_stored_run(store, run_id)
    if found is None:
        agent_output.notice(f"accord: unknown run {agent_output.line(run_id)}")
        return Exit.FAILED
    if found.task.parent_id is not None:
        agent_output.notice(f"accord: {agent_output.line(run_id)} is part of {found.task.parent_id}: resume that run")
        return Exit.FAILED
    if found.task.state is TaskState.COMPLETED:
        agent_output.notice(f"accord: {agent_output.line(run_id)} has completed and cannot be resumed")
        return Exit.FAILED
    if found.task.state in TERMINAL:
        return await _host_new_run(command_line, flow or _stored_document(found), _rerun_request(found, request))
    return await _host_stored_run(command_line, found, request)


def _stored_document(found: "StoredRun") -> WorkflowFile:
    """Return the stored document of a run."""
    return WorkflowFile(found.document, Path(found.origin.directory), found.origin.name)


def _rerun_request(found: "StoredRun", request: "RunRequest") -> "RunRequest":
    """Return the request of a run that continues an ended one: the earlier request with new values."""
    from msgspec.structs import replace

    was = found.origin.wish
    return replace(
        was,
        input=request.input or was.input,
        vars={**found.origin.vars, **was.vars, **request.vars},
        workflow=request.workflow or was.workflow,
        start_from=request.start_from,
        previous_run=found.task.task_id,
        check_agents=request.check_agents or was.check_agents,
    )


async def _host_stored_run(command_line: RunCommand, found: "StoredRun", request: "RunRequest") -> Exit:
    """Host the workflow of an unfinished run, with its original document."""
    from accord.server import workflow_runs
    from accord.workflows.run_request import RunRequest

    if request != RunRequest():
        said = "An unfinished run keeps its values. To change them, cancel the run first"
        raise typer.BadParameter(said, param_hint="--resume")
    command_line.run_id = found.task.task_id
    agent = await _agent(command_line, _stored_document(found), vars=found.origin.vars, name=found.task.agent)
    async with workflow_runs.host_workflow(agent, command_line.settings, os.environ) as host:
        return await _watch_run(command_line, host, found.task.tenant)
