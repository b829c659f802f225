"""Agents here: from settings to agents, and those that hold something from the start of a node to its end.

It only puts together what `agents.kinds` and `config` know; agents elsewhere are `app.remotes`.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from msgspec.structs import replace

from accord.agents import agent_types, loader
from accord.agents.agent_types import KINDS, Given, Kind
from accord.agents.loader import NotAnAgent
from accord.config.files import BadSettings
from accord.config.load import Loaded
from accord.engine.agent import Agent, AgentWithMembers, Living, Node, Profile
from accord.entries import NotRegistered, Unusable
from accord.remote.tasks import ContactPort, RemoteAgentPort

Restate = Callable[[Profile], Profile]
"""From what an agent says of itself to what is said of it."""


def agents_of(loaded: Loaded, env: Mapping[str, str]) -> list[Agent]:
    """Return the agents that settings describe."""
    return [agent_of(name, loaded, env) for name in loaded.settings.agents]


def agent_of(name: str, loaded: Loaded, env: Mapping[str, str]) -> Agent:
    """Return the agent that settings describe under a name; raises BadSettings with the reason why it is none."""
    said = loaded.settings.agents[name]
    at = f"agents.{name}"
    try:
        if isinstance(said, str):
            return _named(name, loader.load_object(said), said, env)
        target = loader.load_object(str(said["target"])) if "target" in said else None
        kind = _kind(said, target)
        given = Given(options=loaded.read(at, kind.options), name=name, target=target, env=env)
        if loader.is_agent(target):
            return described(target, partial(agent_types.with_options, given=given))
        return loader.make_agent(kind, given)
    except (NotAnAgent, NotRegistered, Unusable) as error:
        raise loaded.bad(at, error) from error


def _named(name: str, target: Any, spec: str, env: Mapping[str, str]) -> Agent:
    """Return an agent of which nothing is said but what it is called and made of."""
    if loader.is_agent(target):
        return described(target, partial(replace, name=name))
    kind = loader.find_type(target, spec)
    return loader.make_agent(kind, Given(options=kind.options(), name=name, target=target, env=env))


def _kind(said: Mapping[str, Any], target: Any) -> Kind:
    """Return the kind that a table names, or that its target is of."""
    stated = said.get("type")
    if stated is None:
        if target is None:
            raise NotAnAgent('say what it is made of (target = "module:name") or which kind of agent it is (type)')
        return KINDS.load("function") if loader.is_agent(target) else loader.find_type(target, said["target"])
    kind = KINDS.load(str(stated))
    if kind.recognises is not None and target is None:
        raise NotAnAgent(f'an agent of the kind {kind.name} is made of something: say target = "module:name"')
    if kind.recognises is None and target is not None:
        raise NotAnAgent(f"an agent of the kind {kind.name} is made of nothing else: leave out the target")
    if loader.is_agent(target) and kind.name != "function":
        raise NotAnAgent(f"{said['target']} is an agent already: leave out the type")
    if kind.recognises is not None and not loader.is_agent(target) and not kind.recognises(target):
        raise NotAnAgent(f"{said['target']} is nothing of the kind {kind.name}, but {type(target).__name__}")
    return kind


class Restated:
    """An agent that is described otherwise than it does itself, whatever it may come to say."""

    def __init__(self, agent: Agent, restate: Restate) -> None:
        """Have `agent` work under another profile."""
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
        """Who it is: one that works elsewhere says so only when it was asked."""
        if self.agent.profile is not self._own:
            self._own = self.agent.profile
            self._stated = self._restate(self._own)
        return self._stated


def described(agent: Agent, restate: Restate) -> Agent:
    """Return an agent under another profile, if it is another."""
    stated = restate(agent.profile)
    if (
        isinstance(agent, AgentWithMembers) and stated.name != agent.profile.name
    ):  # its members and parts go by its name
        raise NotAnAgent(f"it has members and is called {agent.profile.name!r}: name it where it is made")
    if (
        isinstance(agent, RemoteAgentPort) and stated.name != agent.profile.name
    ):  # its tasks are linked to it by its name
        raise NotAnAgent(f"it works elsewhere and is called {agent.profile.name!r}: only it can say otherwise")
    return agent if stated == agent.profile else Restated(agent, restate)


async def living(agents: Iterable[Agent], node: Node, stack: AsyncExitStack) -> None:
    """Start the agents that hold something, until the stack is left; one that is served twice is started once."""
    held = {agent.start: agent for agent in agents if isinstance(agent, Living)}
    for start, agent in held.items():
        try:
            await start(node)
        except (OSError, ValueError, ImportError) as error:
            raise BadSettings(f"The agent {agent.profile.name} cannot start: {error}") from error
        stack.push_async_callback(agent.stop)
