"""What is beside the agents: health, compression, HEAD, and what is answered while nothing runs."""

import asyncio
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accord.http import operator_endpoints
from accord.server.application import Application, to_a2a
from accord.storage.store import StoreUnavailable
from accord.testing import call, lifespan
from tests.crash.conftest import Postgres, running_postgres
from tests.databases import dropped
from tests.engine.conftest import postgres
from tests.server.conftest import CARD, HEADER, V1, echo, get, planner, rpc, said, send, serving, text_of

__all__ = ["postgres"]


class Failing:
    """A store that can be taken away."""

    def __init__(self, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        self._store = app.host.node.store
        self._monkeypatch = monkeypatch

    def goes(self, error: Exception | None) -> None:
        async def read(*_: Any, **__: Any) -> Any:
            if error is None:
                await asyncio.Event().wait()
            raise error or AssertionError

        self._monkeypatch.setattr(self._store, "read", read)


async def test_it_lives_and_is_ready() -> None:
    async with serving() as app:
        for path, checks in [("/healthz", {}), ("/readyz", {"store": "ok"})]:
            answer = await get(app, path)
            assert (answer.status, answer.json()) == (200, {"status": "ok", "checks": checks})
            assert answer.headers["cache-control"] == "no-store"
            head = await call(app, method="HEAD", path=path)
            assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(answer.body)))
            assert (await call(app, method="POST", path=path)).status == 405


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), None], ids=["gone", "silent"])
async def test_without_its_store_it_lives_and_is_not_ready(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_endpoints, "STORE_SECONDS", 0.05)
    async with serving() as app:
        Failing(app, monkeypatch).goes(error)
        answer = await get(app, "/readyz")
        assert (answer.status, answer.json()["checks"]) == (503, {"store": "unavailable"})
        assert (await get(app, "/healthz")).status == 200
        monkeypatch.undo()
        assert (await get(app, "/readyz")).status == 200


async def test_rewound_stores_are_ready_with_a_warning() -> None:
    async with serving() as app:
        app.host.node.losses.add_heartbeats(2, 5.0)
        answer = await get(app, "/readyz")
        assert (answer.status, answer.json()["status"]) == (200, "ok")
        assert "up to 15 s of changes are lost" in answer.json()["notes"]["store"]


@pytest.fixture
def mortal() -> Iterator[Postgres]:
    """A server to be killed; here, as it may take longer to start than a test has."""
    with running_postgres() as server:
        yield server


async def test_a_database_that_is_killed_and_comes_back(mortal: Postgres) -> None:
    """The real thing: PostgreSQL dies under the application, which is ready again when the database is."""
    url = await mortal.empty()
    async with serving(echo, store=url) as app:
        assert text_of(await send(app, "before")) == "before "
        await asyncio.to_thread(mortal.kill)
        assert (await get(app, "/readyz")).json()["checks"] == {"store": "unavailable"}
        assert (await get(app, "/healthz")).status == 200
        refused = await call(app, rpc("GetTask", id="x"), headers=V1)
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        await asyncio.to_thread(mortal.start)
        assert (await get(app, "/readyz")).status == 200
        assert text_of(await send(app, "after")) == "after "


async def test_health_needs_no_authentication() -> None:
    async with serving(auth={"schemes": [HEADER]}) as app:
        assert [(await get(app, path)).status for path in ("/healthz", "/readyz", CARD)] == [200, 200, 200]


@pytest.mark.proves("4-47")
@pytest.mark.parametrize(
    ("accepted", "unpack"),
    [("gzip", gzip.decompress), ("deflate", zlib.decompress), ("br, gzip;q=0.5", gzip.decompress)],
)
async def test_long_answers_are_compressed_if_accepted(accepted: str, unpack: Any) -> None:
    words = "word " * 1000
    async with serving() as app:
        plain = (await get(app, "/openapi.json")).body
        packed = await get(app, "/openapi.json", headers={"Accept-Encoding": accepted})
        assert packed.headers["content-encoding"] in accepted
        assert unpack(packed.body) == plain
        assert int(packed.headers["content-length"]) == len(packed.body) < len(plain)
        sent = await call(app, rpc("SendMessage", message=said(words)), headers=V1 | {"Accept-Encoding": accepted})
        assert b"word word" in unpack(sent.body)


@pytest.mark.proves("4-47")
async def test_requests_may_be_compressed_and_streams_are_not() -> None:
    async with serving() as app:
        body = gzip.compress(b'{"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "packed"}]}}')
        packed = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
        sent = await call(app, body, path="/message:send", headers=V1 | packed)
        assert text_of(sent.json()["task"]) == "packed "
        streamed = await call(app, body, path="/message:stream", headers=V1 | packed)
        assert "content-encoding" not in streamed.headers
        assert streamed.headers["content-type"] == "text/event-stream"


@pytest.mark.parametrize("path", [CARD, "/.well-known/ai-catalog.json", "/openapi.json", "/schemas", "/tasks"])
async def test_head_matches_get(path: str) -> None:
    async with serving(echo, planner) as app:
        for prefix in ("", "/agents/echo") if "catalog" not in path else ("",):
            got = await call(app, method="GET", path=prefix + path)
            head = await call(app, method="HEAD", path=prefix + path)
            assert (head.status, head.body) == (200, b"")
            dull = {"date"}
            assert {k: v for k, v in head.headers.items() if k not in dull} == {
                k: v for k, v in got.headers.items() if k not in dull
            }


async def test_the_endpoint_of_calls_takes_posts_alone() -> None:
    async with serving() as app:
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            answer = await call(app, method=method)
            assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.proves("CARD-CACHE-001", "CARD-CACHE-002", "CARD-CACHE-003", "3-01")
async def test_cards_can_be_cached_and_revalidated() -> None:
    async with serving() as app:
        for path in (CARD, "/.well-known/agent.json", f"/agents/echo{CARD}"):
            card = await get(app, path)
            assert card.headers["cache-control"] == "public, max-age=60"
            assert card.headers["last-modified"].endswith("GMT")
            again = await get(app, path, headers={"If-None-Match": card.headers["etag"]})
            assert (again.status, again.body) == (304, b"")


async def test_while_it_starts_it_lives_and_asks_for_patience(tmp_path: Path) -> None:
    held, reached = asyncio.Event(), asyncio.Event()
    app = to_a2a(echo)
    start = app.start

    async def slowly() -> None:
        reached.set()
        await held.wait()
        await start()

    app.start = slowly  # type: ignore[method-assign]
    work = asyncio.create_task(_served(app))
    await reached.wait()
    for path in ("/", "/agents/echo/", CARD, "/readyz"):
        answer = await get(app, path)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert (await get(app, "/healthz")).status == 200
    held.set()
    assert await work == 200


async def _served(app: Application) -> int:
    async with lifespan(app):
        return (await get(app, "/readyz")).status


@pytest.fixture(params=["sqlite", "postgres"])
async def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without tables."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new.db"
    return await dropped(request.getfixturevalue("postgres"))


async def test_an_empty_database_gets_its_tables(empty: str) -> None:
    await to_a2a(echo, store=empty).check()
    for turn in range(2):
        async with serving(store=empty) as app:
            assert text_of(await send(app, f"turn {turn}")) == f"turn {turn} "
