"""Pages of other origins: whatever a browser brings along by itself, they get nothing done and read nothing."""

import json
from collections.abc import AsyncIterator

import pytest

from accord.auth.authentication import Presented
from accord.http.cross_origin import is_origin_of_host
from accord.server.application import Application
from accord.testing import call
from tests.cases import each
from tests.console.browsers import HOST, Browser
from tests.server.conftest import HEADER, SECRET, echo, serving

FOREIGN = (
    "https://evil.example",
    "null",
    "http://localhost:9999",
    "http://localhost.evil.example:8000",
    "http://127.0.0.1:8000",
    "http://[",
)


@pytest.fixture
async def app() -> AsyncIterator[Application]:
    """A server where people sign in."""
    async with serving(echo, auth={"schemes": [HEADER]}) as application:
        yield application


@pytest.fixture
async def open_app() -> AsyncIterator[Application]:
    """A server that asks nobody, as on somebody's own machine."""
    async with serving(echo) as application:
        application.keep_local()
        yield application


async def signed_in(app: Application) -> Browser:
    browser = Browser(app)
    assert (await browser.sign_in(apiKey=SECRET)).status == 200
    return browser


@pytest.mark.parametrize("origin", FOREIGN)
async def test_foreign_pages_cannot_change_anything(app: Application, origin: str) -> None:
    browser = await signed_in(app)
    task = (await browser("POST", "/api/tasks", {"agent": "echo", "text": "x"})).json()["id"]
    browser.page = origin
    for method, path, body in (
        ("POST", "/api/tasks", {"agent": "echo", "text": "y"}),
        ("POST", f"/api/tasks/{task}/cancel", None),
        ("POST", "/api/session", {"apiKey": SECRET}),
        ("DELETE", "/api/session", None),
        ("POST", "/api/v1/agent-cards/", {"card_data": {}}),
        ("POST", "/api/v1/developers/me/apikeys", {}),
    ):
        assert (await browser(method, path, body)).status == 403, path
    browser.page = f"http://{HOST}"
    assert await browser.who() == "alice"
    assert len((await browser("GET", "/api/tasks")).json()["items"]) == 1


async def test_a_cookie_without_a_page_is_not_enough_to_change_something(app: Application) -> None:
    browser = await signed_in(app)
    browser.page = None
    assert (await browser("POST", "/api/tasks", {"agent": "echo", "text": "y"})).status == 403
    assert (await browser("DELETE", "/api/session")).status == 403
    body = {"agent": "echo", "text": "y"}
    assert (await browser("POST", "/api/tasks", body, **{"Sec-Fetch-Site": "same-origin"})).status == 201
    assert (await browser("POST", "/api/tasks", body, **{"Sec-Fetch-Site": "same-site"})).status == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
async def test_form_posts_are_refused(app: Application, kind: str) -> None:
    browser = await signed_in(app)
    answer = await browser("POST", "/api/tasks", {"agent": "echo", "text": "y"}, **{"Content-Type": kind})
    assert answer.status == 400
    assert (await browser("GET", "/api/tasks")).json()["items"] == []


async def test_a_program_with_a_key_needs_no_page(app: Application) -> None:
    body = json.dumps({"agent": "echo", "text": "y"}).encode()
    answer = await call(app, body, path="/api/tasks", headers={"Host": HOST, "X-Secret": SECRET})
    assert answer.status == 201, answer.body


@pytest.mark.parametrize("origin", FOREIGN)
async def test_a_foreign_page_does_not_drive_an_open_server(open_app: Application, origin: str) -> None:
    browser = Browser(open_app)
    browser.page = origin
    for method, path, body in (
        ("POST", "/api/tasks", {"agent": "echo", "text": "y"}),
        ("POST", "/api/chat", {"id": "c"}),
        ("POST", "/api/inspect", {}),
        ("GET", "/api/events", None),
        ("GET", "/api/tasks", None),
        ("GET", "/api/chat/c/stream", None),
    ):
        answer = await browser(method, path, body)
        assert answer.status == 403, path
        assert "access-control-allow-origin" not in answer.headers
    browser.page = f"http://{HOST}"
    assert (await browser("GET", "/api/tasks")).json()["items"] == []


async def test_images_and_scripts_of_foreign_pages_get_nothing_either(open_app: Application) -> None:
    browser = Browser(open_app)
    browser.page = None
    told = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert (await browser("GET", "/api/tasks", **told)).status == 403
    assert (await browser("GET", "/api/tasks", **told | {"Sec-Fetch-Mode": "navigate"})).status == 200


async def test_a_name_that_was_bent_to_this_machine_is_not_answered(open_app: Application) -> None:
    """DNS rebinding: the page is of the same origin as its requests, but its host is not ours."""
    browser = Browser(open_app, host="evil.example:8000")
    for path in ("/api/tasks", "/api/session", "/console/", "/"):
        assert (await browser("GET", path)).status == 421
    assert (await browser("POST", "/api/tasks", {"agent": "echo", "text": "y"})).status == 421


async def test_published_data_is_readable_cross_origin(app: Application) -> None:
    browser = Browser(app)
    browser.page = "https://elsewhere.example"
    answer = await browser("GET", "/api/v1/agent-cards/")
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
    assert (await browser("GET", "/api/session")).status == 403


@each(
    ("origin", "host", "secure", "own"),
    [
        ("http://localhost:8000", "localhost:8000", False, True),
        ("http://LOCALHOST:8000", "localhost:8000", False, True),
        ("http://accord.example", "accord.example:80", False, True),
        ("https://accord.example", "accord.example", True, True),
        ("https://accord.example:443", "accord.example", True, True),
        ("https://accord.example", "accord.example", False, True),  # a proxy that ends TLS and does not say so
        ("http://accord.example", "accord.example", True, False),
        ("https://accord.example:8443", "accord.example", True, False),
        ("https://accord.example.evil", "accord.example", True, False),
        ("https://evil@accord.example", "accord.example", True, False),
        ("null", "accord.example", True, False),
        ("", "accord.example", True, False),
        ("file://", "", False, False),
        ("https://", "", False, False),
        ("http://[", "accord.example", False, False),
        ("http://accord.example:x", "accord.example:x", False, False),
    ],
)
def test_which_origin_is_our_own(origin: str, host: str, secure: bool, own: bool) -> None:
    presented = Presented(headers=[(b"host", host.encode())], secure=secure)
    assert is_origin_of_host(origin, presented) is own
