"""The flows of the subject `crewai_flow`: served with the Python of CrewAI's environment."""

from tests.agents.contract.peers import crewai as crews  # isort: skip  # it says where CrewAI keeps things

from crewai.flow import Flow, listen, start

from accord.engine.outcome import Failed
from tests.agents.contract import scratch as marks

SCRATCH = crews.SCRATCH / "flows"
SCRATCH.mkdir(exist_ok=True)


class Echo(Flow[dict]):
    @start()
    def say(self) -> str:
        return f"you said {self.state['input']}"


class Usage(Flow[dict]):
    @start()
    def say(self) -> str:
        return str(crews.echo.copy().kickoff(inputs={"request": self.state["input"]}))


class Remember(Flow[dict]):
    @start()
    def say(self) -> str:
        self.state["said"] = [*self.state.get("said", []), self.state["input"]]
        return " ".join(self.state["said"])


class Slow(Flow[dict]):
    @start()
    async def work(self) -> None:
        await marks.work(SCRATCH)


class Fail(Flow[dict]):
    @start()
    def refuse(self) -> None:
        raise Failed("no such city")


class Ask(Flow[dict]):
    @start()
    def travel(self) -> str:
        return f"to {self.ask('Which city?')}"


class Steps(Flow[dict]):
    @start()
    def first(self) -> str:
        marks.step(SCRATCH, 1)
        return "did 1"

    @listen(first)
    def second(self) -> str:
        marks.step(SCRATCH, 2)
        marks.held_in_thread(SCRATCH)
        return "did 2"

    @listen(second)
    def third(self) -> str:
        marks.step(SCRATCH, 3)
        return "done"


echo, usage, remember, slow, fail, ask, steps = Echo, Usage, Remember, Slow, Fail, Ask, Steps
