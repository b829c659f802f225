"""Command `accord a2a serve`: an agent of a relay's channel, served over A2A.

It starts a broker and a process for the agent on this machine, unless a broker is given.
"""

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from accord.cli.serve import fail, refuse, run_here

if TYPE_CHECKING:
    from accord.agents.relay import RelayA2AAdapter


app = typer.Typer(no_args_is_help=True, add_completion=False, help="Serve relay channel agents over A2A.")

COMMANDS = {
    "claude": ("claude", "-p"),
    "codex": ("codex", "exec", "-"),
    "gemini": ("gemini",),
    "opencode": ("opencode", "run"),
    "droid": ("droid", "exec", "-"),
}
"""Commands that read a prompt from standard input and print the answer. The first that is installed is the default."""


@app.callback()
def a2a() -> None:
    """Serve relay channel agents over A2A."""


@app.command()
def serve(
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 9000,
    channel: Annotated[str, typer.Option(help="Relay channel of the agent.")] = "general",
    agent: Annotated[str, typer.Option(help="Name of the agent in the channel.")] = "Worker1",
    command: Annotated[
        str | None,
        typer.Option(
            help="Command of the agent. The request is its standard input, or replaces {prompt}."
            f" [default: the first installed of {', '.join(COMMANDS)}]"
        ),
    ] = None,
    native: Annotated[
        bool,
        typer.Option("--native", help="Let the command read the channel itself, with the RELAY_* variables."),
    ] = False,
    pass_env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Environment variable to pass to the command (repeatable)."),
    ] = None,
    timeout: Annotated[float, typer.Option(help="Maximum seconds for a reply.", min=0.001)] = 300.0,
    poll_interval: Annotated[
        float | None,
        typer.Option(
            help="Seconds between two polls of the channel.", min=0.01, show_default="0.2, or 2 with --relay-url"
        ),
    ] = None,
    broker_port: Annotated[int, typer.Option(help="Port of the broker. 0 selects a free port.", min=0, max=65535)] = 0,
    relay_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL of an existing relay, with its key in RELAY_API_KEY. No broker or agent is started.",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    url: Annotated[
        str | None, typer.Option(help="Public URL of the server, if it differs from the listening address.")
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="URL of the store, as for `accord serve`.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="ACCORD_CONFIG", help="Settings file.")] = None,
) -> None:
    """Serve an agent of a channel. Tasks are posted to the channel, and the agent's DONE message is the result."""
    from accord.api.administration import BadAddress
    from accord.server.settings_loader import BadSettings
    from accord.server.startup import application_of

    if relay_url is not None:
        served = _remote_relay(relay_url, channel, agent, poll_interval, timeout)
    else:
        served = _local_relay(command, native, channel, agent, broker_port, poll_interval, timeout, pass_env or ())
    flags = {"server.host": host, "server.port": port, "server.url": url, "store": store}
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        application = application_of(served, file=config, env=os.environ, flags=given)
    except (BadSettings, BadAddress) as error:
        raise typer.BadParameter(str(error)) from None
    application.on_start.append(lambda: _tell(served))
    refuse(application)
    run_here(application)


def _remote_relay(
    relay_url: str, channel: str, agent: str, poll_interval: float | None, timeout: float
) -> "RelayA2AAdapter":
    from accord.agents.relay import RelayA2AAdapter

    key = os.environ.get("RELAY_API_KEY")
    if not key:
        fail("The relay requires an API key: set RELAY_API_KEY.")
    return RelayA2AAdapter(key, channel, agent, relay_url, poll_interval or 2.0, timeout)


def _local_relay(
    command: str | None,
    native: bool,
    channel: str,
    agent: str,
    broker_port: int,
    poll_interval: float | None,
    timeout: float,
    pass_env: Sequence[str],
) -> "RelayA2AAdapter":
    from accord.agents.relay.agent import POLL_SECONDS, LocalRelay

    return LocalRelay(
        _command(command),
        native=native,
        channel=channel,
        target_agent=agent,
        broker_port=broker_port,
        poll_interval=poll_interval or POLL_SECONDS,
        timeout=timeout,
        pass_env=pass_env,
    )


def _command(given: str | None) -> list[str]:
    """Return the command of the agent: the given one, else the first installed of `COMMANDS`, else empty."""
    if given is None:
        return next((list(command) for name, command in COMMANDS.items() if shutil.which(name)), [])
    try:
        found = shlex.split(given)
    except ValueError as error:
        raise typer.BadParameter(f"{given!r} is not a valid command: {error}", param_hint="--command") from None
    if not found or shutil.which(found[0]) is None:
        raise typer.BadParameter(f"Command not found: {given!r}", param_hint="--command")
    return found


def _tell(served: "RelayA2AAdapter") -> None:
    """Print the agent, and how another agent joins if none was started."""
    from accord.agents.relay.agent import LocalRelay

    who = f"{served.target_agent} in #{served.channel} at {served.base_url}"
    if not isinstance(served, LocalRelay):
        typer.echo(f"Serving {who}", err=True)
    elif served.command:
        typer.echo(f"Serving {who}: {shlex.join(served.command)}", err=True)
    else:
        joined = " ".join(f"{name}={shlex.quote(value)}" for name, value in served.environment().items())
        typer.echo(
            f"Serving {who}\nNo agent was started. Use --command, or start an agent with these variables:\n  {joined}",
            err=True,
        )
