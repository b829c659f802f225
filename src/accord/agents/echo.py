"""The agent that needs nothing: it says back what it was told, word by word.

It exists so that a fresh installation has something to talk to; it is not a base for other agents.
"""

import re
from collections.abc import AsyncIterator

from accord.model import Message, Part

MAX_CHUNKS = 1000
"""A long text comes back in larger pieces than words: nobody watches a novel being typed."""


class Echo:
    """Repeats every text part word by word, and every other part as it is."""

    name = "Echo"
    description = "Says back what it is told, word by word."

    async def run(self, message: Message) -> AsyncIterator[Part]:
        """Answer one message."""
        for part in message.parts:
            if part.text is None:
                yield part
                continue
            words = re.findall(r"\S+\s*|\s+", part.text) or [""]
            step = -(-len(words) // MAX_CHUNKS)
            for at in range(0, len(words), step):
                yield Part(text="".join(words[at : at + step]))
