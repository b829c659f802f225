"""`accord serve --remote`: any A2A agent, of any dialect, behind a server that forgets nothing. Real processes."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, ROOT, Server, environment, running, text_of

SHOP = f"{ROOT}/tests/remote/agents.py:shop"
OPEN = {"ACCORD_PUSH__ALLOW_PRIVATE": "true"}
"""An agent elsewhere that may call webhooks on this machine."""

ELSEWHERE = {
    "all of 1.0, by webhook": ["--dialects", "v1"],
    "only 0.3, by webhook": ["--dialects", "v03"],
    "only 0.3, streaming": ["--dialects", "v03", "--capabilities", "streaming"],
    "only 0.3, neither webhooks nor streams": ["--dialects", "v03", "--capabilities", "none"],
    "only AgentVault's profile": ["--dialects", "vault", "--capabilities", "streaming"],
    "only gen": ["--dialects", "gen", "--capabilities", "none"],
}


@contextmanager
def gateway(folder: Path, way: str) -> Iterator[tuple[Server, Server]]:
    """A server elsewhere, and one here in front of it."""
    elsewhere, here = folder / "elsewhere", folder / "here"
    elsewhere.mkdir()
    here.mkdir()
    with (
        running(elsewhere, SHOP, *ELSEWHERE[way], **OPEN) as far,
        running(here, "--remote", f"shop={far.url}") as near,
    ):
        yield far, near


@pytest.mark.proves("0-17")
@pytest.mark.parametrize("way", ELSEWHERE)
def test_a_client_of_1_0_talks_to_any_agent_through_it(tmp_path: Path, way: str) -> None:
    with gateway(tmp_path, way) as (_, near):
        done = near.send("hello", "m-1")
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert text_of(done) == "you said hello"
        asked = near.send("ask", "m-2")
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert asked["status"]["message"]["parts"] == [{"text": "Which size?"}]
        reply = {"messageId": "m-3", "role": "ROLE_USER", "parts": [{"text": "L"}], "taskId": asked["id"]}
        answered = near.post("SendMessage", message=reply).json()["result"]["task"]
        assert answered["status"]["state"] == "TASK_STATE_COMPLETED"
        assert text_of(answered) == "size L"


def until(check: Callable[[], Any]) -> Any:
    """Ask until there is an answer."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        try:
            if found := check():
                return found
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("It never happened")


def ended(server: Server, task_id: str) -> dict[str, Any] | None:
    task = server.get(task_id)
    return task if task["status"]["state"] not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING") else None


@pytest.mark.proves("0-63")
def test_cancels_reach_the_remote_agent(tmp_path: Path) -> None:
    with gateway(tmp_path, "all of 1.0, by webhook") as (far, near):
        task = near.send("hold", at_once=True)

        def states() -> set[str]:
            page = far.post("ListTasks").json()["result"]["tasks"]
            return {found["status"]["state"] for found in page}

        until(lambda: states() == {"TASK_STATE_WORKING"})
        cancelled = near.post("CancelTask", id=task["id"]).json()["result"]
        assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
        until(lambda: states() == {"TASK_STATE_CANCELED"})


def test_a_killed_gateway_loses_and_repeats_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "front"
    folder.mkdir()
    store = ["--store", f"sqlite:///{folder}/front.db"]
    with running(tmp_path, SHOP, "--dialects", "v1", **OPEN) as far:
        front = Server(folder, "--remote", f"shop={far.url}", *store)
        task = front.send("ask")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        front.kill()
        with running(folder, "--remote", f"shop={far.url}", *store, port=front.port) as again:
            reply = {"messageId": "m-2", "role": "ROLE_USER", "parts": [{"text": "XL"}], "taskId": task["id"]}
            again.post("SendMessage", message=reply, configuration={"returnImmediately": True})
            done = until(lambda: ended(again, task["id"]))
            assert text_of(done) == "size XL"
        page = far.post("ListTasks").json()["result"]
        assert page["totalSize"] == 1


def is_acknowledged(file: Path) -> bool:
    """Whether the only task of a store is known elsewhere."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute("SELECT remote_id IS NOT NULL FROM remote").fetchall() == [(1,)]
    finally:
        connection.close()


# --- the orchestrator of the examples -------------------------------------------------------------------------------


@contextmanager
def orchestrator(folder: Path, seconds: float) -> Iterator[str]:
    """`python -m accord.demo.orchestrator` as a process."""
    port = free_port()
    command = [sys.executable, "-m", "accord.demo.orchestrator", "--port", str(port), "--seconds", str(seconds)]
    process = subprocess.Popen(command, cwd=folder, env=environment(folder))
    url = f"http://localhost:{port}"
    try:
        until(lambda: httpx.get(f"{url}/.well-known/agent.json").status_code == 200)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=BOUND_SECONDS)


@pytest.mark.proves("0-15", "0-24", "0-31", "0-45")
def test_the_orchestrator_acknowledges_and_calls_back(tmp_path: Path) -> None:
    with orchestrator(tmp_path, 0.05) as url, running(tmp_path, "--remote", f"boss={url}/") as near:
        done = near.send("pack; ship")
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        (part,) = done["artifacts"][0]["parts"]
        assert part["data"]["result"] == "pack: done; ship: done"
        failed = near.send("pack; fail this", "m-2")
        assert failed["status"]["state"] == "TASK_STATE_FAILED"
        assert failed["status"]["message"]["parts"] == [{"text": "The job 'fail this' failed"}]


def test_undeliverable_webhooks_are_retried(tmp_path: Path) -> None:
    store = ["--store", f"sqlite:///{tmp_path}/front.db"]
    with orchestrator(tmp_path, 0.3) as url:
        front = Server(tmp_path, "--remote", f"boss={url}", *store)
        task = front.send("one; two", at_once=True)
        until(lambda: is_acknowledged(tmp_path / "front.db"))
        front.kill()
        with running(tmp_path, "--remote", f"boss={url}", *store, port=front.port) as again:
            done = until(lambda: ended(again, task["id"]))
            assert done["artifacts"][0]["parts"][0]["data"]["result"] == "one: done; two: done"
