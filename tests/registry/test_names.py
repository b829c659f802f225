"""What a name means: in a registry elsewhere, which is not believed blindly, and in the store."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from accord.a2a import Caller
from accord.registry.availability import ServerAnswer, UnreachableServer
from accord.registry.directory import AgentDirectory, Visibility
from accord.registry.names import NotAsked, UnknownName
from accord.registry.remote import RegistryRefused, RemoteRegistry
from accord.server.registry import KEY_VARIABLE, name_resolver, open_registry
from accord.server.settings import STORE_REGISTRY
from accord.server.settings_loader import registry_of
from accord.storage import schema
from accord.storage.sqlite.driver import SqliteStore
from tests.cases import each
from tests.registry.conftest import FAR, V1, document
from tests.registry.test_trust import TRUST, signed

PLACE = {"url": "https://trips.example/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}


class Elsewhere:
    """A registry elsewhere, which answers the same to everything."""

    def __init__(self, answer: Any, status: int = 200) -> None:
        self._answer, self._status = answer, status
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        self.asked.append((method, url))
        if isinstance(self._answer, Exception):
            raise self._answer
        said = self._answer if isinstance(self._answer, bytes) else json.dumps(self._answer).encode()
        return ServerAnswer(status=self._status, body=said)


def listed(card: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "1", "card_data": card, "is_active": True} | more


@pytest.mark.parametrize("base", ["https://r.example", "https://r.example/", "https://r.example/api/v1/"])
async def test_a_name_is_looked_up(base: str) -> None:
    ask = Elsewhere(listed(FAR))
    card = await RemoteRegistry(base, ask).resolve("Acme/Weather")
    assert (card.name, card.supported_interfaces[0].url) == ("Weather", "https://weather.example/a2a/")
    assert ask.asked == [("GET", "https://r.example/api/v1/agent-cards/id/acme/weather")]


async def test_a_card_goes_by_the_name_that_it_was_found_by() -> None:
    """Credentials are looked up by it."""
    for card in (FAR | {"humanReadableId": "bank/teller"}, FAR, V1 | {"supportedInterfaces": [PLACE]}):
        found = await RemoteRegistry("https://r.example", Elsewhere(listed(card))).resolve("Evil/Agent")
        assert found.profile is not None
        assert found.profile.human_readable_id == "evil/agent"


@each(
    ("ask", "said"),
    [
        (Elsewhere({"detail": "There is no such agent"}, 404), "There is no such agent"),
        (Elsewhere(b"<html>", 200), "not as a registry does"),
        (Elsewhere(b"<html>", 502), "It answers 502"),
        (Elsewhere([1]), "not as a registry does"),
        (Elsewhere({"detail": [{"loc": ["path"]}]}, 422), "It answers 422"),
        (Elsewhere(UnreachableServer("No connection")), "No connection"),
        (Elsewhere(listed(FAR, is_active=False)), "removed"),
        (Elsewhere({"id": "1"}), "cannot be used"),
        (Elsewhere(listed(FAR | {"url": "http://plain.example/"})), "Only https is safe"),
        (Elsewhere(listed(FAR | {"url": "http://localhost:1/"})), "leads to this machine itself"),
    ],
)
async def test_unusable_registry_answers(ask: Elsewhere, said: str) -> None:
    with pytest.raises(UnknownName, match=said) as refused:
        await RemoteRegistry("https://r.example", ask).resolve("acme/weather")
    assert str(refused.value).startswith("acme/weather: ")
    assert isinstance(refused.value, NotAsked) == (said in ("It answers 502", "No connection"))  # which may pass


@each(
    "host",
    [
        *("0.0.0.0", "[::]", "localhost.", "LOCALHOST", "a.localhost", "[::ffff:127.0.0.1]", "127.0.0.2"),
        *("127.1", "0x7f.1", "2130706433", "017700000001", "0"),
    ],
)
@each(("before", "binding"), [("https://", "JSONRPC"), ("", "GRPC")])
async def test_loopback_addresses_from_registries_are_refused(host: str, before: str, binding: str) -> None:
    place = PLACE | {"url": f"{before}{host}:8443", "protocolBinding": binding}
    ask = Elsewhere(listed(V1 | {"supportedInterfaces": [PLACE, place]}))
    with pytest.raises(UnknownName, match="leads to this machine itself"):
        await RemoteRegistry("https://r.example", ask).resolve("acme/weather")


async def test_a_registry_on_this_machine_may_lead_to_it() -> None:
    ask = Elsewhere(listed(FAR | {"url": "http://localhost:1/"}))
    card = await RemoteRegistry("http://127.0.0.1:8000", ask).resolve("acme/weather")
    assert card.supported_interfaces[0].url == "http://localhost:1/"


async def test_signed_cards_can_be_required() -> None:
    good, bad = Elsewhere(listed(json.loads(signed(FAR)))), Elsewhere(listed(FAR))
    assert (await RemoteRegistry("https://r.example", good, trust=TRUST, signed_only=True).resolve("a/b")).name
    with pytest.raises(UnknownName, match="not signed"):
        await RemoteRegistry("https://r.example", bad, trust=TRUST, signed_only=True).resolve("a/b")


# --- which registry ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["ACCORD_REGISTRY_URL", "AGENTVAULT_REGISTRY_URL", "ACCORD_REGISTRY__URL"])
def test_a_variable_names_the_registry(variable: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert registry_of({}).url is None
    assert registry_of({variable: "https://r.example"}).url == "https://r.example"


def test_of_several_variables_the_most_exact_counts(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "accord.toml").write_text('[registry]\nurl = "https://file.example"\n[nonsense]\n')
    assert registry_of({}).url == "https://file.example"
    names = ("AGENTVAULT_REGISTRY_URL", "ACCORD_REGISTRY_URL", "ACCORD_REGISTRY__URL")
    env: dict[str, str] = {}
    for name in names:
        env[name] = f"https://{name}.example"
        assert registry_of(env).url == env[name]


@pytest.fixture
async def env(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment whose store has agents."""
    monkeypatch.chdir(tmp_path)
    store = SqliteStore(tmp_path / "accord.db")
    await schema.upgrade_schema(store)
    registry = AgentDirectory(store)
    await registry.publish(Caller(), document(FAR))
    await registry.publish(Caller(owner="x"), document(FAR, humanReadableId="x/own"), visibility=Visibility.PRIVATE)
    await registry.publish(Caller(tenant="t"), document(FAR, humanReadableId="t/theirs"))
    public = document(FAR, humanReadableId="t/public", url="http://localhost:5/")
    await registry.publish(Caller(tenant="t"), public, visibility=Visibility.PUBLIC)
    await store.close()
    return {"ACCORD_CONFIG": "", "XDG_DATA_HOME": str(tmp_path)} | {"STORE": f"sqlite:///{tmp_path}/accord.db"}


async def test_names_of_the_store(env: dict[str, str]) -> None:
    async with name_resolver(env, store=env["STORE"]) as resolve:
        assert (await resolve("ACME/weather")).name == "Weather"
        assert (await resolve("t/public")).supported_interfaces[0].url == "http://localhost:5/"
        for name in ("x/own", "t/theirs", "no/body", "not a name"):
            with pytest.raises(UnknownName, match=r"There is no agent|at this path"):
                await resolve(name)


async def test_names_without_a_store_explain_the_fix(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with name_resolver({"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}) as resolve:
        with pytest.raises(UnknownName, match="ACCORD_REGISTRY_URL"):
            await resolve("acme/weather")
    assert list(tmp_path.iterdir()) == []


async def test_a_registry_that_is_set_comes_before_the_store(env: dict[str, str]) -> None:
    env |= {"ACCORD_REGISTRY_URL": "http://127.0.0.1:1", KEY_VARIABLE: "a secret key"}
    async with name_resolver(env, store=env["STORE"]) as resolve:
        with pytest.raises(UnknownName, match=r"127\.0\.0\.1:1") as refused:
            await resolve("acme/weather")
    assert "a secret key" not in str(refused.value)
    async with name_resolver(env, store=env["STORE"], registry=STORE_REGISTRY) as resolve:
        assert (await resolve("acme/weather")).name == "Weather"


async def test_a_key_does_not_travel_in_the_clear(env: dict[str, str]) -> None:
    env |= {"ACCORD_REGISTRY_URL": "http://registry.example", KEY_VARIABLE: "a secret key"}
    async with name_resolver(env) as resolve:
        with pytest.raises(UnknownName, match="in the clear") as refused:
            await resolve("acme/weather")
    assert "a secret key" not in str(refused.value)


@pytest.mark.parametrize("more", [{}, {KEY_VARIABLE: "a secret key"}], ids=["open", "key"])
@pytest.mark.parametrize("url", ["http://[::1", "nonsense", "https://r.example:x"])
async def test_an_invalid_address_is_reported(env: dict[str, str], url: str, more: dict[str, str]) -> None:
    async with name_resolver(env | more, registry=url) as resolve:
        with pytest.raises(UnknownName, match="acme/weather: registry: It must be a URL"):
            await resolve("acme/weather")
    async with name_resolver(env | more | {"ACCORD_REGISTRY_URL": url}) as resolve:
        with pytest.raises(UnknownName, match=r"ACCORD_REGISTRY_URL: registry\.url: It must be a URL"):
            await resolve("acme/weather")


async def test_a_variable_selects_the_store(env: dict[str, str]) -> None:
    async with name_resolver(env | {"ACCORD_REGISTRY_URL": STORE_REGISTRY}, store=env["STORE"]) as resolve:
        assert (await resolve("acme/weather")).name == "Weather"


async def test_the_store_answers_like_a_registry(env: dict[str, str]) -> None:
    async with open_registry(env, store=env["STORE"], caller=Caller(owner="x"), writes=True) as registry:
        assert (await registry.named("x/own"))["is_own"] is True
        page = await registry.search([("search", "weather"), ("owned_only", "true")])
        assert [item["human_readable_id"] for item in page["items"]] == ["x/own"]
        again = await registry.publish({"card_data": FAR | {"humanReadableId": "x/own", "name": "New"}})
        assert (again["name"], again["visibility"]) == ("New", "private")
        with pytest.raises(RegistryRefused, match="another owner") as refused:
            await registry.publish({"card_data": FAR})
        assert refused.value.status == 403


def test_the_settings_that_the_documentation_names_are_settings() -> None:
    written = (Path(__file__).parents[2] / "docs" / "how-to" / "registry.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`registry\.(\w+)", written))
    assert {"enabled", "url"} <= named <= set(registry_of({}).__struct_fields__)
