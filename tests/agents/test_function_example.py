"""The example with functions: each sort of them is served as it stands."""

from pathlib import Path
from typing import Any

import pytest

from accord.agents.loader import load
from accord.model import Part, Task, TaskState
from accord.testing import running, text_in

FILE = Path(__file__).parents[2] / "examples" / "agents" / "function_agent.py"


def example(name: str) -> Any:
    return load(f"{FILE}:{name}")


async def test_a_generator_asks_and_streams_text_and_data() -> None:
    async with running(example("report")) as a2a:
        asked = await a2a.send_text("")
        assert (asked.status.state, text_in(asked)) == (TaskState.INPUT_REQUIRED, "Which city?")
        told = await a2a.send_text("Rome", task=asked)
        assert text_in(told) == "Rome has 2,750,000 inhabitants."
        assert told.artifacts[0].parts[-1].data == {"population": 2_750_000}
        lost = await a2a.send_text("Atlantis")
        assert (lost.status.state, text_in(lost)) == (
            TaskState.FAILED,
            "There is no city called Atlantis in the books",
        )


async def test_plain_functions_take_texts_and_files() -> None:
    async with running(example("shout")) as a2a:
        assert await a2a.ask_text("hey") == "HEY"
    async with running(example("sort")) as a2a:
        given = Part(raw=b"b\na\n", filename="x.csv", media_type="text/csv")
        task = await a2a.send([given])
        assert isinstance(task, Task)
        assert task.artifacts[0].parts[0].raw == b"a\nb\n"


async def test_threaded_agents_stop_on_cancel() -> None:
    async with running(example("countdown")) as a2a:
        task = await a2a.send_text("go", at_once=True)
        assert (await a2a.cancel(task)).status.state is TaskState.CANCELED


def test_it_is_short() -> None:
    assert len(FILE.read_text().splitlines()) <= 60


@pytest.mark.parametrize("name", ["report", "shout", "sort", "countdown"])
def test_each_example_describes_itself(name: str) -> None:
    assert example(name).profile.description != name
