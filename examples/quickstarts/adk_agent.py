"""An agent of Google's ADK. Its model is a stand-in that needs no key: put "gemini-flash-latest" in its place."""

from collections.abc import AsyncIterator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import LongRunningFunctionTool
from google.genai import types


class StandIn(BaseLlm):
    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        answer = request.contents[-1].parts[-1].function_response
        call = types.FunctionCall(name="ask_person", args={"question": "Is Friday fine?"})
        said = types.Part(text="The table is yours.") if answer else types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[said]))


def ask_person(question: str) -> None:
    """Ask whoever wants the table; the task waits for an answer, with nothing running."""


waiter = LlmAgent(name="waiter", model=StandIn(model="stand-in"), tools=[LongRunningFunctionTool(ask_person)])
