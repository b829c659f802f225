"""One agent served by a program (`serve_agent`), and the checks before a server starts.

The checks refuse settings with which a server would not work or would be unsafe. Commands and programs are above.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from accord.protocol import urls
from accord.server.settings import HttpServer, ServerSettings, Settings

if TYPE_CHECKING:
    from accord.agents.command_environment import Environment
    from accord.engine.agent import Agent
    from accord.model import AgentCard
    from accord.server.application import Application
    from accord.server.settings_loader import LoadedSettings
    from accord.storage.address import Address


ADAPTER_PORT = 9000
"""Default port of a2a-adapter."""

WITHOUT_STREAMS = ("push",)
"""Capabilities of an adapter that does not stream."""


def serve_agent(
    adapter: Any,
    agent_card: "AgentCard | None" = None,
    host: str = "127.0.0.1",
    port: int = ADAPTER_PORT,
    **settings: Any,
) -> None:
    """Serve an adapter, or any other agent that `accord serve` takes, until a signal.

    Its profile is its own, or that of `agent_card`. Settings are those of `accord.server`, by section. Unlike
    a2a-adapter it listens on this machine only, unless `auth` requires authentication.
    """
    from accord.agents.command_environment import close_process
    from accord.server import http_server

    flags = {"server.host": host, "server.port": port} | dict(_dotted(settings))
    application = application_of(adapter, card=agent_card, env=os.environ, flags=flags)
    if (said := exposure_problem(application.settings)) is not None:
        raise http_server.CannotListen(said)
    close_process(application.env)
    http_server.run(application)


def application_of(
    adapter: Any,
    *,
    card: "AgentCard | None" = None,
    file: Path | None = None,
    env: Mapping[str, str],
    flags: Mapping[str, Any],
) -> "Application":
    """Return an application for one agent, with the settings of a file, of the environment and of flags."""
    from accord.agents.loader import as_agent
    from accord.server.application import Application
    from accord.server.settings_loader import load

    metadata = getattr(adapter, "get_metadata", None)
    streams = metadata is None or metadata().streaming
    loaded = load(file, env, flags)
    if not streams and loaded.settings.server.capabilities is None:
        loaded = load(file, env, {"server.capabilities": list(WITHOUT_STREAMS), **flags})
    given = environment_of(loaded, env)
    agent = as_agent(adapter, env=given)
    return Application([agent if card is None else _described_by(card, agent)], loaded.settings, env=given)


def environment_of(loaded: "LoadedSettings", env: Mapping[str, str]) -> "Environment":
    """Return the environment of a server, which hides variables that its settings refer to from commands."""
    from accord.agents.command_environment import Environment
    from accord.server.settings_report import secret_variables

    return Environment(env, loaded.referred, secret_variables(loaded))


def _described_by(card: "AgentCard", agent: "Agent") -> "Agent":
    from accord.server.agents import redescribe

    stated = partial(
        replace,
        name=card.name,
        description=card.description,
        version=card.version,
        skills=card.skills,
        input_modes=card.default_input_modes,
        output_modes=card.default_output_modes,
    )
    return redescribe(agent, stated)


def _dotted(settings: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Return settings by their dotted names, so that sections are merged with those of other sources."""
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        path = f"{before}{name}"
        found += _dotted(value, f"{path}.") if isinstance(value, Mapping) and not before else [(path, value)]
    return found


def configuration_problem(settings: Settings, address: "Address") -> str | None:
    """Return why a server would start and then not work, with a remedy, or None."""
    from accord.auth.scheme_settings import Mtls
    from accord.server.agents import webhook_of
    from accord.server.application import url_of
    from accord.server.settings_loader import BadSettings
    from accord.storage.address import SqliteAddress

    server = settings.server
    if (said := _tls_problem(server)) is not None:
        return said
    try:
        webhook_of(settings, url_of(server))
    except BadSettings as error:
        return str(error)
    if server.workers > 1 and isinstance(address, SqliteAddress) and address.path is None:
        return "Several processes cannot share a store in memory: name a file or a database with --store."
    own = [one for one in settings.auth.schemes if isinstance(one, Mtls) and one.header is None]
    if own and not server.tls_client_ca:
        return "Client certificates are checked against who issues them: name that with --tls-client-ca."
    if own and server.server is HttpServer.GRANIAN:
        return "The server granian does not tell whose certificate a client has shown: use --server uvicorn."
    return None


def _tls_problem(server: ServerSettings) -> str | None:
    if bool(server.tls_cert) != bool(server.tls_key):
        return "A certificate needs its key: give both --tls-cert and --tls-key."
    if server.tls_client_ca and not server.tls_cert:
        return "Client certificates need TLS: give --tls-cert and --tls-key as well."
    for file in (server.tls_cert, server.tls_key, server.tls_client_ca):
        if file and not os.access(file, os.R_OK):
            return f"{file} cannot be read."
    return None


def exposure_problem(settings: Settings) -> str | None:
    """Return why a server must not start, with a remedy: other machines could use it, or read its secrets."""
    server = settings.server
    is_local = urls.is_loopback(server.host)
    is_clear = not is_local and not server.tls_cert and not server.behind_proxy
    if settings.auth.is_open and (found := _opening(server)) is not None:
        reason, instead = found
        return (
            f"Anybody could use this server: {reason}, and nobody has to say who they"
            " are.\nRequire API keys with --auth api-keys (make one with `accord apikeys create`), set up other ways in"
            f" accord.toml, or {instead}.{f' Credentials also need TLS. {_TLS_FIX}' if is_clear else ''}"
        )
    if is_clear:
        return (
            f"Credentials would travel in the clear: {server.host} is not a loopback address, and there is no TLS.\n"
            f"{_TLS_FIX}"
        )
    return None


def _opening(server: ServerSettings) -> tuple[str, str] | None:
    """Return the setting that lets other machines call a server, with an alternative."""
    if not urls.is_loopback(server.host):
        return f"{server.host} is not a loopback address", "listen on 127.0.0.1"
    if server.behind_proxy:
        return "the proxy of --behind-proxy passes on requests of other machines", "leave --behind-proxy out"
    if server.url and not urls.is_loopback(urls.host_of(server.url)):
        return f"callers use it at {server.url}, which is not a loopback address", "leave --url out"
    return None


_TLS_FIX = "Give --tls-cert and --tls-key, or --behind-proxy if something in front of this server ends TLS."
