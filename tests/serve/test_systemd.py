"""systemd, where it has started the server, is told when requests are answered."""

import os
import socket
from pathlib import Path

import httpx
import pytest

from tests.serve.running import BOUND_SECONDS, running


@pytest.mark.parametrize(
    "more", [[], ["--workers", "2"], ["--server", "granian"]], ids=["uvicorn", "workers", "granian"]
)
@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_readiness_is_notified(tmp_path: Path, more: list[str], kind: str) -> None:
    name = f"{tmp_path}/notify" if kind == "file" else f"@accord-{os.getpid()}-{'-'.join(more)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0"))
        systemd.settimeout(BOUND_SECONDS)
        with running(tmp_path, *more, NOTIFY_SOCKET=name) as server:
            assert systemd.recv(100) == b"READY=1"
            assert httpx.get(f"{server.url}/readyz", timeout=BOUND_SECONDS).status_code == 200
            assert server.stop() == 0


def test_a_missing_notify_socket_is_logged(tmp_path: Path) -> None:
    with running(tmp_path, NOTIFY_SOCKET=f"{tmp_path}/nobody") as server:
        server.says("server.systemd_not_told")
        assert httpx.get(f"{server.url}/readyz", timeout=BOUND_SECONDS).status_code == 200
