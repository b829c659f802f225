"""JSON-RPC over HTTP, end to end in process: every dialect, streams, batches, and bad input with its code."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from accord import Context, agent
from accord.agents.echo import echo
from accord.protocol.operations import DialectName
from accord.server.application import Application, to_a2a
from accord.testing.asgi import call, stream
from tests.cases import each

V1 = {"A2A-Version": "1.0"}
MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello brave world"}]}


def rpc(method: str, params: object = None, identifier: object = 1) -> dict:
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params if params is not None else {}}


@pytest.fixture
async def app() -> AsyncIterator[Application]:
    async with to_a2a(echo, server={"grace_seconds": 0.0}) as application:
        yield application


async def test_a_message_is_answered_with_a_finished_task(app: Application) -> None:
    answer = await call(app, rpc("SendMessage", {"message": MESSAGE}), headers=V1)
    assert (answer.status, answer.headers["content-type"], answer.headers["x-a2a-dialect"]) == (
        200,
        "application/json",
        "v1",
    )
    task = answer.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert "".join(part["text"] for part in task["artifacts"][0]["parts"]) == "hello brave world"
    assert task["history"][0]["messageId"] == "m-1"
    again = await call(app, rpc("GetTask", {"id": task["id"], "historyLength": 0}), headers=V1)
    assert again.json()["result"] == {key: value for key, value in task.items() if key != "history"}


async def test_a_stream_starts_with_the_task_and_ends_with_its_end(app: Application) -> None:
    answer = await call(app, rpc("SendStreamingMessage", {"message": MESSAGE}, "s"), headers=V1)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    frames = answer.frames()
    results = [json.loads(frame.data) for frame in frames]
    assert {result["id"] for result in results} == {"s"}
    kinds = [next(iter(result["result"])) for result in results]
    assert kinds == ["task", "statusUpdate", *["artifactUpdate"] * 3, "statusUpdate"]
    assert [frame.id for frame in frames] == ["0", "1", "2", "3", "4", "5"]
    assert results[-1]["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_stream_honours_the_history_length(app: Application) -> None:
    send = {"message": MESSAGE, "configuration": {"historyLength": 0}}
    frames = (await call(app, rpc("SendStreamingMessage", send), headers=V1)).frames()
    assert "history" not in json.loads(frames[0].data)["result"]["task"]


async def test_a_long_text_comes_back_whole_in_a_bounded_number_of_events(app: Application) -> None:
    words = "a " * 50_000
    send = {"message": MESSAGE | {"parts": [{"text": words}]}}
    frames = (await call(app, rpc("SendStreamingMessage", send), headers=V1)).frames()
    assert len(frames) <= 1003
    updates = [json.loads(frame.data)["result"].get("artifactUpdate") for frame in frames]
    assert "".join(update["artifact"]["parts"][0]["text"] for update in updates if update) == words


@pytest.mark.parametrize(
    ("dialect", "method", "params"),
    [
        (
            "v03",
            "message/send",
            {
                "message": {
                    "kind": "message",
                    "messageId": "m",
                    "role": "user",
                    "parts": [{"kind": "text", "text": "hi"}],
                }
            },
        ),
        (
            "relay",
            "message/send",
            {"message": {"messageId": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}},
        ),
        ("gen", "message/send", {"message": {"id": "m", "parts": [{"type": "text", "content": "hi"}]}}),
        ("vault", "tasks/send", {"message": {"role": "user", "parts": [{"type": "text", "content": "hi"}]}}),
    ],
)
async def test_every_dialect_is_answered_in_its_own_form(
    app: Application, dialect: str, method: str, params: dict
) -> None:
    answer = await call(app, rpc(method, params))
    assert answer.headers["x-a2a-dialect"] == dialect
    result = answer.json()["result"]
    task_id = result.get("id") or result["task_id"]
    read = await call(app, rpc("tasks/get", {"id": task_id}))
    assert read.headers["x-a2a-dialect"] == dialect, "a task is read in the dialect it was created in"


async def test_vault_streams_are_named_events(waits: Application) -> None:
    said = {"message": {"role": "user", "parts": [{"type": "text", "content": "hi"}]}}
    task = (await call(waits, rpc("tasks/send", said))).json()["result"]
    follow = rpc("tasks/sendSubscribe", {"id": task["id"]})
    async with stream(waits, follow) as answer, aclosing(answer.events()) as events:
        assert (await anext(events)).event == "task_status"
        await call(waits, rpc("tasks/cancel", {"id": task["id"]}))
        assert {frame.event async for frame in events} <= {"task_status", "task_artifact", "task_message"}
    assert answer.frames()[-1].event == "task_status"


async def test_list_filters_and_pages(app: Application) -> None:
    for at in range(3):
        await call(
            app, rpc("SendMessage", {"message": MESSAGE | {"messageId": f"c-{at}", "contextId": "c-1"}}), headers=V1
        )
    await call(app, rpc("SendMessage", {"message": MESSAGE}), headers=V1)
    first = (await call(app, rpc("ListTasks", {"contextId": "c-1", "pageSize": 2}), headers=V1)).json()["result"]
    assert (len(first["tasks"]), first["totalSize"], first["pageSize"]) == (2, 3, 2)
    assert all("artifacts" not in task for task in first["tasks"])
    rest = {"contextId": "c-1", "pageSize": 2, "pageToken": first["nextPageToken"], "includeArtifacts": True}
    second = (await call(app, rpc("ListTasks", rest), headers=V1)).json()["result"]
    assert (len(second["tasks"]), second["nextPageToken"]) == (1, "")
    assert second["tasks"][0]["artifacts"]
    refused = await call(app, rpc("ListTasks", {"pageToken": "x"}), headers=V1)
    assert refused.json()["error"]["code"] == -32602
    assert b'"field":"pageToken"' in refused.body


async def test_pages_do_not_shift_when_tasks_are_added(app: Application) -> None:
    messages = [MESSAGE | {"messageId": f"p-{at}"} for at in range(3)]
    sent = [await call(app, rpc("SendMessage", {"message": message}), headers=V1) for message in messages]
    first = (await call(app, rpc("ListTasks", {"pageSize": 2}), headers=V1)).json()["result"]
    await call(app, rpc("SendMessage", {"message": MESSAGE}), headers=V1)
    token = first["nextPageToken"]
    second = (await call(app, rpc("ListTasks", {"pageSize": 2, "pageToken": token}), headers=V1)).json()["result"]
    seen = [task["id"] for task in first["tasks"] + second["tasks"]]
    assert len(seen) == len(set(seen))
    assert {answer.json()["result"]["task"]["id"] for answer in sent} <= set(seen)


@agent(description="Works until it is cancelled, or breaks when told to.")
async def waiter(ctx: Context) -> AsyncIterator[str]:
    if ctx.text == "break":
        raise RuntimeError("a secret: hunter2")
    yield "started"
    await asyncio.Event().wait()


@pytest.fixture
async def waits() -> AsyncIterator[Application]:
    async with to_a2a(waiter, server={"grace_seconds": 0.0}) as application:
        yield application


async def test_a_running_task_is_followed_and_cancelled_once(waits: Application) -> None:
    send = {"message": MESSAGE, "configuration": {"returnImmediately": True}}
    task = (await call(waits, rpc("SendMessage", send), headers=V1)).json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    following = asyncio.create_task(call(waits, rpc("SubscribeToTask", {"id": task["id"]}), headers=V1))
    await asyncio.sleep(0)
    cancelled = await call(waits, rpc("CancelTask", {"id": task["id"], "metadata": {"reason": "enough"}}), headers=V1)
    assert cancelled.json()["result"]["status"]["state"] == "TASK_STATE_CANCELED"
    last = json.loads((await following).frames()[-1].data)["result"]["statusUpdate"]["status"]
    assert (last["state"], last["message"]["parts"]) == ("TASK_STATE_CANCELED", [{"text": "enough"}])
    for method, code in (("CancelTask", -32002), ("SubscribeToTask", -32004)):
        assert (await call(waits, rpc(method, {"id": task["id"]}), headers=V1)).json()["error"]["code"] == code
    more = {"message": MESSAGE | {"taskId": task["id"]}}
    assert (await call(waits, rpc("SendMessage", more), headers=V1)).json()["error"]["code"] == -32004


async def test_failing_agents_leak_nothing(waits: Application, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = await call(
            waits, rpc("SendMessage", {"message": MESSAGE | {"parts": [{"text": "break"}]}}), headers=V1
        )
    assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_FAILED"
    assert b"hunter2" not in answer.body
    assert "hunter2" in caplog.text


async def test_messages_to_a_task_must_fit_it(waits: Application) -> None:
    send = {"message": MESSAGE, "configuration": {"returnImmediately": True}}
    task = (await call(waits, rpc("SendMessage", send), headers=V1)).json()["result"]["task"]
    wrong = {"message": MESSAGE | {"taskId": task["id"], "contextId": "another"}}
    assert (await call(waits, rpc("SendMessage", wrong), headers=V1)).json()["error"]["code"] == -32602
    unknown = {"message": MESSAGE | {"taskId": "nope"}}
    assert (await call(waits, rpc("SendMessage", unknown), headers=V1)).json()["error"]["code"] == -32001
    right = {
        "message": MESSAGE | {"messageId": "m-2", "taskId": task["id"]},
        "configuration": {"returnImmediately": True},
    }
    answer = (await call(waits, rpc("SendMessage", right), headers=V1)).json()["result"]["task"]
    assert [said["messageId"] for said in answer["history"]] == ["m-1", "m-2"]


@each(
    ("method", "params", "code"),
    [
        ("GetTask", {"id": "nope"}, -32001),
        ("SendStreamingMessage", {"message": MESSAGE}, -32004),
        ("SubscribeToTask", {"id": "t"}, -32004),
        ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "https://example.com"}, -32003),
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "p"}, -32003),
        ("ListTaskPushNotificationConfigs", {"taskId": "t"}, -32003),
        ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "p"}, -32003),
        ("GetExtendedAgentCard", {}, -32004),
        (
            "SendMessage",
            {"message": MESSAGE, "configuration": {"taskPushNotificationConfig": {"url": "https://example.com"}}},
            -32003,
        ),
    ],
)
async def test_unsupported_operations_are_reported(method: str, params: dict, code: int) -> None:
    async with to_a2a(echo, server={"capabilities": []}) as app:
        answer = await call(app, rpc(method, params), headers=V1)
    assert answer.status == 200
    assert answer.json()["error"]["code"] == code


DEEP = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001


def send_parts(parts: object) -> bytes:
    return json.dumps(rpc("SendMessage", {"message": MESSAGE | {"parts": parts}})).encode()


@pytest.mark.proves("2-30", "3-07", "3-41", "B-17", "JSONRPC-ERR-003")
@pytest.mark.parametrize(
    ("body", "headers", "status", "code", "named"),
    [
        (b"{nope", {}, 200, -32700, "not valid JSON"),
        (b"", {}, 200, -32700, "not valid JSON"),
        (b"\xff\xfe", {}, 200, -32700, "not valid JSON"),
        (b"5", {}, 200, -32600, "object"),
        (b"[]", {}, 200, -32600, "empty"),
        (DEEP, {}, 200, -32600, "nested too deeply"),
        (json.dumps(rpc("Dance")).encode(), {}, 200, -32601, "Dance"),
        (json.dumps(rpc("SendMessage", [1])).encode(), {}, 200, -32602, "object"),
        (send_parts([{"text": 5}]), {}, 200, -32602, "message.parts[0].text"),
        (send_parts([{"raw": "!!"}]), {}, 200, -32602, "base64"),
        (send_parts([]), {}, 200, -32602, "message.parts"),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"t","historyLength":1e99}}',
            {},
            200,
            -32602,
            "historyLength",
        ),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\xff"}}', {}, 200, -32700, "UTF-8"),
        (b"{}", {"Content-Type": "text/plain"}, 415, -32005, "text/plain"),
        (b"{}", {"Content-Type": ""}, 415, -32005, "the request has none"),
        (b"x" * (16 * 1024 * 1024 + 1), {}, 413, -32600, "larger than"),
        (b"{}", {"A2A-Version": "1.0"}, 200, -32600, "jsonrpc"),
    ],
)
async def test_bad_input(app: Application, body: bytes, headers: dict, status: int, code: int, named: str) -> None:
    answer = await call(app, body, headers=V1 | headers)
    assert answer.status == status
    error = answer.json()["error"]
    assert error["code"] == code
    assert named in error["message"]
    assert "Traceback" not in answer.body.decode()
    assert "accord/" not in answer.body.decode()


@pytest.mark.proves("VER-SERVER-003")
async def test_an_unknown_version_is_refused(app: Application) -> None:
    answer = await call(app, rpc("SendMessage", {"message": MESSAGE}), headers={"A2A-Version": "99.0"})
    assert answer.json()["error"]["code"] == -32009
    by_query = await call(app, rpc("SendMessage", {"message": MESSAGE}), query="A2A-Version=99.0")
    assert by_query.json()["error"]["code"] == -32009


@pytest.mark.proves("C-03", "2-04")
async def test_notifications_and_batches(app: Application) -> None:
    notification = {"jsonrpc": "2.0", "method": "SendMessage", "params": {"message": MESSAGE}}
    answer = await call(app, notification, headers=V1)
    assert (answer.status, answer.body) == (204, b"")
    for dialect in DialectName:
        failed = await call(app, {"jsonrpc": "2.0", "method": "Dance"}, headers={"x-a2a-dialect": dialect.value})
        assert (failed.status, failed.body) == (204, b"")
    batch = [rpc("SendMessage", {"message": MESSAGE}, "a"), notification, 5, rpc("SendStreamingMessage", {}, "b")]
    answers = (await call(app, batch, headers=V1)).json()
    assert [found["id"] for found in answers] == ["a", None, "b"]
    assert answers[0]["result"]["task"]
    assert [found["error"]["code"] for found in answers[1:]] == [-32600, -32600]
    assert (await call(app, [notification], headers=V1)).status == 204


async def test_a_key_names_each_call_of_a_batch_by_its_place(app: Application) -> None:
    headers = V1 | {"Idempotency-Key": "k"}

    async def sends(attempt: str, *words: str) -> list[str]:
        said = [MESSAGE | {"messageId": f"{attempt}-{at}", "parts": [{"text": word}]} for at, word in enumerate(words)]
        batch = [rpc("SendMessage", {"message": message}, at) for at, message in enumerate(said)]
        return [found["result"]["task"]["id"] for found in (await call(app, batch, headers=headers)).json()]

    first = await sends("a", "one", "two", "two")
    assert len(set(first)) == 3
    assert await sends("b", "one", "two", "two") == first


async def test_a_notification_that_asks_for_a_stream_gets_no_answer(app: Application) -> None:
    notification = {"jsonrpc": "2.0", "method": "SendStreamingMessage", "params": {"message": MESSAGE}}
    answer = await call(app, notification, headers=V1)
    assert (answer.status, answer.body) == (204, b"")


@pytest.mark.parametrize(("depth", "accepted"), [(90, True), (100, False), (500, False), (970, False)])
async def test_nothing_is_stored_that_is_too_deep_to_be_written_again(
    app: Application, depth: int, accepted: bool
) -> None:
    deep = b"[" * depth + b"]" * depth
    body = json.dumps(rpc("SendMessage", {"message": MESSAGE | {"parts": [{"data": "DEEP"}]}})).encode()
    answer = await call(app, body.replace(b'"DEEP"', deep), headers=V1)
    assert ("result" in answer.json()) is accepted
    listed = await call(app, rpc("ListTasks", {"includeArtifacts": True}), headers=V1)
    assert listed.json()["result"]["totalSize"] == int(accepted)


@pytest.mark.parametrize(
    ("path", "query", "version", "dialect"),
    [("/gen/", "", "1.0", "gen"), ("/", "dialect=vault", "1.0", "vault"), ("/", "", "1.0", "v1"), ("/", "", "", "v03")],
)
async def test_invalid_requests_are_refused_in_the_address_s_dialect(
    app: Application, path: str, query: str, version: str, dialect: str
) -> None:
    answer = await call(app, b"5", path=path, query=query, headers={"A2A-Version": version})
    assert answer.headers["x-a2a-dialect"] == dialect
    large = await call(app, b"x" * (16 * 1024 * 1024 + 1), path="/gen")
    assert large.json()["error"]["code"] == -40005


async def test_other_methods_and_paths(app: Application) -> None:
    for method in ("GET", "PUT"):
        refused = await call(app, method=method)
        assert (refused.status, refused.headers["allow"]) == (405, "POST")
        assert b"with POST, as JSON-RPC" in refused.body
    assert (await call(app, method="HEAD")).body == b""
    lost = await call(app, method="GET", path="/nothing")
    assert (lost.status, b"agent-card.json" in lost.body) == (404, True)


@pytest.mark.parametrize("path", ["/.well-known/agent-card.json", "/.well-known/agent.json"])
async def test_the_card_is_at_both_addresses(app: Application, path: str) -> None:
    card = (await call(app, method="GET", path=path)).json()
    assert card["name"] == "Echo"
    assert card["capabilities"]["streaming"] is True
    assert card["capabilities"]["pushNotifications"] is True
    assert card["url"] == card["supportedInterfaces"][0]["url"] == "http://localhost:8000/"
    listed = await call(app, method="GET", path=path, query="dialect=gen")
    assert isinstance(listed.json()["capabilities"], list)
    assert (await call(app, method="GET", path=path, query="dialect=klingon")).status == 400
    assert (await call(app, method="POST", path=path)).status == 405


async def test_a_client_that_leaves_ends_its_stream_but_not_the_task(waits: Application) -> None:
    send = {"message": MESSAGE, "configuration": {"returnImmediately": True}}
    task = (await call(waits, rpc("SendMessage", send), headers=V1)).json()["result"]["task"]
    follow = rpc("SubscribeToTask", {"id": task["id"]})
    async with stream(waits, follow, headers=V1) as answer, aclosing(answer.events()) as events:
        assert json.loads((await anext(events)).data)["result"]["task"]["id"] == task["id"]
    state = (await call(waits, rpc("GetTask", {"id": task["id"]}), headers=V1)).json()["result"]["status"]["state"]
    assert state == "TASK_STATE_WORKING"


@pytest.mark.proves("4-15", "4-36")
async def test_a_task_that_takes_longer_than_its_caller_waits_is_a_timeout(waits: Application) -> None:
    message = {"id": "late", "parts": [{"type": "text", "content": "work"}]}
    params = {"message": message, "task_config": {"timeout": 200, "priority": "normal"}}
    answer = await call(waits, rpc("message/send", params), path="/gen")
    error = answer.json()["error"]
    assert (error["code"], "in time" in error["message"]) == (-40002, True)
    task = await call(waits, rpc("tasks/get", {"task_id": error["data"]["task_id"]}), path="/gen")
    assert task.json()["result"]["status"] == "failed"
