"""Agents that go on after what they have said, when they are run again: `accord serve examples/resuming.py:steps`.

With `on_crash="resume"` a run that was lost begins at its first line while its log stays, so that an agent which says
everything again is heard twice. Here are three ways not to, from the simplest.
"""

from accord import Context, agent

PARTS = ("Once upon a time. ", "It rained. ", "The end.")


@agent(description="Tells a story, a step for each part", on_crash="resume")
async def steps(ctx: Context):
    async def write(n: int) -> None:
        await ctx.artifact(PARTS[n], id="story", append=True, last_chunk=False)

    for n in range(len(PARTS)):
        await ctx.step(f"part {n}", write, n)  # done once; what `write` says through ctx is committed with it


@agent(description="Tells a story, with a note of each part", on_crash="resume")
async def notes(ctx: Context):
    for part in PARTS:
        if ctx.kept(part) is None:
            yield part
            await ctx.keep(part, "said")  # a note for the whole task: said before? then leave it out


@agent(description="Tells a story, and looks how far it was told", on_crash="resume")
async def looks(ctx: Context):
    done = sum(len(one.parts) for one in ctx.task.artifacts)  # look what the log has, and go on after it
    for part in PARTS[done:]:
        yield part
