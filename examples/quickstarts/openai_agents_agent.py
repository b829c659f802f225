"""An agent of the OpenAI Agents SDK. Its model plays a script a hundred times: leave it out, and the SDK's is used."""

from agents import Agent, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call


@function_tool(needs_approval=True)  # the task waits for a yes, with nothing running
def refund(order: int) -> str:
    """Give the money back."""
    return f"Order {order} is refunded."


SCRIPT = [[function_call("refund", {"order": 7}, call_id="call-1")], [assistant_message("You get your money back.")]]

desk = Agent("desk", instructions="You help with orders.", tools=[refund], model=ScriptedModel(SCRIPT * 100))
