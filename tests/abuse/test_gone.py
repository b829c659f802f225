"""Callers who leave before they are answered: nobody goes on waiting in their place.

A message to a task that goes on is answered when the task rests, which may be never. Whoever sends such messages and
hangs up, again and again, must not leave something behind in the server each time.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from accord.http import asgi
from accord.server.application import Application, to_a2a
from accord.testing.asgi import call, lifespan
from tests.abuse.agents import victim
from tests.engine.doubles import rows, until

BOUND_SECONDS = 60.0


@pytest.fixture
async def app(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Application]:
    monkeypatch.setattr(asgi, "DISCONNECT_SECONDS", 0.01)
    found = to_a2a(victim, audit="all", server={"grace_seconds": 0})
    async with lifespan(found), asyncio.timeout(BOUND_SECONDS):
        yield found


class Visit:
    """A request over a connection that can be closed before there is an answer."""

    def __init__(self, path: str, body: Any) -> None:
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"a2a-version", b"1.0")],
        }
        self.leaves = asyncio.Event()
        self.reads = asyncio.Event()
        self.sent: list[Any] = []
        self._body: bytes | None = json.dumps(body).encode()

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        self.reads.set()
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


def saying(text: str, **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}], **more}}


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


VISITS = {
    "JSON-RPC": ("/", rpc("SendMessage", saying("wait"))),
    "a batch": ("/", [rpc("SendMessage", saying("wait")), rpc("SendMessage", saying("wait on"))]),
    "REST": ("/message:send", saying("wait")),
}


@pytest.mark.parametrize("name", VISITS)
async def test_disconnected_clients_are_not_waited_for(app: Application, name: str) -> None:
    visit = Visit(*VISITS[name])
    answering = asyncio.ensure_future(app(visit.scope, visit.receive, visit.send))
    await visit.reads.wait()
    assert not answering.done()
    visit.leaves.set()
    await answering
    assert visit.sent == []
    store = app.host.node.store

    async def is_noted() -> bool:
        return ("ABANDONED",) in await rows(store, "audit", "outcome")

    await until(is_noted)
    assert [state for (state,) in await rows(store, "task", "state")] == ["working"], "the task goes on"


async def test_connected_clients_are_answered_after_any_time(app: Application) -> None:
    visit = Visit("/", rpc("SendMessage", saying("wait")))
    answering = asyncio.ensure_future(app(visit.scope, visit.receive, visit.send))
    await visit.reads.wait()
    ((task_id,),) = await rows(app.host.node.store, "task", "id")
    canceled = await call(app, rpc("CancelTask", {"id": task_id}))
    assert canceled.json()["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    await answering
    assert visit.sent[0]["status"] == 200
    assert b"TASK_STATE_CANCELED" in visit.sent[1]["body"]
    assert not visit.leaves.is_set()


async def test_foreign_cancellation_is_not_a_disconnect(app: Application) -> None:
    visit = Visit("/", rpc("SendMessage", saying("wait")))
    answering = asyncio.ensure_future(asgi.await_unless_gone(visit.receive, asyncio.Event().wait()))
    await asyncio.sleep(0)
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering
