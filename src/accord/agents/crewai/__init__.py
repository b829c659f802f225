"""CrewAI: a crew, or one of its agents alone, as an agent.

`agent` has the agent, `kickoff` one run of a crew in a thread, `feedback` what a person says to it, and `outputs` what
its tasks gave. Nothing of the framework is imported before an agent is made.
"""

from accord.agents.crewai.agent import KIND

__all__ = ["KIND"]
