"""Crews for the tests beside this file; they run in CrewAI's environment."""

from collections.abc import Iterator
from typing import Any

from crewai import Agent, Crew, Task
from pydantic import BaseModel

from tests.agents.contract import scratch as marks
from tests.agents.contract.peers.crewai import SCRATCH, Scripted, beat, crew, request
from tests.agents.contract.peers.crewai import acting as going_on


class City(BaseModel):
    name: str
    people: int


def told(words: str) -> Iterator[str]:
    yield request(words)


def city(_words: str) -> Iterator[str]:
    yield '{"name": "Rome", '
    yield '"people": 2750000}'


def drafting(words: str) -> Iterator[str]:
    """Say which task it is, and show that a model was called."""
    number = 2 if "second" in words or "shorter" in words else 1
    marks.step(SCRATCH, number)
    yield "short draft" if "shorter" in words else f"draft {number}"


def acting(words: str) -> Iterator[str]:
    """Call a tool, then answer in the way of those who think aloud."""
    if "go on" in words:
        yield "Thought: I know now\n"
        yield "Final Answer: it beats"
    else:
        yield 'Thought: let me see\nAction: beat\nAction Input: {"number": 1}\n'


def breaking(_words: str) -> Iterator[str]:
    raise RuntimeError("the key is hunter2")
    yield ""


def with_output(**options: Any) -> Crew:
    made = crew(city)
    made.tasks[0] = Task(description="{request}", expected_output="a city", agent=made.agents[0], **options)
    return made


variables = crew(told, "{topic} in {year}")
two = crew(told, "first {request}", "second {request}")
typed = with_output(output_pydantic=City)
plain = with_output(output_json=City)
tooled = crew(acting, tools=[beat])
endless = crew(going_on, tools=[beat])
broken = crew(breaking)
alone = Agent(role="Geographer", goal="know cities", backstory="none", llm=Scripted(model="scripted", says=told))
reviewed = crew(drafting, "first {request}", "second {request}")
reviewed.tasks[1].human_input = True
