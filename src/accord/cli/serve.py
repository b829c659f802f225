"""Command `accord serve`, and the application of its worker processes.

It refuses settings that would open a server to unauthenticated callers. The command's arguments reach its workers in
one environment variable.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from accord.cli.failures import Exit

if TYPE_CHECKING:
    from accord.server.application import Application
    from accord.server.http_server import WatchedFiles
    from accord.server.settings import Settings
    from accord.server.settings_loader import LoadedSettings


VARIABLE = "ACCORD_SERVED"

WORKER = f"{__name__}:application"
"""Factory of each worker's application."""

LOG_LEVEL = "info"
"""Minimum severity of a server's log records: its operator sees how tasks and webhooks end."""

BROKEN_AGENTS = 2
"""Exit code of a worker whose agents cannot be imported, the same as the command's."""


class ServeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the command: agents, a settings file and flags."""

    targets: tuple[str, ...] = ()
    config: str | None = None
    flags: dict[str, Any] = {}

    def load(self) -> "LoadedSettings":
        """Load the settings."""
        from accord.server.settings_loader import load

        return load(Path(self.config) if self.config else None, os.environ, self.flags)

    def application(self) -> "Application":
        """Create the application."""
        from accord.agents.loader import load as load_agent
        from accord.server.application import Application
        from accord.server.startup import environment_of

        loaded = self.load()
        settings, env = loaded.settings, environment_of(loaded, os.environ)
        agents = [load_agent(target, env) for target in self.targets]
        if settings.agents:
            from accord.server.agents import agents_of

            agents += agents_of(loaded, env)
        if settings.remotes:
            from accord.server.agents import remote_agents

            agents += remote_agents(settings, env)
        return Application(agents or [load_agent("accord.agents.echo:echo")], settings, env=env)

    def leave(self) -> None:
        """Store the request in the environment of child processes."""
        os.environ[VARIABLE] = msgspec.json.encode(self).decode()


def application() -> "Application":
    """Return the application of a worker process."""
    from accord.agents.command_environment import close_process
    from accord.agents.loader import NotAnAgent, traceback_of
    from accord.server.http_server import prepare_worker
    from accord.telemetry.logs import configure_logging

    close_process()
    told = os.environ.pop(VARIABLE)  # processes of agents do not need it, and it may contain a store's password
    try:
        made = msgspec.json.decode(told, type=ServeRequest).application()
    except ValueError as error:
        lines = traceback_of(error)
        if lines is None and not isinstance(error, NotAnAgent):
            raise
        # The developer is editing it; the next change retries.
        print(f"{error}\n{lines or ''}".rstrip(), file=sys.stderr)
        raise SystemExit(BROKEN_AGENTS) from None
    # After the agents are loaded: their own logging setup has precedence.
    configure_logging(made.settings.telemetry.log_format.value, made.settings.telemetry.level(LOG_LEVEL))
    close_process(made.env)
    prepare_worker(made)
    return made


log = logging.getLogger("accord.serve")

ALL_CAPABILITIES = ("streaming", "push", "extended-card")

SETTINGS: Mapping[str, str] = {
    "host": "server.host",
    "port": "server.port",
    "url": "server.url",
    "store": "store",
    "blobs": "blobs",
    "keep_days": "keep_days",
    "dialects": "server.dialects",
    "capabilities": "server.capabilities",
    "grpc_port": "server.grpc_port",
    "auth": "auth.schemes",
    "tls_cert": "server.tls_cert",
    "tls_key": "server.tls_key",
    "tls_client_ca": "server.tls_client_ca",
    "behind_proxy": "server.behind_proxy",
    "workers": "server.workers",
    "server": "server.server",
    "remote": "remotes",
    "webhook_url": "receiver.url",
    "log_format": "telemetry.log_format",
    "log_level": "telemetry.log_level",
}
"""Name of a flag's parameter -> its setting."""


def serve(  # size: one parameter for each flag
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET", help="Agents: module:name, file.py:name or flow.yaml [default: an echo agent]."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="ACCORD_CONFIG",
            help="Settings file [default: accord.toml, or tool.accord in pyproject.toml].",
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.", min=1, max=65535, show_default="8000")] = None,
    url: Annotated[
        str | None, typer.Option(help="Public URL of the server, if it differs from the listening address.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL of the store: sqlite:///file.db or postgresql://user:password@host/database"
            " [default: a file in the user's data directory].",
        ),
    ] = None,
    blobs: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of the blob store: table:, dir:///path or s3://bucket/prefix."),
    ] = None,
    keep_days: Annotated[
        float | None, typer.Option(min=0, help="Days to keep ended tasks. 0 keeps them forever.", show_default="30")
    ] = None,
    dialects: Annotated[
        str | None, typer.Option(help="Dialects, comma-separated: v1, v03, vault, gen, relay.", show_default="all")
    ] = None,
    capabilities: Annotated[
        str | None,
        typer.Option(help="Capabilities: all, none, or a comma-separated list of streaming, push and extended-card."),
    ] = None,
    grpc_port: Annotated[
        int | None, typer.Option(help="Port for gRPC (requires the extra grpc).", min=1, max=65535)
    ] = None,
    auth: Annotated[
        list[str] | None,
        typer.Option(help="Authentication scheme of callers: api-keys. Other schemes need a settings file."),
    ] = None,
    tls_cert: Annotated[str | None, typer.Option(metavar="FILE", help="Certificate chain of the server.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Private key of the certificate.")] = None,
    tls_client_ca: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="CA bundle for client certificates, which gRPC and granian then require."),
    ] = None,
    behind_proxy: Annotated[
        bool | None,
        typer.Option(
            "--behind-proxy", help="Trust a reverse proxy that terminates TLS and forwards the client address."
        ),
    ] = None,
    remote: Annotated[
        list[str] | None,
        typer.Option("--remote", metavar="NAME=URL", help="Serve the remote agent at URL under NAME (repeatable)."),
    ] = None,
    webhook_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL at which remote agents reach this server's /api/webhook/tasks."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Number of worker processes.", show_default="1")] = None,
    server: Annotated[
        str | None,
        typer.Option(help="HTTP server: uvicorn, or granian (requires the extra granian).", show_default="uvicorn"),
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="Format of log records: text or json.", show_default="text")
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(help="Minimum severity of log records: debug, info, warning or error.", show_default="info"),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when files change.")] = False,
) -> None:
    """Serve agents with durable tasks."""
    served = _serve_request(locals())
    application = application_of(served)
    refuse(application)
    _run(application, served, reload=reload)


def parse_serve_arguments(arguments: list[str]) -> ServeRequest:
    """Return the request of these `accord serve` arguments, for commands that check before serving."""
    from typer.main import get_command

    alone = typer.Typer(add_completion=False)
    alone.command("serve")(serve)
    with get_command(alone).make_context("accord serve", arguments) as context:
        return _serve_request(context.params)


def _serve_request(given: Mapping[str, Any]) -> ServeRequest:
    """Return the request of a command, from its parameters."""
    read: dict[str, Callable[[Any], Any]] = {
        "dialects": _listed,
        "capabilities": _capabilities,
        "auth": lambda kinds: [{"type": kind} for kind in kinds] or None,
        "remote": _remotes,
    }
    stated = {name: given[name] for name in SETTINGS if given[name] is not None}
    flags = {SETTINGS[name]: read[name](value) if name in read else value for name, value in stated.items()}
    return ServeRequest(
        targets=tuple(given["targets"] or ()),
        config=str(given["config"]) if given["config"] else None,
        flags={name: value for name, value in flags.items() if value is not None},
    )


def application_of(served: ServeRequest) -> "Application":
    """Create the application. Exits with a message for invalid arguments."""
    from accord.agents.loader import NotAnAgent, traceback_of
    from accord.api.administration import BadAddress
    from accord.server.settings_loader import BadSettings

    try:
        return served.application()
    except (NotAnAgent, BadAddress, BadSettings) as error:
        if (lines := traceback_of(error)) is not None:
            fail(f"{error}\n{lines}".rstrip(), Exit.MISUSED)
        hint = {NotAnAgent: "TARGET", BadAddress: "--store"}.get(type(error))
        raise typer.BadParameter(str(error), param_hint=hint) from None


def run_here(application: "Application", level: str = LOG_LEVEL) -> None:
    """Serve in this process until a signal, and show the URLs."""
    from accord.agents.command_environment import close_process
    from accord.cli.startup_panel import announce_server
    from accord.server import http_server
    from accord.server.application import START_ERRORS
    from accord.telemetry.logs import configure_logging

    telemetry = application.settings.telemetry
    configure_logging(telemetry.log_format.value, telemetry.level(level))
    close_process(application.env)
    try:
        with announce_server(application) as say:
            application.on_start.append(say)
            http_server.run(application)
    except (http_server.CannotListen, *START_ERRORS) as error:
        _exit_unable(application, error)


def _run(application: "Application", served: ServeRequest, *, reload: bool) -> None:
    import asyncio

    from accord.agents.command_environment import close_process
    from accord.cli.startup_panel import announce_server
    from accord.server import http_server
    from accord.server.application import START_ERRORS
    from accord.server.settings import HttpServer
    from accord.telemetry.logs import configure_logging

    settings = application.settings
    if settings.server.workers == 1 and not reload and settings.server.server is HttpServer.UVICORN:
        run_here(application)
        return
    configure_logging(settings.telemetry.log_format.value, settings.telemetry.level(LOG_LEVEL))
    close_process()
    try:
        asyncio.run(application.check())  # reported once here, and not repeatedly by each process
        served.leave()
        watched = _watched(served, settings) if reload else None
        with announce_server(application) as say:
            http_server.run_workers(settings, WORKER, say, watched=watched)
    except (http_server.CannotListen, *START_ERRORS) as error:
        _exit_unable(application, error)


def _exit_unable(application: "Application", error: Exception) -> NoReturn:
    """Report why the server cannot start, in the log format, and exit."""
    from accord.server.settings import LogFormat

    if application.settings.telemetry.log_format is LogFormat.JSON:
        log.error("server.not_started", extra={"reason": str(error)})
        raise typer.Exit(Exit.FAILED)
    fail(str(error))


def _watched(served: ServeRequest, settings: "Settings") -> "WatchedFiles":
    """Return the files whose changes restart a server: modules here and beside agents' files, and agents' own files."""
    from accord.agents.loader import FILE_SUFFIXES
    from accord.server.http_server import WatchedFiles

    said = [said if isinstance(said, str) else str(said.get("target", "")) for said in settings.agents.values()]
    targets = (*served.targets, *said)
    modules = [target.rpartition(":")[0] for target in targets]
    files = [target for target in targets if Path(target).suffix in FILE_SUFFIXES]
    folders = {str(Path(file).parent) for file in (*files, *modules) if file in files or file.endswith(".py")}
    return WatchedFiles(sorted({".", *folders}), sorted({Path(file).name for file in files}))


# --- validation -------------------------------------------------------------------------------------------------------


def refuse(application: "Application") -> None:
    """Refuse a server that would not work or would be open to other machines. Prints a remedy."""
    from accord.server.startup import configuration_problem, exposure_problem

    if (
        said := configuration_problem(application.settings, application.address)
        or exposure_problem(application.settings)
    ) is not None:
        fail(said)


def _remotes(given: list[str] | None) -> dict[str, dict[str, str]] | None:
    from accord.server.settings import REMOTE_NAME, REMOTE_NAME_RULE

    found: dict[str, dict[str, str]] = {}
    for pair in given or ():
        name, separator, url = pair.partition("=")
        if not separator or not url.strip() or not REMOTE_NAME.fullmatch(name.strip()):
            raise typer.BadParameter(f"{pair!r} is not NAME=URL; {REMOTE_NAME_RULE}", param_hint="--remote")
        found[name.strip()] = {"url": url.strip()}
    return found or None


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _capabilities(text: str | None) -> list[str] | None:
    whole = {"all": list(ALL_CAPABILITIES), "none": []}
    return whole.get(text, _listed(text)) if text is not None else None


def fail(message: str, exit: Exit = Exit.FAILED) -> NoReturn:
    """Print an error, and exit."""
    typer.echo(message, err=True)
    raise typer.Exit(exit)
