"""Agents behind a real socket: for anybody's client, from blocking tests as well."""

from pathlib import Path

import httpx
import pytest

from accord import BlockingClient, Client
from accord.model import GetRequest
from accord.testing import scripted, serving
from accord.testing.scripts import artifact, hang, say, stream

WEATHER = scripted(stream("sun", "ny"), name="weather")


def test_a_client_that_blocks_calls_it() -> None:
    with serving(WEATHER) as url, BlockingClient(url) as client:
        assert client.send_text("now").text == "sunny"


@pytest.mark.parametrize("dialect", ["v1", "v03", "vault", "gen", "relay"])
async def test_any_dialect_is_spoken(dialect: str) -> None:
    with serving(WEATHER) as url:
        async with Client.connect(url, dialect=dialect) as client:
            assert "".join([piece async for piece in client.stream_text("now")]) == "sunny"


def test_others_are_below_it_and_it_is_kept(tmp_path: Path) -> None:
    other = scripted(artifact("other"), name="other")
    with serving(WEATHER, other, store=tmp_path / "a.db") as url:
        assert httpx.get(f"{url}/agents/other/.well-known/agent-card.json").json()["name"] == "other"
        with BlockingClient(url) as client:
            task_id = client.send_text("now").task_id
    with serving(WEATHER, store=tmp_path / "a.db") as url, BlockingClient(url) as client:
        assert task_id is not None
        assert client.get(GetRequest(id=task_id)).id == task_id


def test_servers_stop_with_open_streams() -> None:
    with serving(scripted(say("soon"), hang())) as url, httpx.Client(timeout=30) as client:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}},
        }
        with client.stream("POST", url, json=body, headers={"A2A-Version": "1.0"}) as answer:
            assert "task" in next(line for line in answer.iter_lines() if line.startswith("data:"))
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_failed_starts_report_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"did not start: .*cannot be understood"), serving(WEATHER, blobs="ftp://x"):
        pass
