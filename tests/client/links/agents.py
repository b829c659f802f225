"""The agent that links talk to: a word tells it what to do."""

from collections.abc import AsyncIterator

from accord import Context, agent


@agent(description="Does what a word tells it to", skills=["words"])
async def words(ctx: Context) -> AsyncIterator[str]:
    match ctx.text:
        case "chunks":
            for piece in ("one ", "two ", "three"):
                yield piece
                await ctx.flush()
        case "ask":
            answer = await ctx.ask("which?")
            yield f"so {answer.text}"
        case "hold":
            await ctx.status("holding")
            await ctx.wait("for ever")
        case "fail":
            raise RuntimeError("a secret")
        case text:
            yield f"you said {text}"
