"""An agent of Google's ADK: `accord serve examples/agents/adk_agent.py:agent`, with google-adk in the environment.

Its session is the caller's conversation and survives the server; a tool that takes long makes the task wait for an
answer, with nothing running. The model below needs no key; put yours, such as "gemini-flash-latest", in its place.
"""

from collections.abc import AsyncIterator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import LongRunningFunctionTool
from google.genai import types


class Waiter(BaseLlm):
    """Stands in for a model: it asks a person, and says what that said."""

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        answer = request.contents[-1].parts[-1].function_response
        if answer is None:
            call = types.FunctionCall(name="ask_person", args={"question": "Is Friday fine?"})
            said = types.Part(function_call=call)
        else:
            said = types.Part(text=f"You said {answer.response['result']}: the table is yours.")
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


def ask_person(question: str) -> None:
    """Ask whoever wants the table."""


agent = LlmAgent(
    name="waiter",
    description="Books a table",
    model=Waiter(model="waiter"),
    tools=[LongRunningFunctionTool(ask_person)],
)
