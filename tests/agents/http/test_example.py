"""The example of flows works."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.agents.http.webhook import says, webhook
from tests.serve.running import BOUND_SECONDS, ROOT, Server, accord, text_of

EXAMPLE = ROOT / "examples" / "agents" / "n8n_agent.toml"


@pytest.mark.proves("1-61")
async def test_the_n8n_example_works(tmp_path: Path) -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60
    async with webhook(says([{"json": {"output": "two are on their way"}}])) as assistant, webhook(says({})) as report:
        env: dict[str, Any] = {"N8N_ASSISTANT": assistant.url, "N8N_REPORT": report.url, "N8N_KEY": "Bearer k"}
        server = await asyncio.to_thread(Server, tmp_path, "--config", str(EXAMPLE), **env)
        try:
            task = await asyncio.to_thread(server.send, "where are my orders?", path="/agents/assistant/")
            assert text_of(task) == "two are on their way"
            asked = assistant.asked[0]
            assert asked.json == {"chatInput": "where are my orders?", "sessionId": task["contextId"]}
            assert asked.headers["authorization"] == "Bearer k"
            path = "/agents/report/"
            begun = await asyncio.to_thread(server.send, "the year", "m-2", path=path, at_once=True)
            await report.until(lambda: len(report.asked) == 1)
            async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
                answer = {"status": "completed", "text": "It was a good year."}
                assert (await http.post(report.asked[0].json["callbackUrl"], json=answer)).status_code == 204
            done = await asyncio.to_thread(server.get, begun["id"], path=path)
            assert text_of(done) == "It was a good year."
        finally:
            await asyncio.to_thread(server.stop)


def test_invalid_flow_settings_are_reported_at_start(tmp_path: Path) -> None:
    wrong = {
        'type = "http"': "agents.flow: url: An HTTP agent needs the address of its webhook",
        'type = "http"\nurl = "localhost:5678/x"': "agents.flow: url: The address of a webhook begins with http",
        'type = "http"\nmode = "callback"\nurl = "http://[::1"': "agents.flow: url: The address of a webhook begins",
        'type = "http"\nmode = "callback"\nurl = "http://x"\ncallback_url = "y"': "agents.flow: callback_url: The",
        'type = "http"\nurl = "http://x"\nmode = "later"': "agents.flow.mode: 'later' is not one of answer, callback",
        'type = "http"\nurl = "http://x"\ntimeot = 3': "did you mean agents.flow.timeout?",
        'type = "http"\nurl = "env:NOWHERE"': "refers to NOWHERE, which is not set",
        'type = "http"\nurl = "http://x"\npayload_template = { a = "{{who}}" }': "There is no {{who}}",
        'type = "http"\nurl = "http://x"\ninput_mapper = "nowhere:f"': "input_mapper: There is no module called",
    }
    for table, reason in wrong.items():
        (tmp_path / "accord.toml").write_text(f"[agents.flow]\n{table}\n", encoding="utf-8")
        refused = accord(tmp_path, "serve", "--store", "sqlite://:memory:")
        said = " ".join(refused.stderr.replace("│", " ").split())
        assert (refused.returncode, reason in said) == (2, True), said
