"""An agent of the OpenAI Agents SDK: `accord serve examples/agents/openai_agents_agent.py:desk`.

It tells the weather, and wants a person's approval before it sends mail. The model is a stand-in that needs no key:
leave `model` out, and the SDK's own is used.
"""

from typing import Any

from agents import Agent, ModelResponse, RunContextWrapper, function_tool
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from accord import Context


class StandIn(ScriptedModel):
    """Calls the tool that is named first, with the words after it; says what it gave."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Answer as a whole."""
        self.enqueue(ModelStep.respond(think))
        return await super().get_response(*args, **kwargs)

    async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        """Answer piece by piece."""
        self.enqueue(ModelStep.respond(think))
        async for event in super().stream_response(*args, **kwargs):
            yield event


def think(call: ModelCall) -> list[Any]:
    last = call.input[-1]
    if last.get("type") == "function_call_output":
        return [assistant_message(last["output"])]
    tool, _, words = "".join(piece["text"] for piece in last["content"]).partition(" ")
    if tool not in {"weather", "mail"}:
        return [assistant_message("Say `weather` or `mail`, and where to.")]
    return [function_call(tool, {"to": words}, call_id=f"call-{len(call.input)}")]


@function_tool
async def weather(run: RunContextWrapper[Context], to: str) -> str:
    """Tell the weather of a city."""
    await run.context.status(f"Looking out of a window in {to}")
    return f"It is sunny in {to}."


@function_tool(needs_approval=True)
def mail(to: str) -> str:
    """Send mail to somebody."""
    return f"Sent to {to}."


desk = Agent("desk", instructions="You are a concierge.", model=StandIn(), tools=[weather, mail])
