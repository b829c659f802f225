"""The registry over HTTP: what AgentVault's clients call, as it should have been."""

import asyncio
import json
import time
from typing import Any

import pytest
from joserfc.jwk import OctKey

from accord.auth.audit import REGISTRY
from accord.console.routing import VISITOR_BURST
from accord.model.base import timestamp_ms
from accord.protocol import jose
from accord.registry import directory
from accord.storage.commands import authentication, monitoring
from accord.storage.store import StoreUnavailable
from tests.databases import emptied
from tests.registry.conftest import GEN, SCHEMES, V03, V1, VAULT, Asking, serving

pytestmark = pytest.mark.proves("2-34")

NO_ID = "/agent-cards/01a1dfd3-6daf-740b-9010-d15386daeeb7"


def named(name: str, **more: Any) -> dict[str, Any]:
    return VAULT | {"humanReadableId": name} | more


# --- publishing -------------------------------------------------------------------------------------------------------


async def test_a_card_is_published_and_read_back(open_server: Asking) -> None:
    made = await open_server.publish(VAULT)
    assert made["card_data"] == VAULT
    assert (made["human_readable_id"], made["name"], made["is_active"]) == ("acme/weather", "Weather", True)
    assert (made["visibility"], made["is_own"], made["signature"]["state"]) == ("tenant", True, "unsigned")
    assert made["created_at"] == made["updated_at"]
    for path, query in (
        (f"/agent-cards/{made['id']}", ""),
        (f"/agent-cards/{made['id'].upper()}", ""),
        ("/agent-cards/by-hri", "hri=acme/weather"),
        ("/agent-cards/by-hri", "hri=ACME%2FWeather"),
        ("/agent-cards/id/acme/weather", ""),
        ("/agent-cards/id/Acme%2FWeather", ""),
    ):
        answer = await open_server("GET", path, query=query)
        assert answer.status == 200, path
        assert {**answer.json(), "health": None} == {**made, "health": None}
    raw = await open_server("GET", f"/agent-cards/{made['id']}/card")
    assert raw.json() == VAULT


@pytest.mark.parametrize(
    "card",
    [V1, V03, V03 | {"humanReadableId": "org/adder"}, GEN, VAULT],
    ids=["v1", "v03", "v03-named", "gen", "vault"],
)
async def test_cards_of_every_dialect_are_kept_as_they_are(open_server: Asking, card: dict[str, Any]) -> None:
    assert (await open_server.publish(card))["card_data"] == card


async def test_findings_are_readable(open_server: Asking) -> None:
    wrong = VAULT | {"url": "http://plain.example/", "iconUrl": "data:x"}
    answer = await open_server("POST", "/agent-cards/", {"card_data": wrong})
    assert answer.status == 422
    assert answer.json() == {
        "detail": "url: Only https is safe, except on this machine itself (http://localhost);"
        " iconUrl: A link begins with https:// or http://",
        "findings": [
            {"field": "url", "problem": "Only https is safe, except on this machine itself (http://localhost)"},
            {"field": "iconUrl", "problem": "A link begins with https:// or http://"},
        ],
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "card_data"),
        ({"card_data": VAULT, "visibility": "secret"}, "visibility"),
        ({"card_data": [1]}, ""),
        ({"card_data": VAULT, "human_readable_id": "no name"}, "humanReadableId"),
        ([], ""),
    ],
)
async def test_bodies_that_are_wrong(open_server: Asking, body: Any, field: str) -> None:
    answer = await open_server("POST", "/agent-cards/", body)
    assert answer.status == 422
    assert [finding["field"] for finding in answer.json()["findings"]] == [field]


async def test_a_page_of_another_origin_cannot_publish(open_server: Asking) -> None:
    simple = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
    answer = await open_server("POST", "/agent-cards/", {"card_data": VAULT}, **simple)
    assert answer.status == 400
    assert await open_server.names() == []
    assert "access-control-allow-origin" not in (await open_server("GET", "/agent-cards/")).headers


async def test_a_body_has_an_end(open_server: Asking) -> None:
    answer = await open_server("POST", "/agent-cards/", {"card_data": VAULT | {"x": "y" * 2_000_000}})
    assert answer.status == 413


async def test_a_name_is_taken_once(server: Asking) -> None:
    await server.publish(VAULT, "alice")
    for by in ("alice", "bob"):
        answer = await server("POST", "/agent-cards/", {"card_data": VAULT}, by=by)
        assert (answer.status, answer.json()["human_readable_id"]) == (409, "acme/weather")
    await server.publish(VAULT, "carol")
    await server.publish(named("a/b"), "alice", visibility="public")
    taken = await server("POST", "/agent-cards/", {"card_data": named("a/b"), "visibility": "public"}, by="carol")
    assert taken.status == 409


async def test_a_share_has_an_end(open_server: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_LISTINGS", 2)
    for name in ("a/b", "a/c"):
        await open_server.publish(named(name))
    answer = await open_server("POST", "/agent-cards/", {"card_data": named("a/d")})
    assert answer.status == 429


# --- changing ---------------------------------------------------------------------------------------------------------


async def test_a_change_is_merged_and_judged_again(server: Asking) -> None:
    made = await server.publish(VAULT, "alice")
    path = f"/agent-cards/{made['id']}"
    changed = await server("PUT", path, {"card_data": {"description": "New", "tags": ["new"]}}, by="alice")
    assert changed.status == 200
    assert changed.json()["card_data"] == VAULT | {"description": "New", "tags": ["new"]}
    assert await server.names("alice", "tags=new") == ["acme/weather"]
    assert await server.names("alice", "tags=weather") == []
    wrong = await server("PUT", path, {"card_data": {"url": "http://plain.example"}}, by="alice")
    assert (wrong.status, wrong.json()["findings"][0]["field"]) == (422, "url")
    renamed = await server("PUT", path, {"card_data": {"humanReadableId": "acme/rain"}}, by="alice")
    assert renamed.json()["human_readable_id"] == "acme/rain"
    assert (await server("GET", "/agent-cards/id/acme/weather", by="alice")).status == 404
    hidden = await server("PUT", path, {"visibility": "private"}, by="alice")
    assert (hidden.json()["visibility"], hidden.json()["card_data"]["description"]) == ("private", "New")


async def test_given_names_override_the_card(server: Asking) -> None:
    made = await server.publish(VAULT, "alice", human_readable_id="acme/other")
    path = f"/agent-cards/{made['id']}"
    changed = await server("PUT", path, {"card_data": VAULT, "human_readable_id": "acme/other"}, by="alice")
    assert changed.json()["human_readable_id"] == "acme/other"
    renamed = await server("PUT", path, {"human_readable_id": "acme/third"}, by="alice")
    assert renamed.json()["human_readable_id"] == "acme/third"


async def test_changes_of_many_at_once_are_all_made(open_server: Asking) -> None:
    made = await open_server.publish(VAULT)
    path = f"/agent-cards/{made['id']}"
    changes = [open_server("PUT", path, {"card_data": {f"x{at}": at}}) for at in range(4)]
    assert [answer.status for answer in await asyncio.gather(*changes)] == [200] * 4
    found = (await open_server("GET", path)).json()["card_data"]
    assert found == VAULT | {f"x{at}": at for at in range(4)}


async def test_removing_is_soft_and_only_the_owner_gets_the_name_back(server: Asking) -> None:
    made = await server.publish(VAULT, "alice", visibility="public")
    path = f"/agent-cards/{made['id']}"
    assert (await server("DELETE", path, by="alice")).status == 204
    assert (await server("GET", "/agent-cards/id/acme/weather", by="alice")).status == 404
    assert await server.names("alice") == []
    assert await server.names("alice", "active_only=false") == ["acme/weather"]
    assert await server.names("", "active_only=false") == []
    own = await server("GET", path, by="alice")
    assert (own.status, own.json()["is_active"]) == (200, False)
    assert [(await server("GET", path, by=by)).status for by in ("bob", "carol", "")] == [200, 404, 404]
    assert (await server("POST", "/agent-cards/", {"card_data": VAULT}, by="bob")).status == 409
    back = await server("PUT", path, {"is_active": True}, by="alice")
    assert back.json()["is_active"] is True
    assert await server.names("carol") == ["acme/weather"]
    await server("DELETE", path, by="alice")
    assert (await server.publish(VAULT, "alice"))["id"] == made["id"]


async def test_only_owners_and_operators_change_listings(server: Asking) -> None:
    made = await server.publish(VAULT, "alice", visibility="public")
    path = f"/agent-cards/{made['id']}"
    asks: list[tuple[str, str, Any]] = [
        ("PUT", path, {"is_active": True}),
        ("POST", f"{path}/check", None),
        ("DELETE", path, None),
    ]
    for method, where, body in asks:
        for by, status in (("bob", 403), ("carol", 403), ("rita", 403), ("", 401)):
            assert (await server(method, where, body, by=by)).status == status, (method, by)
    for method, where, body in asks:
        for by in ("alice", "dora"):
            assert (await server(method, where, body, by=by)).status in (200, 204), (method, by)
    assert (await server("POST", "/agent-cards/", {"card_data": VAULT}, by="rita")).status == 403
    unknown = await server("POST", "/agent-cards/", {"card_data": VAULT})
    assert (unknown.status, "www-authenticate" in unknown.headers) == (401, True)


async def test_roles_restrict_published_names() -> None:
    people = {"weather": ["forecasters"], "alien": ["of another system"]}
    secrets = [
        {"owner": name, "secret": f"the secret of {name} here", "roles": roles} for name, roles in people.items()
    ]
    schemes = [{"type": "header", "name": "X-Secret", "secrets": secrets}]
    roles = [{"name": "forecasters", "agents": ["acme/*"]}]
    async with serving(auth={"schemes": schemes, "roles": roles}) as server:

        async def publish(name: str, by: str, **more: str) -> int:
            body = {"card_data": named(name), **more}
            return (await server("POST", "/agent-cards/", body, **{"X-Secret": f"the secret of {by} here"})).status

        assert [await publish(name, "weather") for name in ("acme/rain", "globex/rain")] == [201, 403]
        assert await publish("acme/snow", "weather", visibility="public") == 201
        assert await publish("acme/hail", "alien") == 403
        seen = {by: await server("GET", "/agent-cards/", **{"X-Secret": f"the secret of {by} here"}) for by in people}
        names = {by: sorted(one["human_readable_id"] for one in page.json()["items"]) for by, page in seen.items()}
        assert names == {"weather": ["acme/rain", "acme/snow"], "alien": ["acme/snow"]}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_namespace_belongs_to_its_first_owner(kind: str, request: pytest.FixtureRequest) -> None:
    url = "sqlite://:memory:" if kind == "sqlite" else await emptied(request.getfixturevalue("postgres"))
    async with serving(store=url, auth={"schemes": SCHEMES}) as server:

        async def publish(name: str, by: str, **more: str) -> tuple[int, str]:
            answer = await server("POST", "/agent-cards/", {"card_data": named(name), **more}, by=by)
            return answer.status, answer.json().get("detail", "")

        assert (await publish("google/gemini", "alice"))[0] == 201
        refused = 'google/* belongs to another owner: publishing requires a role with agents = ["google/*"]'
        assert await publish("google/gemma", "bob") == (403, refused)
        assert (await publish("google/gemini", "bob"))[0] == 409
        assert (await publish("google.example/gemma", "bob"))[0] == 201
        mine = await server.publish(named("bob/own"), "bob")
        renamed = {"human_readable_id": "google/own"}
        assert (await server("PUT", f"/agent-cards/{mine['id']}", renamed, by="bob")).status == 403
        assert (await publish("google/palm", "dora"))[0] == 201  # an admin of the tenant
        assert (await publish("google/gemini", "carol"))[0] == 201  # another tenant has its own


async def test_a_namespace_is_public_only_where_it_was_granted() -> None:
    async with serving(auth={"schemes": SCHEMES}) as server:
        for by in ("alice", "dora", "root"):
            body = {"card_data": named("google/gemini"), "visibility": "public"}
            answer = await server("POST", "/agent-cards/", body, by=by)
            assert (answer.status, "requires a role with agents" in answer.json()["detail"]) == (403, True), by
        made = await server.publish(named("google/gemini"), "alice")
        path = f"/agent-cards/{made['id']}"
        assert (await server("PUT", path, {"visibility": "public"}, by="alice")).status == 403
        await server.publish(named("google/gemini"), "otto", visibility="public")  # an admin of the server
        assert await server.names() == ["google/gemini"]


async def test_invisible_listings_look_missing(server: Asking) -> None:
    made = {
        visibility: await server.publish(named(f"acme/{visibility}"), "alice", visibility=visibility)
        for visibility in ("private", "tenant", "public")
    }
    sees = {
        "alice": {"private", "tenant", "public"},
        "dora": {"private", "tenant", "public"},
        "bob": {"tenant", "public"},
        "rita": {"tenant", "public"},
        "carol": {"public"},
        "": {"public"},
    }
    for by, visible in sees.items():
        assert await server.names(by) == sorted(f"acme/{one}" for one in visible)
        for visibility, one in made.items():
            status = 200 if visibility in visible else 404
            for path in (f"/agent-cards/{one['id']}", f"/agent-cards/{one['id']}/card"):
                assert (await server("GET", path, by=by)).status == status
            assert (await server("GET", f"/agent-cards/id/acme/{visibility}", by=by)).status == status
            if status == 404:
                for method, body in (("PUT", {"is_active": False}), ("DELETE", None)):
                    answer = await server(method, f"/agent-cards/{one['id']}", body, by=by)
                    assert answer.status == (404 if by else 401)
    missing = await server("GET", NO_ID, by="bob")
    hidden = await server("GET", f"/agent-cards/{made['private']['id']}", by="bob")
    assert missing.body == hidden.body


async def test_roaming_callers_name_a_tenant(server: Asking) -> None:
    await server.publish(VAULT, "alice")
    assert await server.names("root") == []
    assert await server.names("root", "tenant=acme") == ["acme/weather"]
    assert (await server("GET", "/agent-cards/", by="carol", query="tenant=acme")).status == 403
    assert await server.names("", "tenant=acme") == []


async def test_wrong_credentials_are_not_a_visitors(server: Asking) -> None:
    answer = await server("GET", "/agent-cards/", **{"X-API-Key": "ak_0000000000000000_" + "x" * 43})
    assert answer.status == 401
    assert "www-authenticate" in answer.headers


# --- searching --------------------------------------------------------------------------------------------------------


async def test_pages(open_server: Asking) -> None:
    for at in range(5):
        await open_server.publish(named(f"org/n{at}"))
    seen: list[str] = []
    for skip in (0, 2, 4):
        for query in (f"skip={skip}&limit=2", f"offset={skip}&limit=2"):
            page = (await open_server("GET", "/agent-cards", query=query)).json()
            assert page["pagination"] == {
                "total_items": 5,
                "limit": 2,
                "offset": skip,
                "total_pages": 3,
                "current_page": skip // 2 + 1,
            }
        seen += await open_server.names(query=f"skip={skip}&limit=2")
    assert sorted(seen) == [f"org/n{at}" for at in range(5)]
    beyond = (await open_server("GET", "/agent-cards/", query="skip=100")).json()
    assert (beyond["items"], beyond["pagination"]["total_items"]) == ([], 5)


async def test_filters(server: Asking) -> None:
    await server.publish(VAULT, "alice")
    await server.publish(V1, "bob")
    everything = ["acme/weather", "trips-co/trip-planner"]
    expected = {
        "search=forecast": ["acme/weather"],
        "search=FORECASTS%20anywhere": ["acme/weather"],
        "search=finds+the+way": ["trips-co/trip-planner"],
        "search=nothing": [],
        "search=": everything,
        "tags=weather&tags=PUBLIC": ["acme/weather"],
        "tags=weather&tags=travel": [],
        "has_tee=true": ["acme/weather"],
        "has_tee=false": ["trips-co/trip-planner"],
        "tee_type=INTEL%20sgx": ["acme/weather"],
        "tee_type=sgx": [],
        "owned_only=true": ["acme/weather"],
        "owned_only=True&active_only=1": ["acme/weather"],
        "unknown=1": everything,
    }
    assert {query: await server.names("alice", query) for query in expected} == expected
    assert (await server("GET", "/agent-cards/", query="owned_only=true")).status == 401


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=251", "limit=x", "skip=-1", "has_tee=maybe", "search=" + "x" * 101, "tee_type=" + "x" * 51],
)
async def test_parameters_that_are_wrong(open_server: Asking, query: str) -> None:
    answer = await open_server("GET", "/agent-cards/", query=query)
    assert answer.status == 422
    assert [finding["field"] for finding in answer.json()["findings"]] == [query.partition("=")[0]]


async def test_paths_that_are_not_there(open_server: Asking) -> None:
    for method, path, status in (
        ("GET", "/agent-cards/not-an-id", 404),
        ("GET", "/agent-cards/id/nothing", 404),
        ("GET", "/agent-cards/id/no/body", 404),
        ("GET", "/agent-cards/by-hri", 422),
        ("GET", NO_ID, 404),
        ("DELETE", NO_ID, 404),
        ("PATCH", NO_ID, 405),
        ("POST", "/auth/login", 404),
        ("GET", "/", 404),
    ):
        answer = await open_server(method, path)
        assert answer.status == status, path
        assert answer.json()["detail"]
    assert (await open_server("PATCH", NO_ID)).headers["allow"] == "DELETE, GET, PUT"
    head = await open_server("HEAD", "/agent-cards/")
    assert (head.status, head.body) == (200, b"")


async def test_cards_are_validated_without_being_published(server: Asking) -> None:
    good = (await server("POST", "/utils/validate-card", {"card_data": VAULT})).json()
    assert (good["is_valid"], good["detail"], good["validated_card_data"]) == (True, None, VAULT)
    assert good["human_readable_id"] == "acme/weather"
    bad = (await server("POST", "/utils/validate-card", {"card_data": VAULT | {"url": ""}})).json()
    assert (bad["is_valid"], [one["field"] for one in bad["findings"]]) == (False, ["url"])
    assert "url" in bad["detail"]
    assert await server.names("alice", "active_only=false") == []


# --- developers -------------------------------------------------------------------------------------------------------


async def test_a_developers_key_really_works(server: Asking) -> None:
    me = (await server("GET", "/developers/me", by="alice")).json()
    assert (me["name"], me["tenant"], me["is_verified"]) == ("alice", "acme", True)
    made = await server("POST", "/developers/me/apikeys", {"description": "of the build"}, by="alice")
    assert made.status == 201
    key, info = made.json()["plain_api_key"], made.json()["api_key_info"]
    assert key.startswith(info["key_prefix"])
    assert (info["description"], info["is_active"], info["last_used_at"]) == ("of the build", True, None)
    for headers in ({"X-API-Key": key}, {"Authorization": f"Bearer {key}"}):
        assert (await server("GET", "/developers/me", **headers)).json() == me
    published = await server("POST", "/agent-cards/", {"card_data": VAULT}, **{"X-API-Key": key})
    assert published.status == 201
    assert await server.names("alice", "owned_only=true") == ["acme/weather"]
    listed = (await server("GET", "/developers/me/apikeys", by="alice")).json()
    assert [(one["id"], one["last_used_at"] is not None) for one in listed] == [(info["id"], True)]
    assert key[-43:] not in json.dumps(listed)
    for by in ("bob", "carol"):
        assert (await server("GET", "/developers/me/apikeys", by=by)).json() == []
        assert (await server("DELETE", f"/developers/me/apikeys/{info['id']}", by=by)).status == 404
    assert (await server("DELETE", f"/developers/me/apikeys/{info['id']}", by="alice")).status == 204
    assert (await server("DELETE", f"/developers/me/apikeys/{info['id']}", by="alice")).status == 404
    assert (await server("GET", "/developers/me/apikeys", by="alice")).json() == []


async def test_a_revoked_key_is_refused() -> None:
    schemes = [{"type": "api-keys", "remember_seconds": 0}, *_header_only()]
    async with serving(auth={"schemes": schemes}) as server:
        made = (await server("POST", "/developers/me/apikeys", by="alice")).json()
        headers = {"X-API-Key": made["plain_api_key"]}
        assert (await server("GET", "/developers/me", **headers)).status == 200
        await server("DELETE", f"/developers/me/apikeys/{made['api_key_info']['id']}", by="alice")
        assert (await server("GET", "/developers/me", **headers)).status == 401


async def test_keys_have_at_most_their_creator_s_rights(server: Asking) -> None:
    made = (await server("POST", "/developers/me/apikeys", {"expires_days": 1}, by="dora")).json()
    assert made["api_key_info"]["expires_at"] > made["api_key_info"]["created_at"]
    headers = {"X-API-Key": made["plain_api_key"]}
    me = (await server("GET", "/developers/me", **headers)).json()
    assert (me["tenant"], me["roles"]) == ("acme", ["admin"])
    anywhere = (await server("POST", "/developers/me/apikeys", by="root")).json()
    roaming = await server("GET", "/developers/me", **{"X-API-Key": anywhere["plain_api_key"]})
    assert roaming.json()["tenant"] is None
    assert len((await server("GET", "/developers/me/apikeys", by="root")).json()) == 1


async def test_making_keys_is_a_right_of_its_own() -> None:
    roles = [{"name": "reader", "operations": ["GetTask"], "makes_keys": True}, {"name": "admin"}]
    async with serving(auth={"schemes": SCHEMES}) as server:
        refused = await server("POST", "/developers/me/apikeys", by="rita")
        assert (refused.status, refused.json()["detail"]) == (403, "Your roles do not include making keys")
    async with serving(auth={"schemes": SCHEMES, "roles": roles}) as server:
        assert (await server("POST", "/developers/me/apikeys", by="dora")).status == 403
        made = (await server("POST", "/developers/me/apikeys", by="rita")).json()
        headers = {"X-API-Key": made["plain_api_key"]}
        assert (await server("GET", "/developers/me", **headers)).json()["roles"] == ["reader"]
        assert (await server("POST", "/agent-cards/", {"card_data": VAULT}, **headers)).status == 403


async def test_a_key_lasts_no_longer_than_the_key_it_was_made_with() -> None:
    schemes = [{"type": "api-keys", "remember_seconds": 0}, *_header_only()]

    async def make(server: Asking, by: dict[str, Any], **body: Any) -> dict[str, Any]:
        answer = await server("POST", "/developers/me/apikeys", body, **{"X-API-Key": by["plain_api_key"]})
        assert answer.status == 201, answer.body
        found: dict[str, Any] = answer.json()
        return found

    async def statuses(server: Asking, *keys: dict[str, Any]) -> list[int]:
        brought = [{"X-API-Key": one["plain_api_key"]} for one in keys]
        return [(await server("GET", "/developers/me", **headers)).status for headers in brought]

    async with serving(auth={"schemes": schemes}) as server:
        first = (await server("POST", "/developers/me/apikeys", {"expires_days": 1}, by="alice")).json()
        second, longer = await make(server, first), await make(server, first, expires_days=30)
        shorter, third = await make(server, first, expires_days=0.5), await make(server, second)
        until = first["api_key_info"]["expires_at"]
        assert [one["api_key_info"]["expires_at"] for one in (second, longer, third)] == [until] * 3
        assert shorter["api_key_info"]["expires_at"] < until
        fourth = await make(server, third)
        too_many = await server("POST", "/developers/me/apikeys", {}, **{"X-API-Key": fourth["plain_api_key"]})
        assert too_many.status == 403
        keys = (first, second, longer, third, fourth)
        assert await statuses(server, *keys) == [200] * 5
        path = "/developers/me/apikeys"
        assert (await server("DELETE", f"{path}/{second['api_key_info']['id']}", by="alice")).status == 204
        assert await statuses(server, *keys) == [200, 401, 200, 401, 401]
        assert await server.app.host.node.store.do(authentication.revoke_api_key, first["api_key_info"]["id"])
        assert await statuses(server, *keys) == [401] * 5
        assert (await server("GET", path, by="alice")).json() == []


async def test_a_key_lasts_no_longer_than_the_token_it_was_made_with() -> None:
    secret = "a secret that tokens of the tests are signed with"
    jwt = {"type": "jwt", "issuer": "me", "audience": ["us"], "secret": secret, "leeway_seconds": 0}
    exp = int(time.time()) + 300
    claims = json.dumps({"iss": "me", "aud": "us", "sub": "alice", "exp": exp}).encode()
    token = jose.sign_payload(claims, {"alg": "HS256"}, OctKey.import_key(secret))
    async with serving(auth={"schemes": [jwt, {"type": "api-keys"}]}) as server:
        for body in ({}, {"expires_days": 9}):
            made = await server("POST", "/developers/me/apikeys", body, Authorization=f"Bearer {token}")
            assert made.json()["api_key_info"]["expires_at"] == timestamp_ms(exp * 1000)


async def test_keys_have_limits(server: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_KEYS", 1)
    assert (await server("POST", "/developers/me/apikeys", {}, by="alice")).status == 201
    assert (await server("POST", "/developers/me/apikeys", {}, by="alice")).status == 429
    for body in ({"description": "x" * 300}, {"expires_days": 0}, {"expires_days": "x"}):
        assert (await server("POST", "/developers/me/apikeys", body, by="bob")).status == 422
    assert [(await server("GET", path)).status for path in ("/developers/me", "/developers/me/apikeys")] == [401, 401]


async def test_unusable_keys_are_not_created(open_server: Asking) -> None:
    assert (await open_server("POST", "/developers/me/apikeys", {})).status == 403
    assert (await open_server("GET", "/developers/me")).status == 403
    async with serving(auth={"schemes": _header_only()}) as server:
        refused = await server("POST", "/developers/me/apikeys", {}, by="alice")
        assert (refused.status, "API key" in refused.json()["detail"]) == (403, True)


def _header_only() -> list[dict[str, Any]]:
    from tests.registry.conftest import SCHEMES

    return SCHEMES[:1]


# --- limits and the catalog -------------------------------------------------------------------------------------------


async def test_strangers_have_a_rate_and_others_do_not_pay_for_it(server: Asking) -> None:
    for _ in range(VISITOR_BURST):
        assert (await server("GET", "/agent-cards/")).status == 200
    refused = await server("GET", "/agent-cards/")
    while refused.status == 200:  # a busy machine takes its time, and more may come meanwhile
        refused = await server("GET", "/agent-cards/")
    assert (refused.status, int(refused.headers["retry-after"]) >= 1) == (429, True)
    assert (await server("GET", "/agent-cards/", by="alice")).status == 200


async def test_authenticated_callers_have_the_server_s_rate() -> None:
    async with serving(auth={"schemes": _header_only()}, limits={"rate": 0.001, "burst": 2}) as server:
        statuses = [(await server("GET", "/agent-cards/", by="alice")).status for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert (await server("GET", "/agent-cards/", by="bob")).status == 200


async def test_public_listings_allow_any_origin(server: Asking) -> None:
    made = await server.publish(VAULT, "alice", visibility="public")
    for path in ("/agent-cards/", f"/agent-cards/{made['id']}", f"/agent-cards/{made['id']}/card"):
        assert (await server("GET", path)).headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-origin" not in (await server("GET", path, by="alice")).headers


async def test_a_public_card_is_served_like_any_card(server: Asking) -> None:
    made = await server.publish(VAULT, "alice", visibility="public")
    answer = await server("GET", f"/agent-cards/{made['id']}/card")
    assert (answer.headers["content-type"], answer.json()) == ("application/json", VAULT)
    again = await server("GET", f"/agent-cards/{made['id']}/card", **{"If-None-Match": answer.headers["etag"]})
    assert again.status == 304
    other = await server.publish(named("acme/other"), "alice")
    kept = await server("GET", f"/agent-cards/{other['id']}/card", by="alice")
    assert (kept.json(), kept.headers["cache-control"]) == (named("acme/other"), "no-store")


async def test_owners_are_distinguished_without_names(server: Asking) -> None:
    made = [await server.publish(named(f"x/{by}"), by, visibility="public") for by in ("alice", "bob", "carol")]
    assert len({one["developer_id"] for one in made}) == 3
    shown = await server("GET", f"/agent-cards/{made[0]['id']}")
    assert (b"alice" in shown.body.replace(b"x/alice", b""), shown.json()["is_own"]) == (False, False)
    assert (await server("GET", "/developers/me", by="alice")).json()["id"] == made[0]["developer_id"]


async def test_the_catalog_lists_public_agents(server: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    from accord.http import cards

    monkeypatch.setattr(cards, "CATALOG_SECONDS", 0.0)
    catalog = "/.well-known/ai-catalog.json"
    alone = await server("GET", catalog)
    assert [entry["displayName"] for entry in alone.json()["entries"]] == ["Echo"]
    await server.publish(named("acme/ours"), "alice")
    assert (await server("GET", catalog)).headers["etag"] == alone.headers["etag"]
    made = await server.publish(VAULT, "alice", visibility="public")
    both = await server("GET", catalog)
    own, published = both.json()["entries"]
    assert (own["displayName"], both.json()["host"]["displayName"]) == ("Echo", "localhost")
    assert published == {
        "identifier": "urn:air:localhost:a2a:acme%2Fweather",
        "displayName": "Weather",
        "type": "application/a2a-agent-card+json",
        "url": f"http://localhost:8000/api/v1/agent-cards/{made['id']}/card",
        "version": "1.2.3",
        "description": "Forecasts for anywhere",
        "tags": ["Weather", "public"],
    }
    path = published["url"].removeprefix("http://localhost:8000/api/v1")
    assert (await server("GET", path)).json() == VAULT
    await server("DELETE", f"/agent-cards/{made['id']}", by="alice")
    assert [entry["displayName"] for entry in (await server("GET", catalog)).json()["entries"]] == ["Echo"]


async def test_the_catalog_needs_no_store(open_server: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    from accord.http import cards

    monkeypatch.setattr(cards, "CATALOG_SECONDS", 0.0)
    await open_server.publish(VAULT)
    before = await open_server("GET", "/.well-known/ai-catalog.json")

    async def away(*_: Any) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(directory.AgentDirectory, "catalog", away)
    after = await open_server("GET", "/.well-known/ai-catalog.json")
    assert (after.status, after.body, len(after.json()["entries"])) == (200, before.body, 2)


async def test_the_catalog_is_cached(open_server: Asking) -> None:
    catalog = "/.well-known/ai-catalog.json"
    await open_server("GET", catalog)
    await open_server.publish(VAULT)
    assert len((await open_server("GET", catalog)).json()["entries"]) == 1


async def test_a_registry_can_be_switched_off() -> None:
    async with serving(registry={"enabled": False}) as server:
        assert (await server("GET", "/agent-cards/")).status == 404
        assert len((await server("GET", "/.well-known/ai-catalog.json")).json()["entries"]) == 1


@pytest.mark.parametrize(
    "settings", [{"signed_only": True}, {"signers": "/nowhere/keys.json"}, {"signers": '{"keys": []}'}]
)
async def test_settings_that_cannot_work(settings: dict[str, Any]) -> None:
    from accord.server.application import to_a2a
    from accord.server.settings_loader import BadSettings
    from tests.server.conftest import echo

    with pytest.raises(BadSettings, match="registry"):
        async with to_a2a(echo, registry=settings):
            pass


# --- the record -------------------------------------------------------------------------------------------------------


async def test_changes_are_audited(server: Asking) -> None:
    made = await server.publish(VAULT, "alice")
    path = f"/agent-cards/{made['id']}"
    await server("POST", "/agent-cards/", {"card_data": VAULT}, by="bob")
    await server("POST", "/agent-cards/", {"card_data": {}}, by="bob")
    await server("PUT", path, {"is_active": False}, by="bob")
    await server("GET", path, by="bob")
    key = (await server("POST", "/developers/me/apikeys", by="alice")).json()["api_key_info"]["id"]
    await server("DELETE", f"/developers/me/apikeys/{key}", by="alice")
    await server("DELETE", path, by="alice")
    store = server.app.host.node.store
    noted: list[tuple[str, ...]] = []
    while len(noted) < 7:
        found = await store.read(monitoring.find_audit, "acme", monitoring.AuditLogQuery())
        noted = [(one.owner, one.operation, one.agent, one.outcome) for one in reversed(found)]
        await asyncio.sleep(0)
    assert noted == [
        ("alice", "PublishAgent", "acme/weather", "ok"),
        ("bob", "PublishAgent", "acme/weather", "NAME_TAKEN"),
        ("bob", "PublishAgent", "", "INVALID_CARD"),
        ("bob", "ChangeAgent", made["id"], "PERMISSION_DENIED"),
        ("alice", "MakeKey", "", "ok"),
        ("alice", "EndKey", key, "ok"),
        ("alice", "RemoveAgent", made["id"], "ok"),
    ]
    assert {one[1] for one in noted} == set(REGISTRY)


async def test_odd_parameters_are_refused(server: Asking) -> None:
    for query in ("tenant=a%00b", "tenant=" + "x" * 300, "&".join(f"tags={at}" for at in range(200))):
        assert (await server("GET", "/agent-cards/", by="root", query=query)).status == 422
    assert (await server("GET", "/agent-cards/", by="root", query="search=%00&tags=%00")).status == 422
    assert (await server("DELETE", "/developers/me/apikeys/%00", by="root")).status == 404


async def test_unexpected_errors_show_nothing(
    open_server: Asking, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("the password is swordfish")

    monkeypatch.setattr(directory.AgentDirectory, "search", broken)
    answer = await open_server("GET", "/agent-cards/")
    assert (answer.status, b"swordfish" in answer.body) == (500, False)
    assert "swordfish" in caplog.text

    async def away(*_: Any) -> None:
        raise StoreUnavailable("the disk of the database is full")

    monkeypatch.setattr(directory.AgentDirectory, "search", away)
    answer = await open_server("GET", "/agent-cards/")
    assert (answer.status, answer.headers["retry-after"], b"disk" in answer.body) == (503, "1", False)
