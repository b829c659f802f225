"""Which addresses cards point to: the one that was set, else the one that the caller or a trusted proxy named."""

from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc

from accord.http.asgi import App, Receive, Scope, Send
from accord.server.application import Application
from accord.server.settings_loader import settings_of
from accord.testing import call
from tests.ports import free_port
from tests.server.conftest import CARD, HEADER, KNOWN, V1, card_at, echo, get, planner, rpc, serving, urls

FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "agents.example", "X-Forwarded-Prefix": "/team"}
EXTENDED = {"capabilities": ["streaming", "push", "extended-card"]}


def coming_from(app: App, peer: str) -> App:
    async def moved(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "client": (peer, 1234)}, receive, send)

    return moved


@pytest.mark.parametrize("path", ["", "/agents/trip-planner"])
async def test_proxies_set_scheme_host_and_prefix(path: str) -> None:
    async with serving(echo, planner, server={"behind_proxy": True}) as app:
        base = f"https://agents.example/team{path}"
        assert urls(await card_at(app, path, headers=FORWARDED)) == [f"{base}/", base]
        openapi = (await get(app, f"{path}/openapi.json", headers=FORWARDED)).json()
        assert openapi["servers"] == [{"url": f"/team{path}"}]
        schemas = (await get(app, f"{path}/schemas", headers=FORWARDED)).json()["schemas"]
        assert schemas[0]["url"].startswith(f"{base}/schemas/")
        catalog = (await get(app, "/.well-known/ai-catalog.json", headers=FORWARDED)).json()
        assert catalog["entries"][1]["url"] == f"https://agents.example/team/agents/trip-planner{CARD}"


async def test_requests_behind_a_prefix_reach_their_binding() -> None:
    async with serving(echo, server={"behind_proxy": True}) as app:
        for path, status in [("/tasks/none", 404), ("/healthz", 200), ("/agents/echo/tasks", 200), ("/agents/x/", 404)]:
            assert (await get(app, path, headers=FORWARDED)).status == status, path
        answer = await call(app, rpc("tasks/get", id="none"), path="/a2a/", headers=FORWARDED)
        assert answer.headers["x-a2a-dialect"] == "vault"


async def test_only_trusted_proxies_are_read() -> None:
    for settings, peer, is_believed in [
        ({"behind_proxy": True}, "10.0.0.9", False),
        ({"behind_proxy": True, "trusted_proxies": ["10.0.0.0/8"]}, "10.0.0.9", True),
        ({"behind_proxy": True, "trusted_proxies": ["*"]}, "203.0.113.9", True),
        ({}, "127.0.0.1", False),
    ]:
        async with serving(server=settings) as app:
            found = urls(await card_at(coming_from(app, peer), headers=FORWARDED))
            assert found[1] == ("https://agents.example/team" if is_believed else "http://accord.example")


async def test_the_public_url_is_on_all_cards() -> None:
    async with serving(echo, planner, server={"url": "https://me.example/x/", "behind_proxy": True}) as app:
        for path in ("", "/agents/echo"):
            base = f"https://me.example/x{path}"
            assert urls(await card_at(app, path, headers=FORWARDED)) == [f"{base}/", base]


@pytest.mark.parametrize("path", ["", "/agents/trip-planner"])
async def test_the_extended_card_points_where_the_public_one_does(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listening(*_: Any) -> None:
        """Only the cards are looked at."""

    monkeypatch.setattr("accord.server.composition.grpc_server", listening)
    server = EXTENDED | {"behind_proxy": True, "grpc_port": 5000}
    async with serving(planner, server=server, auth={"schemes": [HEADER]}) as app:
        public = await card_at(app, path, headers=FORWARDED)
        expected = public["supportedInterfaces"]
        assert urls(public)[:2] == [f"https://agents.example/team{path}/", f"https://agents.example/team{path}"]
        assert ("agents.example:5000" in urls(public)) is (path == "")
        await get(app, "/.well-known/ai-catalog.json")  # describes agents as well, at other addresses
        rest = await get(app, f"{path}/extendedAgentCard", headers=FORWARDED | KNOWN)
        assert rest.json()["supportedInterfaces"] == expected
        over_rpc = await call(app, rpc("GetExtendedAgentCard"), path=f"{path}/", headers=FORWARDED | KNOWN | V1)
        assert over_rpc.json()["result"]["supportedInterfaces"] == expected
        older = (await get(app, f"{path}{CARD}", query="dialect=v03", headers=FORWARDED)).json()
        extended = (await get(app, f"{path}/v1/card", headers=FORWARDED | KNOWN)).json()
        for name in ("url", "preferredTransport", "additionalInterfaces"):
            assert extended[name] == older[name]


async def test_the_extended_card_over_grpc_points_where_the_public_one_does() -> None:
    port = free_port()
    server = EXTENDED | {"grpc_port": port, "url": "https://me.example"}
    async with (
        serving(planner, server=server, auth={"schemes": [HEADER]}) as app,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        for path, named in [("", ()), ("/agents/trip-planner", (("x-accord-agent", "trip-planner"),))]:
            metadata = (("a2a-version", "1.0"), ("x-secret", KNOWN["X-Secret"]), *named)
            card = await stub.GetExtendedAgentCard(a2a_pb2.GetExtendedAgentCardRequest(), metadata=metadata, timeout=10)
            stated = [(one.url, one.protocol_binding, one.protocol_version) for one in card.supported_interfaces]
            public = (await card_at(app, path))["supportedInterfaces"]
            assert stated == [(one["url"], one["protocolBinding"], one["protocolVersion"]) for one in public]
            assert [skill.id for skill in card.skills] == ["plan", "book"]


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ({}, "http://localhost:8000"),
        ({"host": "0.0.0.0", "port": 9}, "http://localhost:9"),
        ({"host": "::"}, "http://localhost:8000"),
        ({"host": "::1", "port": 9}, "http://[::1]:9"),
        ({"host": "box.example", "tls_cert": "c", "tls_key": "k"}, "https://box.example:8000"),
        ({"url": "https://x.example/"}, "https://x.example"),
    ],
)
def test_the_address_that_is_shown(server: dict[str, Any], url: str) -> None:
    assert Application([echo], settings_of({"store": "sqlite://:memory:", "server": server}, "test")).url == url


@pytest.mark.parametrize(
    ("host", "grpc"),
    [("accord.example", "accord.example:5000"), ("[::1]:8000", "[::1]:5000"), ("10.1.2.3:80", "10.1.2.3:5000")],
)
@pytest.mark.proves("BIND-FIELD-001")
async def test_grpc_is_on_the_card_at_the_caller_s_name_for_the_host(
    host: str, grpc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listening(*_: Any) -> None:
        """Only the card is looked at."""

    monkeypatch.setattr("accord.server.composition.grpc_server", listening)
    async with serving(echo, server={"grpc_port": 5000}) as app:
        card = await card_at(app, headers={"Host": host})
        found = [one for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
        assert [(one["url"], one["protocolVersion"]) for one in found] == [(grpc, "1.0"), (grpc, "0.3")]
        named = await card_at(app, "/agents/echo", headers={"Host": host})
        assert "GRPC" not in {one["protocolBinding"] for one in named["supportedInterfaces"]}


@pytest.mark.parametrize(
    ("url", "grpc"),
    [("https://x.example/y", "x.example:5000"), ("https://[2001:db8::1]:8443", "[2001:db8::1]:5000")],
)
async def test_grpc_is_on_the_card_at_the_address_that_was_set(
    url: str, grpc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listening(*_: Any) -> None:
        """Only the card is looked at."""

    monkeypatch.setattr("accord.server.composition.grpc_server", listening)
    async with serving(echo, server={"grpc_port": 5000, "url": url}) as app:
        assert urls(await card_at(app))[-1] == grpc
