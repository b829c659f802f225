"""`accord.server`: each thing that may be in the way, for real, and that nothing is changed by looking."""

import base64
import json
import os
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from joserfc.jwk import ECKey

from accord.auth.api_keys import new_key
from accord.client.credentials import Credential
from accord.client.credentials.sealed import CredentialSealer, SealedCredentials
from accord.entries import Plugin
from accord.model import PushConfig
from accord.server import doctor, doctor_checks
from accord.server.credentials import TENANT, rotate_keys
from accord.server.doctor_checks import CheckFinding, CheckStatus, ExaminedServer
from accord.server.settings import CredentialSettings, Settings
from accord.server.settings_loader import LoadedSettings, settings_of
from accord.storage import schema
from accord.storage.address import SqliteAddress, open_store
from accord.storage.commands import authentication, tasks
from accord.storage.store import Store, Tx
from tests.certificates import Authority
from tests.engine.conftest import BOUND_SECONDS
from tests.ports import free_port
from tests.server.elsewhere import CARD, card, elsewhere
from tests.server.examined import ECHO, FAILED, OK, WARNING, Examined, examined
from tests.storage.conftest import new as new_task


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


def content(name: str) -> bytes:
    return Path(name).read_bytes()


async def make_store(file: str = "accord.db") -> SqliteAddress:
    address = SqliteAddress(path=Path(file))
    async with open_store(address) as store:
        await schema.upgrade_schema(store)
    return address


# --- the store --------------------------------------------------------------------------------------------------------


async def test_a_server_that_could_start_is_well_and_nothing_was_changed() -> None:
    before = os.listdir()
    found = await examined()
    assert found.failed == []
    assert found["store"][0] == (OK, f"{Path.cwd()}/accord.db is made when the server starts")
    assert found.one(f"agent {ECHO}")[0] is OK
    assert os.listdir() == before


async def test_present_stores_are_described() -> None:
    await make_store()
    before = content("accord.db")
    found = await examined()
    (status, detail), (written, took), *_ = found["store"]
    assert (status, written) == (OK, OK)
    assert f"schema {schema.known_migrations()[-1].number}" in detail
    assert "SQLite 3." in detail
    assert took.startswith("a write is on the disk after ")
    assert content("accord.db") == before


async def test_storage_is_compared_with_quotas() -> None:
    await make_store()
    assert (await examined()).one("storage") == (
        OK,
        "0 tasks store 0.0 MiB; no quota is set (limits.owner_bytes, limits.tenant_bytes)",
    )
    async with open_store("sqlite:///accord.db") as store:
        for number in range(8):
            await store.do(tasks.create_task, "acme", new_task(f"t-{number}"))
    found = await examined(limits={"owner_tasks": 10, "tenant_tasks": 100})
    assert found["storage"] == [(WARNING, "owner alice of tenant acme stores 8 tasks of 10")]
    found = await examined(limits={"owner_bytes": 10**9, "tenant_tasks": 9})
    assert found["storage"] == [(WARNING, "tenant acme stores 8 tasks of 9")]
    found = await examined(limits={"owner_bytes": 10**9})
    assert found["storage"] == [(OK, "8 tasks store 0.0 MiB; no owner or tenant is near its quota")]


async def test_invalid_database_files_fail() -> None:
    write("accord.db", "this is no database, but a text of some length" * 100)
    found = await examined()
    assert found.failed == ["store"]


async def test_a_file_of_another_program_fails() -> None:
    with closing(sqlite3.connect("accord.db")) as connection:
        connection.execute("CREATE TABLE customer (id INTEGER)")
    found = await examined()
    assert found.failed == ["store"]
    assert "belongs to another program, as it has tables (customer)" in found.one("store")[1]


async def test_a_directory_that_is_not_there_fails() -> None:
    found = await examined(store="sqlite:///no/where.db")
    assert found.one("store") == (FAILED, f"The directory {Path.cwd()}/no does not exist")


async def test_the_directory_of_the_default_store_need_not_be_there() -> None:
    found = await examined(store=None)
    assert found["store"][0] == (OK, f"{Path.cwd()}/accord/accord.db is made when the server starts")
    assert "accord" not in os.listdir()


async def test_a_schema_of_a_newer_version_fails() -> None:
    address = await make_store()
    async with open_store(address) as store:
        await store.do(_newer)
    status, detail = (await examined())["store"][0]
    assert status is FAILED
    assert "schema 9999" in detail


async def _newer(tx: Any) -> None:
    await tx.run("INSERT INTO schema_version (number, at) VALUES (9999, 1)")


async def test_a_store_in_memory_is_a_warning() -> None:
    assert (await examined(store="sqlite://:memory:")).one("store")[0] is WARNING


async def test_invalid_addresses_fail() -> None:
    found = await examined(store="mysql://x")
    assert found.failed == ["configuration"]


@pytest.mark.parametrize("server", [{"behind_proxy": True}, {"url": "https://127.0.0.1.evil.invalid"}])
async def test_an_open_server_that_others_reach_fails(server: dict[str, Any]) -> None:
    status, detail = (await examined(server=server)).one("configuration")
    assert (status, detail.startswith("Anybody could use this server: ")) == (FAILED, True)


def test_slow_and_full_disks_are_distinguished(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert doctor_checks._commit_finding(1.0).status is OK
    assert doctor_checks._commit_finding(80.0).status is WARNING
    for free, status in (
        (2 * doctor_checks.ROOM, OK),
        (doctor_checks.ROOM - 1, WARNING),
        (doctor_checks.LITTLE_ROOM - 1, FAILED),
    ):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert doctor_checks._room(tmp_path).status is status


@pytest.mark.parametrize(("kind", "found"), [("ext4", []), ("tmpfs", [WARNING]), ("overlay", [WARNING])])
def test_a_file_system_that_keeps_nothing_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, found: list[CheckStatus]
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"disk / {kind} rw 0 0\n", encoding="utf-8")
    monkeypatch.setattr(doctor_checks, "MOUNTS", mounts)
    assert [one.status for one in doctor_checks._fleeting_findings(tmp_path)] == found


async def test_a_directory_for_files_is_looked_at() -> None:
    found = await examined(blobs=f"dir://{Path.cwd()}/files/large")
    assert [status for status, _ in found["files"]] == [OK, OK]
    assert "files" not in os.listdir()
    write("file", "")
    found = await examined(blobs=f"dir://{Path.cwd()}/file")
    assert found["files"][0][0] is FAILED


# --- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ahead", "status"), [(0, OK), (12, WARNING), (-12, WARNING), (3600, FAILED), (-3600, FAILED)])
async def test_a_server_whose_clock_is_off_is_found_by_its_date(ahead: float, status: CheckStatus) -> None:
    with elsewhere(agent=True, ahead=ahead) as server:
        found = await examined(remotes={"weather": {"url": server.url}})
        assert found.one("remote weather")[0] is OK
        told, detail = found.one("clock")
        assert told is status
        assert server.host in detail
        if ahead:
            assert ("ahead of" if ahead > 0 else "behind") in detail


async def test_clock_checks_are_skipped_without_a_reference() -> None:
    assert (await examined())["clock"] == []


def test_every_clock_skew_is_reported(tmp_path: Path) -> None:
    skews = {"the database": 8.0, "a": 0.5, "b": -90.0}
    address = SqliteAddress(path=tmp_path / "x.db")
    patient = ExaminedServer(
        loaded=LoadedSettings(Settings(), {}), targets=(), address=address, url="", env={}, dates=skews
    )
    assert [(one.status, one.detail) for one in doctor_checks.compare_clocks(patient)] == [
        (FAILED, "b is 90 seconds behind this machine"),
        (WARNING, "the database is 8 seconds ahead of this machine"),
    ]


# --- who has to be reached --------------------------------------------------------------------------------------------


async def test_unreachable_remote_agents_fail() -> None:
    found = await examined(remotes={"weather": {"url": f"http://127.0.0.1:{free_port()}"}})
    assert found.failed == ["remote weather"]


async def test_remote_agents_with_invalid_cards_fail() -> None:
    with elsewhere({CARD: b'{"name": 5}'}) as server:
        found = await examined(remotes={"weather": {"url": server.url}})
    assert found.failed == ["remote weather"]


async def test_card_findings_are_warnings() -> None:
    with elsewhere() as server:
        stated = json.loads(card(server.url))
        stated["supportedInterfaces"].append(stated["supportedInterfaces"][0] | {"url": "https://evil.example/"})
        server.pages[CARD] = json.dumps(stated).encode()
        found = await examined(remotes={"weather": {"url": server.url}})
    status, detail = found.one("remote weather")
    assert status is WARNING
    assert "evil.example" in detail


async def test_issuer_keys_are_fetched() -> None:
    key = ECKey.generate_key("P-256", {"kid": "k", "use": "sig"}).as_dict(private=False)
    with elsewhere() as server:
        jwt = {"type": "jwt", "issuer": server.url, "audience": ["a"]}
        found = await examined(auth={"schemes": [jwt]})
        assert found.failed == [f"issuer {server.url}"]
        described = {"issuer": server.url, "jwks_uri": f"{server.url}/keys"}
        server.pages["/.well-known/openid-configuration"] = json.dumps(described).encode()
        server.pages["/keys"] = json.dumps({"keys": [key]}).encode()
        found = await examined(auth={"schemes": [jwt]})
        assert found.one(f"issuer {server.url}") == (OK, "1 keys")
        server.pages["/keys"] = b'{"keys": []}'
        assert (await examined(auth={"schemes": [jwt]})).failed == [f"issuer {server.url}"]


async def test_public_addresses_must_lead_to_this_server() -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    found = await examined(server={"url": nowhere})
    assert found.one("public url")[0] is WARNING
    with elsewhere({"/healthz": b'{"hello": "world"}'}) as server:
        assert (await examined(server={"url": server.url})).failed == ["public url"]
        server.pages["/healthz"] = b'{"status":"ok","checks":{}}'
        assert (await examined(server={"url": server.url})).one("public url")[0] is OK


async def test_where_reports_and_names_come_from_has_to_answer() -> None:
    with elsewhere() as server:
        found = await examined(receiver={"url": f"{server.url}/api/webhook/tasks"}, registry={"url": server.url})
        assert (found.one("receiver.url")[0], found.one("registry.url")[0]) == (OK, OK)
        gone = server.url
    found = await examined(receiver={"url": gone}, registry={"url": gone})
    assert found.failed == ["receiver.url", "registry.url"]


async def test_hosts_of_webhooks_have_an_address() -> None:
    found = await examined(push={"allow_hosts": ["localhost", "no-such-host.invalid", "*.example"]})
    assert found.one("webhooks localhost")[0] is OK
    assert found.one("webhooks no-such-host.invalid")[0] is WARNING
    assert found["webhooks *.example"] == []


# --- agents -----------------------------------------------------------------------------------------------------------


async def test_an_agent_that_cannot_be_imported_fails_and_others_do_not() -> None:
    write("broken.py", "1 / 0\n")
    write("fine.py", "async def fine(ctx): return 'x'\n")
    found = await examined("broken.py:agent", agents={"fine": "fine.py:fine", "gone": "no_such_module:x"})
    assert found.failed == ["agent broken.py:agent", "agent gone"]
    assert found.one("agent fine")[0] is OK
    assert "ZeroDivisionError" in found.one("agent broken.py:agent")[1]


async def test_missing_frameworks_name_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    write("crew.py", "import crewai\n")
    own = [path for path in sys.path if not path.endswith("tests/agents")]  # other tests' files, one called crewai
    monkeypatch.setattr(sys, "path", own)
    monkeypatch.delitem(sys.modules, "crewai", raising=False)
    found = await examined("crew.py:crew")
    (failed,) = [one for one in found.found if one.status is FAILED]
    assert (failed.check, failed.remedy) == ("agent crew.py:crew", "pip install 'accord[crewai]'")


async def test_an_agent_that_never_comes_to_an_end_is_given_up() -> None:
    write("stuck.py", "import threading\nthreading.Event().wait(600)\n")
    found = await examined("stuck.py:agent", ECHO, seconds=3.0)
    assert found.one("agent stuck.py:agent") == (FAILED, "No answer within 3 seconds")
    assert found.one(f"agent {ECHO}")[0] is OK


async def test_agents_with_one_path_are_reported() -> None:
    write("namesakes.py", "from accord import agent\n\n@agent(name='Echo!')\nasync def two(ctx): return ctx.text\n")
    found = await examined(ECHO, "namesakes.py:two")
    (told,) = [
        detail for one in (ECHO, "namesakes.py:two") for status, detail in found[f"agent {one}"] if status is FAILED
    ]
    assert "would be at /agents/echo, as agent " in told


async def test_unreadable_cards_are_reported() -> None:
    write(
        "odd.py",
        "from accord.engine.agent import Profile\n"
        "class Odd:\n"
        "    def __init__(self, **said): self.profile = Profile(**said)\n"
        "    async def run(self, ctx): ...\n"
        "unskilled = Odd(name='unskilled', description='x')\n"
        "wrong = Odd(name='wrong', description=5)\n",
    )
    found = await examined("odd.py:unskilled", "odd.py:wrong")
    assert found.one("agent odd.py:unskilled") == (WARNING, "its card: skills: The card names no skill")
    status, detail = found.one("agent odd.py:wrong")
    assert (status, detail.startswith("its card is not valid: description: ")) == (FAILED, True)


async def test_without_an_agent_an_echo_is_served() -> None:
    loaded = LoadedSettings(settings_of({"store": "sqlite:///x.db", "server": {"port": free_port()}}, "test"), {})
    found = Examined(await doctor.examine(loaded, (), {}))
    assert found.one("agents")[0] is WARNING


# --- keys -------------------------------------------------------------------------------------------------------------

API_KEYS = {"schemes": [{"type": "api-keys"}]}


async def test_api_keys_have_to_be_there_and_last() -> None:
    assert (await examined(auth=API_KEYS)).one("api keys")[0] is WARNING
    address = await make_store()
    assert (await examined(auth=API_KEYS)).one("api keys") == (WARNING, "there is none, so nobody gets in")
    async with open_store(address) as store:
        await store.do(authentication.create_api_key, _key(None))
    assert (await examined(auth=API_KEYS)).one("api keys") == (OK, "1 that can be used")
    async with open_store(address) as store:
        soon = await store.do(authentication.create_api_key, _key(3 * 24 * 3600 * 1000))
    status, detail = (await examined(auth=API_KEYS)).one("api keys")
    assert status is WARNING
    assert detail.endswith(soon.id)


def _key(lasts_ms: int | None) -> authentication.NewApiKey:
    made = new_key()
    return authentication.NewApiKey(id=made.id, hash=made.hash, name="test", owner="me", lasts_ms=lasts_ms)


async def test_a_signing_key_has_to_be_one() -> None:
    found = await examined(card={"signing_key": "no-such-file.jwk"})
    assert found.failed == ["signing key"]
    write("key.jwk", json.dumps(ECKey.generate_key("P-256").as_dict(private=True)))
    card = {"signing_key": "key.jwk"}
    status, detail = (await examined(card=card)).one("signing key")
    assert (status, "this machine only" in detail) == (WARNING, True)
    assert (await examined(card=card, server={"url": "https://me.example"})).one("signing key")[0] is OK


async def test_signers_have_to_be_keys() -> None:
    assert (await examined(registry={"signers": "{}"})).failed == ["signers"]


async def test_a_certificate_has_its_key_and_is_good_for_a_while(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, other = authority.server(), authority.server("other")
    tls = {"tls_cert": str(server.certificate), "tls_key": str(server.key)}
    status, detail = (await examined(server=dict(tls))).one("certificate")
    assert "on 20" in detail or "until 20" in detail
    assert status is not FAILED
    mixed = tls | {"tls_key": str(other.key)}
    assert (await examined(server=dict(mixed))).failed == ["certificate"]


async def test_credentials_that_cannot_be_opened_fail() -> None:
    right, wrong = (base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))
    address = await make_store()
    async with open_store(address) as store:
        await SealedCredentials(store, CredentialSealer([right])).put(TENANT, "svc", Credential(api_key="secret"))
    assert (await examined(credentials={"keys": [right]})).one("credentials") == (OK, "1 can be opened")
    assert (await examined(credentials={"keys": [wrong]})).failed == ["credentials"]
    assert (await examined()).one("credentials")[0] is WARNING


async def test_secrets_of_webhooks_in_plain_text_are_a_warning() -> None:
    key = base64.b64encode(bytes(32)).decode()
    address = await make_store()
    async with open_store(address) as store:
        await put_webhook(store, PushConfig(url="https://a.example/", id="w", task_id="t", token="secret"))
        for given in ({}, {"keys": [key]}):
            status, told, *_ = (await examined(credentials=dict(given))).one("webhook secrets")
            assert (status, told) == (WARNING, "1 of 1 webhooks have theirs in plain text, or sealed by an old key")
        assert await rotate_keys(store, CredentialSettings(keys=(key,))) == 1
    assert (await examined(credentials={"keys": [key]}))["webhook secrets"] == []


async def put_webhook(store: Store, config: PushConfig) -> None:
    async def insert(tx: Tx) -> None:
        await tx.run(
            "INSERT INTO push (tenant, task_id, id, config, dialect) VALUES ('', 't', 'w', :config, '')",
            config=msgspec.json.encode(config).decode(),
        )

    await store.do(insert)


async def test_credentials_that_are_named_have_to_be_there() -> None:
    with elsewhere(agent=True) as server:
        remote = {"url": server.url, "key": "weather"}
        found = await examined(remotes={"weather": remote})
        assert "credentials" in found.failed
        key = base64.b64encode(bytes(32)).decode()
        for sealing in ({}, {"keys": [key]}):
            env = {"ACCORD_TOKEN_WEATHER": "t"}
            found = await examined(remotes={"weather": remote}, env=env, credentials=dict(sealing))
            assert found["credentials"] == []


# --- the machine ------------------------------------------------------------------------------------------------------


@pytest.fixture
def taken() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


async def test_a_port_that_is_taken_fails(taken: int) -> None:
    found = await examined(server={"port": taken}, seconds=20.0)
    assert found.failed == ["port"]
    found = await examined(server={"grpc_port": taken})
    assert found.failed == ["grpc port"]


async def test_a_port_that_a_server_of_ours_listens_on_is_a_warning() -> None:
    """It may be the very one; if not, `accord serve` would not start."""
    with elsewhere({"/healthz": b'{"status":"ok","checks":{}}'}) as server:
        found = await examined(server={"port": server.server_port})
    status, detail = found.one("port")
    assert (status, "already" in detail) == (WARNING, True)


async def test_requested_features_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"server": "granian", "grpc_port": free_port()}
    found = await examined(server=dict(asked), telemetry={"traces": True})
    assert found.one("extras") == (OK, "granian, grpc, otel installed")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "granian" else object())
    found = await examined(server=dict(asked))
    assert found.one("extras") == (FAILED, "granian is not installed")


async def test_a_package_beside_us_that_cannot_be_used_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Plugin(
        "accord.agents", "odd", "odd:AGENT_TYPE", "odd-package", "1.0", "the package odd-package cannot be used"
    )
    for found, status in (([broken], WARNING), ([broken._replace(problem=None)], OK)):
        monkeypatch.setattr("accord.entries.installed_plugins", lambda *, check, found=found: found)
        assert (await examined()).one("plugins")[0] is status


async def test_few_open_files_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert (await examined()).one("open files")[0] is WARNING


async def test_a_server_that_would_not_start_fails() -> None:
    assert (await examined(server={"host": "0.0.0.0"})).failed == ["configuration"]
    found = await examined(server={"tls_cert": "gone.pem", "tls_key": "gone.key"})
    assert found.failed == ["configuration", "certificate"]


async def test_unexpected_check_errors_do_not_stop_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: ExaminedServer) -> list[CheckFinding]:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(doctor, "_open_files", broken)
    found = await examined()
    assert found.one("open files") == (FAILED, "RuntimeError: unforeseen")
    assert found.one("port")[0] is OK


async def test_all_checks_are_made_at_once() -> None:
    """One after the other, these would take longer than a test may."""
    write("stuck.py", "import threading\nthreading.Event().wait(600)\n")
    found = await examined(seconds=3.0, agents={f"agent{number}": "stuck.py:agent" for number in range(BOUND_SECONDS)})
    assert len(found.failed) == BOUND_SECONDS
