"""Agents of the OpenAI Agents SDK as they are: streamed, with a session for each conversation, approvals as questions.

`agent` runs them and `parts` converts what is said; the SDK itself is imported when an agent is made.
"""

from accord.agents.openai_agents.agent import KIND, OpenAIAgent, OpenAIAgentsOptions

__all__ = ["KIND", "OpenAIAgent", "OpenAIAgentsOptions"]
