"""An agent that is a model behind an address: Ollama, or anything that speaks OpenAI's chat API.

`apis` knows what goes over the wire, `call` makes one call of it, `agent` hosts it; nothing here uses tools or keeps
anything, because the conversation is in the store.
"""

from accord.agents.chat.agent import KIND, ChatAgent
from accord.agents.chat.options import ChatOptions

__all__ = ["KIND", "ChatAgent", "ChatOptions"]
