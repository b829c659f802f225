"""`accord creds`: secrets go in unseen, come out only with `--show`, and are tried against real servers."""

import asyncio
import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keyring
import pytest
from typer.testing import CliRunner

from accord.cli import app
from accord.cli.credential_places import key_file, user_keys
from accord.client.credentials import Certificate, Credential, HmacKey, OAuthClient, UserPassword
from accord.storage import schema
from accord.storage.sqlite.driver import SqliteStore
from tests.client.keys.backend import MemoryKeyring
from tests.serve.running import Server, running

SECRET = "s3cret-of-the-test"


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Accord = Callable[..., Said]


@pytest.fixture
def ring() -> Iterator[MemoryKeyring]:
    before, found = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(found)
    yield found
    keyring.set_keyring(before)


@pytest.fixture
def accord(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ring: MemoryKeyring) -> Accord:
    """Run `accord creds ...` in a folder and a home of its own."""
    for name in [name for name in os.environ if name.startswith(("ACCORD_", "AGENTVAULT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("ACCORD_STORE", f"sqlite:///{tmp_path}/accord.db")

    def run(*arguments: str, piped: str | None = None) -> Said:
        done = CliRunner().invoke(app, ["creds", *arguments], input=piped)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    return run


@pytest.mark.proves("2-11", "4-29", "4-33")
@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ([], Credential(api_key=SECRET)),
        (["--kind", "bearer"], Credential(bearer=SECRET)),
        (["--kind", "oauth", "--name", "me"], Credential(oauth=OAuthClient(client_id="me", client_secret=SECRET))),
        (["--kind", "basic", "--name", "me"], Credential(basic=UserPassword(username="me", password=SECRET))),
        (["--kind", "hmac", "--name", "me"], Credential(hmac=HmacKey(key_id="me", secret=SECRET))),
        (["--kind", "hmac"], Credential(hmac=HmacKey(secret=SECRET))),
        (["--kind", "header", "--name", "X-A"], Credential(headers={"X-A": SECRET})),
        (["--host", "a.example", "--host", "b.example"], Credential(api_key=SECRET, hosts=("a.example", "b.example"))),
    ],
)
@pytest.mark.parametrize("place", ["file", "keyring"])
def test_credentials_of_each_type_are_hidden_by_default(
    accord: Accord, arguments: list[str], kept: Credential, place: str
) -> None:
    done = accord("set", "Some/Svc", *arguments, "--in", place, piped=f"{SECRET}\n")
    assert (done.code, done.out) == (0, "")
    assert user_keys().find("some/svc") == kept
    said = accord("get", "some/svc")
    assert said.code == 0
    assert "********" in said.out
    shown = accord("get", "some/svc", "--show", "-o", "json")
    assert SECRET in [row["value"] for row in json.loads(shown.out)]
    assert {row["source"] for row in json.loads(shown.out)} == {place}
    for quiet in (done, said, accord("list"), accord("list", "-o", "json"), accord("get", "some/svc", "--in", place)):
        assert SECRET not in quiet.out + quiet.err
    gone = accord("remove", "some/svc", "--in", place)
    assert gone.code == 0
    assert accord("remove", "some/svc", "--in", place).code == 1
    assert accord("get", "some/svc") == Said(1, "", "accord creds: unknown credential some/svc\n")


def test_kinds_under_one_id_are_kept_beside_each_other(accord: Accord) -> None:
    for place in ("file", "keyring"):
        for kind in (["bearer"], ["header", "--name", "X-A"], ["header", "--name", "X-B"], ["basic", "--name", "me"]):
            assert accord("set", place, "--kind", *kind, "--in", place, piped=SECRET).code == 0
        assert user_keys().find(place) == Credential(
            bearer=SECRET, headers={"X-A": SECRET, "X-B": SECRET}, basic=UserPassword(username="me", password=SECRET)
        )


def test_a_certificate_is_named_by_its_files(accord: Accord, tmp_path: Path) -> None:
    done = accord("set", "svc", "--kind", "mtls", "--name", "c.pem", "--certificate-key", "k.pem", "--ca", "ca.pem")
    assert done.code == 0
    files = {name: str(tmp_path / file) for name, file in (("file", "c.pem"), ("key", "k.pem"), ("ca", "ca.pem"))}
    assert user_keys().find("svc") == Credential(certificate=Certificate(**files))
    assert "********" not in accord("get", "svc").out


def test_secrets_are_read_from_a_prompt(accord: Accord) -> None:
    assert accord("set", "svc", "--secret", SECRET).code == 0
    assert user_keys().find("svc") == Credential(api_key=SECRET)
    assert accord("set", "svc", piped="").code == 2
    assert accord("set", "svc", SECRET).code == 2  # it is no operand


@pytest.mark.parametrize(
    "arguments",
    [
        ["--kind", "magic"],
        ["--kind", "basic"],
        ["--name", "me"],
        ["--kind", "bearer", "--ca", "x"],
    ],
)
def test_conflicting_options_are_refused(accord: Accord, arguments: list[str]) -> None:
    assert accord("set", "svc", *arguments, piped=SECRET).code == 2


def test_the_file_is_the_users_alone_and_can_be_another(
    accord: Accord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accord("set", "svc", piped=SECRET)
    path = tmp_path / "config" / "accord" / "credentials.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert accord("set", "other", "--file", "mine.json", piped=SECRET).code == 0
    monkeypatch.setenv("ACCORD_KEYS", "mine.json")
    assert (user_keys().get_key("svc"), user_keys().get_key("other")) == (None, SECRET)
    assert key_file(None, {"HOME": "/home/me"}) == Path("/home/me/.config/accord/credentials.json")
    Path("mine.json").write_text("{")
    for command in (["get", "svc"], ["list"], ["set", "svc", "--secret", "x"], ["test", "http://127.0.0.1:1"]):
        said = accord(*command)
        assert (said.code, "mine.json is not a valid key file" in said.err) == (1, True)


def test_variables_are_listed_with_where_they_are_from(accord: Accord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTVAULT_KEY_ENV", SECRET)
    monkeypatch.setenv("ACCORD_KEY_SVC", SECRET)
    accord("set", "svc", "--kind", "bearer", piped=SECRET)
    assert [line.split() for line in accord("list").out.splitlines()] == [
        ["ID", "KINDS", "SOURCE"],
        ["env", "api_key", "env"],
        ["svc", "api_key", "bearer", "env", "file"],
    ]
    assert accord("list", "--in", "keyring").code == 1


@pytest.mark.parametrize("place", ["file", "keyring"])
def test_hosts_are_taken_from_urls_and_changed_alone(accord: Accord, place: str) -> None:
    in_place = ("--in", place)
    assert accord("set", "https://A.example:8443/a2a", *in_place, piped=SECRET).code == 0
    assert user_keys().find("a.example:8443") == Credential(api_key=SECRET)
    named = accord("set", "svc", *in_place, piped=SECRET)
    assert "--service svc" in named.err
    assert accord("set", "svc", "--kind", "hosts", "--host", "https://b.example/x", *in_place).code == 0
    assert user_keys().find("svc") == Credential(api_key=SECRET, hosts=("b.example",))
    assert "--service" not in accord("set", "svc", "--kind", "bearer", *in_place, piped=SECRET).err
    with_url = ("set", "http://c.example", "--host", "id.example", *in_place)
    assert accord(*with_url, piped=SECRET).code == 0
    assert user_keys().find("c.example") == Credential(api_key=SECRET, hosts=("c.example", "id.example"))
    assert accord("set", "svc", "--kind", "hosts", *in_place).code == 2
    assert accord("set", "svc", "--host", "http://", *in_place, piped=SECRET).code == 2


# --- a server's store -------------------------------------------------------------------------------------------------


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


@pytest.fixture
def store(tmp_path: Path) -> None:
    async def make() -> None:
        found = SqliteStore(tmp_path / "accord.db")
        await schema.upgrade_schema(found)
        await found.close()

    asyncio.run(make())


@pytest.mark.usefixtures("store")
def test_a_store_keeps_them_sealed_by_tenant_and_shows_none(
    accord: Accord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = new_key(), new_key()
    said = accord("set", "svc", "--in", "store", piped=SECRET)
    assert (said.code, "ACCORD_CREDENTIALS__KEYS" in said.err) == (1, True)
    monkeypatch.setenv("ACCORD_CREDENTIALS__KEYS", first)
    assert accord("set", "svc", "--in", "store", "--tenant", "acme", piped=SECRET).code == 0
    assert accord("get", "svc", "--in", "store").code == 1
    found = accord("get", "svc", "--in", "store", "--tenant", "acme")
    assert (found.code, "********" in found.out) == (0, True)
    assert accord("get", "svc", "--in", "store", "--tenant", "acme", "--show").code == 2
    listed = json.loads(accord("list", "--in", "store", "--tenant", "acme", "-o", "json").out)
    assert [(row["id"], row["kinds"]) for row in listed] == [("svc", ["api_key"])]
    monkeypatch.delenv("ACCORD_CREDENTIALS__KEYS")
    (tmp_path / "keys").write_text(f"{second}\n\n{first}\n")
    (tmp_path / "accord.toml").write_text('[credentials]\nkey_file = "keys"\n')
    assert accord("rotate").err == "1 resealed\n"
    (tmp_path / "keys").write_text(second)
    assert accord("get", "svc", "--in", "store", "--tenant", "acme").code == 0
    (tmp_path / "keys").write_text(first)
    said = accord("get", "svc", "--in", "store", "--tenant", "acme")
    assert (said.code, "Unknown sealing key" in said.err) == (1, True)
    (tmp_path / "keys").unlink()
    assert accord("list", "--in", "store").code == 2
    database = b"".join(file.read_bytes() for file in tmp_path.glob("accord.db*"))
    assert SECRET.encode() not in database


# --- trying -----------------------------------------------------------------------------------------------------------

SCHEMES = f"""
[[auth.schemes]]
type = "header"
name = "X-Secret"
secrets = [{{ owner = "alice", secret = "{SECRET}" }}]
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "accord.toml").write_text(SCHEMES)
    with running(folder) as found:
        yield found


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("unguarded")) as found:
        yield found


def told(said: Said) -> dict[str, str]:
    return {line[:9].strip(): line[10:] for line in said.out.splitlines()}


@pytest.mark.proves("2-06", "2-11")
def test_credentials_are_tested_and_reported(accord: Accord, guarded: Server) -> None:
    said = accord("test", guarded.url)
    assert said.code == 4
    assert "asks for an API key in the header X-Secret" in said.err
    host = f"localhost:{guarded.port}"
    assert accord("set", host, piped="wrong-s3cret-of-the-test").code == 0
    said = accord("test", guarded.url)
    assert (said.code, told(said)["with"][:8]) == (4, "refused:")
    assert accord("set", host, piped=SECRET).code == 0
    said = accord("test", guarded.url)
    assert said.code == 0, said
    found = told(said)
    assert found["requires"] == found["scheme"] == "header"
    assert found["sends"] == "ApiKey(location='header', name='X-Secret')"
    assert found["stored as"] == host
    assert found["without"].startswith("refused:")
    assert found["with"] == "accepted"
    assert SECRET not in said.out + said.err
    assert accord("test", guarded.url, "--service", "nothing").code == 4


def test_open_agents_are_reported(accord: Accord, unguarded: Server) -> None:
    said = accord("test", unguarded.url)
    assert (said.code, told(said)["requires"], told(said)["without"]) == (0, "nothing", "accepted")
    accord("set", "svc", "--kind", "bearer", piped=SECRET)
    said = accord("test", unguarded.url, "--service", "svc")
    assert (said.code, told(said)["with"]) == (0, "accepted")
    assert "accepts anonymous requests" in told(said)["note"]


def test_unreachable_agents_are_reported(accord: Accord) -> None:
    said: Any = accord("test", "http://127.0.0.1:1")
    assert said.code == 3
    assert said.err.startswith("accord creds: ")
