"""A server without authentication answers to local names only."""

import pytest

from accord.agents.echo import echo
from accord.server.application import to_a2a
from accord.testing import call
from tests.cases import each

CARD = "/.well-known/agent-card.json"


@each(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8000", 200),
        ("agents.localhost", 200),
        ("127.0.0.1:8000", 200),
        ("127.9.9.9", 200),
        ("[::1]:8000", 200),
        ("[::ffff:127.0.0.1]:8000", 200),
        ("LOCALHOST", 200),
        ("", 200),  # none is said: no browser
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("10.0.0.1", 421),
        ("[2001:db8::1]", 421),
        ("not a host", 421),
    ],
)
async def test_foreign_pages_cannot_read(host: str, status: int) -> None:
    app = to_a2a(echo)
    app.keep_local()
    async with app:
        assert (await call(app, method="GET", path=CARD, headers={"host": host})).status == status


@pytest.mark.parametrize(
    "settings",
    [
        {"auth": {"schemes": [{"type": "api-keys"}]}},
        {"server": {"url": "https://evil.example"}},
        {"server": {"url": "https://evil.example", "behind_proxy": True}},
    ],
)
async def test_a_server_that_is_meant_for_others_answers_to_its_names(settings: dict) -> None:
    app = to_a2a(echo, **settings)
    app.keep_local()
    async with app:
        assert (await call(app, method="GET", path=CARD, headers={"host": "evil.example"})).status == 200


PUBLIC = "https://pub.example"
PROXIED = [
    ({"host": "pub.example"}, 200),
    ({"host": "localhost:8000", "x-forwarded-host": "pub.example", "x-forwarded-proto": "https"}, 200),
    ({"host": "localhost:8000", "origin": PUBLIC}, 200),
    ({"host": "localhost:8000", "origin": f"{PUBLIC}:443", "x-forwarded-host": "pub.example"}, 200),
    ({"host": "evil.example"}, 421),
    ({"host": "evil.example", "x-forwarded-host": "localhost"}, 421),  # of a page whose name is bent to this machine
    ({"host": "evil.example", "x-forwarded-host": "pub.example"}, 421),
    ({"host": "localhost:8000", "x-forwarded-host": "evil.example"}, 421),  # of one whose name is bent to the proxy
    ({"host": "localhost:8000", "origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
    ({"host": "localhost:8000", "sec-fetch-site": "cross-site"}, 403),
    ({"host": "pub.example", "origin": "https://evil.example", "x-forwarded-proto": "https"}, 403),
    ({"host": "pub.example", "origin": "http://pub.example", "x-forwarded-proto": "https"}, 403),
]


@each(("headers", "status"), PROXIED)
async def test_an_open_server_behind_a_proxy_keeps_its_guards(headers: dict[str, str], status: int) -> None:
    app = to_a2a(echo, server={"behind_proxy": True, "url": PUBLIC, "trusted_proxies": ["*"]})
    app.keep_local()
    call_one = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
    json_type = {"content-type": "application/json", "a2a-version": "1.0"}
    async with app:
        assert (await call(app, call_one, headers=json_type | headers)).status == status


async def test_an_open_server_behind_a_proxy_without_a_url_is_local() -> None:
    app = to_a2a(echo, server={"behind_proxy": True})
    app.keep_local()
    async with app:
        for host, status in (("evil.example", 421), ("localhost:8000", 200)):
            assert (await call(app, method="GET", path=CARD, headers={"host": host})).status == status


async def test_a_mounted_application_is_called_by_any_name() -> None:
    async with to_a2a(echo) as app:
        assert (await call(app, method="GET", path=CARD, headers={"host": "evil.example"})).status == 200


OWN = {"host": "localhost:8000"}
PAGES = [
    ({}, True),  # a program
    ({"origin": "http://localhost:8000"}, True),
    ({"origin": "http://localhost:8000", "sec-fetch-site": "same-origin"}, True),
    ({"sec-fetch-site": "none"}, True),
    ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, False),
    ({"origin": "https://evil.example"}, False),
    ({"origin": "http://localhost:3000", "sec-fetch-site": "same-site"}, False),
    ({"origin": "null"}, False),
    ({"sec-fetch-site": "cross-site"}, False),
]


@each(("said", "passes"), PAGES)
async def test_foreign_pages_cannot_write(said: dict[str, str], passes: bool) -> None:
    app = to_a2a(echo)
    app.keep_local()
    call_one = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}
    json_type = {"content-type": "application/json", "a2a-version": "1.0"}
    async with app:
        for method, path in [("POST", "/tasks/x:cancel"), ("POST", "/v1/tasks/x:cancel"), ("DELETE", "/api/session")]:
            answer = await call(app, method=method, path=path, headers=OWN | said)
            assert (answer.status != 403) is passes, (method, path, answer.body)
        answer = await call(app, call_one, headers=OWN | json_type | said)
        assert (answer.status == 200) is passes
        assert (await call(app, method="GET", path=CARD, headers=OWN | said)).status == 200


async def test_mounted_applications_choose_allowed_origins() -> None:
    foreign = OWN | {"origin": "https://friends.example", "sec-fetch-site": "cross-site"}
    async with to_a2a(echo) as app:
        assert (await call(app, method="POST", path="/tasks/x:cancel", headers=foreign)).status == 404
