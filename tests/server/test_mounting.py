"""Mounted in somebody else's application: Starlette or FastAPI, started by the first request or by its lifespan."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from accord import Context, agent
from accord.http.asgi import App
from accord.server.application import Application, to_a2a
from accord.server.composition import Composition
from accord.testing import call, lifespan, stream
from tests.server.conftest import V1, card_at, echo, get, planner, rpc, said, send, text_of, urls

Host = Callable[..., App]


def starlette(mounted: Application, *, with_lifespan: bool = False) -> App:
    async def home(request: Request) -> PlainTextResponse:
        return PlainTextResponse("home")

    routes = [Route("/", home), Mount("/services/a2a", mounted)]
    return Starlette(routes=routes, lifespan=mounted.lifespan if with_lifespan else None)


def fastapi(mounted: Application, *, with_lifespan: bool = False) -> App:
    app = FastAPI(lifespan=mounted.lifespan if with_lifespan else None)

    @app.get("/")
    async def home() -> str:
        return "home"

    app.mount("/services/a2a", mounted)
    return app


both = pytest.mark.parametrize("host", [starlette, fastapi])


@pytest.fixture
async def mounted(tmp_path: Path) -> AsyncIterator[Application]:
    """Two agents that are stopped in the end, as their host would."""
    app = to_a2a(echo, planner, store=f"sqlite:///{tmp_path}/tasks.db")
    yield app
    await app.stop()


@both
async def test_the_first_request_starts_it_and_cards_point_below_the_mount(host: Host, mounted: Application) -> None:
    app = host(mounted)
    async with lifespan(app):
        with pytest.raises(RuntimeError, match="not been started"):
            _ = mounted.host
        assert (await get(app, "/")).status == 200
        base = "http://accord.example/services/a2a"
        for path in ("", "/agents/trip-planner"):
            assert urls(await card_at(app, f"/services/a2a{path}")) == [f"{base}{path}/", f"{base}{path}"]
        assert mounted.host is not None
        assert (await get(app, "/services/a2a/openapi.json")).json()["servers"] == [{"url": "/services/a2a"}]
        listed = (await get(app, "/services/a2a/.well-known/ai-catalog.json")).json()["entries"]
        assert [entry["url"] for entry in listed] == [
            f"{base}/agents/{name}/.well-known/agent-card.json" for name in ("echo", "trip-planner")
        ]


@both
async def test_every_binding_works_below_the_mount(host: Host, mounted: Application) -> None:
    app = host(mounted)
    async with lifespan(app):
        for prefix in ("/services/a2a", "/services/a2a/agents/echo"):
            assert text_of(await send(app, "to rome", f"{prefix}/")) == "to rome "
            rest = await call(app, {"message": said("x", prefix)}, path=f"{prefix}/message:send", headers=V1)
            assert text_of(rest.json()["task"]) == "x "
            got = await get(app, f"{prefix}/tasks/{rest.json()['task']['id']}")
            assert got.json()["status"]["state"] == "TASK_STATE_COMPLETED"
            vault = await call(app, rpc("tasks/get", id="none"), path=f"{prefix}/a2a/")
            assert vault.headers["x-a2a-dialect"] == "vault"
        assert (await get(app, "/services/a2a/healthz")).status == 200
        assert (await get(app, "/services/a2a/readyz")).json()["checks"] == {"store": "ok"}


@both
@pytest.mark.proves("4-48")
async def test_a_stream_passes_through_the_host_as_it_comes(host: Host, mounted: Application) -> None:
    go = asyncio.Event()

    @agent
    async def halting(ctx: Context) -> AsyncIterator[str]:
        yield "first "
        await go.wait()
        yield "last"

    inner = to_a2a(halting)
    app = host(inner)
    async with lifespan(app), inner:
        send = rpc("SendStreamingMessage", message=said("x"))
        async with stream(app, send, path="/services/a2a/", headers=V1) as answer:
            async for event in answer.events():
                if b"first" in event.data:
                    go.set()  # so the first word was here before the last was said
            assert b"last" in answer.body


@both
async def test_the_host_s_lifespan_starts_and_stops_it(host: Host, mounted: Application) -> None:
    app = host(mounted, with_lifespan=True)
    seen = set()
    for _ in range(2):  # the same application can be started again
        async with lifespan(app):
            engine = mounted.host.node
            seen.add((await send(app, "once", "/services/a2a/"))["id"])
            assert engine.slots.room("Echo") > 0
        assert engine.slots.room("Echo") == 0
        with pytest.raises(RuntimeError, match="not been started"):
            _ = mounted.host
    assert len(seen) == 1, "the same message, and so the same task of the same store"


async def test_late_requests_do_not_restart_a_stopped_application(mounted: Application) -> None:
    async with mounted.lifespan():
        assert (await get(mounted, "/readyz")).status == 200
    late = await get(mounted, "/readyz")
    assert (late.status, late.headers["retry-after"]) == (503, "1")
    assert (await get(mounted, "/healthz")).status == 200
    with pytest.raises(RuntimeError, match="not been started"):
        _ = mounted.host


async def test_requests_that_come_together_start_it_once(mounted: Application) -> None:
    answers = await asyncio.gather(*(get(mounted, "/readyz") for _ in range(20)))
    assert {answer.status for answer in answers} == {200}
    async with mounted:  # that it runs already is fine
        assert (await get(mounted, "/readyz")).status == 200


async def test_a_start_that_fails_is_503_and_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "later"
    app = to_a2a(echo, store=f"sqlite:///{folder}/tasks.db")
    assert (await get(app, "/readyz")).status == 503
    assert [record.message for record in caplog.records] == ["server.not_started"]
    folder.mkdir()
    assert (await get(app, "/readyz")).status == 200
    await app.stop()


async def test_a_request_that_is_given_up_does_not_leave_it_half_started(mounted: Application) -> None:
    first = asyncio.create_task(get(mounted, "/readyz"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert (await get(mounted, "/readyz")).status == 200


async def test_background_work_outlives_its_request(mounted: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all that the engine does would for ever be part of the first caller's trace."""
    trace: ContextVar[str] = ContextVar("trace", default="none")
    run, seen = Composition.run, []

    async def noting(self: Composition, stack: Any, grace: Any) -> Any:
        seen.append(trace.get())
        return await run(self, stack, grace)

    monkeypatch.setattr(Composition, "run", noting)
    trace.set("the first caller's")
    assert (await get(mounted, "/readyz")).status == 200
    assert seen == ["none"]


@pytest.mark.parametrize("root", ["/api", "/api/v2"])
async def test_stripped_prefixes_are_configured(root: str, mounted: Application) -> None:
    inner = Starlette(routes=[Mount("/a2a", mounted)])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        """As FastAPI did for a `root_path` of its own: it states the prefix, which is not in the path."""
        await inner({**scope, "root_path": root}, receive, send)

    async with lifespan(app):
        for path in ("/a2a", "/a2a/agents/echo"):
            base = f"http://accord.example{root}{path}"
            assert urls(await card_at(app, path)) == [f"{base}/", base]
            answer = await call(app, rpc("GetTask", id="none"), path=f"{path}/")
            assert answer.headers["x-a2a-dialect"] == "v1"  # not that of our own mount /a2a
            assert (await get(app, f"{path}/tasks/none")).status == 404
            assert (await get(app, f"{path}/openapi.json")).json()["servers"] == [{"url": f"{root}{path}"}]


async def test_a_timeout_of_the_host_is_the_host_s(mounted: Application) -> None:
    """A request that whoever mounts us gives up is not answered by us as if it had ended."""
    reached = asyncio.Event()

    @agent
    async def stuck() -> None:
        reached.set()
        await asyncio.Event().wait()

    inner = to_a2a(stuck)
    outcomes: list[str] = []

    async def impatient(scope: Any, receive: Any, send: Any) -> None:
        request = asyncio.create_task(inner(scope, receive, send))
        await reached.wait()
        request.cancel()
        try:
            await request
        except asyncio.CancelledError:
            outcomes.append("cancelled")
        await send({"type": "http.response.start", "status": 504, "headers": []})
        await send({"type": "http.response.body"})

    async with inner:
        assert (await call(impatient, rpc("SendMessage", message=said("x")), headers=V1)).status == 504
    assert outcomes == ["cancelled"]


async def test_a_websocket_is_turned_away(mounted: Application) -> None:
    sent: list[Any] = []

    async def keep(message: Any) -> None:
        sent.append(message)

    async def connect() -> Any:
        return {"type": "websocket.connect"}

    scope = {"type": "websocket", "path": "/services/a2a/", "root_path": "", "headers": [], "query_string": b""}
    await starlette(mounted)(scope, connect, keep)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_settings_are_checked_and_named() -> None:
    with pytest.raises(ValueError, match=r"^to_a2a: unknown setting servr; did you mean server\?$"):
        to_a2a(echo, servr={})
    with pytest.raises(TypeError):
        to_a2a()  # type: ignore[call-arg]


async def test_impossible_settings_are_reported_at_start() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"auth": {"default_role": "boss"}}, r"^auth: There is no role 'boss'"),
        ({"card": {"signing_key": "/nowhere/key.json"}}, r"^card\.signing_key: It must be a JSON Web Key"),
        ({"card": {"signing_key": '{"kty": "oct"}'}}, r"^card\.signing_key: The key to sign cards with is no"),
        ({"auth": {"schemes": [{"type": "header", "name": "", "secrets": []}]}}, r"^auth: A header"),
    ]
    for settings, reason in refused:
        app = to_a2a(echo, **settings)
        with pytest.raises(ValueError, match=reason):
            await app.start()
        with pytest.raises(RuntimeError, match=rf"startup\.failed: {reason[1:]}"):
            async with lifespan(app):
                pass
