"""The `accord` command.

It parses arguments and prints; everything else is `app`. What only one command needs is imported when that runs, so
that `--help` and `--version` answer at once.
"""

import os
import socket
from typing import Annotated

import typer

from accord import __version__

LOOPBACK = ("127.0.0.1", "::1", "localhost")
GRACE_SECONDS = 3
"""How long open connections may finish after a signal before they are closed."""

app = typer.Typer(name="accord", no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def accord(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """A durable home for agents that talk to each other over A2A."""
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on; only loopback addresses are served.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
) -> None:
    """Serve the echo agent, with tasks in memory."""
    import uvicorn

    from accord.agents.echo import Echo
    from accord.app import Application

    _refuse_open_address(host)
    url = f"http://{'[::1]' if host == '::1' else 'localhost'}:{port}/"
    application = Application(Echo(), url)
    listening = _listen(host, port)
    _welcome(url)
    config = uvicorn.Config(
        application, ws="none", log_level="warning", server_header=False, timeout_graceful_shutdown=GRACE_SECONDS
    )
    uvicorn.Server(config).run([listening])


def _refuse_open_address(host: str) -> None:
    if host not in LOOPBACK:
        known = ", ".join(LOOPBACK)
        raise typer.BadParameter(f"{host} is not one of {known}, and this server has no authentication yet")


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before anything claims to listen on it."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        typer.echo(f"Cannot listen on {host}:{port}: {reason}. Choose another port with --port.", err=True)
        raise typer.Exit(1) from None


def _welcome(url: str) -> None:
    from rich.console import Console
    from rich.panel import Panel

    body = (
        '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":'
        '{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello accord"}]}}}'
    )
    lines = [
        f"[bold]Echo[/bold] is listening on [link={url}]{url}[/link]",
        f"card   {url}.well-known/agent-card.json",
        "store  memory: tasks last as long as this process",
        "auth   none: loopback only",
    ]
    console = Console(stderr=True)
    console.print(Panel("\n".join(lines), title=f"accord {__version__}", expand=False))
    console.print("Try it:", markup=False)
    console.print(
        f"curl -s {url} -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' -d '{body}'",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def main() -> None:
    """Run the command."""
    app()
