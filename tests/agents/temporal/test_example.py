"""The example, as it is."""

import importlib

import pytest
from temporalio.client import Client

from accord.model import TaskState
from accord.testing import running
from accord.testing.inprocess import text_in
from examples.agents.temporal_orders import worker

pytestmark = pytest.mark.xdist_group("temporal")  # they share a server


async def test_the_example_orders_confirmed_items(
    address: str, temporal: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    example = importlib.import_module("examples.agents.temporal_agent")
    async with worker(temporal), running(example.orders) as a2a:
        asked = await a2a.send_text("kettle")
        assert asked.status.state is TaskState.INPUT_REQUIRED
        assert text_in(asked) == "One kettle is 12 euros. Shall I order it?"
        ended = await a2a.send_text("yes, please", task=asked)
    assert ended.status.state is TaskState.COMPLETED, text_in(ended)
    assert [part.data for part in ended.artifacts[0].parts] == [{"thing": "kettle", "ordered": True}]
