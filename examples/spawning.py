"""An agent that gives tasks to others, which go on by themselves.

`accord serve examples/spawning.py:editor examples/spawning.py:writer` serves both.
"""

from accord import Context, agent


@agent(description="Has poems written")
async def editor(ctx: Context):
    task_id = await ctx.spawn("writer", "Write a poem", key="poem", hold=True)  # once, however often this is run
    await ctx.spawning.execute(task_id)
    task = await ctx.spawning.read(task_id)
    yield f"{task_id} is {task.status.state.name}"


@agent(description="Writes")
async def writer(ctx: Context):
    yield f"{ctx.text}: done"
