"""Servers that are no agents, want credentials or never answer: each ends a command with its code."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from accord.cli.failures import Exit
from tests.cli.test_commands import AGENT
from tests.serve.running import accord, running

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers everything alike."""

    answer: Answer
    asked: list[dict[str, str]]

    def do_GET(self) -> None:
        self.asked.append({name.lower(): value for name, value in self.headers.items()})
        type(self).answer(self)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass

    def say(self, status: int, body: str = "", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


class Odd:
    """A server that answers as it is told."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[dict[str, str]] = []
        handler = type("Answering", (Handler,), {"answer": staticmethod(answer), "asked": self.asked})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def odd() -> Iterator[Callable[[Answer], Odd]]:
    made: list[Odd] = []

    def make(answer: Answer) -> Odd:
        made.append(Odd(answer))
        return made[-1]

    yield make
    for server in made:
        server.stop()


def card(url: str, **more: Any) -> str:
    return json.dumps(
        {
            "name": "odd",
            "description": "",
            "version": "1",
            "supportedInterfaces": [{"url": f"{url}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
            **more,
        }
    )


@pytest.mark.parametrize(
    ("answer", "exit", "code"),
    [
        (lambda to: to.say(404), Exit.UNREACHABLE, "A2ACLI_ERR_CARD_NOT_FOUND"),
        (lambda to: to.say(200, "<html>"), Exit.UNREACHABLE, "A2ACLI_ERR_CARD_NOT_FOUND"),
        (lambda to: to.say(200, "{}"), Exit.FAILED, "A2ACLI_ERR_CARD_INVALID"),
        (lambda to: to.say(401), Exit.UNAUTHENTICATED, "A2ACLI_ERR_AUTH_FAILED"),
        (lambda to: to.say(403), Exit.UNAUTHENTICATED, "A2ACLI_ERR_AUTH_FAILED"),
        (lambda to: to.wfile.close(), Exit.UNREACHABLE, "A2ACLI_ERR_UNREACHABLE"),
    ],
)
def test_agents_without_a_card_are_reported(
    odd: Callable[[Answer], Odd], tmp_path: Path, answer: Answer, exit: Exit, code: str
) -> None:
    server = odd(answer)
    done = accord(tmp_path, "send", server.url, "hello", "-o", "json")
    assert done.returncode == exit, done.stderr
    assert json.loads(done.stdout)["error"]["code"] == code
    assert "Traceback" not in done.stderr


def serving(more: Callable[["Handler", str], None], **fields: Any) -> Answer:
    """Answer with a card, and whatever else is asked in some other way."""

    def answer(to: Handler) -> None:
        url = f"http://{to.headers['Host']}"
        if to.path == "/.well-known/agent-card.json":
            to.say(200, card(url, **fields), Content_Type="application/json")
        else:
            more(to, url)

    return answer


@pytest.mark.parametrize(
    ("status", "body", "exit"),
    [
        (401, "", Exit.UNAUTHENTICATED),
        (403, "", Exit.UNAUTHENTICATED),
        (500, "oops", Exit.FAILED),
        (200, "not json", Exit.FAILED),
        (200, "{}", Exit.FAILED),
    ],
)
@pytest.mark.parametrize("arguments", [("send", "hello"), ("task", "get", "t-1")])
def test_agents_that_answer_badly(
    odd: Callable[[Answer], Odd], tmp_path: Path, status: int, body: str, exit: Exit, arguments: tuple[str, ...]
) -> None:
    server = odd(serving(lambda to, _: to.say(status, body, Content_Type="application/json")))
    done = accord(tmp_path, *arguments, "-a", server.url, "-o", "json")
    assert done.returncode == exit, done.stderr
    assert set(json.loads(done.stdout)) == {"error"}
    assert "Traceback" not in done.stderr


def test_an_agent_that_never_answers_takes_too_long(odd: Callable[[Answer], Odd], tmp_path: Path) -> None:
    over = threading.Event()
    server = odd(serving(lambda *_: (over.wait(60), None)[1]))
    done = accord(tmp_path, "task", "get", server.url, "t-1", "--timeout", "2s", "-o", "json")
    over.set()
    assert done.returncode == Exit.TIMED_OUT, done.stderr
    assert json.loads(done.stdout)["error"]["code"] == "A2ACLI_ERR_TIMEOUT"


def echoed(to: Handler, _: str) -> None:
    request = json.loads(to.rfile.read(int(to.headers["Content-Length"])))
    task = {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}}
    to.say(200, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": task}), Content_Type="application/json")


SCHEME = {
    "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "X-Odd-Key"}}},
    "securityRequirements": [{"schemes": {"k": {}}}],
}


@pytest.mark.proves("2-08", "2-09")
def test_credentials_are_sent_as_the_card_wants_them(odd: Callable[[Answer], Odd], tmp_path: Path) -> None:
    server = odd(serving(echoed, **SCHEME))
    missing = accord(tmp_path, "task", "get", server.url, "t-1", "-o", "json")
    assert missing.returncode == Exit.UNAUTHENTICATED
    assert json.loads(missing.stdout)["error"]["code"] == "A2ACLI_ERR_CREDENTIALS_MISSING"
    assert accord(tmp_path, "task", "get", server.url, "t-1", "--api-key", "k3y").returncode == Exit.DONE
    assert server.asked[-1]["x-odd-key"] == "k3y"
    assert accord(tmp_path, "task", "get", server.url, "t-1", ACCORD_BEARER="t0ken").returncode == Exit.DONE
    assert server.asked[-1]["authorization"] == "Bearer t0ken"
    headers = ("--header", "X-Odd-Key: other", "--svc-param", "X-Trace:1", "--bearer", "t")
    assert accord(tmp_path, "task", "get", server.url, "t-1", *headers).returncode == Exit.DONE
    assert (server.asked[-1]["x-odd-key"], server.asked[-1]["x-trace"]) == ("other", "1")


def test_files_are_fetched_from_where_the_user_wants_them(odd: Callable[[Answer], Odd], tmp_path: Path) -> None:
    there = odd(lambda to: to.say(200 if to.path == "/there" else 302, "content", Location="/there"))
    port = there.url.rpartition(":")[2]
    with running(tmp_path, AGENT) as server:

        def linked(url: str) -> str:
            sent = accord(tmp_path, "send", server.url, f"link {url}", "-o", "json")
            task_id: str = json.loads(sent.stdout)["task"]["id"]
            return task_id

        near, far, moved = (
            linked(url) for url in (f"http://localhost:{port}/there", f"{there.url}/there", f"{there.url}/x")
        )
        download = ("task", "download", "-a", server.url)
        assert accord(tmp_path, *download, near, "--to", "near").returncode == Exit.DONE
        assert (tmp_path / "near" / "linked.txt").read_text() == "content"
        refused = accord(tmp_path, *download, far, "--to", "far")
        assert refused.returncode == Exit.FAILED
        assert "cannot be fetched" in refused.stderr
        assert not (tmp_path / "far").exists()
        assert len(there.asked) == 1
        trusting = (*download, "--allow-host", "127.0.0.1")
        assert accord(tmp_path, *trusting, far, "--to", "far").returncode == Exit.DONE
        assert "HTTP status 302" in accord(tmp_path, *trusting, moved, "--to", "moved").stderr


def test_a_link_that_is_refused_keeps_no_other_file_from_being_saved(
    odd: Callable[[Answer], Odd], tmp_path: Path
) -> None:
    def artifact(number: int, **part: str) -> dict[str, Any]:
        return {"artifactId": f"a-{number}", "parts": [{"filename": f"{number}.txt", **part}]}

    def made(to: Handler, _: str) -> None:
        request = json.loads(to.rfile.read(int(to.headers["Content-Length"])))
        links = ["http://169.254.169.254/secret", f"{there.url}/missing"]
        artifacts = [artifact(at, url=url) for at, url in enumerate(links)] + [artifact(2, text="kept")]
        task = {
            "id": "t-1",
            "contextId": "c-1",
            "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": artifacts,
        }
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": task}
        to.say(200, json.dumps(answer), Content_Type="application/json")

    there = odd(lambda to: to.say(404))
    server = odd(serving(made))
    download = ("task", "download", server.url, "t-1", "--allow-host", "127.0.0.1")
    done = accord(tmp_path, *download, "--to", "made")
    assert done.returncode == Exit.FAILED
    refused, missing = done.stderr.splitlines()
    assert "http://169.254.169.254/secret cannot be fetched" in refused
    assert "/missing cannot be fetched: HTTP status 404" in missing
    assert done.stdout == "Saved: made/2.txt (application/octet-stream, 4 bytes)\n"
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["2.txt"]
    done = accord(tmp_path, *download, "--to", "again", "-o", "json")
    document = json.loads(done.stdout)
    assert (done.returncode, [file["path"] for file in document["files"]]) == (Exit.FAILED, ["again/2.txt"])
    assert document["error"]["message"].count("cannot be fetched") == 2


def test_a_card_may_name_hosts_that_the_user_trusts(tmp_path: Path) -> None:
    with running(tmp_path, AGENT, "--url", "https://agents.invalid", "--auth", "api-keys") as server:
        refused = accord(tmp_path, "card", "get", server.url)
        assert refused.returncode == Exit.FAILED
        assert refused.stderr.count("may not name agents.invalid") == 1
        assert "--trust-host" in refused.stderr
        trusted = accord(tmp_path, "card", "get", server.url, "--trust-host", "agents.invalid")
        assert (trusted.returncode, trusted.stderr) == (Exit.DONE, "")
        assert "Interface: JSONRPC 1.0 https://agents.invalid/" in trusted.stdout
        sent = accord(tmp_path, "send", server.url, "hi", "--trust-host", "agents.invalid", "--api-key", "k3y")
        assert sent.returncode == Exit.UNREACHABLE, "it is called where the card leads to, and there is nobody"
