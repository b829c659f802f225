"""An agent that makes files: one of so many megabytes for each number in its message."""

from accord import Context, agent
from accord.model import Part

MB = 1024 * 1024


@agent(name="filer", description="Makes files")
async def filer(ctx: Context) -> str:
    """Make the files, one artifact each."""
    for number, size in enumerate(map(int, ctx.text.split())):
        content = bytearray(size * MB)
        content[:8], content[-8:] = b"begins %d" % number, b"ends 00%d" % number
        await ctx.artifact(Part(raw=bytes(content), filename=f"{number}.bin"), id=str(number))
    return "done"
