"""Small agents of the demo: billing with a form, releases with an approval, a planner, and a warehouse.

The warehouse is on another server: it accepts an order at once, and reports by webhook while it is packed and sent.
"""

from collections.abc import AsyncIterator
from typing import Any
from zlib import crc32

from msgspec.structs import replace

from accord.agents.function import agent
from accord.agents.planner import PlannerAgent, PlannerOptions
from accord.api.agent_types import AgentArguments
from accord.demo import pause, type_text
from accord.engine.context import Context
from accord.engine.outcome import Rejected
from accord.model import AgentSkill
from accord.model.metadata_keys import SCHEMA

ACCOUNTS = ("Acme Ltd", "Blue Bottle", "Corner Shop")

REFUND_FORM = {
    "type": "object",
    "title": "Refund",
    "properties": {
        "account": {"type": "string", "title": "Account", "enum": list(ACCOUNTS)},
        "amount": {"type": "number", "title": "Amount in EUR", "minimum": 1, "maximum": 500, "default": 25},
        "notify": {"type": "boolean", "title": "Tell the customer", "default": True},
    },
    "required": ["account", "amount"],
}

BILLING_SKILL = AgentSkill(
    id="refund",
    name="Refund",
    description="Refunds a payment; asks for the account and the amount.",
    tags=("billing", "asks"),
    examples=("Refund a customer for the late delivery", "Give somebody their money back"),
)


@agent(name="Billing", description="Refunds payments, after asking whose and how much.", skills=[BILLING_SKILL])
async def billing(ctx: Context) -> AsyncIterator[Any]:
    """Ask for the account and the amount, refund once, and report it."""
    answer = await ctx.ask("Which account, and how much? Refunds go up to 500 EUR.", metadata={SCHEMA: REFUND_FORM})
    account, amount, notifies = refund_request(answer.data, answer.text)
    await ctx.status(f"Refunding {amount:.2f} EUR to {account}")
    receipt = await ctx.step("refund", _refund, ctx.task_id, account, amount)
    told = " The customer has been told." if notifies else ""
    async for piece in type_text(f"**{amount:.2f} EUR** went back to **{account}**; the receipt is `{receipt}`.{told}"):
        yield piece


def refund_request(data: Any, text: str) -> tuple[str, float, bool]:
    """Return account, amount and notification of a refund, from the form or from the text."""
    said = data if isinstance(data, dict) else {}
    account = said.get("account") or next((one for one in ACCOUNTS if one.lower() in text.lower()), ACCOUNTS[0])
    stated = said.get("amount")
    if not isinstance(stated, int | float):
        numbers = [word.strip("€,.") for word in text.split()]
        stated = next((float(number) for number in numbers if number.replace(".", "", 1).isdigit()), 25.0)
    return str(account), min(float(stated), 500.0), said.get("notify", True) is not False


async def _refund(task_id: str, account: str, amount: float) -> str:
    await pause(1.5)
    return f"R-{len(account)}{round(amount):03}-{task_id[:4].upper()}"


REGIONS = ("eu-west", "us-east", "ap-south")

RELEASES_SKILL = AgentSkill(
    id="deploy",
    name="Deploy",
    description="Rolls a version out to three regions, once a person has agreed.",
    tags=("deploy", "approval"),
    examples=("Deploy version 2.4 to production", "Roll out the new search"),
)


@agent(name="Releases", description="Deploys to production, but not without a yes.", skills=[RELEASES_SKILL])
async def releases(ctx: Context) -> AsyncIterator[str]:
    """Check, ask for approval, and roll out to each region."""
    await ctx.status("Checking what would change")
    await ctx.step("check", pause, 1.2)
    wish = ctx.text.strip().rstrip(".") or "Deploy the newest version"
    decision = await ctx.approve(f"{wish}? 14 changes, all tests passed, three regions.")
    if not decision:
        raise Rejected(f"Not deployed: {decision.comment or 'it was not approved'}")
    yield "| region | state |\n| --- | --- |\n"
    for region in REGIONS:
        await ctx.status(f"Rolling out to {region}")
        await ctx.step(region, pause, 1.5)
        yield f"| {region} | healthy |\n"
    async for piece in type_text(f"\nDone: all {len(REGIONS)} regions answer with the new version."):
        yield piece


PLANNER_SKILL = AgentSkill(
    id="plan",
    name="Plan",
    description="Cuts what you want into tasks, picks an agent for each, and begins them when you say so.",
    tags=("plan", "tasks"),
    examples=("Report on the search cluster, deploy version 2.4 and send three keyboards to Berlin",),
)

planner = PlannerAgent(AgentArguments(options=PlannerOptions(), name="Planner"))
planner.profile = replace(planner.profile, skills=(PLANNER_SKILL,))


STAGES = ("Picking from the shelves", "Packing", "Handing over to the carrier")

WAREHOUSE_SKILL = AgentSkill(
    id="fulfil",
    name="Fulfil an order",
    description="Picks, packs and sends an order, and reports every stage.",
    tags=("orders", "remote"),
    examples=("Send three keyboards to the Berlin office", "Ship the order of Blue Bottle"),
)


@agent(name="Warehouse", description="Picks, packs and ships orders, on a server of its own.", skills=[WAREHOUSE_SKILL])
async def warehouse(ctx: Context) -> AsyncIterator[Any]:
    """Run each stage once, in order."""
    for stage in STAGES:
        await ctx.status(stage)
        await ctx.step(stage, pause, 2.0)
    yield {"order": ctx.text.strip(), "parcel": f"P{crc32(ctx.text.encode()) % 10**8:08}", "stages": list(STAGES)}
