"""A desk that refunds: it asks which account and how much, with a form, and waits as long as it takes.

The question holds nothing: the server may be stopped meanwhile. No money is moved.
"""

from collections.abc import AsyncIterator
from typing import Any

from accord.agents.function import agent
from accord.demo.pace import moment, typed
from accord.engine.context import Context
from accord.model import AgentSkill
from accord.model.metadata_keys import SCHEMA

ACCOUNTS = ("Acme Ltd", "Blue Bottle", "Corner Shop")

FORM = {
    "type": "object",
    "title": "Refund",
    "properties": {
        "account": {"type": "string", "title": "Account", "enum": list(ACCOUNTS)},
        "amount": {"type": "number", "title": "Amount in EUR", "minimum": 1, "maximum": 500, "default": 25},
        "notify": {"type": "boolean", "title": "Tell the customer", "default": True},
    },
    "required": ["account", "amount"],
}

SKILL = AgentSkill(
    id="refund",
    name="Refund",
    description="Refunds a payment; asks for the account and the amount.",
    tags=("billing", "asks"),
    examples=("Refund a customer for the late delivery", "Give somebody their money back"),
)


@agent(name="Billing", description="Refunds payments, after asking whose and how much.", skills=[SKILL])
async def billing(ctx: Context) -> AsyncIterator[Any]:
    """Ask, do it once, and say so."""
    answer = await ctx.ask("Which account, and how much? Refunds go up to 500 EUR.", metadata={SCHEMA: FORM})
    account, amount, notifies = wish_of(answer.data, answer.text)
    await ctx.status(f"Refunding {amount:.2f} EUR to {account}")
    receipt = await ctx.step("refund", _refund, ctx.task_id, account, amount)
    told = " The customer has been told." if notifies else ""
    async for piece in typed(f"**{amount:.2f} EUR** went back to **{account}**; the receipt is `{receipt}`.{told}"):
        yield piece


def wish_of(data: Any, text: str) -> tuple[str, float, bool]:
    """Return what is to be refunded: what a form says, or what can be made of words."""
    said = data if isinstance(data, dict) else {}
    account = said.get("account") or next((one for one in ACCOUNTS if one.lower() in text.lower()), ACCOUNTS[0])
    stated = said.get("amount")
    if not isinstance(stated, int | float):
        numbers = [word.strip("€,.") for word in text.split()]
        stated = next((float(number) for number in numbers if number.replace(".", "", 1).isdigit()), 25.0)
    return str(account), min(float(stated), 500.0), said.get("notify", True) is not False


async def _refund(task_id: str, account: str, amount: float) -> str:
    await moment(1.5)
    return f"R-{len(account)}{round(amount):03}-{task_id[:4].upper()}"
