"""What an answer says besides its body: the dialect, the type, when to come back, and which call it answers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.errors import AccordError, AgentUnavailable, RateLimited
from accord.http.jsonrpc import JsonRpcBinding
from accord.model import Event, Task, TaskState, TaskStatus
from accord.testing.asgi import call

ASKED = {"id": "t-1"}
V1_SEND = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
V03_SEND = {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}}
RELAY_SEND = {"message": {"messageId": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}}
GEN_SEND = {"message": {"id": "m", "parts": [{"type": "text", "content": "hi"}]}}


def rpc(method: str, params: object, identifier: object = 1) -> dict:
    return {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}


TASK = Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.COMPLETED))


class Answers:
    """A service that answers with one task, or refuses everything for one reason."""

    def __init__(self, error: AccordError | None = None) -> None:
        self._error = error

    async def send(self, request: object, caller: object) -> Any:
        if self._error is not None:
            raise self._error
        return TASK

    async def stream(self, request: object, caller: object, after: int | None = None) -> AsyncIterator[Event]:
        if self._error is not None:
            raise self._error
        yield Event(seq=1, body=TASK)

    get = list = cancel = push_set = push_get = push_list = push_delete = extended_card = send
    subscribe = stream


@pytest.fixture
def app() -> JsonRpcBinding:
    return JsonRpcBinding(Answers())


# --- the dialect --------------------------------------------------------------------------------------------------


@pytest.mark.proves("B-00")
async def test_missing_tasks_are_answered_in_the_caller_s_last_dialect() -> None:
    kept = {"t-1": "vault"}

    async def origin(task_id: str, caller: Caller) -> str | None:
        return kept.get(task_id)

    async def admit(presented: Presented) -> Caller:
        return Caller(owner=presented.header("x-me") or "")

    app = JsonRpcBinding(Answers(), origin=origin, admit=admit)

    async def spoken(me: str, method: str, params: object) -> str:
        return (await call(app, rpc(method, params), headers={"X-Me": me})).headers["x-a2a-dialect"]

    assert await spoken("alice", "tasks/get", {"id": "gone"}) == "v03"
    assert await spoken("alice", "message/send", GEN_SEND) == "gen"
    assert await spoken("alice", "tasks/get", {"id": "gone"}) == "gen"
    assert await spoken("alice", "tasks/get", {"id": "t-1"}) == "vault", "what the task says comes first"
    assert await spoken("bob", "tasks/get", {"id": "gone"}) == "v03", "that was somebody else"
    assert await spoken("alice", "message/send", RELAY_SEND) == "relay"
    assert await spoken("alice", "tasks/cancel", {"id": "gone"}) == "relay"
    assert await spoken("", "message/send", GEN_SEND) == "gen"
    assert await spoken("", "tasks/get", {"id": "gone"}) == "v03", "everybody is nobody here"


@pytest.mark.proves("B-00")
@pytest.mark.parametrize(
    ("headers", "query", "path", "dialect"),
    [
        ({}, "", "/", "v03"),
        ({"X-A2A-Dialect": "vault"}, "", "/", "vault"),
        ({}, "dialect=vault", "/", "vault"),
        ({"X-A2A-Dialect": "relay"}, "dialect=vault", "/gen", "relay"),
        ({}, "dialect=vault", "/gen", "vault"),
        ({}, "", "/gen", "gen"),
        ({}, "", "/jsonrpc", "v03"),
        ({}, "", "/a2a/", "vault"),
        ({"A2A-Version": "1.0"}, "", "/", "v1"),
        ({}, "A2A-Version=1.0", "/", "v1"),
        ({"A2A-Version": "0.3"}, "A2A-Version=1.0", "/", "v03"),
    ],
)
async def test_the_dialect_is_chosen_by_header_query_and_path(
    app: JsonRpcBinding, headers: dict, query: str, path: str, dialect: str
) -> None:
    answer = await call(app, rpc("tasks/get", ASKED), headers=headers, query=query, path=path)
    assert answer.headers["x-a2a-dialect"] == dialect
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))


@pytest.mark.proves("B-00", "B-14", "2-20", "2-21")
@pytest.mark.parametrize(
    ("dialect", "method", "params"),
    [
        ("v1", "SendStreamingMessage", V1_SEND),
        ("v03", "message/stream", V03_SEND),
        ("relay", "message/stream", RELAY_SEND),
        ("gen", "message/stream", GEN_SEND),
        ("vault", "tasks/sendSubscribe", ASKED),
    ],
)
async def test_streams_name_their_dialect_and_disable_buffering(
    app: JsonRpcBinding, dialect: str, method: str, params: dict
) -> None:
    answer = await call(app, rpc(method, params))
    assert answer.status == 200
    assert answer.headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "connection": "keep-alive",
        "x-accel-buffering": "no",
        "x-a2a-dialect": dialect,
    }
    assert answer.frames()


async def test_an_empty_answer_has_no_type_and_no_length(app: JsonRpcBinding) -> None:
    answer = await call(app, {"jsonrpc": "2.0", "method": "SendMessage", "params": V1_SEND})
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers == {"x-a2a-dialect": "v1"}


# --- when to come back --------------------------------------------------------------------------------------------


@pytest.mark.proves("B-15", "B-17")
@pytest.mark.parametrize(
    ("method", "params"), [("GetTask", ASKED), ("SendStreamingMessage", V1_SEND), ("SubscribeToTask", ASKED)]
)
@pytest.mark.parametrize(("kind", "status"), [(RateLimited, 429), (AgentUnavailable, 503)])
async def test_retry_after_is_sent(method: str, params: dict, kind: type[AccordError], status: int) -> None:
    answer = await call(JsonRpcBinding(Answers(kind(retry_after=7))), rpc(method, params))
    assert (answer.status, answer.headers["retry-after"]) == (status, "7")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-a2a-dialect"] == "v1"
    at_once = await call(JsonRpcBinding(Answers(kind(retry_after=0))), rpc(method, params))
    assert at_once.headers["retry-after"] == "0"
    unsaid = await call(JsonRpcBinding(Answers(kind())), rpc(method, params))
    assert (unsaid.status, "retry-after" in unsaid.headers) == (status, False)


# --- batches and ids ----------------------------------------------------------------------------------------------


async def test_a_batch_names_its_dialect_if_it_has_one(app: JsonRpcBinding) -> None:
    listed = rpc("ListTasks", {}, 1)
    same = await call(app, [listed, listed | {"id": 2}], headers={"A2A-Version": "1.0"})
    assert (same.status, same.headers.get("x-a2a-dialect")) == (200, "v1")
    mixed = await call(app, [listed, rpc("message/send", V03_SEND, 2)])
    assert (mixed.status, len(mixed.json()), mixed.headers.get("x-a2a-dialect")) == (200, 2, None)
    silent = await call(app, [{"jsonrpc": "2.0", "method": "ListTasks"}], headers={"A2A-Version": "1.0"})
    assert (silent.status, silent.body) == (204, b"")


@pytest.mark.proves("C-03")
async def test_a_batch_of_a_hundred_is_answered_and_one_more_is_refused(app: JsonRpcBinding) -> None:
    calls = [rpc("GetTask", ASKED, number) for number in range(101)]
    whole = await call(app, calls[:100])
    assert (whole.status, whole.headers["content-type"]) == (200, "application/json")
    answers = whole.json()
    assert [answer["id"] for answer in answers] == list(range(100))
    assert {answer["result"]["id"] for answer in answers} == {"t-1"}
    refused = (await call(app, calls)).json()
    assert (refused["id"], refused["error"]["code"]) == (None, -32600)
    assert "101" in refused["error"]["message"]


@pytest.mark.proves("2-04")
@pytest.mark.parametrize("version", ["1.0", "2", 2.0, 2, None, "", "missing"])
@pytest.mark.parametrize("identifier", [7, "x", -1.5, "", 0])
async def test_a_wrong_jsonrpc_is_refused_under_the_call_s_own_id(
    app: JsonRpcBinding, version: object, identifier: object
) -> None:
    body = rpc("GetTask", ASKED, identifier) | {"jsonrpc": version}
    if version == "missing":
        del body["jsonrpc"]
    for sent, found in ((body, await call(app, body)), ([body], await call(app, [body]))):
        answer = found.json()[0] if isinstance(sent, list) else found.json()
        assert (found.status, answer["id"], answer["error"]["code"]) == (200, identifier, -32600)
        assert "jsonrpc" in answer["error"]["message"]


@pytest.mark.parametrize("identifier", [{}, [1], True, "x" * 1025])
async def test_invalid_ids_are_answered_as_null(app: JsonRpcBinding, identifier: object) -> None:
    answer = (await call(app, rpc("GetTask", ASKED, identifier))).json()
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)
