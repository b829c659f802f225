"""CrewAI: a crew, one of its agents alone, or a flow as an agent.

`agent` has the kind and crews, `kickoff` one run of a crew, `feedback` what a person says to it, `outputs` what its
tasks gave, `files` what they take and write; `flow` has flows, `methods` what those have done, `thread` where both run.
Nothing of the framework is imported before an agent is made.
"""

from accord.agents.crewai.agent import KIND

__all__ = ["KIND"]
