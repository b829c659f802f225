"""The orchestrator of the examples by itself, as whoever builds on it talks to it: JSON-RPC there, a webhook back."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from accord.testing import catching
from tests.remote.test_gateway import orchestrator
from tests.serve.running import BOUND_SECONDS


async def called(http: httpx.AsyncClient, url: str, method: str, **params: Any) -> dict[str, Any]:
    request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    answer: dict[str, Any] = (await http.post(f"{url}/jsonrpc", json=request)).json()
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
    return answer


def said(text: str, message_id: str) -> dict[str, Any]:
    parts = [{"kind": "text", "text": text}]
    return {"kind": "message", "messageId": message_id, "role": "user", "parts": parts, "contextId": "chat"}


@pytest.mark.proves("0-15", "0-80", "0-81", "0-82", "0-83", "0-84", "0-85")
async def test_the_orchestrator_acknowledges_and_posts_the_task(tmp_path: Path) -> None:
    starting = orchestrator(tmp_path, 0.05)
    url = await asyncio.to_thread(starting.__enter__)
    try:
        async with catching() as webhook, httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
            push = {"url": webhook.url, "token": "its own"}
            configuration = {"blocking": False, "pushNotificationConfig": push}
            sent = await called(
                http, url, "message/send", message=said("pack; ship", "m-1"), configuration=configuration
            )
            acknowledged = sent["result"]
            assert (acknowledged["kind"], acknowledged["contextId"]) == ("task", "chat")
            assert acknowledged["status"]["state"] in ("submitted", "working")
            (told,) = await webhook.wait(1)
            assert told.headers["authorization"] == "Bearer its own"
            posted = told.json
            assert (posted["id"], posted["status"]["state"]) == (acknowledged["id"], "completed")
            ((part,),) = [artifact["parts"] for artifact in posted["artifacts"]]
            assert (part["kind"], part["data"]["result"]) == ("data", "pack: done; ship: done")
            assert (await called(http, url, "tasks/get", id=posted["id"]))["result"] == posted
            unknown = await called(http, url, "tasks/get", id="no such task")
            assert unknown["error"]["code"] == -32001
    finally:
        await asyncio.to_thread(starting.__exit__, None, None, None)
