"""What each process of `accord serve --workers N` or `--reload` runs: the same command's settings, read again.

The command leaves what it was told in one variable of the environment, which its processes inherit.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from accord.app import Application
    from accord.config import Loaded

VARIABLE = "ACCORD_SERVED"

WORKER = f"{__name__}:application"
"""What each process runs."""

LEVEL = "info"
"""The least severe records that a server writes: its operator sees how tasks and webhooks end."""

BROKEN = 2
"""How a process ends whose agents cannot be imported: as the command does."""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What a command was told: agents, a file of settings and flags."""

    targets: tuple[str, ...] = ()
    config: str | None = None
    flags: dict[str, Any] = {}

    def load(self) -> "Loaded":
        """Read the settings."""
        from accord.config import load

        return load(Path(self.config) if self.config else None, os.environ, self.flags)

    def application(self) -> "Application":
        """Put everything together."""
        from accord.agents.loader import load as load_agent
        from accord.app import Application
        from accord.app.serving import environment_of

        loaded = self.load()
        settings, env = loaded.settings, environment_of(loaded, os.environ)
        agents = [load_agent(target, env) for target in self.targets]
        if settings.agents:
            from accord.app.agents import agents_of

            agents += agents_of(loaded, env)
        if settings.remotes:
            from accord.app.remotes import remote_agents

            agents += remote_agents(settings, env)
        return Application(agents or [load_agent("accord.agents.echo:echo")], settings, env=env)

    def leave(self) -> None:
        """Leave it for the processes that are started from here."""
        os.environ[VARIABLE] = msgspec.json.encode(self).decode()


def application() -> "Application":
    """Return the application of a process that was started by the command."""
    from accord.agents.command_environment import close_process
    from accord.agents.loader import NotAnAgent, traceback_of
    from accord.app.server import be_worker
    from accord.telemetry.logs import write_down

    close_process()
    told = os.environ.pop(VARIABLE)  # processes that agents start need not know it: it may name a store's password
    try:
        made = msgspec.json.decode(told, type=Served).application()
    except ValueError as error:
        lines = traceback_of(error)
        if lines is None and not isinstance(error, NotAnAgent):
            raise
        # Somebody is at work on it, and it is tried again when they are done.
        print(f"{error}\n{lines or ''}".rstrip(), file=sys.stderr)
        raise SystemExit(BROKEN) from None
    # When agents are there: one that says itself what becomes of records is obeyed.
    write_down(made.settings.telemetry.log_format.value, made.settings.telemetry.level(LEVEL))
    close_process(made.env)
    be_worker(made)
    return made
