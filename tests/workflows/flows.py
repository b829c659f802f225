"""Plans to run: an agent that drives a plan, executors that only note what they did, and members that are functions."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from accord.client.credentials import KeyManager
from accord.engine.agent import Agent, Crash, Profile
from accord.engine.context import Context
from accord.engine.outcome import Failed
from accord.model import Event, Part, SendRequest, StatusUpdate, Task
from accord.service.host import Host
from accord.workflows import members
from accord.workflows.agent_definition import AgentDef
from accord.workflows.attempts import RunSetup, SharedValues
from accord.workflows.channel import METADATA
from accord.workflows.decide import RunOutcome
from accord.workflows.document import Step
from accord.workflows.executors import Executor, Result, Scene
from accord.workflows.plan import Plan
from accord.workflows.runner import Runner
from tests.engine.conftest import ALICE, AT_ONCE, saying


def step(name: str, *after: str, **more: Any) -> Step:
    """A step that is done here, after others."""
    said = {"type": "deterministic", "command": name, **more}
    return Step(name=name, depends_on=after, **said)


def plan_of(*steps: Step, **more: Any) -> Plan:
    return Plan(name="flow", workflow="main", directory=str(Path.cwd()), steps=steps, **more)


class Noting:
    """An executor that notes what it does: its command says what comes of it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.runs: Counter[str] = Counter()
        self.gates: dict[str, asyncio.Event] = {}

    async def __call__(self, scene: Scene) -> Result:
        name = scene.step.name
        self.runs[name] += 1
        if (gate := self.gates.get(name)) is not None:
            await gate.wait()
        self.done.append(name)
        text = scene.values.text(scene.step.command or " ".join(scene.step.argv or ()))
        if text.startswith("fail"):
            return Result(ok=False, output=text, exit_code=1, error=text)
        return Result(ok=True, output=text, exit_code=0)


class FlowAgent:
    """Drives one plan, whatever it is asked."""

    def __init__(self, plan: Plan, executor: Executor, **profile: Any) -> None:
        self.plan = plan
        self.executor = executor
        self.profile = Profile(name="flow", crash=Crash.RESUME, attempts=1000, **profile)
        self.outcomes: list[RunOutcome] = []

    async def run(self, ctx: Context) -> None:
        means = RunSetup(
            flow="flow",
            plan=self.plan,
            hosted=members.define_members(self.plan),
            env={},
            commands={},
            now_ms=lambda: time.time_ns() // 1_000_000,
            keys=KeyManager(env={}),
            shared=SharedValues(ctx, self.plan, None),
            executors={"deterministic": self.executor},
        )
        await means.shared.load()
        drive = Runner(ctx, means)
        outcome = await drive.run()
        self.outcomes.append(outcome)
        if outcome.status == "failed":
            raise Failed(f"Failed at {', '.join(outcome.failed)}: {outcome.error}")
        ends = {name: node.final_end.output for name, node in drive.state.nodes.items() if node.final_end is not None}
        await ctx.artifact(Part(data=ends), id="result")


class Member:
    """A member that is a function of the text."""

    def __init__(self, name: str, do: Any, **profile: Any) -> None:
        self.profile = Profile(name=f"flow/{name}", **profile)
        self._do = do

    async def run(self, ctx: Context) -> None:
        found = await self._do(ctx)
        if found is not None:
            await ctx.artifact(found)


def agents(*names: str) -> tuple[AgentDef, ...]:
    """Definitions of members that are elsewhere."""
    return tuple(AgentDef(name=name, runtime="a2a", url=f"http://127.0.0.1/{name}") for name in names)


async def begun(host: Host, **more: Any) -> Task:
    """A run that has begun."""
    request: SendRequest = saying("go", configuration=AT_ONCE, **more)
    task = await host.services["flow"].send(request, ALICE)
    assert isinstance(task, Task)
    return task


async def ended(host: Host, task: Task) -> Task:
    """A run when it has ended or asks."""
    return await host.node.settled(ALICE.tenant, task.id)


def outputs(task: Task) -> Mapping[str, str]:
    """What its steps said."""
    found = [part.data for artifact in task.artifacts for part in artifact.parts if part.data is not msgspec.UNSET]
    return dict(found[-1])


def abouts(events: list[Event]) -> list[dict[str, Any]]:
    """What the posts of a run are about."""
    bodies = [event.body for event in events if isinstance(event.body, StatusUpdate)]
    return [body.metadata[METADATA] for body in bodies if body.metadata and METADATA in body.metadata]


Agents = tuple[Agent, ...]
