"""The planner that goes by rules, introduced to people: it plans tasks of the other agents, which wait for a click.

It is `accord.agents.planner` and nothing besides a name and examples.
"""

from msgspec.structs import replace

from accord.agents.agent_types import Given
from accord.agents.planner import PlannerAgent, PlannerOptions
from accord.model import AgentSkill

SKILL = AgentSkill(
    id="plan",
    name="Plan",
    description="Cuts what you want into tasks, picks an agent for each, and begins them when you say so.",
    tags=("plan", "tasks"),
    examples=("Report on the search cluster, deploy version 2.4 and send three keyboards to Berlin",),
)

planner = PlannerAgent(Given(options=PlannerOptions(), name="Planner"))
planner.profile = replace(planner.profile, skills=(SKILL,))
