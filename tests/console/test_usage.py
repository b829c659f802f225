"""What callers store, as the console shows it, and the refusal of what is more than their quota."""

import json
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from accord.console import administration
from accord.server.application import Application, to_a2a
from accord.testing import Response, call, lifespan
from tests.console.test_deliveries import V1, ask
from tests.registry.conftest import SCHEMES, SECRETS
from tests.server.conftest import echo


@pytest.fixture
async def app() -> AsyncIterator[Application]:
    limits = {"owner_tasks": 2, "tenant_bytes": 10**6}
    async with lifespan(served := to_a2a(echo, auth={"schemes": SCHEMES}, limits=limits)):
        yield served


async def send(app: Application, by: str) -> Response:
    params = {"message": {"messageId": uuid4().hex, "role": "ROLE_USER", "parts": [{"text": "hello"}]}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    return await call(app, json.dumps(body).encode(), headers=V1 | {"X-Secret": SECRETS[by], "Host": "localhost:8000"})


async def test_callers_see_their_storage_and_quota(app: Application) -> None:
    assert [(await send(app, "alice")).status for _ in range(2)] == [200, 200]
    refused = await send(app, "alice")
    assert refused.status == 429
    error = refused.json()["error"]
    assert "You may store 2 tasks" in error["message"]
    assert error["data"][0]["reason"] == "STORAGE_QUOTA_EXCEEDED"
    shown = (await ask(app, "GET", "/api/usage", by="alice")).json()
    assert (shown["owner"]["tasks"], shown["owner"]["maxTasks"], shown["owner"]["maxBytes"]) == (2, 2, None)
    assert shown["owner"]["bytes"] > 0
    assert (shown["tenant"], shown["owners"]) == (None, None)


async def test_operators_see_storage_per_owner(app: Application) -> None:
    assert (await send(app, "alice")).status == 200
    shown = (await ask(app, "GET", "/api/usage", by="dora")).json()
    assert (shown["owner"]["tasks"], shown["tenant"]["tasks"], shown["tenant"]["maxBytes"]) == (0, 1, 10**6)
    assert [(one["tenant"], one["owner"], one["tasks"]) for one in shown["owners"]] == [("acme", "alice", 1)]
    assert shown["owners"][0]["bytes"] == shown["tenant"]["bytes"]


async def test_a_sum_that_takes_long_is_not_read_for_every_look(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, "IDLE_FACTOR", 10**9)
    before = (await ask(app, "GET", "/api/usage", by="alice")).json()
    assert (await send(app, "alice")).status == 200
    assert (await ask(app, "GET", "/api/usage", by="alice")).json() == before
    assert (await ask(app, "GET", "/api/usage", by="dora")).json()["tenant"]["tasks"] == 1
