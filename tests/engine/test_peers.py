"""Which nodes are gone: by their processes, and by the heartbeats that this node has seen."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import replace

from accord.engine import cluster
from accord.engine.cluster import HostProcess, Peers
from accord.storage.commands.jobs import PeerNode

LEASE = 15.0

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when a process began")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until its standard input ends."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def seen(pid: int) -> HostProcess:
    """A process of this host, as a node would describe itself."""
    here, found = cluster.this_process(), cluster._stat(pid)
    assert here is not None
    assert found is not None
    return replace(here, pid=pid, began=found.began)


def written(process: HostProcess) -> str:
    return msgspec.json.encode(process).decode()


@linux
def test_a_process_has_ended_when_it_was_killed(child: subprocess.Popen[bytes]) -> None:
    process = seen(child.pid)
    assert not process.has_ended
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.has_ended, "its parent has not asked for its status yet"
    child.wait()
    assert process.has_ended


@linux
def test_a_frozen_process_has_not_ended(child: subprocess.Popen[bytes]) -> None:
    process = seen(child.pid)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert not process.has_ended


@linux
def test_a_number_that_was_given_to_another_process_is_noticed(child: subprocess.Popen[bytes]) -> None:
    process = seen(child.pid)
    assert replace(process, began=process.began - 1).has_ended


@linux
def test_a_process_of_another_host_is_not_looked_for(child: subprocess.Popen[bytes]) -> None:
    gone = seen(child.pid)
    child.kill()
    child.wait()
    known = Peers(LEASE)
    known.observe(
        [PeerNode("here", 4, written(gone)), PeerNode("there", 1, written(replace(gone, host="another")))], 0.0
    )
    assert known.ended() == {"here": 4}
    assert known.silent(0.0) == {}


@pytest.mark.parametrize("info", ["{}", "", '{"host": 1}', "null"])
def test_nodes_without_process_information_are_awaited(info: str) -> None:
    known = Peers(LEASE)
    known.observe([PeerNode("n", 1, info)], 0.0)
    assert known.ended() == {}


def test_a_node_without_heartbeats_is_gone_after_a_lease() -> None:
    known = Peers(LEASE)
    known.observe([PeerNode("silent", 7, "{}"), PeerNode("alive", 1, "{}")], 100.0)
    known.observe([PeerNode("silent", 7, "{}"), PeerNode("alive", 2, "{}")], 110.0)
    assert known.silent(114.9) == {}
    assert known.next_expiry == 115.0
    assert known.silent(115.0) == {"silent": 7}
    assert known.silent(125.0) == {"silent": 7, "alive": 2}


def test_heartbeat_silence_restarts_after_an_outage() -> None:
    known = Peers(LEASE)
    known.observe([PeerNode("n", 1, "{}")], 0.0)
    known.forget()
    known.observe([PeerNode("n", 1, "{}")], 60.0)
    assert known.silent(74.9) == {}
    assert known.silent(75.0) == {"n": 1}


def test_a_node_that_left_is_not_remembered() -> None:
    known = Peers(LEASE)
    known.observe([PeerNode("n", 1, "{}")], 0.0)
    known.observe([], 5.0)
    assert known.silent(100.0) == {}
    assert known.next_expiry is None
