"""The example of the documentation does what it says, and the package's front door is light."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.running import BOUND_SECONDS, ROOT, environment, running


def test_the_example_calls_an_agent(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/accord.db"
    with running(tmp_path, f"{ROOT}/examples/booking.py:booking", "--store", store) as server:
        shown = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "call.py"), server.url],
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=True,
            cwd=tmp_path,
            env=environment(tmp_path),
        ).stdout.splitlines()
    assert shown == [
        f"booking speaks JSONRPC v1 at {server.url}/",
        "INPUT_REQUIRED: For which day?",
        "COMPLETED: Table 7 is yours on Friday.",
        "For which day? [INPUT_REQUIRED]",
        "Table 7 is yours on Sunday.",
        "For which day?",
    ]


def test_importing_the_package_loads_no_client() -> None:
    script = (
        "import sys, accord; print(sorted(m for m in sys.modules if m.startswith(('accord.', 'aiohttp', 'msgspec'))))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    ports = ["accord.client", "accord.client.resolver", "accord.lazy", "accord.workflows"]
    assert shown.stdout.strip() == str(ports), "only who looks names up, and who runs documents"


@pytest.mark.proves("1-44")
def test_the_client_loads_no_transport_until_it_connects() -> None:
    script = (
        "import sys, accord; from accord.client import Client;"
        "print(accord.Client is Client, 'aiohttp' in sys.modules, 'grpc' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout.split() == ["True", "False", "False"]
