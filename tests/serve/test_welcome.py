"""What a newcomer sees, whether it is true, and the official client talking to it."""

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.helpers.proto_helpers import new_text_message
from a2a.types import a2a_pb2
from typer.testing import CliRunner

from accord import __version__
from accord.cli import app
from accord.cli.startup_panel import MESSAGES, authentication_text, curl_command
from accord.protocol import http_headers
from accord.protocol.operations import DialectName
from accord.server.settings import Settings
from accord.server.settings_loader import settings_of
from tests.passwords import cheap_hash
from tests.serve.running import AGENTS, BOUND_SECONDS, Server, accord, running, text_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("data")) as found:
        yield found


def run(line: str, **env: str) -> Any:
    """Run a line in a shell, as somebody would who copies it."""
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=BOUND_SECONDS, check=False, env=os.environ | env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_panel_shows_first_steps(server: Server, tmp_path: Path) -> None:
    panel = server.all_shown.partition("Try it:")[0]
    rows = dict(re.findall(r"│ (\w+) +(\S.*?) +│", panel))
    assert f"accord {__version__}" in panel
    assert "│ Echo " in panel
    assert rows["console"] == f"{server.url}/console/"
    assert httpx.get(rows["console"]).headers["content-type"] == "text/html; charset=utf-8"
    assert rows["agent"] == f"{server.url}/"
    assert rows["card"] == f"{server.url}/.well-known/agent-card.json"
    assert rows["dialects"] == "v1, v03, vault, gen, relay"
    assert rows["store"].endswith("/accord/accord.db")
    assert Path(rows["store"].removeprefix("sqlite:///")).exists()
    assert rows["auth"] == "none: loopback only"
    assert "agents" not in rows
    assert len({len(line) for line in panel.splitlines()}) == 1, "every line of the box is as long as the others"
    assert httpx.get(rows["card"]).json()["url"] == rows["agent"]


def test_servers_with_a_public_url_show_their_address(server: Server, tmp_path: Path) -> None:
    with running(tmp_path, "--url", "https://agents.example", "--auth", "api-keys") as behind:
        rows = dict(re.findall(r"│ (\w+) +(\S.*?) +│", behind.all_shown))
        assert (rows["agent"], rows["listens"]) == ("https://agents.example/", f"127.0.0.1:{behind.port}")
    assert "listens" not in server.all_shown


def test_the_line_to_try_works_as_it_is_printed(server: Server) -> None:
    lines = [line for line in server.shown if line.startswith("curl ")]
    assert len(lines) == 1
    for _ in range(2):
        answer = httpx.Response(200, text=run(lines[0])).json()
        assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert text_of(answer["result"]["task"]) == "hello accord"


@pytest.mark.parametrize("dialect", list(DialectName))
def test_there_is_such_a_line_for_every_dialect(server: Server, dialect: DialectName) -> None:
    assert set(MESSAGES) == set(DialectName)
    settings = settings_of({"server": {"dialects": [dialect.value]}}, "test")
    head, _, body = run(curl_command(server.url, settings) + " -i").partition("\n\n")
    assert f"x-a2a-dialect: {dialect.value}" in head.replace("\r", "")
    assert '"result"' in (body or head)


def test_the_first_command_for_protected_servers(tmp_path: Path) -> None:
    made = accord(tmp_path, "apikeys", "create", "--owner", "me", "--store", "sqlite:///keys.db")
    key = re.search(r"ak_\w+_[\w-]+", made.stdout)
    assert key is not None, made.stderr
    with running(tmp_path, "--auth", "api-keys", "--store", "sqlite:///keys.db") as guarded:
        line = guarded.says("curl ")
        assert "│ auth     api-keys" in guarded.all_shown
        assert "TASK_STATE_COMPLETED" in run(line, KEY=key[0])
        assert "UNAUTHENTICATED" in run(line, KEY="ak_wrong")


@pytest.mark.proves("4-30")
@pytest.mark.parametrize("names", [["a.b"], ["partner", "other"]])
def test_the_first_command_for_signed_requests(tmp_path: Path, names: list[str]) -> None:
    secret = "a secret of $HOME, 'quotes' and %s"
    keys = "".join(f'keys."{name}" = {{ secret = "env:SECRET_{at}" }}\n' for at, name in enumerate(names))
    (tmp_path / "accord.toml").write_text(f'[[auth.schemes]]\ntype = "hmac"\n{keys}')
    with running(tmp_path, SECRET_0=secret, SECRET_1="another secret of the tests") as guarded:
        line = guarded.says("curl ")
        for _ in range(2):  # within one second, maybe: the same request is refused the second time
            assert "TASK_STATE_COMPLETED" in run(line, SECRET=secret)
        assert "UNAUTHENTICATED" in run(line, SECRET="wrong")


@pytest.mark.parametrize("dialect", list(DialectName))
def test_the_signature_covers_the_sent_bytes(dialect: DialectName, tmp_path: Path) -> None:
    scheme = {"type": "hmac", "keys": {"me": {"secret": "s" * 16}}}
    settings = settings_of({"server": {"dialects": [dialect.value]}, "auth": {"schemes": [scheme]}}, "test")
    (tmp_path / "curl").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "curl").chmod(0o755)
    said = run(
        curl_command("https://a.example/it's%20x", settings), SECRET="s" * 16, PATH=f"{tmp_path}:{os.environ['PATH']}"
    )
    arguments = said.splitlines()
    assert "https://a.example/it's%20x/" in arguments
    stated = next(one.partition(": ")[2] for one in arguments if one.startswith(http_headers.SIGNATURE_HEADER))
    found = http_headers.parse_signature(stated)
    assert found is not None
    request = http_headers.SignedRequest(method="POST", target="/it's%20x/", nonce=found.nonce)
    assert found.nonce
    assert http_headers.is_signed_by(found, arguments[-1].encode(), [b"s" * 16], request=request)
    assert json.loads(arguments[-1])["method"] == MESSAGES[dialect][0]


@pytest.mark.parametrize(
    ("scheme", "shown"),
    [
        ({"type": "api-keys", "header": "X-Key"}, ' -H "X-Key: $KEY"'),
        ({"type": "header", "name": "X-S", "secrets": [{"secret": "s" * 16}]}, ' -H "X-S: $SECRET"'),
        ({"type": "jwt", "issuer": "me", "audience": ["us"], "secret": "s" * 32}, ' -H "Authorization: Bearer $TOKEN"'),
        ({"type": "basic", "users": {"bob": {"password": cheap_hash("x")}}}, " -u bob"),
        ({"type": "hmac", "keys": {"k": {"secret": "s" * 16}}}, ' -hmac "$SECRET" '),
        ({"type": "mtls"}, " --cert $CERTIFICATE --key $KEY"),
    ],
)
def test_the_panel_names_the_credential(scheme: dict[str, Any], shown: str) -> None:
    settings = settings_of({"auth": {"schemes": [scheme]}}, "test")
    assert shown in curl_command("http://localhost:1", settings)
    assert authentication_text(settings) == scheme["type"]


def test_open_servers_report_local_access_only() -> None:
    assert authentication_text(Settings()) == "none: loopback only"


def test_a_terminal_without_such_lines_gets_others(tmp_path: Path) -> None:
    target = f"{AGENTS}:who"
    with running(tmp_path, target, f"{AGENTS}:halting", PYTHONIOENCODING="ascii") as plain:
        assert "+--" in plain.all_shown
        assert "| who, halting" in plain.all_shown
        assert f"| agents   {plain.url}/agents/halting/" in plain.all_shown
        assert text_of(plain.send("x", path="/agents/who/")).isdigit()
        assert text_of(plain.send("x")) == str(plain.process.pid)


@pytest.mark.proves("3-17")
async def test_the_official_client_sends_streams_and_reads(server: Server) -> None:
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, server.url).get_agent_card()
        for streaming in (False, True):
            client = ClientFactory(ClientConfig(streaming=streaming, httpx_client=http)).create(card)
            request = a2a_pb2.SendMessageRequest(message=new_text_message("hello brave world", role=a2a_pb2.ROLE_USER))
            found = [event async for event in client.send_message(request)]
            kinds = [event.WhichOneof("payload") for event in found]
            if streaming:
                assert kinds == ["task", "status_update", *["artifact_update"] * 3, "status_update"]
            else:
                assert kinds == ["task"]
            task_id = found[0].task.id
            task = await client.get_task(a2a_pb2.GetTaskRequest(id=task_id))
            assert task.status.state == a2a_pb2.TASK_STATE_COMPLETED
            assert "".join(part.text for part in task.artifacts[0].parts) == "hello brave world"
            page = await client.list_tasks(a2a_pb2.ListTasksRequest(page_size=1))
            assert (page.page_size, len(page.tasks)) == (1, 1)


def test_large_files_use_the_configured_blob_store(tmp_path: Path) -> None:
    place = tmp_path / "blobs"
    large = base64.b64encode(bytes(300_000)).decode()
    parts = [{"raw": large, "mediaType": "application/zip", "filename": "a.zip"}]
    with running(tmp_path, "--blobs", f"dir://{place}") as keeping:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": parts}
        task = keeping.post("SendMessage", message=message).json()["result"]["task"]
    assert task["artifacts"][0]["parts"] == parts
    assert [file.stat().st_size for file in place.rglob("*") if file.is_file()] == [300_000]


def test_settings_come_from_file_and_environment(tmp_path: Path) -> None:
    file = tmp_path / "accord.toml"
    file.write_text(f'store = "sqlite:///file.db"\n[agents]\nname-me = "{AGENTS}:who"\n[server]\ndialects = ["v1"]')
    with running(tmp_path, ACCORD_SERVER__DIALECTS="v1,gen") as configured:
        assert "│ name-me " in configured.all_shown
        assert "│ dialects v1, gen" in configured.all_shown
        assert "│ store    sqlite:///file.db" in configured.all_shown
    shown = accord(tmp_path, "db", "status")
    assert (shown.returncode, "sqlite:///file.db" in shown.stdout) == (0, True), "other commands use the same store"


def test_the_command_s_surface(tmp_path: Path) -> None:
    assert accord(tmp_path, "--version").stdout.strip() == __version__
    runner = CliRunner()
    assert "serve" in runner.invoke(app, ["--help"]).stdout
    assert runner.invoke(app, ["dance"]).exit_code == 2
