"""An agent elsewhere: it takes on an order at once, and reports by webhook while it is packed and sent.

`accord demo` serves it in a process of its own, on a second port, so that the way from acknowledgement to webhook can
be seen. It knows nothing of the server that calls it.
"""

from collections.abc import AsyncIterator
from typing import Any
from zlib import crc32

from accord.agents.function import agent
from accord.demo.pace import moment
from accord.engine.context import Context
from accord.model import AgentSkill

STAGES = ("Picking from the shelves", "Packing", "Handing over to the carrier")

SKILL = AgentSkill(
    id="fulfil",
    name="Fulfil an order",
    description="Picks, packs and sends an order, and reports every stage.",
    tags=("orders", "remote"),
    examples=("Send three keyboards to the Berlin office", "Ship the order of Blue Bottle"),
)


@agent(name="Warehouse", description="Picks, packs and ships orders, on a server of its own.", skills=[SKILL])
async def warehouse(ctx: Context) -> AsyncIterator[Any]:
    """Do one stage after the other, each once."""
    for stage in STAGES:
        await ctx.status(stage)
        await ctx.step(stage, moment, 2.0)
    yield {"order": ctx.text.strip(), "parcel": f"P{crc32(ctx.text.encode()) % 10**8:08}", "stages": list(STAGES)}
