"""The optional parts of A2A: what the card says about them is what happens, over every binding."""

from typing import Any

import pytest

from accord import agent
from accord.http.asgi import App
from accord.testing import Response, call
from tests.server.conftest import V1, card_at, echo, get, planner, rpc, said, send, serving

ALL = ["streaming", "push", "extended-card"]
HOOK = {"url": "https://hooks.example/a2a", "token": "t"}

PARTS = {"streaming": "streaming", "push": "pushNotifications", "extended-card": "extendedAgentCard"}
"""What the settings call a part -> what the card does."""

REFUSED = {
    "streaming": ("UNSUPPORTED_OPERATION", -32004, 400),
    "push": ("PUSH_NOTIFICATION_NOT_SUPPORTED", -32003, 400),
    "extended-card": ("UNSUPPORTED_OPERATION", -32004, 400),
}


async def over_rpc(app: App, part: str, task: str) -> list[Response]:
    """Everything that needs a part, over JSON-RPC."""
    calls = {
        "streaming": [rpc("SendStreamingMessage", message=said("x", "s")), rpc("SubscribeToTask", id=task)],
        "push": [
            rpc("CreateTaskPushNotificationConfig", taskId=task, id="c", **HOOK),
            rpc("GetTaskPushNotificationConfig", taskId=task, id="c"),
            rpc("ListTaskPushNotificationConfigs", taskId=task),
            rpc("DeleteTaskPushNotificationConfig", taskId=task, id="c"),
            rpc("SendMessage", message=said("x", "p"), configuration={"taskPushNotificationConfig": HOOK}),
        ],
        "extended-card": [rpc("GetExtendedAgentCard")],
    }
    return [await call(app, body, headers=V1) for body in calls[part]]


async def over_rest(app: App, part: str, task: str) -> list[Response]:
    """The same over HTTP+JSON."""
    configs = f"/tasks/{task}/pushNotificationConfigs"
    calls: dict[str, list[tuple[str, str, Any]]] = {
        "streaming": [
            ("POST", "/message:stream", {"message": said("x", "rs")}),
            ("GET", f"/tasks/{task}:subscribe", b""),
        ],
        "push": [
            ("POST", configs, {"id": "c", **HOOK}),
            ("GET", f"{configs}/c", b""),
            ("GET", configs, b""),
            ("DELETE", f"{configs}/c", b""),
            (
                "POST",
                "/message:send",
                {"message": said("x", "rp"), "configuration": {"taskPushNotificationConfig": HOOK}},
            ),
        ],
        "extended-card": [("GET", "/extendedAgentCard", b"")],
    }
    found = []
    for method, path, body in calls[part]:
        found.append(await call(app, body, method=method, path=path, headers=V1 if body else V1 | {"Content-Type": ""}))
    return found


def reason_of(body: dict[str, Any]) -> str:
    """The machine's word for an error, over JSON-RPC or HTTP+JSON."""
    error = body["error"]
    infos = error.get("data") or error["details"]
    return next(str(info["reason"]) for info in infos if "reason" in info)


@pytest.mark.proves("3-02", "CORE-CAP-001", "CORE-CAP-002", "CORE-CAP-003", "CARD-PROTO-001", "BIND-EQUIV-003")
@pytest.mark.parametrize(
    "chosen", [[], ["streaming"], ["push"], ["extended-card"], ["streaming", "push"], ALL], ids=str
)
async def test_disabled_capabilities_are_refused(chosen: list[str]) -> None:
    async with serving(server={"capabilities": chosen}) as app:
        for path in ("", "/agents/echo"):
            stated = (await card_at(app, path))["capabilities"]
            assert {part: stated.get(name, False) for part, name in PARTS.items()} == {
                part: part in chosen for part in PARTS
            }
        task = (await send(app, "hello"))["id"]
        for part in PARTS:
            if part in chosen:
                continue
            reason, code, status = REFUSED[part]
            for answer in await over_rpc(app, part, task):
                assert answer.status == 200
                assert (answer.json()["error"]["code"], reason_of(answer.json())) == (code, reason)
            for answer in await over_rest(app, part, task):
                assert (answer.status, reason_of(answer.json())) == (status, reason)


@pytest.mark.proves("3-05", "CARD-EXT-002")
async def test_declared_capabilities_work() -> None:
    async with serving(server={"capabilities": ALL}) as app:
        task = (await send(app, "hello"))["id"]
        for answers in (
            [await over_rpc(app, part, task) for part in ALL],
            [await over_rest(app, part, task) for part in ALL],
        ):
            (streamed, subscribed), pushes, (card,) = answers
            assert streamed.headers["content-type"] == "text/event-stream"
            assert reason_of(subscribed.json()) == "UNSUPPORTED_OPERATION"  # the task has ended
            assert [answer.status for answer in (*pushes, card)] == [200] * 6
            assert not [answer for answer in (*pushes, card) if "error" in answer.json()]


async def test_capabilities_default_to_the_agent_s() -> None:
    async with serving(echo, planner) as app:
        for path, has_extended in [("", False), ("/agents/echo", False), ("/agents/trip-planner", True)]:
            stated = (await card_at(app, path))["capabilities"]
            assert (stated["streaming"], stated["pushNotifications"]) == (True, True)
            assert stated.get("extendedAgentCard", False) is has_extended
            assert (await get(app, f"{path}/extendedAgentCard")).status == (200 if has_extended else 400)


async def test_capabilities_are_equal_in_all_dialects() -> None:
    async with serving(server={"capabilities": []}) as app:
        v03 = (await get(app, "/.well-known/agent-card.json", query="dialect=v03")).json()
        assert not v03["capabilities"].get("streaming")
        assert not v03["capabilities"].get("pushNotifications")
        calls: list[tuple[str, str, dict[str, Any]]] = [
            ("v03", "message/stream", {"message": {"kind": "message", "messageId": "v", "role": "user", "parts": []}}),
            ("v03", "tasks/resubscribe", {"id": "x"}),
            ("vault", "tasks/sendSubscribe", {"id": "x"}),
        ]
        for dialect, method, params in calls:
            answer = await call(app, rpc(method, **params), headers={"X-A2A-Dialect": dialect})
            assert answer.headers["content-type"] == "application/json"
            assert "error" in answer.json()


async def test_message_only_agents_do_not_stream_when_off() -> None:
    @agent(answers_message=True)
    def quick() -> str:
        return "at once"

    async with serving(quick, server={"capabilities": []}) as app:
        answer = await call(app, rpc("SendMessage", message=said("x")), headers=V1)
        assert answer.json()["result"]["message"]["parts"] == [{"text": "at once"}]
        refused = await call(app, rpc("SendStreamingMessage", message=said("x")), headers=V1)
        assert reason_of(refused.json()) == "UNSUPPORTED_OPERATION"
