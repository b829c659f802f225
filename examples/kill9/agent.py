"""An agent that takes its time, and after a crash goes on behind the last word that it said."""

import asyncio
import os

from accord import Context, agent

SENTENCE = "Every event is on disk before anybody sees it, so a crash in mid-sentence costs nothing but some seconds."
WORDS = SENTENCE.split()
PAUSE = float(os.environ.get("KILL9_PAUSE", "0.5"))


@agent(description="Says a sentence, slowly", on_crash="resume")
async def speaker(ctx: Context):
    said = sum(len(one.parts) for one in ctx.task.artifacts)  # what the log has already, after a crash
    for word in WORDS[said:]:
        await asyncio.sleep(PAUSE)
        yield f"{word} "
