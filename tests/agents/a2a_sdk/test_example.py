"""The example of an executor does what it says."""

from accord.agents.loader import load
from accord.model import TaskState
from accord.testing import running
from accord.testing.inprocess import text_in
from tests.environments import ROOT


async def test_the_example_asks_and_books() -> None:
    async with running(load(f"{ROOT}/examples/agents/a2a_sdk_agent.py:executor")) as a2a:
        asked = await a2a.send_text("a table")
        assert (asked.status.state, text_in(asked)) == (TaskState.INPUT_REQUIRED, "For which day?")
        booked = await a2a.send_text("Friday", task=asked)
    assert (booked.status.state, text_in(booked)) == (TaskState.COMPLETED, "Table 7 is yours on Friday.")
