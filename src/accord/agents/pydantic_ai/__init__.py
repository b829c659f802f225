"""Pydantic AI agents as they are: streamed, with a history for each conversation, approvals as questions.

`agent` runs them, `progress` keeps how far a turn and a conversation have come, `parts` converts what is said; the
framework itself is imported when an agent is made.
"""

from accord.agents.pydantic_ai.agent import KIND, PydanticAIAgent, PydanticAIOptions

__all__ = ["KIND", "PydanticAIAgent", "PydanticAIOptions"]
