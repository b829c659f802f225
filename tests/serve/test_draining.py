"""A server that is to stop says so first: it is not ready any more, and answers until whoever asks it has noticed."""

import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.serve.flowing import until
from tests.serve.running import AGENTS, BOUND_SECONDS, V1, Server, events, rpc, running, said, text_of

TARGETS = [f"{AGENTS}:who", f"{AGENTS}:halting"]
LONG = {"ACCORD_SERVER__DRAIN_SECONDS": "600", "ACCORD_SERVER__GRACE_SECONDS": "30"}
"""Longer than any test: what happens meanwhile does not depend on how fast the machine is."""

servers = pytest.mark.parametrize(
    "more", [[], ["--workers", "2"], ["--server", "granian"]], ids=["uvicorn", "workers", "granian"]
)


def unready(server: Server) -> httpx.Response:
    """Wait until it says that it is not ready, in each of its processes."""

    def look() -> httpx.Response | None:
        answers = [httpx.get(f"{server.url}/readyz", timeout=BOUND_SECONDS) for _ in range(8)]
        return answers[0] if all(answer.status_code == 503 for answer in answers) else None

    answer: httpx.Response = until(look)
    return answer


@servers
def test_a_server_is_unready_before_it_is_gone(tmp_path: Path, more: list[str]) -> None:
    with running(tmp_path, *TARGETS, *more, **LONG) as server:
        assert httpx.get(f"{server.url}/readyz", timeout=BOUND_SECONDS).status_code == 200
        server.process.send_signal(signal.SIGTERM)
        answer = unready(server)
        assert answer.json() == {"status": "unavailable", "checks": {"server": "stopping"}}
        assert answer.headers["connection"] == "close", "a proxy must not send the next request to it"
        assert httpx.get(f"{server.url}/healthz", timeout=BOUND_SECONDS).status_code == 200, "it is not to be killed"
        assert text_of(server.send("x", "late")).isdigit(), "what arrives all the same is answered"
        server.kill()


@pytest.mark.parametrize("more", [[], ["--server", "granian"]], ids=["uvicorn", "granian"])
def test_a_second_signal_stops_it_at_once(tmp_path: Path, more: list[str]) -> None:
    with running(tmp_path, *TARGETS, *more, **LONG) as server:
        server.process.send_signal(signal.SIGTERM)
        unready(server)
        if more:  # its processes were told, and it waits for them
            worker = int(text_of(server.send("x", "worker")))
            os.kill(worker, signal.SIGTERM)
            assert server.ended() == 0
        else:
            assert server.stop() == 0
        assert "Traceback" not in server.all_shown


@servers
def test_when_it_has_drained_it_stops_as_ever(tmp_path: Path, more: list[str]) -> None:
    """A stream that was begun before goes on through all of it, and gets its task's end."""
    go, seen = tmp_path / "go", []
    body = rpc("SendStreamingMessage", message=said(str(go)))
    brief = LONG | {"ACCORD_SERVER__DRAIN_SECONDS": "0.5"}
    with running(tmp_path, *TARGETS, *more, **brief) as server:
        url = f"{server.url}/agents/halting/"
        with httpx.stream("POST", url, json=body, headers=V1, timeout=BOUND_SECONDS) as response:
            for _, last in events(response):
                seen.append(last)
                if "artifactUpdate" in last and not go.exists():
                    server.process.send_signal(signal.SIGTERM)
                    until(lambda: is_closed(server))
                    go.touch()
        assert seen[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert server.ended() == 0  # by itself: whoever leaves `running` sends another signal
    assert "Traceback" not in server.all_shown


def is_closed(server: Server) -> bool | None:
    try:
        httpx.get(f"{server.url}/readyz", timeout=BOUND_SECONDS)
    except httpx.ConnectError:
        return True
    except httpx.TransportError:
        pass  # this one it had already taken
    return None
