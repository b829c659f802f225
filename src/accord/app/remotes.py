"""Agents elsewhere: from settings to agents, and from agents to a node that they have joined.

It only puts together what `agents.remote` and `core.remotes` do; a server without such agents loads neither.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from accord.bindings.http import App
from accord.bindings.receiver import Receiver, in_query
from accord.config.files import BadSettings
from accord.config.settings import NAME, NAMES_ARE, Remote, Settings
from accord.engine.agent import Agent
from accord.engine.node import Engine
from accord.remote import flow_reports
from accord.remote.flow_reports import WEBHOOK
from accord.remote.tasks import Redact, RemoteAgentPort, RemoteTasks, WebhookKeys

if TYPE_CHECKING:
    from accord.agents.remote.agent import RemoteAgent
    from accord.agents.remote.connection import RemotePeer


def remote_agents(settings: Settings, env: Mapping[str, str]) -> list["RemoteAgent"]:
    """Return the agents elsewhere that the settings name; nobody is asked anything yet."""
    from accord.agents.remote import RemoteTerms
    from accord.agents.remote.agent import RemoteAgent

    found = []
    for name, remote in settings.remotes.items():
        if not NAME.fullmatch(name):
            raise BadSettings(f"remotes.{name}: {NAMES_ARE}")
        terms = RemoteTerms(
            mode=remote.mode,
            sla_seconds=remote.sla_seconds,
            answer_seconds=remote.answer_seconds,
            streams=remote.streams,
        )
        trust = WebhookKeys(keys=remote.signing_keys, redact=_redact(name, remote))
        connect = _connecting(name, remote, settings, env)
        found.append(RemoteAgent(remote.url, name=name, terms=terms, trust=trust, connect=connect))
    return found


def _connecting(name: str, remote: Remote, settings: Settings, env: Mapping[str, str]) -> Callable[[], Any]:
    @asynccontextmanager
    async def connect() -> AsyncIterator["RemotePeer"]:
        from accord.agents.remote.isek import open_bridge
        from accord.app.credentials import own_keys
        from accord.app.names import resolving
        from accord.client.auth import Bearer
        from accord.client.client import Client

        options: dict[str, Any] = {
            "auth": Bearer(remote.token) if remote.token else None,
            "keys": await own_keys(settings, env),
            "service": remote.key,
            "headers": remote.headers,
            "timeout": remote.answer_seconds,
            "dialect": remote.dialect,
            "binding": remote.binding,
            "allow_hosts": remote.allow_hosts,
        }
        target: Any = remote.url
        if remote.p2p_address:
            target, options["transport"] = await open_bridge(name, remote.url, remote.p2p_address)
        async with (
            resolving(env, store=settings.store) as resolve,
            Client.connect(target, resolve=resolve, **options) as client,
        ):
            yield client

    return connect


def _redact(name: str, remote: Remote) -> Redact | None:
    if remote.redact is None:
        return None
    from accord.agents.loader import ObjectNotFound, import_object

    try:
        found: Redact = import_object(remote.redact)
    except ObjectNotFound as error:
        raise BadSettings(f"remotes.{name}.redact: {error}") from error
    return found


# --- in a node --------------------------------------------------------------------------------------------------------


async def prepared(agents: Iterable[Agent], stack: AsyncExitStack) -> list[RemoteAgentPort]:
    """Return the remote agents after each was asked for its card; leaving the stack closes their connections.

    That also happens if the node then cannot start, before any of them has joined it.
    """
    found: list[RemoteAgentPort] = [agent for agent in agents if isinstance(agent, RemoteAgentPort)]
    for agent in found:
        stack.push_async_callback(agent.leave)
    await asyncio.gather(*(agent.prepare() for agent in found))
    return found


async def joined(
    agents: Iterable[RemoteAgentPort], engine: Engine, settings: Settings, url: str, stack: AsyncExitStack
) -> dict[str, App]:
    """Let agents elsewhere work until the stack is left; return what takes their reports in, by its path."""
    names = {agent.profile.name: agent for agent in agents}
    if not names:
        return {}
    trust = {name: agent.trust for name, agent in names.items()}
    token_seconds = settings.receiver.token_seconds
    remotes = RemoteTasks(
        engine.archive, trust=trust, ttl_seconds=token_seconds, hooks=engine.hooks, now_ms=engine.now_ms
    )
    webhook = webhook_of(settings, url)
    for agent in names.values():
        await agent.join(remotes, webhook)
        stack.push_async_callback(agent.leave)
    limits: dict[str, Any] = {"quotas": settings.limits, "rate": settings.receiver.rate}
    return {
        WEBHOOK: Receiver(remotes, **limits),
        flow_reports.PATH: Receiver(flow_reports.FlowReports(remotes), reads=in_query, **limits),
    }


def webhook_of(settings: Settings, url: str) -> str | None:
    """Return where agents elsewhere report; None if their tokens would travel there in the clear."""
    from accord.agents.remote import is_safe_url

    stated = settings.receiver.url
    if stated is not None and not is_safe_url(stated):
        raise BadSettings("receiver.url: It must be an https address; http is only for this machine itself")
    return stated or (url + WEBHOOK if is_safe_url(url + WEBHOOK) else None)
