"""The example of a relay works."""

import asyncio
import sys
from pathlib import Path

import httpx

from tests.agents.relay.relays import BOUND_SECONDS, broker, hears, joined
from tests.agents.relay.test_local import _card, said
from tests.ports import free_port
from tests.serve.running import ROOT, environment

EXAMPLE = ROOT / "examples" / "agents" / "relay_agent.py"


async def test_the_workspace_example_works(tmp_path: Path) -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60
    port = free_port()
    async with broker() as url, joined(url, "rk_worker") as worker:
        told = {"RELAY_API_KEY": "rk_asks", "RELAY_BASE_URL": url, "RELAY_POLL_SECONDS": "0.05", "PORT": str(port)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(EXAMPLE), env=environment(tmp_path, **told), cwd=tmp_path
        )
        try:
            assert (await _card(port))["description"] == "Multi-agent workspace (channel: general)"
            async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
                asking = asyncio.create_task(http.post(f"http://localhost:{port}/", json=said("plan")))
                asked = await hears(worker, lambda text: text.startswith("plan"))
                await worker.post(f"DONE: {asked.rpartition(' ')[2].split()[-1]} first this, then that")
                task = (await asking).json()["result"]
            assert task["artifacts"][0]["parts"][0]["text"] == "first this, then that"
        finally:
            process.terminate()
            assert await asyncio.wait_for(process.wait(), BOUND_SECONDS) == 0
