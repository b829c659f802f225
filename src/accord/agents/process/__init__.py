"""Commands as agents: coding agents, and any other command.

Each runs as a process that ends with its task. `turn` has one turn of a task, and `workspace` its directory.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4
from weakref import WeakValueDictionary

from accord.agents import subprocesses
from accord.agents.command_environment import Environment, command_variables, has_command
from accord.agents.process import workspace
from accord.agents.process.options import ProcessOptions, preset_of
from accord.agents.process.running_commands import ParkedCommands
from accord.agents.process.turn import CommandTurn, TurnResources
from accord.agents.process.workspace import ChoosePlacement, Workspace, Workspaces, worktree_facts
from accord.api import (
    AgentEnvironment,
    Context,
    Crash,
    Failed,
    OverBudget,
    Rejected,
    Store,
    StoreUnavailable,
    Suspended,
    queries,
)
from accord.api.agent_types import AgentArguments, AgentType, profile
from accord.api.queries import state_of
from accord.model import Message, Part, Role
from accord.protocol import lifecycle

__all__ = ["AGENT_TYPE", "ProcessAgent", "ProcessOptions"]


MIN_SECRET = 8
"""Minimum length of a value to hide in output; shorter ones are words like "true"."""

MAX_SHOWN = 20
"""Maximum number of file names in one message about files that were left out."""

WORKTREE = "worktree"
"""Metadata key of a task's worktree, and name of the artifact that describes the remaining worktree."""

SILENCE_KEY = "silent"
"""Metadata key of the final message about a command that was ended because of its silence."""

SILENCE = Part(text="It stayed silent, which counts as its end")


class ProcessAgent:
    """An agent that is a command."""

    def __init__(self, given: AgentArguments, *, placing: ChoosePlacement | None = None) -> None:
        """Run the command in the options, with the variables of `given.env` that they allow.

        With `placing`, each task chooses its workspace.
        """
        options: ProcessOptions = given.options
        self._options = options
        self._preset = preset_of(options)
        self._mode = self._preset.headless if options.mode == "headless" else self._preset.terminal
        name = options.preset or Path(self._preset.binary).name
        crash = Crash.RESUME if self._mode.resume else Crash.FAIL
        self.profile = profile(given, crash=crash, name=name, description=f"Runs {name}", input_modes=("*/*",))
        self._env = given.env or os.environ
        self._workspaces = Workspaces(options, _root(options, self._env, self.profile.name), placing)
        self._locks: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = WeakValueDictionary()
        self._resources: TurnResources | None = None
        self._store: Store

    async def start(self, node: AgentEnvironment) -> None:
        """Prepare to run commands on a node."""
        self._store = node.store
        await self._workspaces.prepare(self._has_ended)
        env = environment(self._options, self._env)
        named = {*self._options.env, *self._options.pass_env}
        self._resources = TurnResources(
            name=self.profile.name,
            options=self._options,
            preset=self._preset,
            mode=self._mode,
            crash=self.profile.crash,
            env=env,
            secrets=frozenset(value for name, value in env.items() if name in named and _is_secret(value)),
            parked=ParkedCommands(node),
        )

    async def stop(self) -> None:
        """Stop parked commands, and wait for those that are ending."""
        resources, self._resources = self._resources, None
        if resources is not None:
            await resources.parked.close()
        await subprocesses.wait_until_stopped()

    async def run(self, ctx: Context) -> None:
        """Execute one turn."""
        resources = self._resources
        if resources is None:
            raise RuntimeError("A process agent is run by a node that has started it")
        key = (ctx.tenant, ctx.caller.owner, ctx.context_id)
        async with self._locks.setdefault(key, asyncio.Lock()):  # one execution at a time in a session
            place = await self._workspaces.open(ctx)
            if place.tree is not None and ctx.kept(WORKTREE) is None:
                await ctx.status(
                    f"It works on the branch {place.tree.branch}", metadata={WORKTREE: worktree_facts(place.tree)}
                )
                await ctx.keep(WORKTREE, place.tree.branch)
            try:
                await self._run_turn(ctx, resources, place)
            except Suspended:
                raise  # the workspace is needed again
            except BaseException:
                if await self._has_ended(ctx.tenant, ctx.task_id):  # otherwise an execution resumes the task
                    await self._workspaces.close(place)
                raise

    async def _run_turn(self, ctx: Context, resources: TurnResources, place: Workspace) -> None:
        """Execute the turn and deliver its files, also if the command has failed."""
        turn = CommandTurn(ctx, resources, place)
        try:
            await turn.run()
        except OverBudget:
            raise  # which has ended the task already
        except (Failed, Rejected):
            await self._finish(ctx, place)
            raise
        await self._finish(ctx, place)
        if turn.fell_silent:
            message = Message(message_id=uuid4().hex, role=Role.AGENT, parts=(SILENCE,), metadata={SILENCE_KEY: True})
            await ctx.complete(message)

    async def _finish(self, ctx: Context, place: Workspace) -> None:
        """Deliver files, close the workspace, and report the remaining worktree."""
        await self._deliver(ctx, place)
        if (facts := await self._workspaces.close(place)) is not None:
            await ctx.artifact(facts, id=WORKTREE, name=WORKTREE, metadata={WORKTREE: facts})

    async def _has_ended(self, tenant: str, task_id: str) -> bool:
        try:
            head = await queries.read_task_head(self._store, tenant, task_id)
        except StoreUnavailable:
            return False
        return head is not None and state_of(head.state) in lifecycle.ENDED

    async def _deliver(self, ctx: Context, place: Workspace) -> None:
        options = self._options
        parts, skipped = await asyncio.to_thread(
            workspace.read_outbox, place.boxes, options.max_files, options.max_file_bytes
        )
        for part in parts:
            await ctx.artifact(part, id=f"file/{part.filename}", name=part.filename)
        if skipped:
            names = ", ".join(skipped[:MAX_SHOWN]) + (
                f" and {len(skipped) - MAX_SHOWN} more" if skipped[MAX_SHOWN:] else ""
            )
            await ctx.status(f"These files are too many or too large and stay behind: {names}")


def make(given: AgentArguments) -> ProcessAgent:
    """Make an agent from a command; raises ValueError if the command is missing.

    Otherwise the first task would be the first to find out.
    """
    options: ProcessOptions = given.options
    preset = preset_of(options)
    secrets = given.env.secrets if isinstance(given.env, Environment) else frozenset()
    for name in secrets.intersection(options.pass_env):
        raise ValueError(f"pass_env: {name} is the server's own, as a setting refers to it, and is given to no command")
    env = environment(options, given.env or os.environ)
    if not options.installed_later and not has_command(preset.binary, env, options.directory):
        how = "" if preset.install is None else f" ({preset.install})"
        raise ValueError(
            f"there is no command {preset.binary} on this machine: install it{how}, say where it is"
            f' ({"command" if options.preset is None else "path"} = "/..."), or say installed_later = true'
        )
    return ProcessAgent(given)


def _is_secret(value: str) -> bool:
    """Whether an environment variable's value may be a secret.

    File names are not secrets, and error messages need them.
    """
    return len(value) >= MIN_SECRET and not os.path.exists(value)


def environment(options: ProcessOptions, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: the allowed variables of the server, and those in the settings."""
    term = "xterm-256color" if options.mode == "pty" else "dumb"
    return {"TERM": term, **command_variables(given, options.pass_env), **options.env}


def _root(options: ProcessOptions, env: Mapping[str, str], name: str) -> Path:
    """Return the root of new workspaces, in the user's state directory by default."""
    if options.root is not None:
        return Path(options.root).expanduser().absolute()
    state = env.get("XDG_STATE_HOME") or Path(env.get("HOME") or "~").expanduser() / ".local" / "state"
    return Path(state) / "accord" / "work" / workspace.safe_name(name)


AGENT_TYPE = AgentType(name="process", make=make, options=ProcessOptions)
