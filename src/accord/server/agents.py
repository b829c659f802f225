"""The agents of a server: from settings to agents, local and remote, in a running node.

It only connects `agents`, `agents.remote` and `remote.tasks`. The modules of remote agents are imported when settings
name one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from accord.agents import loader
from accord.agents.loader import NotAnAgent
from accord.api import agent_types
from accord.api.agent_types import AGENT_TYPES, AgentArguments, AgentType
from accord.engine.agent import Agent, AgentEnvironment, AgentWithMembers, Living, Profile
from accord.engine.node import Node
from accord.entries import NotRegistered, Unusable
from accord.http.asgi import App
from accord.http.webhooks import WebhookEndpoint, query_credentials
from accord.remote import flow_reports
from accord.remote.flow_reports import WEBHOOK
from accord.remote.tasks import ContactPort, Redact, RemoteAgentPort, RemoteTasks, WebhookKeys
from accord.server.settings import REMOTE_NAME, REMOTE_NAME_RULE, RemoteSettings, Settings
from accord.server.settings_loader import BadSettings, LoadedSettings

if TYPE_CHECKING:
    from accord.agents.remote.agent import RemoteAgent
    from accord.agents.remote.connection import RemotePeer


Redescribe = Callable[[Profile], Profile]
"""Maps an agent's own profile to another profile."""


def agents_of(loaded: LoadedSettings, env: Mapping[str, str]) -> list[Agent]:
    """Return the agents that settings describe."""
    return [agent_of(name, loaded, env) for name in loaded.settings.agents]


def agent_of(name: str, loaded: LoadedSettings, env: Mapping[str, str]) -> Agent:
    """Return the agent that settings describe under a name. Raises BadSettings with the reason if they cannot."""
    said = loaded.settings.agents[name]
    at = f"agents.{name}"
    try:
        if isinstance(said, str):
            return _plain_agent(name, loader.load_object(said), said, env)
        target = loader.load_object(str(said["target"])) if "target" in said else None
        agent_type = _agent_type(said, target)
        given = AgentArguments(options=loaded.read(at, agent_type.options), name=name, target=target, env=env)
        if loader.is_agent(target):
            return redescribe(target, partial(agent_types.with_options, given=given))
        return loader.make_agent(agent_type, given)
    except (NotAnAgent, NotRegistered, Unusable) as error:
        raise loaded.bad(at, error) from error


def _plain_agent(name: str, target: Any, spec: str, env: Mapping[str, str]) -> Agent:
    """Return an agent with only a name and a target, and default options."""
    if loader.is_agent(target):
        return redescribe(target, partial(replace, name=name))
    agent_type = loader.find_type(target, spec)
    return loader.make_agent(
        agent_type, AgentArguments(options=agent_type.options(), name=name, target=target, env=env)
    )


def _agent_type(said: Mapping[str, Any], target: Any) -> AgentType:
    """Return the agent type that a table names, or that recognizes its target."""
    stated = said.get("type")
    if stated is None:
        if target is None:
            raise NotAnAgent('missing target or type: set target = "module:name", or type to an agent type')
        return AGENT_TYPES.load("function") if loader.is_agent(target) else loader.find_type(target, said["target"])
    agent_type = AGENT_TYPES.load(str(stated))
    if agent_type.recognizes is not None and target is None:
        raise NotAnAgent(f'missing target: set target = "module:name" for agent type {agent_type.name!r}')
    if agent_type.recognizes is None and target is not None:
        raise NotAnAgent(f"agent type {agent_type.name!r} takes no target: remove it")
    if loader.is_agent(target) and agent_type.name != "function":
        raise NotAnAgent(f"{said['target']} is an agent already: remove the type")
    if agent_type.recognizes is not None and not loader.is_agent(target) and not agent_type.recognizes(target):
        actual = type(target).__name__
        name = agent_type.name
        raise NotAnAgent(f"{said['target']!r} is not a valid target for agent type {name!r}: it is a {actual}")
    return agent_type


class RedescribedAgent:
    """An agent with an overridden profile, also after its own profile changes."""

    def __init__(self, agent: Agent, restate: Redescribe) -> None:
        """Run `agent` under the profile that `restate` returns."""
        self.agent = agent
        self._restate = restate
        self._own, self._stated = agent.profile, restate(agent.profile)
        self.run = agent.run
        if isinstance(agent, Living):
            self.start, self.stop = agent.start, agent.stop
        if isinstance(agent, AgentWithMembers):
            self.members = agent.members
        if isinstance(agent, RemoteAgentPort):
            self.trust, self.prepare, self.join, self.leave = agent.trust, agent.prepare, agent.join, agent.leave
        if isinstance(agent, ContactPort):
            self.url, self.contact, self.check = agent.url, agent.contact, agent.check

    @property
    def profile(self) -> Profile:
        """The overridden profile. A remote agent's own profile is known only after its card was fetched."""
        if self.agent.profile is not self._own:
            self._own = self.agent.profile
            self._stated = self._restate(self._own)
        return self._stated


def redescribe(agent: Agent, restate: Redescribe) -> Agent:
    """Return an agent under another profile, or itself if the profile is the same."""
    stated = restate(agent.profile)
    if (
        isinstance(agent, AgentWithMembers) and stated.name != agent.profile.name
    ):  # members and child tasks refer to its name
        raise NotAnAgent(f"it has members, so its name {agent.profile.name!r} must be changed in its code")
    if isinstance(agent, RemoteAgentPort) and stated.name != agent.profile.name:  # remote tasks refer to its name
        raise NotAnAgent(f"it is a remote agent, so its name {agent.profile.name!r} must be changed on its own server")
    return agent if stated == agent.profile else RedescribedAgent(agent, restate)


async def start_agents(agents: Iterable[Agent], environment: AgentEnvironment, stack: AsyncExitStack) -> None:
    """Start the agents that have a lifecycle, until the stack is left. An agent that is served twice starts once."""
    held = {agent.start: agent for agent in agents if isinstance(agent, Living)}
    for start, agent in held.items():
        try:
            await start(environment)
        except (OSError, ValueError, ImportError) as error:
            raise BadSettings(f"The agent {agent.profile.name} cannot start: {error}") from error
        stack.push_async_callback(agent.stop)


def remote_agents(settings: Settings, env: Mapping[str, str]) -> list["RemoteAgent"]:
    """Return the remote agents of the settings, without connecting to them."""
    from accord.agents.remote import RemoteTerms
    from accord.agents.remote.agent import RemoteAgent

    found = []
    for name, remote in settings.remotes.items():
        if not REMOTE_NAME.fullmatch(name):
            raise BadSettings(f"remotes.{name}: {REMOTE_NAME_RULE}")
        terms = RemoteTerms(
            mode=remote.mode,
            sla_seconds=remote.sla_seconds,
            answer_seconds=remote.answer_seconds,
            streams=remote.streams,
        )
        trust = WebhookKeys(keys=remote.signing_keys, redact=_redact_function(name, remote))
        connect = _connector(name, remote, settings, env)
        found.append(RemoteAgent(remote.url, name=name, terms=terms, trust=trust, connect=connect))
    return found


def _connector(name: str, remote: RemoteSettings, settings: Settings, env: Mapping[str, str]) -> Callable[[], Any]:
    @asynccontextmanager
    async def connect() -> AsyncIterator["RemotePeer"]:
        from accord.agents.remote.isek import open_bridge
        from accord.client.auth import Bearer
        from accord.client.client import Client
        from accord.server.credentials import own_keys
        from accord.server.registry import name_resolver

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
            name_resolver(env, store=settings.store) as resolve,
            Client.connect(target, resolve=resolve, **options) as client,
        ):
            yield client

    return connect


def _redact_function(name: str, remote: RemoteSettings) -> Redact | None:
    if remote.redact is None:
        return None
    from accord.agents.loader import ObjectNotFound, import_object

    try:
        found: Redact = import_object(remote.redact)
    except ObjectNotFound as error:
        raise BadSettings(f"remotes.{name}.redact: {error}") from error
    return found


# --- in a node --------------------------------------------------------------------------------------------------------


async def prepare_remote_agents(agents: Iterable[Agent], stack: AsyncExitStack) -> list[RemoteAgentPort]:
    """Return the remote agents after fetching each card. Leaving the stack closes their connections.

    That also happens if the node then cannot start, before any of them has joined it.
    """
    found: list[RemoteAgentPort] = [agent for agent in agents if isinstance(agent, RemoteAgentPort)]
    for agent in found:
        stack.push_async_callback(agent.leave)
    await asyncio.gather(*(agent.prepare() for agent in found))
    return found


async def join_remote_agents(
    agents: Iterable[RemoteAgentPort], node: Node, settings: Settings, url: str, stack: AsyncExitStack
) -> dict[str, App]:
    """Let remote agents work until the stack is left. Returns their webhook endpoints by path."""
    names = {agent.profile.name: agent for agent in agents}
    if not names:
        return {}
    trust = {name: agent.trust for name, agent in names.items()}
    token_seconds = settings.receiver.token_seconds
    remotes = RemoteTasks(node.task_store, trust=trust, ttl_seconds=token_seconds, hooks=node.hooks, now_ms=node.now_ms)
    webhook = webhook_of(settings, url)
    for agent in names.values():
        await agent.join(remotes, webhook)
        stack.push_async_callback(agent.leave)
    limits: dict[str, Any] = {"quotas": settings.limits, "rate": settings.receiver.rate}
    return {
        WEBHOOK: WebhookEndpoint(remotes, **limits),
        flow_reports.PATH: WebhookEndpoint(flow_reports.FlowReports(remotes), reads=query_credentials, **limits),
    }


def webhook_of(settings: Settings, url: str) -> str | None:
    """Return the webhook URL for remote agents, or None if it would send their tokens in the clear."""
    from accord.agents.remote import is_safe_url

    stated = settings.receiver.url
    if stated is not None and not is_safe_url(stated):
        raise BadSettings("receiver.url: It must be an https URL (http only on loopback addresses)")
    return stated or (url + WEBHOOK if is_safe_url(url + WEBHOOK) else None)
