"""HTTP+JSON, in A2A 1.0 and 0.3: every operation at its address, what an answer is called, and streams."""

import json
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from accord.errors import AuthenticationFailed, InternalError, RateLimited, TaskNotFound
from accord.http.jsonrpc import JsonRpcBinding
from accord.http.rest import RestBinding
from accord.model import (
    CancelRequest,
    CardRequest,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Role,
    SendRequest,
    SubscribeRequest,
    TaskFilter,
    TaskState,
)
from accord.protocol.operations import TABLE, DialectName, Operation
from accord.testing.asgi import Response, call
from tests.cases import each
from tests.http.scripted import AT, Scripted

V1, V03 = DialectName.V1, DialectName.V03
BOTH = frozenset({V1, V03})
A2A_JSON, JSON = "application/a2a+json", "application/json"

TASK_1 = {
    "id": "t-1",
    "status": {"state": "TASK_STATE_COMPLETED", "timestamp": AT},
    "contextId": "c-1",
    "artifacts": [{"artifactId": "a-1", "parts": [{"text": "hi"}, {"raw": "AP8=", "mediaType": "image/png"}]}],
    "history": [
        {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}], "contextId": "c-1", "taskId": "t-1"}
    ],
}
TASK_03 = {
    "id": "t-1",
    "contextId": "c-1",
    "status": {"state": "TASK_STATE_COMPLETED", "timestamp": AT},
    "artifacts": [
        {
            "artifactId": "a-1",
            "parts": [{"text": "hi"}, {"file": {"fileWithBytes": "AP8=", "mimeType": "image/png"}}],
        }
    ],
    "history": [
        {"messageId": "m-1", "role": "ROLE_USER", "content": [{"text": "hello"}], "contextId": "c-1", "taskId": "t-1"}
    ],
}
PUSH_1 = {"url": "https://example.com/hook", "id": "p-1", "taskId": "t-1", "authentication": {"scheme": "Bearer"}}
PUSH_03 = {
    "name": "tasks/t-1/pushNotificationConfigs/p-1",
    "pushNotificationConfig": {
        "id": "p-1",
        "url": "https://example.com/hook",
        "authentication": {"schemes": ["Bearer"]},
    },
}
SENT = Message(message_id="m", role=Role.USER, parts=(Part(text="x"),))
SEND_1 = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
SEND_03 = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "x"}]}}
HOOK = "https://h.example/"


class Case(NamedTuple):
    """A request, what the service is asked and what the caller gets."""

    dialect: DialectName
    operation: Operation
    verb: str
    path: str
    request: Any
    body: Any = b""
    query: str = ""
    answer: Any = None


FILTER = "contextId=c&status=TASK_STATE_WORKING&pageSize=5&historyLength=0&includeArtifacts=true"
FILTERED = TaskFilter(context_id="c", status=TaskState.WORKING, page_size=5, history_length=0, include_artifacts=True)
PAGE = {"nextPageToken": "more", "pageSize": 1, "totalSize": 2}
PUSHES = "/tasks/t-1/pushNotificationConfigs"
CASES = [
    Case(V1, Operation.SEND, "POST", "/message:send", SendRequest(message=SENT), SEND_1, "", {"task": TASK_1}),
    Case(V1, Operation.STREAM, "POST", "/message:stream", SendRequest(message=SENT), SEND_1),
    Case(V1, Operation.GET, "GET", "/tasks/t-1", GetRequest(id="t-1"), b"", "", TASK_1),
    Case(
        V1, Operation.GET, "GET", "/tasks/t-1", GetRequest(id="t-1", history_length=2), b"", "historyLength=2", TASK_1
    ),
    Case(V1, Operation.LIST, "GET", "/tasks", FILTERED, b"", FILTER, {"tasks": [TASK_1], **PAGE}),
    Case(V1, Operation.CANCEL, "POST", "/tasks/t-1:cancel", CancelRequest(id="t-1"), b"", "", TASK_1),
    Case(
        V1,
        Operation.CANCEL,
        "POST",
        "/tasks/t-1:cancel",
        CancelRequest(id="t-1", metadata={"reason": "enough"}),
        {"metadata": {"reason": "enough"}},
        "",
        TASK_1,
    ),
    Case(V1, Operation.SUBSCRIBE, "POST", "/tasks/t-1:subscribe", SubscribeRequest(id="t-1")),
    Case(V1, Operation.SUBSCRIBE, "GET", "/tasks/t-1:subscribe", SubscribeRequest(id="t-1")),
    Case(V1, Operation.PUSH_SET, "POST", PUSHES, PushConfig(url=HOOK, task_id="t-1"), {"url": HOOK}, "", PUSH_1),
    Case(V1, Operation.PUSH_GET, "GET", PUSHES + "/p-1", PushGetRequest(task_id="t-1", id="p-1"), b"", "", PUSH_1),
    Case(
        V1,
        Operation.PUSH_LIST,
        "GET",
        PUSHES,
        PushListRequest(task_id="t-1", page_size=1),
        b"",
        "pageSize=1",
        {"configs": [PUSH_1]},
    ),
    Case(V1, Operation.PUSH_DELETE, "DELETE", PUSHES + "/p-1", PushDeleteRequest(task_id="t-1", id="p-1"), b"", "", {}),
    Case(V1, Operation.EXTENDED_CARD, "GET", "/extendedAgentCard", CardRequest(), b"", "", ...),
    Case(V03, Operation.SEND, "POST", "/v1/message:send", SendRequest(message=SENT), SEND_03, "", {"task": TASK_03}),
    Case(V03, Operation.STREAM, "POST", "/v1/message:stream", SendRequest(message=SENT), SEND_03),
    Case(V03, Operation.GET, "GET", "/v1/tasks/t-1", GetRequest(id="t-1"), b"", "", TASK_03),
    Case(
        V03,
        Operation.GET,
        "GET",
        "/v1/tasks/t-1",
        GetRequest(id="t-1", history_length=2),
        b"",
        "historyLength=2",
        TASK_03,
    ),
    Case(V03, Operation.LIST, "GET", "/v1/tasks", FILTERED, b"", FILTER, {"tasks": [TASK_03], **PAGE}),
    Case(
        V03,
        Operation.CANCEL,
        "POST",
        "/v1/tasks/t-1:cancel",
        CancelRequest(id="t-1"),
        {"name": "tasks/t-1"},
        "",
        TASK_03,
    ),
    Case(V03, Operation.SUBSCRIBE, "GET", "/v1/tasks/t-1:subscribe", SubscribeRequest(id="t-1")),
    Case(V03, Operation.SUBSCRIBE, "POST", "/v1/tasks/t-1:subscribe", SubscribeRequest(id="t-1")),
    Case(
        V03,
        Operation.PUSH_SET,
        "POST",
        "/v1" + PUSHES,
        PushConfig(url=HOOK, id="p", task_id="t-1"),
        {"parent": "tasks/t-1", "configId": "p", "config": {"pushNotificationConfig": {"id": "p", "url": HOOK}}},
        "",
        PUSH_03,
    ),
    Case(
        V03,
        Operation.PUSH_SET,
        "POST",
        "/v1" + PUSHES,
        PushConfig(url=HOOK, id="p", task_id="t-1"),
        {"id": "p", "url": HOOK},
        "",
        PUSH_03,
    ),
    Case(
        V03,
        Operation.PUSH_GET,
        "GET",
        "/v1" + PUSHES + "/p-1",
        PushGetRequest(task_id="t-1", id="p-1"),
        b"",
        "",
        PUSH_03,
    ),
    Case(
        V03,
        Operation.PUSH_LIST,
        "GET",
        "/v1" + PUSHES,
        PushListRequest(task_id="t-1", page_size=1),
        b"",
        "pageSize=1",
        {"configs": [PUSH_03]},
    ),
    Case(
        V03,
        Operation.PUSH_DELETE,
        "DELETE",
        "/v1" + PUSHES + "/p-1",
        PushDeleteRequest(task_id="t-1", id="p-1"),
        b"",
        "",
        {},
    ),
    Case(V03, Operation.EXTENDED_CARD, "GET", "/v1/card", CardRequest(), b"", "", ...),
    Case(V03, Operation.EXTENDED_CARD, "GET", "/agent/authenticatedExtendedCard", CardRequest(), b"", "", ...),
]
WHOLE = [case for case in CASES if case.answer is not None]
STREAMS = [case for case in CASES if case.answer is None]
each_case = each("case", CASES)
each_whole = each("case", WHOLE)
each_stream = each("case", STREAMS)


async def ask(app: RestBinding, case: Case, headers: dict[str, str] | None = None, **more: Any) -> Response:
    stated = {"content-type": JSON if case.body else ""} | (headers or {})
    asked = {"method": case.verb, "path": case.path, "query": case.query} | more
    return await call(app, case.body, headers=stated, **asked)


def test_the_cases_cover_every_operation_and_version() -> None:
    for dialect in BOTH:
        assert {case.operation for case in CASES if case.dialect is dialect} == set(Operation)
    tried = {(case.verb, case.path.removeprefix("/v1")) for case in CASES}
    assert len(tried) == sum(len({*row.rest, *row.rest_v03, *row.rest_v02}) for row in TABLE)


# --- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.proves("HTTP_JSON-SVC-001", "HTTP_JSON-URL-001", "HTTP_JSON-URL-002", "HTTP_JSON-QP-001", "3-16")
@each_whole
async def test_an_operation_is_understood_and_answered(case: Case) -> None:
    service = Scripted()
    answer = await ask(RestBinding(service), case)
    asked = service.only
    assert (asked.operation, asked.request, asked.caller.origin) == (case.operation, case.request, case.dialect.value)
    assert answer.status == 200
    if case.answer is not ...:
        assert answer.json() == case.answer
    else:
        own = "supportedInterfaces" if case.dialect is V1 else "protocolVersion"
        assert (answer.json()["name"], own in answer.json()) == ("Trips", True)
    assert answer.headers == {
        "content-type": A2A_JSON if case.dialect is V1 else JSON,
        "content-length": str(len(answer.body)),
        "x-a2a-dialect": case.dialect.value,
        "cache-control": "no-store",
    }


async def test_a_message_alone_is_answered_as_one() -> None:
    alone = Message(message_id="m", role=Role.AGENT, parts=(Part(text="hi"),))
    app = RestBinding(Scripted(results={Operation.SEND: alone}))
    message = {"messageId": "m", "role": "ROLE_AGENT"}
    sent = await call(app, SEND_1, path="/message:send")
    assert sent.json() == {"message": message | {"parts": [{"text": "hi"}]}}
    sent = await call(app, SEND_03, path="/v1/message:send")
    assert sent.json() == {"message": message | {"content": [{"text": "hi"}]}}


@pytest.mark.parametrize("stream", [False, True])
async def test_in_0_3_an_answer_has_the_names_that_the_question_had(stream: bool) -> None:
    made = Message(message_id="m", role=Role.AGENT, parts=(Part(data={"taskId": 1}),), metadata={"myName": {}})
    app = RestBinding(Scripted(results={Operation.SEND: made}))
    content: dict[str, Any] = {"role": "ROLE_USER", "content": [{"text": "x"}], "metadata": {"task_id": "mine"}}
    for message_id, context_id in (("messageId", "contextId"), ("message_id", "context_id")):
        question = {"message": content | {message_id: "m"}}
        if stream:
            answer = await call(app, question, path="/v1/message:stream")
            assert json.loads(answer.body.split(b"data: ")[1].split(b"\n")[0])["task"][context_id] == "c-1"
        else:
            found = (await call(app, question, path="/v1/message:send")).json()["message"]
            assert (found[message_id], found["metadata"]) == ("m", {"myName": {}})
            assert found["content"] == [{"data": {"data": {"taskId": 1}}}]


@pytest.mark.proves("HTTP_JSON-SVC-001")
@each(
    ("accept", "named"),
    [
        ("", A2A_JSON),
        ("*/*", A2A_JSON),
        ("application/*", A2A_JSON),
        (A2A_JSON, A2A_JSON),
        (JSON, JSON),
        ("Application/JSON; charset=utf-8", JSON),
        (f"{JSON}, text/plain, */*", A2A_JSON),
        (f"{JSON}, text/plain, */*;q=0.5", JSON),
        (f"{A2A_JSON};q=0.5, {JSON};q=0.6", JSON),
        (f"{A2A_JSON};q=0.6, {JSON};q=0.5", A2A_JSON),
        (f"{A2A_JSON};q=0, */*", JSON),
        (f"{A2A_JSON};q=nonsense, {JSON};q=0.9", A2A_JSON),
        ("text/event-stream", A2A_JSON),
        ("text/html", A2A_JSON),
        (",;,=;q", A2A_JSON),
    ],
)
async def test_answers_use_the_preferred_media_type(accept: str, named: str) -> None:
    app = RestBinding(Scripted())
    for headers in ({"accept": accept}, {"accept": accept, "content-type": A2A_JSON}):
        answer = await call(app, SEND_1, path="/message:send", headers=headers)
        assert (answer.status, answer.headers["content-type"]) == (200, named)
        old = await call(app, SEND_03, path="/v1/message:send", headers=headers)
        assert (old.status, old.headers["content-type"]) == (200, JSON)
    refused = await call(
        RestBinding(Scripted(TaskNotFound())), method="GET", path="/tasks/t", headers={"accept": accept}
    )
    assert refused.headers["content-type"] == named


@each("case", [case for case in CASES if case.verb == "GET"])
async def test_head_answers_with_the_headers_of_get(case: Case) -> None:
    service = Scripted()
    app = RestBinding(service)
    whole, head = await ask(app, case), await ask(app, case, method="HEAD")
    assert (head.status, head.headers, head.body) == (200, whole.headers, b"")
    assert service.calls[0] == service.calls[1]
    assert service.closed == (2 if case in STREAMS else 0)
    refused = await ask(RestBinding(Scripted(TaskNotFound())), case, method="HEAD")
    assert (refused.status, refused.body, refused.headers["content-length"] > "0") == (404, b"", True)


# --- streams --------------------------------------------------------------------------------------------------------

TELLS = {
    V1: [
        {"task": {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": AT}}},
        {"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": TASK_1["artifacts"][0]}},  # type: ignore[index]
        {
            "statusUpdate": {
                "taskId": "t-1",
                "contextId": "c-1",
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": AT},
            }
        },
    ],
    V03: [
        {"task": {"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_SUBMITTED", "timestamp": AT}}},
        {"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": TASK_03["artifacts"][0]}},  # type: ignore[index]
        {
            "statusUpdate": {
                "taskId": "t-1",
                "contextId": "c-1",
                "status": {"state": "TASK_STATE_COMPLETED", "timestamp": AT},
                "final": True,
            }
        },
    ],
}


@pytest.mark.proves("HTTP_JSON-SSE-001", "CORE-STREAM-001", "3-16")
@each_stream
async def test_a_stream_is_plain_events_with_their_numbers(case: Case) -> None:
    service = Scripted()
    answer = await ask(RestBinding(service), case)
    asked = service.only
    assert (asked.operation, asked.request, asked.after) == (case.operation, case.request, None)
    assert answer.status == 200
    assert answer.headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "connection": "keep-alive",
        "x-accel-buffering": "no",
        "x-a2a-dialect": case.dialect.value,
    }
    frames = answer.frames()
    assert [(frame.id, frame.event) for frame in frames] == [("0", None), ("1", None), ("2", None)]
    assert [json.loads(frame.data) for frame in frames] == TELLS[case.dialect]
    assert service.closed == 1


@each_stream
@pytest.mark.parametrize(
    ("headers", "query"), [({"last-event-id": "0"}, ""), ({}, "after=0"), ({"last-event-id": "0"}, "after=7")]
)
async def test_streams_resume_after_the_last_event_id(case: Case, headers: dict[str, str], query: str) -> None:
    service = Scripted()
    answer = await ask(RestBinding(service), case, headers, query=query)
    assert service.only.after == 0
    assert service.only.request == case.request
    assert [frame.id for frame in answer.frames()] == ["1", "2"]


@each_stream
@pytest.mark.parametrize("seen", ["x", "-1", "1.5", "\u0663", "9" * 19])
async def test_invalid_last_event_ids_are_refused(case: Case, seen: str) -> None:
    service = Scripted()
    answer = await ask(RestBinding(service), case, query=f"after={seen}")
    assert (answer.status, b"after is not the number of an event" in answer.body) == (400, True)
    assert not service.calls


@each_stream
async def test_the_header_does_not_hide_an_invalid_parameter(case: Case) -> None:
    service = Scripted()
    answer = await ask(RestBinding(service), case, {"Last-Event-ID": "2"}, query="after=1.5")
    assert (answer.status, b"after is not the number of an event" in answer.body) == (400, True)
    assert not service.calls


@pytest.mark.proves("HTTP_JSON-ERR-001", "HTTP_JSON-ERR-002")
@each_stream
async def test_a_stream_that_breaks_ends_with_an_error(case: Case) -> None:
    app = RestBinding(Scripted(broken=RateLimited("Too much", retry_after=3)))
    answer = await ask(app, case)
    *told, last = answer.frames()
    assert [json.loads(frame.data) for frame in told] == TELLS[case.dialect]
    assert last.event == "error"
    if case.dialect is V03:
        data = {"reason": "RATE_LIMITED", "retry_after": 3}
        assert json.loads(last.data) == {"code": -32000, "message": "Too much", "data": data}
        return
    error = json.loads(last.data)["error"]
    assert (error["code"], error["status"], error["message"]) == (429, "RESOURCE_EXHAUSTED", "Too much")
    assert error["details"][0]["reason"] == "RATE_LIMITED"


async def test_unexpected_stream_errors_leak_nothing(caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask(RestBinding(Scripted(broken=RuntimeError("hunter2"))), STREAMS[0])
    assert json.loads(answer.frames()[-1].data)["error"]["message"] == InternalError().message
    assert b"hunter2" not in answer.body
    assert "hunter2" in caplog.text


# --- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.proves("3-16", "CORE-ERR-001")
@each_case
async def test_every_operation_may_fail(case: Case) -> None:
    answer = await ask(RestBinding(Scripted(TaskNotFound("Gone", metadata={"taskId": "t-1"}))), case)
    assert (answer.status, answer.headers["x-a2a-dialect"]) == (404, case.dialect.value)
    if case.dialect is V03:
        data = {"reason": "TASK_NOT_FOUND", "taskId": "t-1"}
        assert answer.json() == {"type": "TaskNotFoundError", "code": -32001, "message": "Gone", "data": data}
        return
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "TASK_NOT_FOUND",
        "domain": "a2a-protocol.org",
        "metadata": {"taskId": "t-1"},
    }
    assert answer.json() == {"error": {"code": 404, "status": "NOT_FOUND", "message": "Gone", "details": [info]}}


@each_case
async def test_unexpected_errors_leak_nothing(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    answer = await ask(RestBinding(Scripted(RuntimeError("hunter2"))), case)
    assert (answer.status, b"hunter2" in answer.body) == (500, False)
    assert InternalError().message.encode() in answer.body
    assert "hunter2" in caplog.text


@pytest.mark.proves("BIND-EQUIV-003", "CORE-ERR-001")
@pytest.mark.parametrize("path", ["/tasks/t", "/v1/tasks/t"])
async def test_errors_carry_their_headers(path: str) -> None:
    answer = await call(RestBinding(Scripted(RateLimited(retry_after=7))), method="GET", path=path)
    assert (answer.status, answer.headers["retry-after"]) == (429, "7")
    unknown = AuthenticationFailed()
    unknown.challenges = ('Bearer realm="a"',)
    answer = await call(RestBinding(Scripted(unknown)), method="GET", path=path)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="a"')


# --- the other binding ----------------------------------------------------------------------------------------------


@pytest.mark.proves("BIND-EQUIV-001", "BIND-EQUIV-002")
@each("case", [case for case in CASES if case.dialect is V1])
async def test_both_bindings_ask_and_answer_the_same(case: Case) -> None:
    rest, rpc = Scripted(), Scripted()
    plain = await ask(RestBinding(rest), case)
    ids = {"taskId": "t-1", "id": "p-1"} if "/p-1" in case.path else {"taskId": "t-1"}
    where = ids if "push" in case.path else {"id": "t-1"} if "t-1" in case.path else {}
    typed: dict[str, Any] = {"historyLength": 2} if case.query == "historyLength=2" else {}
    typed = {"pageSize": 1} if case.query == "pageSize=1" else typed
    if case.operation is Operation.LIST:
        filters = {"contextId": "c", "status": "TASK_STATE_WORKING", "historyLength": 0}
        typed = filters | {"pageSize": 5, "includeArtifacts": True}
    params = where | typed | (case.body if isinstance(case.body, dict) else {})
    envelope = {"jsonrpc": "2.0", "id": 1, "method": case.operation.value, "params": params}
    wrapped = await call(JsonRpcBinding(rpc), envelope, headers={"A2A-Version": "1.0"})
    assert [one.caller.binding for one in (*rest.calls, *rpc.calls)] == ["rest", "jsonrpc"]
    by_rpc = [one._replace(caller=replace(one.caller, binding="rest")) for one in rpc.calls]
    assert rest.calls == by_rpc, "all else is the same"
    if case in STREAMS:
        bare = [frame.data for frame in plain.frames()]
        assert [json.loads(frame.data)["result"] for frame in wrapped.frames()] == list(map(json.loads, bare))
        assert [frame.id for frame in wrapped.frames()] == [frame.id for frame in plain.frames()]
    else:
        assert wrapped.json()["result"] == plain.json()


@pytest.mark.proves("BIND-EQUIV-003")
@each("case", [case for case in CASES if case.dialect is V1])
async def test_both_bindings_refuse_for_the_same_reason(case: Case) -> None:
    error = TaskNotFound("Gone", metadata={"taskId": "t-1"})
    plain = (await ask(RestBinding(Scripted(error)), case)).json()["error"]
    method = {"method": "GetTask", "params": {"id": "t-1"}}
    wrapped = (await call(JsonRpcBinding(Scripted(error)), {"jsonrpc": "2.0", "id": 1} | method)).json()["error"]
    assert (wrapped["code"], wrapped["message"], wrapped["data"]) == (-32001, plain["message"], plain["details"])
