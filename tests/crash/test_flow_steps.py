"""A served workflow is killed in the middle of a step, whoever does it: nothing is left running, and the run ends."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import apsw
import httpx
import pytest

from interop.processes import Peer
from tests.peers.conftest import servers, started
from tests.remote.test_gateway import ended
from tests.serve.running import Server, text_of
from tests.serve.running import running as served
from tests.workflows.proving import flow
from tests.workflows.scenes import is_alive
from tests.workflows.wire import CANCEL, GET, SEND, STREAM, SUBSCRIBE, Wire, wired

__all__ = ["servers", "started"]

ELSEWHERE = Path(__file__).parent.parent / "workflows" / "elsewhere.py"


BOUND_SECONDS = 120

SOON: dict[str, Any] = {"ACCORD_ENGINE__LEASE_SECONDS": "4"}
"""The work of a server that was killed is taken over after its lease."""

T = TypeVar("T")


def until(look: Callable[[], T | None]) -> T:
    """Look until there is something."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("It never happened")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


Starting = Callable[[Peer], str]


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def killed(here: Path, *, once: Callable[[Server, str], object]) -> str:
    """Begin a run, kill its server once something has happened, and return the run's id."""
    near = Server(here, str(here / "flow.yaml"), **SOON)
    try:
        run: str = near.send("go", at_once=True)["id"]
        until(lambda: once(near, run))
    finally:
        near.kill()
    return run


def is_known(here: Path) -> bool:
    """Whether a server has written down which task of an agent elsewhere is whose: what passes by is not yet kept."""
    for file in here.rglob("*.db"):
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return bool(list(connection.execute("SELECT 1 FROM remote WHERE remote_id IS NOT NULL")))
        except apsw.BusyError:
            return False
        finally:
            connection.close()
    return False


# --- an agent elsewhere -----------------------------------------------------------------------------------------------


@pytest.mark.proves("C-08")
def test_remote_steps_survive_a_crash_and_run_once(tmp_path: Path, stack: ExitStack) -> None:
    far = stack.enter_context(served(folder(tmp_path / "far"), f"{ELSEWHERE}:patient"))
    wire = stack.enter_context(wired(far.url))
    gate, here = tmp_path / "gate", folder(tmp_path / "here")
    (here / "flow.yaml").write_text(flow(f"name: say\ntype: a2a\nurl: {wire.url}\ntask: {gate}"))
    run = killed(here, once=lambda *_: wire.passed >= 2 and is_known(here))
    with served(here, str(here / "flow.yaml"), **SOON) as near:
        gate.write_text("now")
        done = until(lambda: ended(near, run))
        assert (done["status"]["state"], text_of(done)) == ("TASK_STATE_COMPLETED", "begun now")
    assert len(far.post("ListTasks").json()["result"]["tasks"]) == 1
    assert len({seen.params["message"]["messageId"] for seen in wire.all(STREAM) + wire.all(SEND)}) == 1


@pytest.mark.proves("C-08")
@pytest.mark.parametrize("peer", [Peer("a2a_sdk"), Peer("a2a_sdk_03", "a2a-sdk-03")], ids=["1.0", "0.3"])
def test_non_idempotent_agents_get_a_message_once(
    tmp_path: Path, stack: ExitStack, started: Starting, peer: Peer
) -> None:
    wire: Wire = stack.enter_context(wired(started(peer)))
    (tmp_path / "flow.yaml").write_text(flow(f"name: say\ntype: a2a\nurl: {wire.url}\ntask: hold"))
    run = killed(tmp_path, once=lambda *_: wire.passed >= 2 and is_known(tmp_path))
    before = len(wire.seen)
    with served(tmp_path, str(tmp_path / "flow.yaml"), **SOON) as near:
        until(lambda: {SUBSCRIBE, GET} & set(wire.order[before:]))
        near.post("CancelTask", id=run)
        wire.waits_for(CANCEL)
    assert (len(wire.all(STREAM)), len(wire.all(SEND))) == (1, 0)


# --- processes here ---------------------------------------------------------------------------------------------------

SCRIPT = "echo $$ >> pids; while ! test -e go; do sleep 0.05; done; echo done"


def pids(here: Path) -> list[int]:
    file = here / "pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def crashed(here: Path) -> str:
    """A run whose server died while its first process ran, of which nothing is left."""
    run = killed(here, once=lambda *_: pids(here))
    until(lambda: not any(map(is_alive, pids(here))))
    return run


@pytest.mark.parametrize(
    ("policy", "state", "times"), [("", "COMPLETED", 2), ("restart", "COMPLETED", 2), ("fail", "FAILED", 1)]
)
def test_interrupted_commands_follow_their_crash_policy(tmp_path: Path, policy: str, state: str, times: int) -> None:
    rule = f"onCrash: {policy}" if policy else ""
    step = f"name: a\ntype: deterministic\ncommand: {json.dumps(SCRIPT)}\n{rule}"
    (tmp_path / "flow.yaml").write_text(flow(step))
    run = crashed(tmp_path)
    (tmp_path / "go").touch()
    with served(tmp_path, str(tmp_path / "flow.yaml"), **SOON) as near:
        done = until(lambda: ended(near, run))
    assert done["status"]["state"] == f"TASK_STATE_{state}", done
    assert len(pids(tmp_path)) == times
    assert not any(map(is_alive, pids(tmp_path)))


@pytest.mark.parametrize(("policy", "state", "times"), [("restart", "COMPLETED", 2), ("fail", "FAILED", 1)])
def test_interrupted_agents_follow_their_crash_policy(tmp_path: Path, policy: str, state: str, times: int) -> None:
    agents = [{"name": "dev", "command": f"sh -c {json.dumps(SCRIPT)}", "interactive": False}]
    step = f"name: a\nagent: dev\ntask: do it\nonCrash: {policy}"
    (tmp_path / "flow.yaml").write_text(flow(step, head=f"agents: {json.dumps(agents)}"))
    run = crashed(tmp_path)
    (tmp_path / "go").touch()
    with served(tmp_path, str(tmp_path / "flow.yaml"), **SOON) as near:
        done = until(lambda: ended(near, run))
    assert done["status"]["state"] == f"TASK_STATE_{state}", done
    assert len(pids(tmp_path)) == times
    assert not any(map(is_alive, pids(tmp_path)))


def test_a_step_that_has_ended_is_not_done_again(tmp_path: Path) -> None:
    first = 'name: a\ntype: deterministic\ncommand: "echo x >> firsts"'
    second = f"name: b\ntype: deterministic\ndependsOn: [a]\ncommand: {json.dumps(SCRIPT)}"
    (tmp_path / "flow.yaml").write_text(flow(first, second))
    run = crashed(tmp_path)
    (tmp_path / "go").touch()
    with served(tmp_path, str(tmp_path / "flow.yaml"), **SOON) as near:
        done = until(lambda: ended(near, run))
    assert (done["status"]["state"], text_of(done)) == ("TASK_STATE_COMPLETED", "done")
    assert (tmp_path / "firsts").read_text() == "x\n"
