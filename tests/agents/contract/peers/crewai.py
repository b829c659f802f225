"""The crews of the subject `crewai`, with a model that says what a test wants: served with its environment's Python."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_STORAGE_DIR": os.environ["SCRATCH"]}

from crewai import Agent, BaseLLM, Crew, Task
from crewai.events.types.llm_events import LLMCallType
from crewai.tools import tool

from accord.engine.outcome import Failed
from tests.agents.contract import scratch as marks

SCRATCH = Path(os.environ["SCRATCH"])
USED = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


class Scripted(BaseLLM):
    """Says, piece by piece, what a function makes of what it is told."""

    says: Callable[[str], Iterator[str]]

    def call(self, messages: Any, *_: Any, from_task: Any = None, from_agent: Any = None, **__: Any) -> str:
        said = ""
        told = messages if isinstance(messages, str) else "\n".join(str(one["content"]) for one in messages)
        for piece in self.says(told):
            self._emit_stream_chunk_event(chunk=piece, from_task=from_task, from_agent=from_agent)
            said += piece
        self._track_token_usage_internal(USED)
        self._emit_call_completed_event(said, LLMCallType.LLM_CALL, from_task, from_agent, usage=USED)
        return said

    def supports_function_calling(self) -> bool:
        return False


def crew(says: Callable[[str], Iterator[str]], *descriptions: str, tools: Any = (), **options: Any) -> Crew:
    """Make a crew of one agent, with a task for each description."""
    llm = Scripted(model="scripted", says=says)
    one = Agent(role="Worker", goal="work", backstory="none", llm=llm, tools=list(tools), max_iter=10_000)
    wanted = descriptions or ("{request}",)
    tasks = [Task(description=text, expected_output="words", agent=one, **options) for text in wanted]
    return Crew(agents=[one], tasks=tasks)


def request(told: str) -> str:
    """Return what the caller wants, of what the model is told."""
    return told.partition("Current Task: ")[2].partition("\n")[0]


def saying_back(told: str) -> Iterator[str]:
    yield f"you said {request(told)}"


def three(told: str) -> Iterator[str]:
    yield from ("one ", "two ", "three ")


def two(told: str) -> Iterator[str]:
    yield "one "
    marks.held_in_thread(SCRATCH)
    yield "two "


def everything(told: str) -> Iterator[str]:
    yield told


def asking(told: str) -> Iterator[str]:
    yield "to Rome" if "Rome" in told else "Which city?"


def acting(told: str) -> Iterator[str]:
    yield f'Thought: more\nAction: beat\nAction Input: {{"number": {time.monotonic_ns()}}}\n'


def stepping(told: str) -> Iterator[str]:
    number = int(request(told).split()[1])
    marks.step(SCRATCH, number)
    if number == 2:
        marks.held_in_thread(SCRATCH)
    yield "done" if number == 3 else f"did {number}"


@tool
def beat(number: int) -> str:
    """Beat."""
    marks.beat(SCRATCH)
    time.sleep(marks.BEAT_SECONDS)
    return "go on"


def refuse(inputs: dict[str, Any]) -> dict[str, Any]:
    raise Failed("no such city")


echo = usage = crew(saying_back)
stream = crew(three)
held = crew(two)
remember = crew(everything)
slow = crew(acting, tools=[beat])
fail = crew(saying_back)
fail.before_kickoff_callbacks = [refuse]
ask = crew(asking, human_input=True)
steps = crew(stepping, "step 1", "step 2", "step 3")
