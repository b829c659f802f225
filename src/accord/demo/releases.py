"""A release desk: it prepares a deployment, wants a yes of a person, and does it step by step.

Nothing is deployed. The question is an approval: yes or no, with a comment.
"""

from collections.abc import AsyncIterator

from accord.agents.function import agent
from accord.demo.pace import moment, typed
from accord.engine.context import Context, Rejected
from accord.model import AgentSkill

REGIONS = ("eu-west", "us-east", "ap-south")

SKILL = AgentSkill(
    id="deploy",
    name="Deploy",
    description="Rolls a version out to three regions, once a person has agreed.",
    tags=("deploy", "approval"),
    examples=("Deploy version 2.4 to production", "Roll out the new search"),
)


@agent(name="Releases", description="Deploys to production, but not without a yes.", skills=[SKILL])
async def releases(ctx: Context) -> AsyncIterator[str]:
    """Check, ask, roll out."""
    await ctx.status("Checking what would change")
    await ctx.step("check", moment, 1.2)
    wish = ctx.text.strip().rstrip(".") or "Deploy the newest version"
    decision = await ctx.approve(f"{wish}? 14 changes, all tests passed, three regions.")
    if not decision:
        raise Rejected(f"Not deployed: {decision.comment or 'it was not approved'}")
    yield "| region | state |\n| --- | --- |\n"
    for region in REGIONS:
        await ctx.status(f"Rolling out to {region}")
        await ctx.step(region, moment, 1.5)
        yield f"| {region} | healthy |\n"
    async for piece in typed(f"\nDone: all {len(REGIONS)} regions answer with the new version."):
        yield piece
