"""The composition root: an agent in, a running ASGI application out.

Nothing is decided here that a layer below could decide; it only puts the pieces together and routes paths to bindings.
"""

import asyncio
from contextlib import suppress

from accord import __version__
from accord.bindings.http import App, Receive, Scope, Send, respond
from accord.bindings.jsonrpc import JsonRpc
from accord.bindings.wellknown import CARD_PATHS, WellKnown
from accord.core.interface import Agent
from accord.core.service import Service
from accord.model import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from accord.protocol.negotiate import MOUNTS

TEXT = "text/plain"
RPC_PATHS = frozenset({"", *MOUNTS})


def describe(agent: Agent, url: str) -> AgentCard:
    """Return the card of an agent that listens at `url`: what is really served, and nothing else."""
    skill = AgentSkill(
        id=agent.name.lower(),
        name=agent.name,
        description=agent.description,
        tags=(agent.name.lower(),),
        input_modes=(TEXT,),
        output_modes=(TEXT,),
    )
    return AgentCard(
        name=agent.name,
        description=agent.description,
        version=__version__,
        supported_interfaces=tuple(
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version) for version in ("1.0", "0.3")
        ),
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=False),
        default_input_modes=(TEXT,),
        default_output_modes=(TEXT,),
        skills=(skill,),
    )


class Application:
    """The ASGI application: paths to bindings, and the service's life."""

    def __init__(self, agent: Agent, url: str) -> None:
        """Serve `agent`, whose callers reach it at `url`."""
        self.service = Service(agent)
        self._rpc: App = JsonRpc(self.service, origin=self.service.origin)
        self._card: App = WellKnown(describe(agent, url))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI event."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            with suppress(asyncio.CancelledError):  # the server stops, and the caller took too long to finish
                await self._route(scope["path"])(scope, receive, send)

    def _route(self, path: str) -> App:
        if path in CARD_PATHS:
            return self._card
        return self._rpc if path.rstrip("/") in RPC_PATHS else _nothing_here

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.service.close()
        await send({"type": "lifespan.shutdown.complete"})


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(
        send,
        404,
        b"Nothing here. The agent card is at /.well-known/agent-card.json\n",
        [(b"content-type", b"text/plain")],
    )
