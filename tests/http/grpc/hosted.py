"""What the official clients talk to: agents that can be waited for, a card, and webhooks that nobody calls."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from accord import Context, agent
from accord.a2a import A2A
from accord.engine.agent import Agent
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    PushConfig,
    PushFormat,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
)
from accord.model.card import ApiKeyScheme
from accord.service.host import Host


class Gate:
    """An agent that says one word at once and the next when it is let go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.agent: Agent = agent(name="gate", description="Waits")(self._run)

    async def _run(self, ctx: Context) -> AsyncIterator[str]:
        yield f"one {ctx.text} "
        await ctx.flush()
        await self.go.wait()
        yield "two"


class Quiet:
    """Takes every webhook and calls none."""

    def check(self, config: PushConfig) -> None:
        pass

    def form(self, dialect: str) -> PushFormat:
        return PushFormat.TASK

    async def send(self, delivery: Any) -> None:
        pass


def card(address: str, version: str) -> AgentCard:
    """The card of an agent that is reached over gRPC."""
    key = SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name="x-key"))
    needs = (SecurityRequirement(schemes={"key": Scopes()}),)
    return AgentCard(
        name="gate",
        description="Waits",
        version="1",
        supported_interfaces=(AgentInterface(url=address, protocol_binding="GRPC", protocol_version=version),),
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill(id="wait", name="Wait", description="Waits", tags=("time",), security_requirements=needs),),
        security_schemes={"key": key},
        security_requirements=needs,
    )


class WithCard:
    """A service with an extended card."""

    def __init__(self, inner: A2A, shown: AgentCard) -> None:
        self._inner = inner
        self._shown = shown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def extended_card(self, request: object, caller: object) -> AgentCard:
        return self._shown


async def hosted(hosting: Any, gate: Gate, version: str) -> tuple[Host, A2A]:
    """A gate behind a real service."""
    host: Host = await hosting(gate.agent, sender=Quiet())
    service: Any = WithCard(host.default, card("example.com:443", version))
    return host, service
