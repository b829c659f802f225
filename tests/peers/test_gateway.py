"""A client of 1.0 talks through `accord serve --remote` to other implementations' servers: each row of `OFFERS`."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from interop.offers import OFFERS, Offer
from interop.processes import Peer
from interop.servers.agent import CHUNKS, ECHO, QUESTION
from tests.peers.conftest import available
from tests.serve.running import BOUND_SECONDS, V1, Server, accord, events, rpc, running, said, text_of

BINDINGS = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest", "GRPC": "grpc"}


@pytest.mark.parametrize("offer", available(OFFERS))
@pytest.mark.proves("0-17")
def test_any_server_is_served_to_clients_of_1_0(offer: Offer, started: Callable[[Peer], str], tmp_path: Path) -> None:
    settings = f'[remotes.x]\nurl = "{started(offer.peer)}"\nbinding = "{BINDINGS[offer.binding]}"\n'
    (tmp_path / "accord.toml").write_text(settings, encoding="utf-8")
    with running(tmp_path) as near:
        assert text_of(near.send("chunks", "m-1")) == "".join(CHUNKS)
        assert streamed(near, "chunks", "m-2") == "".join(CHUNKS)
        if offer.asks:
            asks(near, offer)
        cancels(near)


@pytest.mark.parametrize("offer", available(offer for offer in OFFERS if offer.name == "agentvault"))
@pytest.mark.proves("2-17")
def test_an_answer_equal_to_the_question_arrives(offer: Offer, started: Callable[[Peer], str], tmp_path: Path) -> None:
    url = started(offer.peer)
    (tmp_path / "accord.toml").write_text(f'[remotes.x]\nurl = "{url}"\n', encoding="utf-8")
    with running(tmp_path) as near:
        task = near.send(ECHO, "m-1")
        assert task["status"]["message"]["parts"] == [{"text": ECHO}]
        body = rpc("SendStreamingMessage", message=said(ECHO, "m-2"))
        with httpx.stream("POST", near.url, json=body, headers=V1, timeout=BOUND_SECONDS) as answer:
            *_, (_, last) = events(answer)
        assert last["statusUpdate"]["status"]["message"]["parts"] == [{"text": ECHO}]
    workflow = (
        f'{{version: "1.0", name: w, swarm: {{pattern: dag}}, workflows: [{{name: w, steps: [{{name: s, type: a2a, \
url: "{url}", task: {ECHO}}}]}}]}}'
    )
    (tmp_path / "w.yaml").write_text(workflow, encoding="utf-8")
    run = accord(tmp_path, "run", "w.yaml")
    assert (run.returncode, run.stdout) == (0, f"{ECHO}\n"), run.stderr
    streamed_by_cli = accord(tmp_path, "send", url, ECHO, "--stream")
    assert f"Message:\n{ECHO}\n" in streamed_by_cli.stdout


def streamed(near: Server, text: str, message_id: str) -> str:
    """Stream a message, and return the text of the task that the stream makes."""
    body = rpc("SendStreamingMessage", message=said(text, message_id))
    pieces: dict[str, str] = {}
    states = []
    with httpx.stream("POST", near.url, json=body, headers=V1, timeout=BOUND_SECONDS) as answer:
        for _, event in events(answer):
            if update := event.get("artifactUpdate"):
                artifact = update["artifact"]
                before = pieces.get(artifact["artifactId"], "") if update.get("append") else ""
                pieces[artifact["artifactId"]] = before + "".join(part["text"] for part in artifact["parts"])
            elif update := event.get("statusUpdate"):
                states.append(update["status"]["state"])
    assert states[-1] == "TASK_STATE_COMPLETED"
    return "".join(pieces.values())


def asks(near: Server, offer: Offer) -> None:
    """Be asked, and answer."""
    asked = near.send("ask", "m-3")
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    where = asked["status"].get("message", asked)  # langgraph-api says it in an artifact
    assert QUESTION in json.dumps(
        where["parts"] if "parts" in where else where["artifacts"]
    )  # text, or a call's arguments
    if offer.replies:
        reply = said("blue", "m-4") | {"taskId": asked["id"]}
        done = near.post("SendMessage", message=reply).json()["result"]["task"]
        assert "You said blue" in json.dumps(done["artifacts"])


def cancels(near: Server) -> None:
    """Cancel what goes on; there it is cancelled later, or has ended."""
    task = near.send("hold", "m-5", at_once=True)
    until(lambda: any("acknowledged" in line and task["id"] in line for line in near.all_shown.splitlines()))
    cancelled = near.post("CancelTask", id=task["id"]).json()["result"]
    assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"


def until(check: Callable[[], Any]) -> None:
    """Ask until it is so."""
    end = time.monotonic() + BOUND_SECONDS
    while not check():
        assert time.monotonic() < end, "It never happened"
        time.sleep(0.05)
