"""`make audit` fails on what is known to be vulnerable and on nothing else: not on a network that is not there."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from requirements.audit import Finding, audited, main

BUSY = 120.0
"""For a machine that is busy with other things."""

HANGS = 0.5
"""How long it is waited for something that never answers."""


def stub(out: str = "", err: str = "", code: int = 0) -> list[str]:
    """A pip-audit that says this."""
    program = "import sys; print(sys.argv[1]); print(sys.argv[2], file=sys.stderr); sys.exit(int(sys.argv[3]))"
    return [sys.executable, "-c", program, out, err, str(code)]


def answer(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


FINE = {"name": "aiohttp", "version": "3.14", "vulns": []}
FLAWED = {"name": "pyyaml", "version": "5.3", "vulns": [{"id": "PYSEC-1", "fix_versions": ["5.4"]}]}
UNKNOWN = {"name": "ours", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("command", "failed", "said"),
    [
        (stub(answer(FINE)), False, "no known vulnerability in 1 packages"),
        (stub(answer(FINE, UNKNOWN)), False, "1 unknown to the service"),
        (stub(answer(FINE, FLAWED), code=1), True, "pyyaml 5.3: PYSEC-1, fixed in 5.4"),
        (stub(answer(UNKNOWN)), False, "NOT CHECKED"),
        (stub(err="trace\nrequests.exceptions.ConnectionError: refused", code=1), False, "NOT CHECKED"),
        (stub(err="ERROR: requirements file is broken", code=1), True, "requirements file is broken"),
        (stub(), True, "it said nothing"),
    ],
    ids=["fine", "partly known", "vulnerable", "nothing known", "no network", "broken", "silent"],
)
def test_only_a_vulnerability_or_a_mistake_fails(command: list[str], failed: bool, said: str) -> None:
    found = audited(command)
    assert (found.failed, said in found.text) == (failed, True), found.text
    assert failed or "\n" not in found.text, "a note is one line"


def test_waiting_has_a_bound() -> None:
    found = audited([sys.executable, "-c", "import threading; threading.Event().wait()"], HANGS)
    assert found == Finding(
        "pip-audit: NOT CHECKED for known vulnerabilities, its service was not reached (no answer within 0.5 s)"
    )


class Osv(BaseHTTPRequestHandler):
    """A service that knows one thing about one package, in the form of osv.dev."""

    flawed: ClassVar[str] = ""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        flaw = {
            "id": "PYSEC-0000-1",
            "published": "2020-01-01T00:00:00Z",
            "summary": "It is bad",
            "affected": [
                {
                    "package": {"name": self.flawed, "ecosystem": "PyPI"},
                    "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "999"}]}],
                }
            ],
        }
        body = json.dumps({"vulns": [flaw]} if asked["package"]["name"] == self.flawed else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def service() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Osv) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("flawed", "code"), [("", 0), ("aiohttp", 1)])
def test_the_real_tool_asks_about_every_package(
    service: str,
    flawed: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Any,
) -> None:
    monkeypatch.setattr(Osv, "flawed", flawed)
    asked = ["--vulnerability-service", "osv", "--osv-url", service, "--cache-dir", str(tmp_path)]
    assert main(asked, BUSY) == code
    out, err = capsys.readouterr()
    assert ("no known vulnerability" in out) is (code == 0)
    assert ("aiohttp" in err and "PYSEC-0000-1, fixed in 999" in err) is (code == 1)


def test_the_real_tool_without_a_network_is_a_note(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    nobody = [
        "--vulnerability-service",
        "osv",
        "--osv-url",
        "http://127.0.0.1:9/v1/query",
        "--cache-dir",
        str(tmp_path),
    ]
    assert main(nobody, BUSY) == 0
    assert "NOT CHECKED" in capsys.readouterr().out
