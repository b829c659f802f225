"""The card and the catalog over HTTP: what caches need, where their caller reaches the agents, and signatures."""

import hashlib
import json
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from accord.http.asgi import Receive, Scope, Send
from accord.http.cards import CATALOG_PATH, CardPage, CatalogPage
from accord.model import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, CardSignature
from accord.protocol.operations import DialectName
from accord.testing.asgi import Response, call
from tests.cases import each

PATHS = ["/.well-known/agent-card.json", "/.well-known/agent.json"]
MODIFIED = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
LAST = "Fri, 02 Jan 2026 03:04:05 GMT"
LOCAL = "http://localhost:8000/"
PUBLIC = "https://agents.example.com/echo/"


def described(url: str) -> AgentCard:
    return AgentCard(
        name="Trips",
        description="Plans trips",
        version="2.1.0",
        supported_interfaces=tuple(
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version) for version in ("1.0", "0.3")
        ),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill(id="plan", name="Plan", description="Plans", tags=("travel",)),),
    )


def served(url: str = LOCAL, **more) -> CardPage:
    return CardPage(described(url), modified=MODIFIED, **more)


async def get(app: CardPage, path: str = PATHS[0], query: str = "", method: str = "GET", **headers: str) -> Response:
    stated = {name.replace("_", "-"): value for name, value in headers.items()}
    return await call(app, method=method, path=path, query=query, headers=stated)


# --- caching ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("B-03", "CARD-DISC-001", "CARD-CACHE-001", "CARD-CACHE-002", "CARD-CACHE-003")
@each("path", PATHS)
@each("query", ["", "dialect=", *(f"dialect={dialect.value}" for dialect in DialectName)])
async def test_cards_have_cache_control(path: str, query: str) -> None:
    answer = await get(served(), path, query)
    assert answer.status == 200
    assert answer.headers == {
        "content-type": "application/json",
        "content-length": str(len(answer.body)),
        "cache-control": "public, max-age=60",
        "etag": f'"{hashlib.sha256(answer.body).hexdigest()[:32]}"',
        "last-modified": LAST,
        "vary": "A2A-Version",
    }


async def test_a_card_without_a_stated_time_is_as_old_as_its_server() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    answer = await get(CardPage(described(LOCAL)))
    stated = datetime.strptime(answer.headers["last-modified"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    assert before <= stated <= datetime.now(UTC)


async def test_each_variant_has_its_own_tag() -> None:
    app = served()
    queries = ["", *(f"dialect={dialect.value}" for dialect in (DialectName.V1, DialectName.V03, DialectName.GEN))]
    answers = [await get(app, query=query) for query in queries] + [await get(app, host="127.0.0.1:8000")]
    assert len({answer.headers["etag"] for answer in answers}) == len({answer.body for answer in answers}) == 5
    again = [await get(app, PATHS[1], query) for query in queries]
    assert [answer.headers["etag"] for answer in again] == [answer.headers["etag"] for answer in answers[:-1]]


@pytest.mark.proves("CARD-CACHE-002", "CARD-CACHE-003")
@each("method", ["GET", "HEAD"])
@each(
    ("headers", "status"),
    [
        ({"if_none_match": "TAG"}, 304),
        ({"if_none_match": "W/TAG"}, 304),
        ({"if_none_match": '"other", W/"x,y",TAG'}, 304),
        ({"if_none_match": "*"}, 304),
        ({"if_none_match": " * "}, 304),
        ({"if_none_match": '"other"'}, 200),
        ({"if_none_match": '"*"'}, 200),
        ({"if_none_match": "bare"}, 200),
        ({"if_modified_since": LAST}, 304),
        ({"if_modified_since": "Friday, 02-Jan-26 03:04:05 GMT"}, 304),
        ({"if_modified_since": "Fri Jan  2 03:04:05 2026"}, 304),
        ({"if_modified_since": "Fri, 02 Jan 2026 03:04:06 GMT"}, 304),
        ({"if_modified_since": "Fri, 02 Jan 2026 03:04:04 GMT"}, 200),
        ({"if_modified_since": "yesterday"}, 200),
        ({"if_none_match": '"other"', "if_modified_since": LAST}, 200),
        ({"if_none_match": "TAG", "if_modified_since": "Thu, 01 Jan 2026 03:04:05 GMT"}, 304),
    ],
)
async def test_current_cards_are_304(method: str, headers: dict, status: int) -> None:
    app = served()
    whole = await get(app)
    tag = whole.headers["etag"]
    answer = await get(app, method=method, **{name: text.replace("TAG", tag) for name, text in headers.items()})
    assert answer.status == status
    if status == 304:
        kept = ("cache-control", "etag", "vary")
        assert answer.headers == {name: whole.headers[name] for name in kept}
        assert answer.body == b""
    else:
        assert answer.headers == whole.headers


async def test_the_tag_of_another_variant_does_not_count() -> None:
    app = served()
    other = (await get(app, query="dialect=gen")).headers["etag"]
    assert (await get(app, if_none_match=other)).status == 200


async def test_tags_on_several_lines_are_one_list() -> None:
    app = served()
    tag = (await get(app)).headers["etag"].encode()

    async def twice(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "headers": [(b"if-none-match", b'"x"'), (b"if-none-match", tag)]}, receive, send)

    assert (await call(twice, method="GET", path=PATHS[0])).status == 304


# --- verbs and dialects -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_head_sends_everything_but_the_body(path: str) -> None:
    app = served()
    whole, head = await get(app, path), await get(app, path, method="HEAD")
    assert (head.status, head.body, head.headers) == (200, b"", whole.headers)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_other_methods_get_405_with_allow(method: str) -> None:
    answer = await get(served(), method=method)
    assert (answer.status, answer.headers["allow"], answer.body) == (405, "GET, HEAD", b"")


@pytest.mark.proves("B-03")
@pytest.mark.parametrize(("wish", "named"), [("klingon", "known are"), ("gen", "enabled: v1, v03")])
async def test_a_dialect_that_is_unknown_or_off_is_refused(wish: str, named: str) -> None:
    app = served(enabled=frozenset({DialectName.V1, DialectName.V03}))
    answer = await get(app, query=f"dialect={wish}")
    assert (answer.status, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert named in answer.body.decode()
    assert "etag" not in answer.headers
    assert (await get(app, query=f"dialect={wish}", method="HEAD")).body == b""


@pytest.mark.proves("B-03")
async def test_where_only_relay_is_spoken_the_public_card_is_0_3_s() -> None:
    alone = (await get(served(enabled=frozenset({DialectName.RELAY})))).json()
    assert alone == (await get(served(), query="dialect=v03")).json()
    assert (alone["protocolVersion"], alone["url"]) == ("0.3.0", LOCAL)
    assert "supportedInterfaces" not in alone


# --- where the caller reaches it ----------------------------------------------------------------------------------

HOSTS = ["127.0.0.1:8000", "[::1]:8000", "localhost", "box.lan:9000", "a-1.example", "localhost:65535", "1.2.3.4", "1a"]


@pytest.mark.proves("B-03")
@each("host", HOSTS)
@each("url", [LOCAL, "http://127.0.0.1:8000/", "http://[::1]:8000/", "http://0.0.0.0:8000/"])
async def test_a_local_card_points_to_where_its_caller_found_it(url: str, host: str) -> None:
    card = (await get(served(url), host=host)).json()
    assert [interface["url"] for interface in card["supportedInterfaces"]] == [f"http://{host}/"] * 2
    assert card["url"] == f"http://{host}/"
    assert "8000" in host or "8000" not in json.dumps(card)
    for dialect in DialectName:
        assert (
            f'"http://{host}/"' in (await get(served(url), query=f"dialect={dialect.value}", host=host)).body.decode()
        )


BAD_HOSTS = [
    "",
    "evil.com/path",
    "user@evil.com",
    "evil.com:",
    "evil.com:0",
    "evil.com:65536",
    "evil.com:80x",
    "evil.com:-1",
    "evil com",
    'evil.com"',
    "evil.com\\",
    "evil.com?x",
    "evil.com#x",
    "http://evil.com",
    "-evil.com",
    "evil-.com",
    "evil..com",
    ".com",
    "evil_.com",
    "a" * 64,
    ".".join(["a" * 60] * 5),
    "1.2.3",
    "1.2.3.256",
    "[::1",
    "::1",
    "[::g]",
    "[1.2.3.4]",
    "[fe80::1%25en0]",
    "é.com",
    "a,b",
]


@each("host", BAD_HOSTS)
async def test_invalid_hosts_are_not_echoed(host: str) -> None:
    card = (await get(served(), host=host)).json()
    assert card["url"] == card["supportedInterfaces"][0]["url"] == LOCAL


async def test_a_host_that_is_stated_twice_or_not_at_all_is_not_repeated() -> None:
    app = served()

    async def asked(*hosts: bytes) -> str:
        async def restated(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "headers": [(b"host", host) for host in hosts]}, receive, send)

        url: str = (await call(restated, method="GET", path=PATHS[0])).json()["url"]
        return url

    assert await asked() == LOCAL
    assert await asked(b"one.example") == "http://one.example/"
    assert await asked(b"one.example", b"two.example") == LOCAL


async def test_the_scheme_is_the_caller_s_and_the_name_in_lower_case() -> None:
    app = served()

    async def over_tls(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "scheme": "https"}, receive, send)

    answer = await call(over_tls, method="GET", path=PATHS[0], headers={"Host": "Tunnel.Example"})
    assert answer.json()["url"] == "https://tunnel.example/"


@pytest.mark.proves("B-03")
@pytest.mark.parametrize("url", [PUBLIC, "http://10.0.0.1/", "http://box.lan:8000/"])
async def test_the_configured_address_overrides_the_host_header(url: str) -> None:
    app = served(url)
    answer = await get(app, host="evil.example")
    assert answer.json()["url"] == url
    assert answer.body == (await get(app)).body


async def test_only_interfaces_of_the_server_itself_move() -> None:
    card = described(LOCAL)
    others = ["http://localhost:8001/", "https://example.com/", "localhost:50051", "http://localhost:8000/rest?x"]
    interfaces = [AgentInterface(url=url, protocol_binding="X", protocol_version="1.0") for url in others]
    card = replace(card, supported_interfaces=(*card.supported_interfaces[:1], *interfaces))
    answer = await get(CardPage(card, modified=MODIFIED), query="dialect=v1", host="127.0.0.1:9000")
    urls = [interface["url"] for interface in answer.json()["supportedInterfaces"]]
    assert urls == ["http://127.0.0.1:9000/", *others[:2], "127.0.0.1:50051", "http://127.0.0.1:9000/rest?x"]


async def test_a_card_without_interfaces_is_served_as_it_is() -> None:
    card = replace(described(LOCAL), supported_interfaces=())
    answer = await get(CardPage(card, enabled=frozenset({DialectName.V1})), host="evil.example")
    assert answer.status == 200
    assert b"evil" not in answer.body


# --- signatures ---------------------------------------------------------------------------------------------------

SIGNATURE = CardSignature(protected="eyJ", signature="abc")


def marked(body: bytes) -> bytes:
    """Stands for signing: what it adds depends on every byte of the document."""
    document = json.loads(body)
    return json.dumps(document | {"signatures": [{"signature": hashlib.sha256(body).hexdigest()}]}).encode()


async def test_signatures_of_the_1_0_card_are_served_with_nothing_else() -> None:
    card = replace(described(PUBLIC), signatures=(SIGNATURE,))
    every, alone = CardPage(card, modified=MODIFIED), CardPage(card, enabled=frozenset({DialectName.V1}))
    assert "signatures" not in (await get(every)).json()
    assert len((await get(every, query="dialect=v1")).json()["signatures"]) == 1
    assert len((await get(alone)).json()["signatures"]) == 1
    for dialect in ("v03", "vault", "gen", "relay"):
        assert "signatures" not in (await get(every, query=f"dialect={dialect}")).json()


async def test_cards_with_rewritten_addresses_lose_their_signature() -> None:
    app = CardPage(replace(described(LOCAL), signatures=(SIGNATURE,)), modified=MODIFIED)
    for host, is_signed in (("localhost:8000", True), ("", True), ("127.0.0.1:8000", False)):
        card = (await get(app, query="dialect=v1", host=host)).json()
        assert ("signatures" in card) is is_signed, host


@each("query", ["", *(f"dialect={dialect.value}" for dialect in DialectName)])
@each("host", ["localhost:8000", "127.0.0.1:8000"])
async def test_cards_of_1_0_are_signed_as_served(query: str, host: str) -> None:
    plain, signed = await get(served(), query=query, host=host), await get(served(sign=marked), query=query, host=host)
    expected = marked(plain.body) if query in ("", "dialect=v1") else plain.body
    assert (signed.status, signed.body) == (200, expected)
    assert signed.headers["etag"] == f'"{hashlib.sha256(signed.body).hexdigest()[:32]}"'


async def test_a_server_without_1_0_signs_nothing() -> None:
    app = served(enabled=frozenset({DialectName.V03}), sign=marked)
    assert "signatures" not in (await get(app)).json()


async def test_cards_are_signed_once() -> None:
    times: list[bytes] = []

    def counted(body: bytes) -> bytes:
        times.append(body)
        return marked(body)

    app = served(sign=counted)
    for _ in range(3):
        await get(app)
        await get(app, query="dialect=v1", if_none_match="*")
    assert len(times) == 2


# --- the catalog --------------------------------------------------------------------------------------------------


def listed(*urls: str) -> CatalogPage:
    named = [(url, replace(described(url), name=f"Agent {at}")) for at, url in enumerate(urls)]
    return CatalogPage({url + ".well-known/agent-card.json": card for url, card in named}, modified=MODIFIED)


async def entries(app: CatalogPage, host: str = "") -> list[str]:
    found = await call(app, method="GET", path=CATALOG_PATH, headers={"host": host})
    return [entry["url"] for entry in found.json()["entries"]]


async def test_the_catalog_lists_the_agents_of_a_host() -> None:
    answer = await call(listed(PUBLIC, LOCAL), method="GET", path=CATALOG_PATH)
    assert answer.status == 200
    assert answer.headers == {
        "content-type": "application/ai-catalog+json",
        "content-length": str(len(answer.body)),
        "cache-control": "public, max-age=60",
        "etag": f'"{hashlib.sha256(answer.body).hexdigest()[:32]}"',
        "access-control-allow-origin": "*",
        "last-modified": LAST,
    }
    assert [entry["displayName"] for entry in answer.json()["entries"]] == ["Agent 0", "Agent 1"]
    again = await call(
        listed(PUBLIC, LOCAL), method="GET", path=CATALOG_PATH, headers={"if-none-match": answer.headers["etag"]}
    )
    assert (again.status, again.body) == (304, b"")


async def test_the_catalog_has_the_verbs_of_a_document() -> None:
    app = listed(PUBLIC)
    head = await call(app, method="HEAD", path=CATALOG_PATH)
    whole = await call(app, method="GET", path=CATALOG_PATH)
    assert (head.status, head.headers, head.body) == (200, whole.headers, b"")
    refused = await call(app, method="POST", path=CATALOG_PATH)
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_local_agents_are_listed_where_their_caller_found_them() -> None:
    card = ".well-known/agent-card.json"
    app = listed(LOCAL, LOCAL + "agents/two/", PUBLIC)
    assert await entries(app) == [LOCAL + card, LOCAL + "agents/two/" + card, PUBLIC + card]
    there = "http://box.lan:9000/"
    assert await entries(app, "box.lan:9000") == [there + card, there + "agents/two/" + card, PUBLIC + card]
    assert await entries(app, "evil.com/path") == await entries(app)
