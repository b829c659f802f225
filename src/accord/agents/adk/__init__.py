"""Google's Agent Development Kit: an agent, an app or a runner of it as an agent.

`agent` has the agent and its turns, `hearing` what becomes of events, `calls` what they wait for; `parts` and
`sessions` have the framework's types, and are imported when an agent is made.
"""

from accord.agents.adk.agent import KIND

__all__ = ["KIND"]
