"""Secrets that can be recognized, everywhere a server has one; afterwards all that it wrote is searched for them.

The log is that of an operator in trouble: every logger of the process at its most talkative, with all that comes along
with a record. What callers were told, what the terminal shows, and what the store keeps for operators is searched too.
"""

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest
from joserfc.jwk import ECKey, OctKey
from typer.testing import CliRunner

from accord.auth.passwords import hash_password
from accord.cli import app
from accord.model import Authentication, GetRequest, PushConfig, SendRequest
from accord.protocol import http_headers, jose
from accord.protocol.operations import Operation
from tests.abuse.launch import LOG
from tests.abuse.server import BOUND_SECONDS, ROOT, Holder, Server, serving
from tests.abuse.test_webhooks import Listener, hooked
from tests.abuse.ways import V1, WAYS, Caller, Way
from tests.abuse.wire import Answer
from tests.databases import emptied, postgres
from tests.ports import free_port

__all__ = ["postgres"]

MARK = "s3kr1t"
"""What every secret that we choose has in it."""


def secret(name: str) -> str:
    return f"{name}-{MARK}-0123456789abcdef0123456789"


SHARED, SIGNED, BEARER, HOOKS = (secret(name) for name in ("shared", "signed", "bearer", "hooks"))
PASSWORD, TOKEN, CREDENTIALS, IN_URL = (secret(name) for name in ("password", "token", "credentials", "in-url"))
STORE, AMBIENT, SAID = (secret(name) for name in ("store", "ambient", "said"))
ISSUER, AUDIENCE = "https://id.example.com", "accord"
MINE = Way("jsonrpc", V1)


class Spoken(NamedTuple):
    """Everything that a server was told and has told."""

    server: Server
    answers: list[Answer]
    own: list[str]
    signing_key: str
    tokens: list[str]

    @property
    def secrets(self) -> list[str]:
        """What must not be anywhere; keys of callers without the part that is only their name."""
        keys = [key.split("_", 2)[2] for key in self.server.keys.values()]
        return [
            MARK,
            base64.b64encode(PASSWORD.encode()).decode().rstrip("=")[4:-4],
            *keys,
            self.signing_key,
            *self.tokens,
        ]


def settings(store: str, signing_key: str) -> dict[str, Any]:
    schemes = [
        {"type": "api-keys"},
        {"type": "jwt", "issuer": ISSUER, "audience": [AUDIENCE], "secret": "env:BEARER_SECRET"},
        {"type": "basic", "users": {"alice": {"password": hash_password(PASSWORD)}}},
        {"type": "header", "name": "X-Shared", "secrets": [{"secret": SHARED, "owner": "shared"}]},
        {"type": "hmac", "keys": {"partner": {"secret": SIGNED}}},
    ]
    return {
        "store": store,
        "audit": "all",
        "auth": {"schemes": schemes},
        "push": {"allow_hosts": ["127.0.0.1"], "signing_keys": [HOOKS]},
        "card": {"signing_key": signing_key},
    }


@pytest.fixture(scope="module")
def spoken(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    """A server that has been asked everything by everybody, rightly and wrongly, and has been stopped."""
    folder = tmp_path_factory.mktemp("spoken")
    asyncio.run(emptied(postgres))
    key = ECKey.generate_key("P-256", {"kid": "k-1"}, private=True)
    private = str(key.as_dict(private=True)["d"])
    env = {
        "BEARER_SECRET": BEARER,
        "AWS_SECRET_ACCESS_KEY": AMBIENT,
        LOG: str(folder / "log"),
        "PYTHONASYNCIODEBUG": "1",
    }
    address = postgres.replace("postgres:@", f"postgres:{STORE}@")
    assert STORE in address
    made = settings(address, json.dumps(key.as_dict(private=True)))
    with serving(folder, made, holders={"alice": Holder("alice")}, env=env, start="tests.abuse.launch") as server:
        found = Spoken(server, [], [], private, [])
        with Listener(answer=b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n") as receiver:
            _speak(found, receiver)
    return found


def _speak(spoken: Spoken, receiver: Listener) -> None:
    """Come in every way, right and wrong; then use every operation; then send what is no request."""
    server = spoken.server
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "none"}}).encode()
    right, wrong = _credentials(spoken, call)
    for headers in right:
        assert _asked(spoken, call, headers).status == 200, headers
    for headers in wrong:
        assert _asked(spoken, call, headers).status == 401, headers
    _use(spoken, receiver)
    for body in (
        SAID.encode(),
        b'{"jsonrpc": "2.0", "id": 1, "method": "%b"}' % SAID.encode(),
        b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": ["%b"]}}' % SAID.encode(),
        b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": "%b"}}' % SAID.encode(),
        b"\xff" + SAID.encode(),
    ):
        _asked(spoken, body, right[0])
    with server.connect() as wire:
        wire.say(f"GET / HTTP/1.1\r\nX-API-Key: {server.keys['alice']}\r\nbroken {SHARED}\r\n\r\n".encode())
        spoken.answers.append(wire.answer())
    for target in ("/.well-known/agent-card.json", "/openapi.json", "/readyz", f"/tasks?token={SHARED}", "/nothing"):
        spoken.answers.append(server.ask("GET", target))


def _asked(spoken: Spoken, body: bytes, headers: Mapping[str, str]) -> Answer:
    with spoken.server.connect() as wire:
        wire.ask("POST", "/", body, headers)
        spoken.answers.append(wire.answer())
    return spoken.answers[-1]


def _credentials(spoken: Spoken, body: bytes) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """What lets somebody in, and what does not, by each scheme."""
    now, key = int(time.time()), spoken.server.keys["alice"]
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 300}
    good, old = (
        jose.sign_payload(json.dumps(claims | more).encode(), {"alg": "HS256"}, OctKey.import_key(BEARER))
        for more in ({}, {"exp": now - 300})
    )
    spoken.tokens.extend((good, old))
    request = http_headers.SignedRequest(method="POST", target="/")
    signature, forged = (
        http_headers.sign_body(body, now, [one.encode()], request=request, key_id="partner") for one in (SIGNED, SHARED)
    )
    right = [
        {"X-API-Key": key},
        {"Authorization": f"Bearer {key}"},
        {"Authorization": f"Bearer {good}"},
        {"Authorization": _basic("alice", PASSWORD)},
        {"X-Shared": SHARED},
        {"X-A2A-Signature": signature},
    ]
    wrong = [
        {"X-API-Key": key[:-1] + ("A" if key[-1] != "A" else "B")},
        {"X-API-Key": SHARED},
        {"Authorization": f"Bearer {key}x"},
        {"Authorization": f"Bearer {old}"},
        {"Authorization": f"Bearer {good[:-6]}AAAAAA"},
        {"Authorization": f"Bearer {SHARED}"},
        {"Authorization": _basic("alice", PASSWORD + "!")},
        {"Authorization": _basic("nobody", PASSWORD)},
        {"Authorization": f"Basic {PASSWORD}"},
        {"X-Shared": SHARED + "!"},
        {"X-A2A-Signature": signature},
        {"X-A2A-Signature": forged},
        {"X-A2A-Signature": f"t=1,v1={SIGNED}"},
    ]
    return right, wrong


def _basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def _use(spoken: Spoken, receiver: Listener) -> None:
    """Send messages with webhooks that fail, in every way; let the agent fail; read everything again."""
    caller = Caller(spoken.server, spoken.server.keys["alice"])
    hook = PushConfig(
        url=f"http://127.0.0.1:{receiver.port}/?key={IN_URL}",
        token=TOKEN,
        authentication=Authentication(scheme="Bearer", credentials=CREDENTIALS),
    )
    for way in WAYS:
        told = caller.ask(way, Operation.SEND, hooked(hook, text=SAID))
        assert told.reason is None
        read = caller.ask(way, Operation.GET, GetRequest(id=told.result.id))
        spoken.own.extend(one.said.decode("latin-1") for one in (told, read))
        refused: SendRequest = hooked(
            PushConfig(url=f"https://user:{CREDENTIALS}@127.0.0.1/?key={IN_URL}", token=TOKEN)
        )
        if way.dialect.value != "gen":  # which has no place for it
            answer = caller.ask(way, Operation.SEND, refused)
            assert answer.reason == "INVALID_PARAMS"
            assert MARK.encode() not in answer.said
        bad = hooked(PushConfig(url=hook.url, token=f"{TOKEN}\r\nX-Injected: yes"))
        if way.dialect.value not in ("gen", "vault"):
            answer = caller.ask(way, Operation.SEND, bad)
            assert (answer.reason, MARK.encode() in answer.said) == ("INVALID_PARAMS", False)
    end = time.monotonic() + BOUND_SECONDS
    while receiver.connections < len(WAYS) + 1:  # each at least once, and one of them again
        assert time.monotonic() < end
        time.sleep(0.01)
    assert any(TOKEN.encode() in head and CREDENTIALS.encode() in head for head in receiver.heads)


def found_in(text: str, secrets: list[str]) -> list[str]:
    """The secrets in a text, with what surrounds the first."""
    return [text[max(0, at - 200) : at + 80] for one in secrets if (at := text.find(one)) >= 0]


# --- what was written -------------------------------------------------------------------------------------------------


@pytest.mark.proves("4-33")
def test_no_secret_is_written_anywhere(spoken: Spoken, postgres: str) -> None:
    log = Path(spoken.server.folder / "log").read_text(encoding="utf-8")
    assert "refused" in log, "it is a log of everything"
    assert "DEBUG" in log or "asyncio" in log
    assert found_in(log, spoken.secrets) == []
    assert found_in(spoken.server.said, spoken.secrets) == []
    assert "postgresql://postgres@" in spoken.server.said, "the store is shown, without its password"
    told = "\n".join(answer.said.decode("latin-1") for answer in spoken.answers)
    ours = [SHARED, SIGNED, BEARER, HOOKS, PASSWORD, STORE, AMBIENT, *(one for one in spoken.secrets if one != MARK)]
    assert found_in(told, [*ours, TOKEN, CREDENTIALS]) == []
    assert found_in("\n".join(spoken.own), ours) == []
    audit, rest = asyncio.run(_kept(postgres))
    assert audit.count("\n") > 20
    assert found_in(audit, spoken.secrets) == []
    assert found_in(rest, ours) == []
    assert TOKEN in rest, "webhooks cannot be called without theirs"
    check_commands(spoken)


async def _kept(url: str) -> tuple[str, str]:
    """The audit log, and everything else that is in the store."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        kept = {
            name: "\n".join(map(str, await connection.fetch(f"SELECT * FROM {name}")))
            for name in (row["tablename"] for row in tables)
        }
    finally:
        await connection.close()
    return kept.pop("audit"), "\n".join(kept.values())


def check_commands(spoken: Spoken) -> None:
    """What operators look at shows none either."""
    commands = (
        ["audit", "list", "-o", "json"],
        ["audit", "list"],
        ["apikeys", "list", "-o", "json"],
        ["push", "list", "-o", "json"],
        ["push", "list"],
        ["db", "status"],
    )
    running = [_accord(*command, "--store", spoken.server.store) for command in commands]
    for command, process in zip(commands, running, strict=True):
        shown = process.communicate(timeout=BOUND_SECONDS)[0]
        secrets = [one for one in spoken.secrets if one != MARK] + [STORE, TOKEN, CREDENTIALS, SAID]
        assert found_in(shown, secrets) == [], command


# --- what is wrong with the settings ----------------------------------------------------------------------------------


def _accord(*arguments: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "accord", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=ROOT,
        text=True,
        env={"PATH": os.defpath, "COLUMNS": "400", **env},
    )


MISTAKES: dict[str, tuple[str, dict[str, str]]] = {
    "an unknown store": ("", {"ACCORD_STORE": f"mysql://user:{STORE}@host/db"}),
    "a store with a raw password": ("", {"ACCORD_STORE": f"postgresql://user:{STORE}/x@y@host/db"}),
    "an unknown member": (f'[[auth.schemes]]\ntype = "hmac"\nkeys.a = {{ sekret = "{SIGNED}" }}', {}),
    "a list in place of a secret": (f'[[auth.schemes]]\ntype = "hmac"\nkeys.a = {{ secret = ["{SIGNED}"] }}', {}),
    "a short secret": (f'[[auth.schemes]]\ntype = "hmac"\nkeys.a = {{ secret = "{MARK}" }}', {}),
    "no secret where one is": ('[[auth.schemes]]\ntype = "hmac"\nkeys.a = { secret = "env:NOWHERE" }', {"X": SIGNED}),
    "keys that are no list": (f'[push]\nsigning_keys = "{HOOKS}"', {}),
    "an unknown variable": ("", {"ACCORD_PUSH__SIGNING_KEY": HOOKS}),
    "a variable that is no JSON": ("", {"ACCORD_AUTH__SCHEMES": f'[{{"type": "hmac", "keys": "{SIGNED}"'}),
    "no TOML": (f'[push]\nsigning_keys = ["{HOOKS}]', {}),
}
"""What is seen before anything is started: the file, and the environment."""

LATER: dict[str, tuple[str, dict[str, str]]] = {
    "a store that is away": ("", {"ACCORD_STORE": f"postgresql://user:{STORE}@127.0.0.1:1/db"}),
    "a password as it is": (f'[[auth.schemes]]\ntype = "basic"\nusers.a = {{ password = "{PASSWORD}" }}', {}),
    "a key that is none": (f'[card]\nsigning_key = "{SIGNED}"', {}),
    "a key that is broken": (f'[card]\nsigning_key = \'{{"kty": "EC", "d": "{SIGNED}"}}\'', {}),
    "a blob store without a bucket": (f'blobs = "s3://user:{AMBIENT}@/"', {}),
}
"""What is seen when a server starts."""


@pytest.mark.parametrize("name", MISTAKES)
def test_no_mistake_in_the_settings_shows_a_secret(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, env = MISTAKES[name]
    file = tmp_path / "accord.toml"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that nothing is served even without a mistake
        arguments = ["serve", "--config", str(file), "--port", str(taken.getsockname()[1])]
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "400", **env})
    assert done.exit_code, done.output
    assert "Cannot listen" not in done.output, "it was not seen to be a mistake"
    assert MARK not in done.output
    assert isinstance(done.exception, SystemExit)


def test_no_mistake_that_shows_only_later_shows_a_secret(tmp_path: Path) -> None:
    running = {}
    for name, (text, env) in LATER.items():
        port = free_port()
        file = tmp_path / f"{port}.toml"
        file.write_text(text, encoding="utf-8")
        running[name] = _accord("serve", "--config", str(file), "--port", str(port), HOME=str(tmp_path), **env)
    for name, process in running.items():
        shown = process.communicate(timeout=BOUND_SECONDS)[0]
        assert process.returncode, name
        assert MARK not in shown, (name, shown)
        assert "Traceback" not in shown, (name, shown)
