"""Workflows of steps that do nothing: how many steps a second, how long one takes, and what long runs cost.

Each step is a Python function in the process, on either side, and committed before anything that depends on it begins.
DBOS has an environment of its own, so it runs beside us (`workflows_dbos`) and is asked in turn; of its two forms,
coroutines and threads, the faster one counts.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import uvloop

from accord.model import Task, TaskState
from accord.server.application import Application
from accord.server.settings import Settings
from accord.service.host import Host
from accord.workflows.agent import WorkflowAgent
from accord.workflows.decide import decide, make_end_record
from accord.workflows.document import Document, Step, Swarm, Workflow
from accord.workflows.executors import Result, Scene
from accord.workflows.plan import Plan
from accord.workflows.planner import make_plan
from accord.workflows.records import StepStarted
from accord.workflows.state import RunState
from bench import hosting
from bench.memory import ROOT
from bench.report import Table, Target, side_by_side
from bench.setting import MEMORY, POSTGRES, SQLITE, Setting
from bench.timing import CPU, RATE, Measured, best, interleaved, paced, times_of

PEER = ROOT / ".peers" / "dbos" / "bin" / "python"

AT_ONCE, STEPS = 50, 20
SHAPES = {"chain": "one after the other", "beside": "side by side"}
FORMS = {"chain": ("chain", "chain in threads"), "beside": ("beside",)}
"""How DBOS can do a shape."""

LENGTHS = (100, 1_000, 5_000)
TIMES, GROWTH = 10.0, 2.0

P50, P99, PER_STEP = "p50", "p99", f"per step of {STEPS}"
DECIDING, RUNNING = "deciding", "the whole run"

NOTES = (
    f"{AT_ONCE} runs at once, each of {STEPS} steps; as many runs as there is time for. A run of ours is a task of a"
    " workflow's agent: its plan, every beginning and end of a step, what it says about them and its result are kept."
    " A run of DBOS is a call of a workflow. CPU is that of the process, for one step.",
)
ALONE = (
    "One run at a time, from its beginning until its result is there, in milliseconds: of a single step, and of a chain"
    f" of {STEPS} steps for each of them.",
)
LONG = (
    "What one run costs for each of its steps, of the processor's time: the decisions alone, and the whole run with its"
    f" store in memory. It must not grow with the run: {LENGTHS[-1]:,} steps cost at most {GROWTH:g} times as much each"
    f" as {LENGTHS[0]}.",
)


# --- ours -------------------------------------------------------------------------------------------------------------


def document(shape: str, steps: int) -> Document:
    """Return a workflow of steps that do nothing."""
    made = tuple(
        Step(
            name=f"step-{number}",
            type="deterministic",
            command="nothing",
            depends_on=(f"step-{number - 1}",) if number and shape == "chain" else (),
        )
        for number in range(steps)
    )
    flow = Workflow(name="main", steps=made)
    return Document(version="1.0", name=f"{shape}-{steps}", swarm=Swarm(pattern="dag"), workflows=(flow,))


async def nothing(_scene: Scene) -> Result:
    return Result(ok=True, output="x", exit_code=0)


def agent(shape: str, steps: int) -> WorkflowAgent:
    return WorkflowAgent(document(shape, steps), directory=ROOT, env={}, executors={"deterministic": nothing})


@asynccontextmanager
async def serving(address: str, *agents: WorkflowAgent) -> AsyncIterator[Host]:
    app = Application(agents, Settings(store=address))
    async with app.lifespan():
        yield app.host


async def run_one(host: Host, shape: str, steps: int) -> None:
    """Begin a run and wait for its end."""
    task = await host.services[f"{shape}-{steps}"].send(hosting.saying("go"), hosting.CALLER)
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED, task.status


def ours(host: Host, asked: dict[str, Any]) -> Awaitable[Measured]:
    """Do what the other process is asked for."""
    one = partial(run_one, host, asked["form"], asked["steps"])
    if "seconds" in asked:
        return paced(lambda _: one(), asked["at_once"], asked["seconds"])
    return times_of(one, asked["count"])


# --- DBOS -------------------------------------------------------------------------------------------------------------


class Beside:
    """DBOS over one database, in its own interpreter, asked one measurement at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, asked: dict[str, Any]) -> Measured:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        found: Measured = json.loads(await self._process.stdout.readline())
        return found


@asynccontextmanager
async def beside(address: str) -> AsyncIterator[Beside]:
    """Start DBOS over an empty database."""
    if not PEER.exists():
        subprocess.run(["make", ".peers/dbos/.installed"], cwd=ROOT, check=True)  # noqa: ASYNC221  # nothing else runs
    process = await asyncio.create_subprocess_exec(
        str(PEER), "-m", "bench.workflows_dbos", address, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield Beside(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


# --- both -------------------------------------------------------------------------------------------------------------


def asking(setting: Setting) -> dict[str, dict[str, Any]]:
    """Return what is measured on each engine, as "row/form"."""
    many = {"at_once": setting.size(AT_ONCE, 5), "steps": STEPS, "seconds": setting.size(2.0, 0.2)}
    alone = {"at_once": 1, "count": setting.size(100, 5)}
    found: dict[str, dict[str, Any]] = {}
    for shape, forms in FORMS.items():
        for form in forms:
            found[f"{shape}/{form}"] = {"form": form, **many}
    for form in FORMS["chain"]:
        found[f"1/{form}"] = {"form": form, **alone, "steps": 1}
        found[f"{STEPS}/{form}"] = {"form": form, **alone, "steps": STEPS, "count": setting.size(5, 1)}
    return found


async def measured(setting: Setting) -> dict[str, Measured]:
    """Measure both on each engine, as "engine/row/contender"; of DBOS's forms what each is best at."""
    contenders: dict[str, Callable[[], Awaitable[Measured]]] = {}
    async with AsyncExitStack() as stack:
        for kind in (SQLITE, POSTGRES):
            agents = (agent("chain", STEPS), agent("beside", STEPS), agent("chain", 1))
            host = await stack.enter_async_context(serving(setting.database(kind), *agents))
            other = await stack.enter_async_context(beside(setting.database(kind)))
            for name, asked in asking(setting).items():
                row, form = name.split("/")
                if form in SHAPES:
                    contenders[f"{kind}/{row}/accord"] = partial(ours, host, asked)
                contenders[f"{kind}/{row}/DBOS/{form}"] = partial(other.ask, asked)
        return _at_its_best(await interleaved(setting.rounds(3), contenders))


def _at_its_best(found: dict[str, Measured]) -> dict[str, Measured]:
    """Return one measurement of DBOS for each row: that of the faster form."""
    kept: dict[str, Measured] = {}
    for name, taken in found.items():
        engine, row, contender, *_ = name.split("/")
        key = f"{engine}/{row}/{contender}"
        is_better = key in kept and (taken[RATE] > kept[key][RATE] if RATE in taken else taken[P50] < kept[key][P50])
        if key not in kept or is_better:
            kept[key] = taken
    return kept


# --- long runs --------------------------------------------------------------------------------------------------------


async def decided(made: Plan) -> None:
    """Decide everything in a run whose steps each end at once."""
    state = RunState(made)
    while (decision := decide(state, 0, lambda _: True)).outcome is None:
        for name, attempt in decision.begin:
            state.apply(StepStarted(step=name, attempt=attempt, at=0))
        for node in list(state.running.values()):
            assert node.step is not None
            state.apply(make_end_record(node.step, node.attempt, Result(ok=True), 0))


async def long_runs(setting: Setting) -> dict[str, Measured]:
    """Return microseconds of the processor for each step of a run."""
    rows: dict[str, Measured] = {}
    tries = setting.size(5, 1)
    for length in setting.size(LENGTHS, LENGTHS[:2]):
        row = rows[f"{length:,} steps"] = {}
        async with serving(setting.database(MEMORY), *(agent(shape, length) for shape in SHAPES)) as host:
            for shape, said in SHAPES.items():
                made = make_plan(document(shape, length), base=ROOT, env={})
                works = {DECIDING: partial(decided, made), RUNNING: partial(run_one, host, shape, length)}
                for what, work in works.items():
                    row[f"{what}, {said}"] = (await best(work, tries)).cpu / length * 1e3
    return rows


# --- tables -----------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> list[Table]:
    found = uvloop.run(measured(setting))
    return [_together(found), _alone(found), _long(uvloop.run(long_runs(setting)))]


def _together(found: dict[str, Measured]) -> Table:
    taken = {}
    for name, one in found.items():
        engine, row, contender = name.split("/")
        if row in SHAPES:
            taken[f"{engine}, {SHAPES[row]}/{contender}"] = {RATE: one[RATE] * STEPS, CPU: one[CPU] / STEPS}
    rows = side_by_side(taken, RATE)
    columns = (f"accord {RATE}", f"DBOS {RATE}", "times", f"accord {CPU}", f"DBOS {CPU}")
    targets = tuple(Target(row, "times", at_least=TIMES) for row in rows)
    return Table("Steps of workflows that do nothing", "steps", columns, rows, targets, NOTES)


def _alone(found: dict[str, Measured]) -> Table:
    rows: dict[str, Measured] = {}
    for name, one in found.items():
        engine, row, contender = name.split("/")
        if row == "1":
            rows.setdefault(engine, {}).update({f"{contender} {column}": one[column] for column in (P50, P99)})
        elif row not in SHAPES:
            rows.setdefault(engine, {})[f"{contender} {PER_STEP}"] = one[P50] / STEPS
    columns = tuple(f"{contender} {column}" for contender in ("accord", "DBOS") for column in (P50, P99, PER_STEP))
    return Table("One run of a workflow", "ms", columns, rows, (), ALONE)


def _long(rows: dict[str, Measured]) -> Table:
    first, last = (list(rows)[place] for place in (0, -1))
    targets = tuple(Target(last, column, at_most=round(cost * GROWTH)) for column, cost in rows[first].items())
    return Table("Runs of many steps", "CPU us per step", tuple(rows[first]), rows, targets, LONG)
