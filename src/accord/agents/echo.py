"""Echo agent: repeats each message word by word.

A fresh installation has it to talk to; it is not a base for other agents.
"""

import re
from collections.abc import AsyncIterator

from accord.agents.function import agent
from accord.api import Context
from accord.model import Part

MAX_CHUNKS = 1000
"""Maximum number of chunks; a long text is repeated in pieces larger than words."""


@agent(name="Echo", description="Says back what it is told, word by word.", input_modes=["*/*"])
async def echo(ctx: Context) -> AsyncIterator[Part]:
    """Repeat every text part word by word, and every other part as it is."""
    for part in ctx.message.parts:
        if part.text is None:
            yield part
            continue
        words = re.findall(r"\S+\s*|\s+", part.text) or [""]
        step = -(-len(words) // MAX_CHUNKS)
        for at in range(0, len(words), step):
            yield Part(text="".join(words[at : at + step]))
