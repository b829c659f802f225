"""A graph as an agent. Its model is a stand-in that needs no key: put yours in its place."""

from itertools import repeat

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

model = GenericFakeChatModel(messages=repeat(AIMessage("Three days in Oslo.")))


def plan(state: MessagesState) -> MessagesState:
    return {"messages": [model.invoke(state["messages"])]}


def book(state: MessagesState) -> MessagesState:
    answer = interrupt("Shall I book it?")  # the task waits for an answer, with nothing running
    return {"messages": [AIMessage("Booked." if answer == "yes" else "Not booked.")]}


graph = StateGraph(MessagesState).add_sequence([plan, book]).add_edge(START, "plan")
trip = graph.compile(name="trip")  # no checkpointer: the server keeps its states with its tasks
