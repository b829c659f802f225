"""Temporal's workflows in settings, and what is left alone when Temporal is not there."""

import sys
from pathlib import Path

import pytest

from accord.agents.temporal import AGENT_TYPE, TemporalOptions
from accord.agents.temporal.agent import TemporalAgent
from accord.api import agent_types
from accord.engine.agent import Crash
from accord.model import TaskState
from accord.server.agents import agents_of
from accord.server.settings_loader import BadSettings, load
from accord.testing import running
from accord.testing.inprocess import text_in
from tests.agents.temporal.conftest import agent_of
from tests.ports import free_port

SETTINGS = """
[agents.orders]
type = "temporal"
workflow = "Order"
task_queue = "orders"
namespace = "shop"
api_key = "env:TEMPORAL_KEY"
description = "Orders things"
"""


def test_settings_make_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "accord.toml"
    file.write_text(SETTINGS)
    env = {"TEMPORAL_KEY": "secret"}
    (agent,) = agents_of(load(file, env), env)
    assert isinstance(agent, TemporalAgent)
    assert (agent.profile.name, agent.profile.description) == ("orders", "Orders things")
    assert agent.profile.crash is Crash.RESUME


@pytest.mark.parametrize(
    ("line", "place"),
    [('input = "xml"', "agents.orders.input"), ("poll_seconds = 0", "agents.orders.poll_seconds"), ("que = 1", "que")],
)
def test_settings_that_make_no_sense_are_refused(line: str, place: str, tmp_path: Path) -> None:
    file = tmp_path / "accord.toml"
    file.write_text(f"{SETTINGS}{line}\n")
    with pytest.raises(BadSettings, match=place):
        agents_of(load(file, {"TEMPORAL_KEY": "secret"}), {})


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(TemporalOptions(workflow="Order", task_queue="orders", api_key="secret"))


def test_a_missing_temporalio_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "temporalio.client", None)
    options = TemporalOptions(workflow="Order", task_queue="orders")
    with pytest.raises(ImportError, match=r"accord\[temporal\]"):
        AGENT_TYPE.make(agent_types.AgentArguments(options=options))


async def test_a_temporal_that_is_not_there_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.agents.temporal.agent.RETRY_SECONDS", 0.05)
    async with running(agent_of(f"127.0.0.1:{free_port()}", "Echo")) as a2a:
        task = await a2a.send_text("hello", at_once=True)
        await a2a.reaches(task, TaskState.WORKING)
        monkeypatch.setattr("accord.agents.temporal.agent.PATIENCE_SECONDS", 0.0)
        failed = await a2a.reaches(task, TaskState.FAILED)
    assert text_in(failed) == "Temporal cannot be reached"
