"""A LangGraph graph as an agent: it plans a trip, asks for the city, and books after approval."""

from typing import Annotated

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt
from typing_extensions import TypedDict

CITIES = {
    "Rome": ("the Forum before breakfast", "the Villa Borghese", "an evening in Trastevere"),
    "Oslo": ("the opera's roof", "a ferry to the islands", "the Munch museum"),
    "Lima": ("the Barranco quarter", "ceviche by the sea", "the Larco museum"),
}


class Trip(TypedDict, total=False):
    """Plans three days in a city, and books them when you agree."""

    messages: Annotated[list[AnyMessage], add_messages]
    city: str


def find(state: Trip) -> Trip:
    """Find a city in the message, or ask for one."""
    said = str(state["messages"][-1].text).lower()
    known = next((city for city in CITIES if city.lower() in said), "")
    return {"city": known or str(interrupt(f"Which city: {', '.join(CITIES)}?"))}


def plan(state: Trip) -> Trip:
    """Plan three days."""
    city = state["city"].strip().title()
    get_stream_writer()({"step": "plan", "city": city})
    days = CITIES.get(city, ("a walk", "a museum", "a long dinner"))
    lines = "\n".join(f"{number}. {day[0].upper()}{day[1:]}" for number, day in enumerate(days, 1))
    return {"city": city, "messages": [AIMessage(f"**Three days in {city}**\n\n{lines}\n\n")]}


def book(state: Trip) -> Trip:
    """Book the trip if it is approved."""
    answer = interrupt({"question": f"Book three days in {state['city']}?", "approval": True})
    said = answer.get("approved") if isinstance(answer, dict) else str(answer).strip().lower() in ("yes", "y", "ok")
    return {"messages": [AIMessage("It is booked." if said else "Nothing was booked.")]}


trip = (
    StateGraph(Trip)
    .add_sequence([("find", find), ("plan", plan), ("book", book)])
    .add_edge(START, "find")
    .add_edge("book", END)
    .compile(name="Trip")
)
