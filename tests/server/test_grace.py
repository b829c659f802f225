"""The grace of a server that stops is one deadline: what requests have used of it is not left to what runs."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from accord import agent, to_a2a
from accord.http.asgi import RESPONSE_KEY
from accord.server.grace_period import GracePeriod
from accord.testing.asgi import call, lifespan
from tests.server.conftest import serving

HOUR = 3600.0
"""Longer than any test may take: whoever waited for it a second time would not be done within the bound."""

BOUND_SECONDS = 60

SEND = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}},
}

Passing = Callable[[float], None]


@pytest.fixture
async def passing(monkeypatch: pytest.MonkeyPatch) -> Passing:
    """Let time pass on the clock of the loop."""
    loop = asyncio.get_running_loop()
    time, gone = loop.time, 0.0

    def passes(seconds: float) -> None:
        nonlocal gone
        gone += seconds

    monkeypatch.setattr(loop, "time", lambda: time() + gone)
    return passes


async def test_the_grace_period_is_shared_by_requests_and_executions(passing: Passing) -> None:
    begun = asyncio.Event()

    @agent
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    app = to_a2a(endless, server={"grace_seconds": HOUR})
    async with lifespan(app, bound=BOUND_SECONDS):
        waiting = asyncio.create_task(call(app, SEND, headers={"A2A-Version": "1.0"}, bound=2 * HOUR))
        await begun.wait()
        app.finish()
        passing(HOUR)
        async with asyncio.timeout(BOUND_SECONDS):
            answer = await waiting
        assert app.is_over
    assert answer.json()["result"]["task"]["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")


async def test_the_grace_period_starts_once(passing: Passing) -> None:
    told = asyncio.Event()
    grace = GracePeriod(HOUR)
    grace.at_end.append(told.set)
    assert grace.left() == HOUR
    grace.begin()
    passing(HOUR / 4)
    grace.begin()
    assert grace.left() <= HOUR * 3 / 4
    assert not grace.is_over
    passing(HOUR)
    async with asyncio.timeout(BOUND_SECONDS):
        await told.wait()
    assert (grace.left(), grace.is_over) == (0.0, True)


async def test_finished_requests_release_their_connection() -> None:
    async def send(_: object) -> None:
        pass

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async with serving() as app:
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/healthz",
            "query_string": b"",
            "headers": [],
        }
        await app(scope, receive, send)
        assert RESPONSE_KEY not in scope, "the scope is the connection's, and so would be what it has sent with"
