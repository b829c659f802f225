"""What a run costs the store: one transaction for what ends and begins together, and none for the run's own end."""

from collections import Counter

import pytest

from accord.model import TaskState
from accord.storage.store import Store
from accord.workflows.document import Step
from tests.engine.conftest import Hosting, state
from tests.engine.doubles import Meddler
from tests.workflows.flows import FlowAgent, Noting, begun, ended, plan_of, step

STEPS = 12
CHAIN = tuple(step(f"s{at}", *([f"s{at - 1}"] if at else [])) for at in range(STEPS))
BESIDE = tuple(step(f"s{at}") for at in range(STEPS))


@pytest.mark.parametrize(("steps", "advances"), [(CHAIN, STEPS), (BESIDE, 1), (CHAIN[:1], 1)])
async def test_ends_and_starts_share_a_transaction(hosting: Hosting, steps: tuple[Step, ...], advances: int) -> None:
    meddlers: list[Meddler] = []

    def watched(store: Store) -> Store:
        meddlers.append(Meddler(store))
        return meddlers[-1]

    host = await hosting(FlowAgent(plan_of(*steps), Noting()), wrap=watched)
    task = await ended(host, await begun(host))
    assert state(task) is TaskState.COMPLETED
    writing = ("task_lifecycle.", "tasks.append", "steps.", "workflow_runs.")
    assert Counter(name for name in meddlers[0].done if name.startswith(writing)) == {
        "task_lifecycle.accept_task": 1,
        "workflow_runs.write_journal": advances,
        "task_lifecycle.settle_execution": 1,
    }
    last = next(given[-1] for name, given in meddlers[0].given if name == "task_lifecycle.settle_execution")
    assert f"flow:{steps[-1].name}:1:ended" in dict(last.entries), "the last step is written down with the run's end"
