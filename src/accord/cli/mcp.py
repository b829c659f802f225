"""Command `accord mcp`: agents as tools over the Model Context Protocol.

With the stdio transport, standard output contains only protocol messages.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord import __version__
from accord.cli.connection import ConnectionOptions, parse_pair
from accord.cli.failures import ExplainedFailure, command_error, explain_failure
from accord.cli.serve import ServeRequest, application_of

if TYPE_CHECKING:
    from accord.http.mcp import ExposedAgent
    from accord.server.application import Application


GRACE_SECONDS = 3
"""Grace period of responses when an HTTP server stops, in seconds."""


class McpTransport(StrEnum):
    """Transport for clients."""

    STDIO = "stdio"
    HTTP = "http"


def mcp(  # size: one parameter for each flag
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET", help="Local agents: module:name or file.py:name.")
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="URL of a remote agent, or of a server with all its agents (repeatable)."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(envvar="ACCORD_CONFIG", help="Settings file [default: accord.toml if it exists]."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL of the store for tasks of local agents.", show_default="as accord serve"),
    ] = None,
    transport: Annotated[McpTransport, typer.Option(help="Transport for MCP clients.")] = McpTransport.STDIO,
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on. The path is /mcp.", min=1, max=65535)] = 8080,
    by_skill: Annotated[
        bool, typer.Option("--by-skill", help="Offer one tool per skill instead of one per agent.")
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.1, help="Maximum seconds until a call returns the task id instead of the result."
        ),
    ] = None,
    bearer: Annotated[
        str | None, typer.Option(metavar="TOKEN", envvar="ACCORD_BEARER", help="Bearer token for remote agents.")
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", envvar="ACCORD_API_KEY", help="API key for remote agents.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME:VALUE", help="HTTP header for remote agents (repeatable).")
    ] = None,
) -> None:
    """Offer agents as tools over the Model Context Protocol (MCP)."""
    import asyncio

    from accord.agents.command_environment import close_process
    from accord.protocol import urls
    from accord.server.settings import TelemetrySettings
    from accord.telemetry.logs import configure_logging

    if transport is McpTransport.HTTP and not urls.is_loopback(host):
        raise typer.BadParameter(
            "The host must be a loopback address, because MCP has no authentication here: use 127.0.0.1",
            param_hint="--host",
        )
    headers = tuple(map(parse_pair, header or ()))
    remotes = [ConnectionOptions(agent=one, bearer=bearer, api_key=api_key, headers=headers) for one in url or ()]
    application = None
    if targets or config or not remotes:
        flags = {} if store is None else {"store": store}
        application = application_of(
            ServeRequest(targets=tuple(targets or ()), config=str(config) if config else None, flags=flags)
        )
    listen = (host, port) if transport is McpTransport.HTTP else None
    telemetry = application.settings.telemetry if application else TelemetrySettings()
    configure_logging(telemetry.log_format.value, telemetry.level("warning"))
    close_process(application.env if application else None)
    try:
        asyncio.run(_serve(application, remotes, listen, {"by_skill": by_skill, "wait_seconds": wait}))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        if (failure := _failure(error)) is None:
            raise
        typer.echo("\n".join(line for line in (failure.message, failure.hint) if line), err=True)
        raise typer.Exit(failure.exit) from None


def _failure(error: Exception) -> ExplainedFailure | None:
    """Return the failure of an operator's error, or None for any other."""
    from accord.server.application import START_ERRORS
    from accord.server.http_server import CannotListen

    if isinstance(error, (CannotListen, *START_ERRORS)):
        return command_error(str(error)).failure
    return explain_failure(error)


async def _serve(
    application: "Application | None",
    remotes: list[ConnectionOptions],
    listen: tuple[str, int] | None,
    how: dict[str, Any],
) -> None:
    from accord.http.mcp import http_app, make_server, serve_stdio

    async with AsyncExitStack() as stack:
        agents: list[ExposedAgent] = []
        if application is not None:
            agents += await stack.enter_async_context(_local_agents(application))
        for options in remotes:
            agents += await stack.enter_async_context(_remote_agents(options))
        server = make_server(agents, version=__version__, **how)
        if listen is None:
            await serve_stdio(server)
        else:
            await _serve_http(http_app(server, host=listen[0]), *listen)


async def _serve_http(app: Any, host: str, port: int) -> None:
    import uvicorn

    from accord.server.http_server import listen
    from accord.server.settings import ServerSettings

    listening = listen(ServerSettings(host=host, port=port))  # before the address is printed
    typer.echo(f"MCP at http://{f'[{host}]' if ':' in host else host}:{port}/mcp", err=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACE_SECONDS)
    await uvicorn.Server(config).serve(sockets=[listening])


# --- agents -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _local_agents(application: "Application") -> AsyncIterator[list["ExposedAgent"]]:
    """Run agents in this process. Their tasks are in the store, as with a server."""
    from accord.client.client import in_process
    from accord.http.mcp import ExposedAgent

    async with application.lifespan():
        yield [
            ExposedAgent(
                name=agent.profile.name,
                agent=in_process(application.host.services[agent.profile.name]),
                description=agent.profile.description,
                skills=agent.profile.skills,
            )
            for agent in application.agents.values()
        ]


@asynccontextmanager
async def _remote_agents(options: ConnectionOptions) -> AsyncIterator[list["ExposedAgent"]]:
    """Connect to an agent, or to all agents of a server."""
    from accord.cli.connection import connect_client
    from accord.http.mcp import ExposedAgent
    from accord.outbound import Unreachable

    async with AsyncExitStack() as stack:
        found = []
        for address in await _agent_addresses(options.agent):
            client = await stack.enter_async_context(connect_client(options._replace(agent=address)))
            card = client.card
            found.append(
                ExposedAgent(
                    name=card.name,
                    agent=client,
                    description=card.description,
                    skills=card.skills,
                    unreachable=(Unreachable,),
                )
            )
        yield found


async def _agent_addresses(target: str) -> tuple[str, ...]:
    """Return the agents at a URL: for a server, all in its catalog."""
    from accord.client.discovery import CardCache, Discovery
    from accord.client.exchange import HttpExchange
    from accord.outbound import open_transport
    from accord.protocol import urls

    parts = urls.split_url(target)
    if parts.scheme not in ("http", "https") or parts.path.strip("/"):
        return (target,)
    transport = open_transport("aiohttp")
    try:
        return await Discovery(HttpExchange(transport), cache=CardCache()).listed(target.rstrip("/")) or (target,)
    finally:
        await transport.close()
