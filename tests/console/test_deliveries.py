"""Webhooks, the audit log and settings as pages ask for them: how deliveries go, and who may see that."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from accord.server.application import Application, to_a2a
from accord.testing import Response, call, lifespan
from tests.engine.doubles import until
from tests.registry.conftest import SCHEMES, SECRETS
from tests.server.conftest import echo

PORT_OF_NOBODY = "http://127.0.0.1:9/hook"
V1 = {"A2A-Version": "1.0"}


async def ask(app: Application, method: str, path: str, body: Any = None, *, by: str = "", query: str = "") -> Response:
    known = {"X-Secret": SECRETS[by]} if by else {}
    headers = {"Host": "localhost:8000", "Content-Type": "application/json"} | known
    data = b"" if body is None else json.dumps(body).encode()
    return await call(app, data, method=method, path=path, query=query, headers=headers)


async def hooked(app: Application, by: str, word: str = "hello") -> str:
    """Begin a task with a webhook that nobody answers, whose address and token are secrets."""
    hook = {"url": f"{PORT_OF_NOBODY}?key=hush-hush", "id": "w/1", "token": "a-token-of-theirs"}
    params = {
        "message": {"messageId": word, "role": "ROLE_USER", "parts": [{"text": word}]},
        "configuration": {"taskPushNotificationConfig": hook},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    known = V1 | {"X-Secret": SECRETS[by], "Host": "localhost:8000"}
    answer = await call(app, json.dumps(body).encode(), headers=known)
    task_id: str = answer.json()["result"]["task"]["id"]
    return task_id


@pytest.fixture
async def app() -> AsyncIterator[Application]:
    served = to_a2a(echo, auth={"schemes": SCHEMES}, push={"allow_private": True})
    async with lifespan(served):
        yield served


async def tried(app: Application, task_id: str, by: str = "alice") -> dict[str, Any]:
    """Wait until a webhook was called, and return what is shown of it."""
    found: dict[str, Any] = {}

    async def has_been() -> bool:
        answer = await ask(app, "GET", f"/api/deliveries/{task_id}/w/1", by=by)
        assert answer.status == 200, answer.body
        found.update(answer.json())
        return bool(found["history"])

    await until(has_been)
    return found


async def test_a_webhook_is_shown_with_its_attempts_and_without_secrets(app: Application) -> None:
    task_id = await hooked(app, "alice")
    shown = await tried(app, task_id)
    assert (shown["id"], shown["state"], shown["url"]) == (f"{task_id}/w/1", "retrying", PORT_OF_NOBODY)
    assert shown["nextAt"] > shown["lastAt"]
    newest = shown["history"][0]
    assert (newest["status"], newest["response"]["body"]) == (None, "")
    assert newest["error"]
    assert json.loads(newest["request"]["body"])["statusUpdate"]["taskId"] == task_id
    assert newest["request"]["headers"]["Authorization"] == "***"
    listed = (await ask(app, "GET", "/api/deliveries", by="alice", query="state=retrying")).json()
    assert [one["id"] for one in listed["items"]] == [shown["id"]]
    assert listed["next"] is None
    for secret in ("a-token-of-theirs", "hush-hush"):
        assert secret not in json.dumps([shown, listed])


async def test_webhooks_are_visible_to_owner_and_operators(app: Application) -> None:
    task_id = await hooked(app, "alice")
    await tried(app, task_id)
    for by in ("bob", "carol", "rita"):
        assert (await ask(app, "GET", "/api/deliveries", by=by)).json()["items"] == []
        assert (await ask(app, "GET", f"/api/deliveries/{task_id}/w/1", by=by)).status == 404
        again = await ask(app, "POST", "/api/deliveries/redeliver", {"ids": [f"{task_id}/w/1"]}, by=by)
        assert (again.status, again.json()) == (200, {"count": 0})
    assert (await tried(app, task_id, by="dora"))["taskId"] == task_id
    again = await ask(app, "POST", "/api/deliveries/redeliver", {"ids": [f"{task_id}/w/1"]}, by="dora")
    assert again.json() == {"count": 1}
    assert (await ask(app, "GET", "/api/deliveries")).status == 401


async def test_pages_and_bad_parameters(app: Application) -> None:
    ids = [await hooked(app, "alice", word) for word in ("one", "two", "three")]
    found: list[str] = []
    page: str | None = ""
    for size in (2, 1):
        answer = (await ask(app, "GET", "/api/deliveries", by="alice", query=f"limit=2&page={page}")).json()
        assert len(answer["items"]) == size
        found += [one["taskId"] for one in answer["items"]]
        page = answer["next"]
    assert (found, page) == (ids[::-1], None)
    for query in ("state=lost", "limit=0", "limit=1000", "page=x", "page=%5B%5D"):
        assert (await ask(app, "GET", "/api/deliveries", by="alice", query=query)).status == 422, query
    for body in ({"ids": "x"}, {"all": True}, {"ids": ["x"] * 501}):
        assert (await ask(app, "POST", "/api/deliveries/redeliver", body, by="alice")).status == 422


async def test_the_audit_log_needs_full_visibility(app: Application) -> None:
    await hooked(app, "alice")

    async def noted() -> bool:
        answer = await ask(app, "GET", "/api/audit", by="dora", query="owner=alice&operation=SendMessage")
        assert answer.status == 200, answer.body
        return [(one["owner"], one["outcome"]) for one in answer.json()["items"]] == [("alice", "ok")]

    await until(noted)
    for by in ("alice", "rita"):
        assert (await ask(app, "GET", "/api/audit", by=by)).status == 403
        assert (await ask(app, "GET", "/api/settings", by=by)).status == 403


async def test_settings_need_a_server_wide_role(app: Application) -> None:
    for query in ("", "tenant=acme"):
        assert (await ask(app, "GET", "/api/settings", by="dora", query=query)).status == 403
    assert (await ask(app, "GET", "/api/settings", by="otto")).status == 200


async def test_settings_are_shown_without_secrets(app: Application) -> None:
    answer = await ask(app, "GET", "/api/settings", by="otto")
    assert answer.status == 200
    shown = answer.json()
    assert shown["push"]["allow_private"] is True
    for secret in SECRETS.values():
        assert secret not in answer.body.decode()
