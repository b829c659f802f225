"""Graphs to be killed, served by processes of their own; the folder in `SCRATCH` shows what they did."""

import asyncio
import operator
import os
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

SCRATCH = Path(os.environ["SCRATCH"])

STEPS = 30


def note(what: object) -> None:
    """Show that something is done."""
    with (SCRATCH / "notes").open("a") as file:
        file.write(f"{what}\n")


def step(number: int) -> Any:
    """Return a node that says its number."""

    async def take(state: Any) -> Any:
        note(number)
        await asyncio.sleep(0.05)  # work, in which it can be killed
        return {"messages": [AIMessage(str(number))]}

    return take


long = (
    StateGraph(MessagesState)
    .add_sequence([(f"step {number}", step(number)) for number in range(1, STEPS + 1)])
    .add_edge(START, "step 1")
    .compile()
)


class Votes(TypedDict):
    """What two of them have said."""

    votes: Annotated[list[str], operator.add]


def voter(name: str) -> Any:
    """Return a node that asks, and takes its time when it has an answer."""

    async def vote(state: Any) -> Any:
        answer = interrupt(f"{name}?")
        note(f"{name} {answer}")
        while not (SCRATCH / "go").exists():  # noqa: ASYNC110  # it is said by another process
            await asyncio.sleep(0.02)
        return {"votes": [f"{name} {answer}"]}

    return vote


both = StateGraph(Votes)
for one in ("left", "right"):
    both.add_node(one, voter(one)).add_edge(START, one)
