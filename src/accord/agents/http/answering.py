"""Flows behind a webhook as agents: what a caller says is posted, and what the flow answers is the agent's answer.

A flow may stream its answer, ask the caller something, give and take files. One that takes long calls back instead,
which is `callback`. How a message looks on the wire and what an answer says is below, in `payload` and `flow`.
"""

import logging
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from accord.agents import kinds
from accord.agents.content import answer_id, file_parts
from accord.agents.contexts import outer_context
from accord.agents.http import payload
from accord.agents.http.flow import Flow, Posting
from accord.agents.http.hearing import Heard
from accord.agents.http.options import HttpOptions
from accord.agents.http.payload import Body, Mapper, Said
from accord.agents.kinds import Given
from accord.agents.naming import function_named
from accord.engine.agent import TEXT, Crash, Node
from accord.engine.context import Context, Failed, Rejected
from accord.model import Message, Part

USAGE = {
    "input_tokens": ("inputTokens", "input_tokens", "prompt_tokens", "promptTokens"),
    "output_tokens": ("outputTokens", "output_tokens", "completion_tokens", "completionTokens"),
    "cost": ("cost",),
}
"""What a flow has used, and what it may call that."""

SPOKEN, ANY = (TEXT, kinds.JSON), "*/*"

log = logging.getLogger("accord.http")


class HttpAgent:
    """A flow that answers."""

    crash = Crash.FAIL
    """Nobody knows whether a flow that was posted to may be posted to again; `on_crash` says so for one that tells by
    its Idempotency-Key that it has a message already."""

    def __init__(self, given: Given) -> None:
        """Serve the flow of the options."""
        self.options: HttpOptions = given.options
        payload.check(self.options.payload_template)
        spec = self.options.input_mapper
        self._mapper: Mapper | None = None if spec is None else function_named(spec, "input_mapper")
        self._flow = Flow(self.options)
        takes = (*SPOKEN, ANY) if self.options.multimodal_mode else SPOKEN
        own = kinds.profile(given, crash=self.crash, name="flow", input_modes=takes, output_modes=(*SPOKEN, ANY))
        self.profile = replace(own, timeout=self.options.task_timeout)

    async def start(self, node: Node) -> None:
        """Begin; connections are made when they are needed."""

    async def stop(self) -> None:
        """Let go of connections."""
        await self._flow.close()

    async def run(self, ctx: Context) -> None:
        """Post what was said; if the flow asks something, post the answer, until it is done."""
        said, number = ctx.message, 1
        while True:
            question = ctx.kept(f"asked:{number}")
            if question is None:
                question = await self._turn(ctx, said, number)
                if question is None:
                    return
                await ctx.keep(f"asked:{number}", question)
            said = (await ctx.ask(question, key=f"http:{number}")).message
            number += 1

    async def _turn(self, ctx: Context, said: Message, number: int) -> str | None:
        """Post one message and say what is answered; return what the flow asks, if it does."""
        body = self.body(ctx, said)
        await ctx.flush()  # whoever follows the task sees that it works
        async with self._flow.post(body, Posting(ctx.task_id, number)) as answer:
            question = await self._say(ctx, answer)
        if question is None:
            await ctx.finish(answer_id(ctx))
        return question

    async def _say(self, ctx: Context, answer: AsyncIterator[Heard]) -> str | None:
        async for heard in answer:
            if heard.usage is not None:
                await ctx.usage(**used(heard.usage))
            if heard.failure is not None:
                raise Failed(heard.failure)
            if heard.question is not None:
                return heard.question
            if heard.progress:
                await ctx.status(heard.progress)
            for part in heard.parts:
                await ctx.artifact(part, id=answer_id(ctx), append=True, last_chunk=False)
        return None

    def body(self, ctx: Context, said: Message, callback_url: str | None = None) -> Body:
        """Return a message as the flow is sent it."""
        self._check(said.parts)
        told = Said(
            parts=said.parts,
            context_id=outer_context(ctx),
            task_id=ctx.task_id,
            message_id=said.message_id,
            callback_url=callback_url,
        )
        try:
            return payload.body(self.options, told, self._mapper)
        except Exception as error:
            if self._mapper is None:
                raise
            log.exception("input_mapper failed", extra={"task_id": ctx.task_id, "agent": self.profile.name})
            raise Failed("The message could not be made into what the flow expects") from error

    def _check(self, parts: tuple[Part, ...]) -> None:
        if not self.options.multimodal_mode and file_parts(parts):
            raise Rejected("This agent takes text and data, and no files")


def used(usage: Any) -> dict[str, Any]:
    """Return what a flow says that it has used, as it is counted here; what is no number is not counted."""
    found: dict[str, Any] = {}
    for name, spellings in USAGE.items():
        value = next((usage[one] for one in spellings if isinstance(usage.get(one), int | float)), None)
        if value is not None and not isinstance(value, bool) and value >= 0:
            found[name] = float(value) if name == "cost" else int(value)
    if isinstance(usage.get("model"), str):
        found["model"] = usage["model"]
    return found
