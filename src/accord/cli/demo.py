"""Command `accord demo`: example agents, a workflow, and a second server.

It chooses free ports and its own store. The second server is a process that ends with this one. The agents are in
`accord.demo`.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.serve import ServeRequest, application_of, fail, refuse, run_here

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


HOST = "127.0.0.1"
PORT = 8000
START_SECONDS = 60.0
"""Maximum seconds until the second server is ready, on a busy machine. Usually it takes one."""

STOP_SECONDS = 10.0


def demo(
    port: Annotated[
        int | None,
        typer.Option(help="Port to listen on [default: 8000, or a free port].", min=1, max=65535),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of the store [default: a demo file in the user's data directory]."),
    ] = None,
    speed: Annotated[float, typer.Option(min=0.1, max=1000, help="Speed multiplier of the demo agents.")] = 1.0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the console in a browser.")] = False,
) -> None:
    """Serve example agents without setup."""
    from accord.demo import REMOTE_AGENT_NAME, Pace, targets
    from accord.server.settings import LogFormat

    Pace.speed = speed
    chosen = port or _free_port(PORT)
    folder = _folder()
    with _second_server(folder, _free_port(chosen + 1), speed) as url:
        flags = {
            "server.host": HOST,
            "server.port": chosen,
            "store": store or f"sqlite:///{folder / 'here.db'}",
            "remotes": {REMOTE_AGENT_NAME: {"url": url}},
        }
        application = application_of(ServeRequest(targets=targets(), flags=flags))
        refuse(application)
        if application.settings.telemetry.log_format is not LogFormat.JSON:  # which says it for each server
            if chosen != (port or PORT):
                typer.echo(f"Port {PORT} is in use: listening on {chosen} instead.", err=True)
            typer.echo(f"{REMOTE_AGENT_NAME} runs on a separate server: {url}", err=True)
        if open_browser:
            application.on_start.append(lambda: _show(f"{application.url}/console/"))
        run_here(application, "warning")


def _show(url: str) -> None:
    if typer.launch(url):
        typer.echo(f"The browser could not be opened. Open {url}", err=True)


def _folder() -> Path:
    """Return the directory of demo stores, beside the default store."""
    from accord.api.administration import default_path

    folder = default_path(os.environ).parent / "demo"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        fail(f"{folder} cannot be created: {error.strerror}. Set XDG_DATA_HOME to another directory.")
    return folder


def _free_port(wanted: int) -> int:
    """Return a free port: the wanted one if possible."""
    for port in (wanted, 0):
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except (OSError, OverflowError):
                continue
            found: int = probe.getsockname()[1]
            return found
    fail(f"There is no free port on {HOST}.")


# --- the second server ------------------------------------------------------------------------------------------------


@contextmanager
def _second_server(folder: Path, port: int, speed: float) -> Iterator[str]:
    """Serve the agent of the second server in a process of its own, and yield its URL."""
    import multiprocessing

    spawn = multiprocessing.get_context("spawn")  # no state of this process is shared with the other
    here, there = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_serve_second, args=(str(folder), port, speed, there), name="accord-elsewhere")
    process.start()
    there.close()
    try:
        if not _wait_until_ready(here):
            fail(f"The demo's second server could not be started on port {port}.")
        yield f"http://{HOST}:{port}"
    finally:
        process.terminate()
        process.join(STOP_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _wait_until_ready(said: "Connection[Any, Any]") -> bool:
    """Wait until the second server is ready. A server that has ended returns False by closing its end of the pipe."""
    try:
        return said.poll(START_SECONDS) and bool(said.recv())
    except EOFError:
        return False


def _serve_second(folder: str, port: int, speed: float, ready: "Connection[Any, Any]") -> None:
    """Run the second server. Its webhooks may use this machine's addresses, which servers refuse by default."""
    from accord.cli.startup_panel import announce_server
    from accord.demo import REMOTE_AGENT, Pace
    from accord.server import http_server
    from accord.telemetry.logs import configure_logging

    Pace.speed = speed
    flags = {
        "server.host": HOST,
        "server.port": port,
        "store": f"sqlite:///{Path(folder) / 'elsewhere.db'}",
        "push.allow_private": True,
        "console.enabled": False,
    }
    application = application_of(ServeRequest(targets=(REMOTE_AGENT,), flags=flags))
    telemetry = application.settings.telemetry
    configure_logging(telemetry.log_format.value, telemetry.level("warning"))
    http_server.end_with_parent()
    with announce_server(application, shows=False) as say:
        application.on_start += [say, lambda: ready.send(True)]
        http_server.run(application)
