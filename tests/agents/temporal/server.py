"""A real Temporal for tests: the development server, on a port of its own."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port

BOUND_SECONDS = 60


@contextmanager
def running_server() -> Iterator[str]:
    """Run a server and give its address."""
    port = free_port()
    program = str(Path(sys.executable).parent / "temporal")
    flags = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--log-level", "never"]
    process = subprocess.Popen(
        [program, "server", "start-dev", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with ending(process):
        until = time.monotonic() + BOUND_SECONDS
        while not _answers(port):
            assert process.poll() is None, "the server did not start"
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"


@contextmanager
def ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process in any case."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(BOUND_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(BOUND_SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.2).close()
    except OSError:
        return False
    return True
