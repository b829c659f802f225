"""`accord demo`: what it serves, the second server beside it, and the end of both."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from accord.cli.demo import _free_port
from tests.serve.flowing import until
from tests.serve.running import Server, accord, text_of

QUICK = ("--speed", "500")


class Demo(Server):
    verb = ("demo",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, *QUICK)
        self.stores = folder / "accord" / "demo"

    @property
    def elsewhere(self) -> str:
        return self.says("runs on a separate server").split()[-1]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    server = Demo(folder)
    yield server
    assert server.stop() == 0


def state_of(task: dict[str, Any]) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_")


def answer(demo: Demo, path: str, task: dict[str, Any], *parts: dict[str, Any]) -> dict[str, Any]:
    message = {"messageId": f"{task['id']}-answer", "taskId": task["id"], "role": "ROLE_USER", "parts": parts}
    said: dict[str, Any] = demo.post("SendMessage", path=path, message=message).json()["result"]["task"]
    return said


def test_the_reporter_streams_markdown_figures_and_a_chart(demo: Demo) -> None:
    task = demo.send("Write a report about the moon", "report", path="/agents/reporter/")
    report, figures, chart = task["artifacts"]
    assert text_of({"artifacts": [report]}).startswith("# The moon\n")
    assert len(report["parts"]) > 100
    assert {part["mediaType"] for part in report["parts"]} == {"text/markdown"}
    assert len(figures["parts"][0]["data"]["weeks"]) == 8
    assert chart["parts"][0]["mediaType"] == "image/svg+xml"
    again = demo.send("Write a report about the moon", "again", path="/agents/reporter/")
    assert again["artifacts"] == task["artifacts"]


def test_billing_asks_with_a_form_and_takes_its_values(demo: Demo) -> None:
    task = demo.send("Refund somebody", "refund", path="/agents/billing/")
    assert state_of(task) == "INPUT_REQUIRED"
    form = task["status"]["message"]["metadata"]["schema"]
    account = form["properties"]["account"]["enum"][1]
    done = answer(demo, "/agents/billing/", task, {"data": {"account": account, "amount": 40, "notify": False}})
    assert state_of(done) == "COMPLETED"
    assert text_of(done).startswith(f"**40.00 EUR** went back to **{account}**")
    assert "has been told" not in text_of(done)


def test_billing_takes_words_as_well(demo: Demo) -> None:
    task = demo.send("Refund somebody", "words", path="/agents/billing/")
    done = answer(demo, "/agents/billing/", task, {"text": "12.50 to corner shop please"})
    assert text_of(done).startswith("**12.50 EUR** went back to **Corner Shop**")


@pytest.mark.parametrize(("approved", "state"), [(True, "COMPLETED"), (False, "REJECTED")])
def test_releases_wait_for_a_yes(demo: Demo, approved: bool, state: str) -> None:
    task = demo.send("Deploy 2.4", f"deploy-{approved}", path="/agents/releases/")
    assert task["status"]["message"]["metadata"] == {"approval": True}
    done = answer(demo, "/agents/releases/", task, {"data": {"approved": approved, "comment": "by a test"}})
    assert state_of(done) == state


def test_the_trip_is_a_graph_that_asks_twice(demo: Demo) -> None:
    task = demo.send("I want to travel", "trip", path="/agents/trip/")
    assert state_of(task) == "INPUT_REQUIRED"
    planned = answer(demo, "/agents/trip/", task, {"text": "Oslo"})
    assert state_of(planned) == "INPUT_REQUIRED"
    message = {"messageId": "book", "taskId": task["id"], "role": "ROLE_USER", "parts": [{"text": "yes"}]}
    booked = demo.post("SendMessage", path="/agents/trip/", message=message).json()["result"]["task"]
    assert "Three days in Oslo" in text_of(booked)
    assert text_of(booked).endswith("It is booked.")


def test_the_workflow_fans_out_asks_and_publishes(demo: Demo) -> None:
    task = demo.send("ship", "flow", path="/agents/ship-it/")
    assert state_of(task) == "INPUT_REQUIRED"
    done = answer(demo, "/agents/ship-it/", task, {"data": {"approved": True}})
    assert state_of(done) == "COMPLETED"
    assert "2.4.0 is out" in text_of(done)


@pytest.mark.proves("0-02", "0-50")
def test_the_planner_plans_and_starts_tasks(demo: Demo) -> None:
    prompt = "Report on the search cluster, deploy version 2.4 and send three keyboards to Berlin"
    plan = demo.send(prompt, "plan", path="/agents/planner/")
    assert "Reporter" in text_of({"artifacts": plan["artifacts"][:1]})
    listed = httpx.get(f"{demo.url}/api/tasks", params={"contextId": plan["contextId"]}, timeout=30).json()["items"]
    held = {row["agent"]: row["id"] for row in listed if row["waiting"] == "execute"}
    assert held.keys() == {"Reporter", "Releases", "Warehouse"}
    httpx.post(f"{demo.url}/api/tasks/{held['Reporter']}/execute", json={}, timeout=30).raise_for_status()

    def reported() -> dict[str, Any] | None:
        found: dict[str, Any] = httpx.get(f"{demo.url}/api/tasks/{held['Reporter']}", timeout=30).json()
        return found if found["status"] == "completed" else None

    assert until(reported)["agent"] == "Reporter"


@pytest.mark.proves("0-24", "0-25", "0-27")
def test_results_of_the_second_server_arrive_by_webhook(demo: Demo, tmp_path: Path) -> None:
    task = demo.send("three keyboards", "order", path="/agents/warehouse/", at_once=True)
    assert state_of(task) in {"SUBMITTED", "WORKING"}

    def completed() -> dict[str, Any] | None:
        found = demo.get(task["id"], path="/agents/warehouse/")
        return found if state_of(found) == "COMPLETED" else None

    done: dict[str, Any] = until(completed)
    assert done["artifacts"][0]["parts"][0]["data"]["order"] == "three keyboards"
    listed = accord(tmp_path, "push", "list", "-o", "json", "--store", f"sqlite:///{demo.stores}/elsewhere.db")
    webhooks = [json.loads(line) for line in listed.stdout.splitlines() if line]
    assert f"localhost:{demo.port}/api/webhook/tasks" in json.dumps(webhooks)


def test_every_agent_has_a_card_with_examples(demo: Demo) -> None:
    for name in ("reporter", "billing", "releases", "warehouse"):
        card = httpx.get(f"{demo.url}/agents/{name}/.well-known/agent-card.json", timeout=30).json()
        assert card["skills"][0]["examples"], name


# --- starting and ending ----------------------------------------------------------------------------------------------


def is_gone(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    with closing(socket.socket()) as probe:
        return probe.connect_ex((host, int(port))) != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_second_server_ends_with_the_first(tmp_path: Path, number: signal.Signals) -> None:
    demo = Demo(tmp_path)
    elsewhere = demo.elsewhere
    assert not is_gone(elsewhere)
    os.kill(demo.process.pid, number)
    demo.ended()
    until(lambda: is_gone(elsewhere) or None)


def test_another_port_is_found_if_one_is_taken() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        assert _free_port(port) != port
    assert _free_port(port) == port


def test_an_occupied_port_is_reported(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        ended = accord(tmp_path, "demo", "--port", str(taken.getsockname()[1]), *QUICK)
    assert ended.returncode == 1
    assert "Choose another port with --port." in ended.stderr
