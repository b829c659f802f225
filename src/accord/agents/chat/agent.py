"""A model as an agent: the conversation goes to it, its answer is streamed, and what it used is counted.

    [agents.helper]
    type = "chat"
    base_url = "http://localhost:11434/v1"
    model = "llama3.2"

It has no tools and asks nothing; a run that is lost is begun anew. `call` stands below.
"""

import asyncio
from contextlib import aclosing

from accord.agents.chat.apis import Piece
from accord.agents.chat.call import Call, Sleep
from accord.agents.chat.options import ChatOptions
from accord.agents.content import conversation, said_all, say
from accord.agents.kinds import JSON, Given, Kind, profile
from accord.client.transports import choose
from accord.engine.agent import TEXT, Node
from accord.engine.context import Context, Failed, Rejected

INPUT_MODES = {"openai": (TEXT, JSON, "*/*"), "ollama": (TEXT, JSON, "text/*", "image/*")}
"""API -> what its models may be sent; which of it a model takes, only its server knows."""

CUT_OFF, WITHHELD = "length", "content_filter"
"""Reasons for the end of an answer that its reader should know."""

MILLION = 1_000_000


class ChatAgent:
    """A model behind an address."""

    def __init__(self, given: Given, *, sleep: Sleep = asyncio.sleep) -> None:
        """Make an agent of the model that the options name; nothing is opened before it is first asked."""
        options: ChatOptions = given.options
        self.profile = profile(
            given,
            name=options.model,
            description=f"Talks as the model {options.model}.",
            input_modes=INPUT_MODES[options.api],
            output_modes=(TEXT, "image/*"),
        )
        self._options = options
        self._transport = choose("aiohttp", silent_seconds=options.silent_seconds)
        self._sleep = sleep

    async def start(self, node: Node) -> None:
        """Do nothing: connections are opened when they are needed."""

    async def stop(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def run(self, ctx: Context) -> None:
        """Answer what was said last, knowing what was said before."""
        said = await conversation(ctx, self._options.history + 1)
        has_said, refusal, last, used = False, "", Piece(), Piece()
        call = Call(self._options, self._transport, {"task_id": ctx.task_id}, self._sleep)
        async with aclosing(call.pieces(said)) as pieces:
            async for piece in pieces:
                for chunk in (piece.text, *piece.files):
                    has_said = has_said or chunk != ""
                    await say(ctx, chunk)
                refusal += piece.refusal
                last = piece if piece.ending else last
                used = piece if piece.input_tokens or piece.output_tokens else used  # some count with every piece
        await said_all(ctx)
        await self._count(ctx, used)
        await self._end(ctx, last.ending, refusal, has_said=has_said)

    async def _count(self, ctx: Context, used: Piece) -> None:
        if not (used.input_tokens or used.output_tokens):
            return  # not every server tells
        options = self._options
        cost = (used.input_tokens * options.input_price + used.output_tokens * options.output_price) / MILLION
        await ctx.usage(
            input_tokens=used.input_tokens, output_tokens=used.output_tokens, cost=cost, model=options.model
        )

    async def _end(self, ctx: Context, ending: str | None, refusal: str, *, has_said: bool) -> None:
        """Say how the answer ended, if it is no good end."""
        if ending == WITHHELD:
            raise Failed("The provider of the model withholds the rest of the answer")
        if refusal and not has_said:
            raise Rejected(refusal)
        if not has_said:
            raise Failed("The model said nothing")
        if ending == CUT_OFF:
            await ctx.status("The answer is cut off: it has reached the longest that it may be")


KIND = Kind(name="chat", options=ChatOptions, make=ChatAgent)
