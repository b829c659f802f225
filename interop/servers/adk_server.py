"""Google's Agent Development Kit: `to_a2a` around an agent that needs no model."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types

from interop.servers import agent

CALL = "the question"
"""The id of the long-running call by which an agent of the kit waits for a person."""


class Parrot(BaseAgent):
    """The agent as one of the kit's."""

    async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Event, None]:
        text = ctx.user_content.parts[0].text
        if text == "hold":
            await asyncio.Event().wait()
        if text == "ask":
            call = types.FunctionCall(id=CALL, name="ask", args={"question": agent.QUESTION})
            yield self._event(ctx, types.Part(function_call=call), long_running_tool_ids={CALL})
            return
        said = agent.pieces(text)
        if len(said) > 1:
            for piece in said:
                yield self._event(ctx, types.Part(text=piece), partial=True)
        yield self._event(ctx, types.Part(text="".join(said)))

    def _event(self, ctx: Any, part: types.Part, **fields: Any) -> Event:
        content = types.Content(role="model", parts=[part])
        return Event(invocation_id=ctx.invocation_id, author=self.name, content=content, **fields)


if __name__ == "__main__":
    listener, url = agent.listening()
    parrot = Parrot(name=agent.NAME, description=agent.DESCRIPTION)
    agent.serve(to_a2a(parrot, host="localhost", port=listener.getsockname()[1]), listener, url)
