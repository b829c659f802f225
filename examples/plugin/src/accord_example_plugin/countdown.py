"""An agent type: it counts down from the number that it is told, as slowly as its settings say."""

import asyncio
from typing import Annotated

from msgspec import Meta

from accord.api import Agent, AgentArguments, AgentType, Context, Options, Rejected, profile


class CountdownOptions(Options, frozen=True, kw_only=True):
    """What the table of such an agent may say, besides what all agents have."""

    pace: Annotated[float, Meta(ge=0)] = 0.0


class Countdown:
    """Counts down."""

    def __init__(self, given: AgentArguments) -> None:
        self.profile = profile(given, description="Counts down to zero", skills=("countdown",))
        self._pace: float = given.options.pace

    async def run(self, ctx: Context) -> None:
        """Count from the number of the message."""
        if not ctx.text.strip().isdigit():
            raise Rejected("Say a number")
        for number in range(int(ctx.text), -1, -1):
            await ctx.artifact(f"{number} ", id="numbers", append=number < int(ctx.text), last_chunk=not number)
            await asyncio.sleep(self._pace)


def _made(given: AgentArguments) -> Agent:
    return Countdown(given)


AGENT_TYPE = AgentType(name="countdown", make=_made, options=CountdownOptions)
