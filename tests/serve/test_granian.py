"""`--server granian`: the same application behind another server, over HTTP/1.1 and HTTP/2."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.certificates import Authority
from tests.serve.running import AGENTS, BOUND_SECONDS, V1, Server, events, rpc, running, said, text_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("granian")
    with running(folder, "--server", "granian", f"{AGENTS}:halting", f"{AGENTS}:who") as found:
        yield found


@pytest.mark.parametrize("is_2", [False, True], ids=["http1", "http2"])
@pytest.mark.proves("4-43")
def test_it_answers_over_both_versions(server: Server, is_2: bool) -> None:
    with httpx.Client(http1=not is_2, http2=is_2, timeout=BOUND_SECONDS, headers=V1) as http:
        card = http.get(f"{server.url}/.well-known/agent-card.json")
        assert (card.status_code, card.http_version) == (200, "HTTP/2" if is_2 else "HTTP/1.1")
        answer = http.post(f"{server.url}/agents/who/", json=rpc("SendMessage", message=said("x", f"m{is_2}")))
        pid = int(text_of(answer.json()["result"]["task"]))
        assert pid != server.process.pid, "granian works in processes of its own"
        assert http.get(f"{server.url}/readyz").status_code == 200
        assert http.get(f"{server.url}/tasks/none").status_code == 404


@pytest.mark.parametrize("is_2", [False, True], ids=["http1", "http2"])
@pytest.mark.parametrize("binding", ["rpc", "rest"])
@pytest.mark.proves("4-43", "4-48")
def test_a_stream_comes_as_it_is_made(server: Server, is_2: bool, binding: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    message = said(str(go), f"{binding}{is_2}")
    path, body = (
        ("/", rpc("SendStreamingMessage", message=message))
        if binding == "rpc"
        else ("/message:stream", {"message": message})
    )
    with (
        httpx.Client(http1=not is_2, http2=is_2, timeout=BOUND_SECONDS, headers=V1) as http,
        http.stream("POST", server.url + path, json=body) as response,
    ):
        assert response.http_version == ("HTTP/2" if is_2 else "HTTP/1.1")
        assert response.headers["content-type"] == "text/event-stream"
        seen = []
        for number, event in events(response):
            seen.append((number, next(iter(event))))
            if "artifactUpdate" in event and not go.exists():
                go.touch()  # so the first part was here before the second was made
    numbers = [number for number, _ in seen]
    assert numbers == list(range(numbers[0], numbers[0] + len(seen)))
    kinds = [kind for _, kind in seen]
    assert (kinds[0], kinds.count("artifactUpdate") >= 2) == ("task", True)


def test_a_client_that_leaves_a_stream_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    body = rpc("SendStreamingMessage", message=said(str(tmp_path / "go"), "left"))
    with httpx.stream("POST", f"{server.url}/", json=body, headers=V1, timeout=BOUND_SECONDS) as response:
        task = next(event for _, event in events(response))["task"]["id"]
    (tmp_path / "go").touch()
    ended = server.post("SendMessage", message=said(str(tmp_path / "go"), "left")).json()["result"]["task"]
    assert (ended["id"], ended["status"]["state"]) == (task, "TASK_STATE_COMPLETED")


def test_it_serves_https_with_http_2(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.server()
    tls = ["--tls-cert", str(own.certificate), "--tls-key", str(own.key)]
    with running(tmp_path, "--server", "granian", *tls, scheme="https") as secure:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        with httpx.Client(http2=True, verify=context, timeout=BOUND_SECONDS) as http:
            answer = http.get(f"{secure.url}/.well-known/agent-card.json")
            assert (answer.status_code, answer.http_version) == (200, "HTTP/2")
            assert answer.json()["url"] == f"{secure.url}/"
        assert secure.stop() == 0
        assert "Traceback" not in secure.all_shown
