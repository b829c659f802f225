"""A graph as an agent: `accord serve examples/agents/langgraph_agent.py:trip`.

It plans a trip, asks where to go if it was not told, and wants a yes before it books. Kill the server while it waits
and start it again: it goes on where it was.
"""

from typing import Annotated

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from typing_extensions import TypedDict

CITIES = ("Rome", "Oslo", "Lima")


class Trip(TypedDict, total=False):
    """Plans a trip, and books it when you agree."""

    messages: Annotated[list[AnyMessage], add_messages]
    city: str


def find(state: Trip) -> Trip:
    """Look for a city in what was said; a model would do that here."""
    said = str(state["messages"][-1].text)
    city = next((city for city in CITIES if city.lower() in said.lower()), "")
    return {"city": city or interrupt("Which city?")}


def plan(state: Trip) -> Trip:
    get_stream_writer()({"step": "plan", "city": state["city"]})  # a status with data
    return {"messages": [AIMessage(f"Three days in {state['city']}.")]}


def book(state: Trip) -> Trip:
    answer = interrupt({"question": f"Book {state['city']}?", "city": state["city"]})
    agreed = answer.get("approved") if isinstance(answer, dict) else str(answer).lower() == "yes"
    return {"messages": [AIMessage("Booked." if agreed else "Not booked.")]}


trip = (
    StateGraph(Trip)
    .add_sequence([("find", find), ("plan", plan), ("book", book)])
    .add_edge(START, "find")
    .add_edge("book", END)
    .compile(name="trip")  # no checkpointer: the server keeps its states with the tasks
)
