"""Flows for `test_flows`; they run in CrewAI's environment."""

import asyncio
import os
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_STORAGE_DIR": os.environ["SCRATCH"]}

from crewai.flow import Flow, human_feedback, listen, router, start
from pydantic import BaseModel

from tests.agents.contract import scratch as marks
from tests.agents.contract.peers.crewai import SCRATCH, crew, saying_back


class City(BaseModel):
    name: str = ""
    people: int = 0


class Poem(BaseModel):
    topic: str = ""
    lines: int = 2
    said: list[str] = []


class Steps(Flow[dict]):
    """Takes three steps."""

    @start()
    def first(self) -> str:
        marks.step(SCRATCH, 1)
        self.state["seen"] = ["first"]
        return "one"

    @listen(first)
    async def second(self, given: str) -> City:
        marks.step(SCRATCH, 2)
        self.state["seen"].append("second")
        return City(name=given, people=2)

    @listen(second)
    def third(self, given: City) -> str:
        marks.step(SCRATCH, 3)
        return f"{given.name} {given.people} {self.state['seen']} {self.state['input']}"


class Typed(Flow[Poem]):
    """Remembers what it was told."""

    @start()
    def write(self) -> dict[str, Any]:
        self.state.said = [*self.state.said, self.state.topic]
        return {"said": self.state.said, "lines": self.state.lines}


class Asks(Flow[dict]):
    """Asks on its way."""

    @start()
    def first(self) -> City:
        marks.step(SCRATCH, 1)
        self.state["rounds"] = self.state.get("rounds", 0) + 1
        return City(name="Rome")

    @listen(first)
    async def second(self, given: City) -> str:
        marks.step(SCRATCH, 2)
        return f"{given.name} {self.ask('When?')}"

    @listen(second)
    def third(self, given: str) -> str:
        name = self.ask("Who?")
        return f"{name} likes {self.ask('What?')} in {given}, {self.state['rounds']}"


class Reviewed(Flow[dict]):
    @start()
    @human_feedback(message="Is it good?")
    def draft(self) -> str:
        marks.step(SCRATCH, 1)
        return "a draft"

    @listen(draft)
    def publish(self, result: Any) -> str:
        return f"{result.output}: {result.feedback}"


class Routed(Flow[dict]):
    @start()
    def begin(self) -> None:
        self.state["rounds"] = 0

    @router("begin")
    def choose(self) -> str:
        return "long" if len(self.state["input"]) > 5 else "short"

    @listen("long")
    def shorten(self) -> str:
        return str(self.state["input"])[:5]

    @listen("short")
    def leave(self) -> str:
        return str(self.state["input"])


class Crewed(Flow[dict]):
    @start()
    def kick(self) -> Any:
        return crew(saying_back).kickoff(inputs={"request": self.state["input"]})


class Broken(Flow[dict]):
    @start()
    def fall(self) -> None:
        raise RuntimeError("the key is hunter2")


class Needy(Flow[dict]):
    def __init__(self, key: str, **more: Any) -> None:
        super().__init__(**more)


class Both(Flow[dict]):
    """Does two things at a time."""

    @start()
    async def one(self) -> str:
        await asyncio.sleep(0)
        return "one"

    @start()
    async def two(self) -> str:
        return "two"


instance = Typed(name="poet", initial_state=Poem(lines=7))
