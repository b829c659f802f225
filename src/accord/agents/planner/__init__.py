"""An agent that turns a prompt into tasks of other agents, which begin when somebody says so.

`planning` cuts prompts and picks agents, `tools` makes and changes tasks, `agent` hosts it, with a model or without.
"""

from accord.agents.planner.agent import KIND, PlannerAgent, planner
from accord.agents.planner.options import PlannerOptions

__all__ = ["KIND", "PlannerAgent", "PlannerOptions", "planner"]
