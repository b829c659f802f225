"""`accord serve`: an agent on a port."""

import os
import socket
from typing import TYPE_CHECKING, Annotated

import typer

from accord import __version__
from accord.cli.db import StoreOption

if TYPE_CHECKING:
    from accord.core.agent import Agent
    from accord.storage.address import Address

LOOPBACK = ("127.0.0.1", "::1", "localhost")
GRACE_SECONDS = 3
"""How long open connections may finish after a signal before they are closed."""


def serve(
    agent: Annotated[
        str | None,
        typer.Argument(metavar="[AGENT]", help="module:name or file.py:name; by default an echo."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; only loopback addresses are served.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8000,
    store: StoreOption = None,
    blobs: Annotated[
        str,
        typer.Option(
            metavar="URL", envvar="ACCORD_BLOBS", help="Large files: table:, dir:///path or s3://bucket/prefix."
        ),
    ] = "table:",
    keep_days: Annotated[
        float, typer.Option(envvar="ACCORD_KEEP_DAYS", min=0, help="How long ended tasks are kept; 0 is for ever.")
    ] = 30,
) -> None:
    """Serve an agent; its tasks outlive the server."""
    import uvicorn

    from accord.app import Application, Keeping
    from accord.core.upkeep import Retention

    _refuse_open_address(host)
    url = f"http://{'[::1]' if host == '::1' else 'localhost'}:{port}/"
    address = _address(store)
    served = _agent(agent)
    retention = Retention(purge_after=keep_days * 24 * 3600 or None)
    keeping = Keeping(store=address, blobs=blobs, retention=retention, env=os.environ)
    application = Application([served], url, keeping=keeping)
    listening = _listen(host, port)
    application.on_start = lambda: _welcome(served.profile.name, url, str(address))
    config = uvicorn.Config(
        application, ws="none", log_level="warning", server_header=False, timeout_graceful_shutdown=GRACE_SECONDS
    )
    uvicorn.Server(config).run([listening])


def _agent(spec: str | None) -> "Agent":
    from accord.agents.load import NotAnAgent, load

    try:
        return load(spec or "accord.agents.echo:echo")
    except NotAnAgent as error:
        raise typer.BadParameter(str(error), param_hint="AGENT") from None


def _address(url: str | None) -> "Address":
    from accord.storage.address import BadAddress, default, parse

    try:
        return parse(url) if url else default(os.environ)
    except BadAddress as error:
        raise typer.BadParameter(str(error), param_hint="--store") from None


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


def _welcome(name: str, url: str, store: str) -> None:
    from rich.console import Console
    from rich.panel import Panel

    body = (
        '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":'
        '{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello accord"}]}}}'
    )
    lines = [
        f"[bold]{name}[/bold] is listening on [link={url}]{url}[/link]",
        f"card   {url}.well-known/agent-card.json",
        f"store  {store}",
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
