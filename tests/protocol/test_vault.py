"""AgentVault's profile, beyond its golden files: what is refused, what ends a stream, what its own models accept."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accord import errors
from accord.errors import TABLE, AccordError, InvalidAgentResponse, InvalidParams, ParseError, TaskNotCancelable
from accord.model import (
    AgentCard,
    ApiKeyScheme,
    Artifact,
    CancelRequest,
    CardRequest,
    Event,
    Message,
    Part,
    Role,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
    SendRequest,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.protocol.dialects.vault import Vault
from accord.protocol.dialects.vault.events import agent_message
from accord.protocol.dialects.vault.objects import AUTH_REQUIRED, is_http
from accord.protocol.operations import DialectName, Operation, method_name
from accord.protocol.sse import Frame
from tests import strategies
from tests.cases import each
from tests.environments import judge
from tests.protocol import golden

VAULT = Vault()
HELLO = {"role": "user", "parts": [{"type": "text", "content": "hi"}]}
DONE = Task(id="t-1", status=TaskStatus(state=TaskState.COMPLETED))

EVENTS = {
    "task_status": "TaskStatusUpdateEvent",
    "task_message": "TaskMessageEvent",
    "task_artifact": "TaskArtifactUpdateEvent",
}
REQUESTS = {
    "SEND": "TaskSendParams",
    "STREAM": "TaskSendParams",
    "GET": "TaskGetParams",
    "SUBSCRIBE": "TaskGetParams",
    "CANCEL": "TaskCancelParams",
}
RESULTS = {"SEND": "TaskSendResult", "GET": "Task", "CANCEL": "TaskCancelResult", "EXTENDED_CARD": "AgentCard"}


# --- requests ---


@pytest.mark.proves("2-14", "B-16", "B-04")
@each(
    ("operation", "params", "field"),
    [
        ("SEND", {}, "message"),
        ("SEND", {"message": {"parts": HELLO["parts"]}}, "message.role"),
        ("SEND", {"message": HELLO | {"role": "captain"}}, "message.role"),
        ("SEND", {"message": {"role": "user"}}, "message.parts"),
        ("SEND", {"message": HELLO | {"parts": []}}, "message.parts"),
        ("SEND", {"message": HELLO | {"parts": [{"type": "text"}]}}, "message.parts[0]"),
        ("SEND", {"message": HELLO | {"parts": [*HELLO["parts"], {"type": "dance"}]}}, "message.parts[1]"),
        ("SEND", {"message": HELLO | {"parts": [{"type": "text", "content": 5}]}}, "message.parts[0]"),
        ("SEND", {"message": HELLO | {"metadata": []}}, "message.metadata"),
        ("SEND", {"message": HELLO, "id": 5}, "id"),
        ("SEND", {"message": HELLO, "webhookUrl": 5}, "webhookUrl"),
        ("STREAM", {"message": HELLO | {"parts": "hi"}}, "message.parts"),
        ("GET", {}, "id"),
        ("GET", {"id": ""}, "id"),
        ("GET", {"id": None}, "id"),
        ("GET", {"id": "t", "historyLength": -1}, "historyLength"),
        ("CANCEL", {}, "id"),
        ("SUBSCRIBE", {}, "id"),
        ("LIST", {"status": "DANCING"}, "status"),
        ("LIST", {"pageSize": 0}, "pageSize"),
        ("PUSH_SET", {}, "taskId"),
        ("PUSH_SET", {"taskId": "t"}, "url"),
        ("PUSH_SET", {"taskId": "t", "url": "https://a.example", "authentication": {}}, "authentication.scheme"),
        ("PUSH_LIST", {"taskId": "t", "pageSize": "many"}, "pageSize"),
    ],
)
def test_missing_and_invalid_fields_are_named(operation: str, params: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        VAULT.decode_request(Operation[operation], json.dumps(params).encode())
    assert [violation.field for violation in refused.value.violations] == [field]


@each("operation", Operation)
def test_invalid_json_is_not_a_request(operation: Operation) -> None:
    with pytest.raises(ParseError):
        VAULT.decode_request(operation, b"{")
    with pytest.raises(InvalidParams):
        VAULT.decode_request(operation, b"[]")


@pytest.mark.proves("B-08", "2-16")
def test_a_send_answers_at_once_and_the_client_reads_the_task_itself() -> None:
    request = VAULT.decode_request(Operation.SEND, json.dumps({"message": HELLO}).encode())
    assert isinstance(request, SendRequest)
    assert request.configuration is not None
    assert request.configuration.return_immediately
    assert VAULT.partial_results == {Operation.SEND, Operation.CANCEL}


@pytest.mark.proves("2-13", "2-14", "B-16")
@pytest.mark.parametrize(
    ("ids", "task_id"),
    [
        ({}, None),
        ({"id": None}, None),
        ({"id": ""}, None),
        ({"id": "t-1"}, "t-1"),
        ({"taskId": "t-1"}, "t-1"),
        ({"task_id": "t-1"}, "t-1"),
    ],
)
def test_a_send_without_id_starts_a_task_and_with_id_continues_it(ids: dict[str, Any], task_id: str | None) -> None:
    for operation in (Operation.SEND, Operation.STREAM):
        request = VAULT.decode_request(operation, json.dumps({"message": HELLO} | ids).encode())
        assert isinstance(request, SendRequest)
        assert request.message.task_id == task_id
        written = json.loads(VAULT.encode_request(operation, request))
        assert written.get("id") == task_id


@pytest.mark.proves("B-07", "B-methods")
def test_the_methods_are_the_profile_s() -> None:
    wanted = {
        Operation.SEND: "tasks/send",
        Operation.GET: "tasks/get",
        Operation.CANCEL: "tasks/cancel",
        Operation.SUBSCRIBE: "tasks/sendSubscribe",
    }
    assert {operation: method_name(operation, DialectName.VAULT) for operation in wanted} == wanted


# --- parts that AgentVault has no form for ---


@pytest.mark.proves("B-02", "4-41")
@pytest.mark.parametrize(
    "extras",
    [
        {"parts": {"0": {"form": "raw"}}},
        {"parts": {"0": {"form": "url"}}},
        {"parts": {"0": {"form": "value"}}},
        {"parts": {"7": {"form": "raw"}}},
    ],
)
def test_extras_that_do_not_fit_the_part_change_nothing(extras: Any) -> None:
    part = {"type": "data", "content": {"bytes": "no base64!"}}
    message = {"role": "user", "parts": [part], "metadata": {"a2a": extras}}
    request = VAULT.decode_request(Operation.SEND, json.dumps({"message": message}).encode())
    assert isinstance(request, SendRequest)
    assert request.message.parts[0].data == {"bytes": "no base64!"}


@pytest.mark.proves("4-41")
@pytest.mark.parametrize(
    "value", [5, "x", None, {}, {"form": 1}, {"parts": {"0": {"colour": "red"}}}, {"by": "someone"}]
)
def test_metadata_under_our_key_that_is_not_ours_is_the_user_s(value: Any) -> None:
    message = HELLO | {"metadata": {"a2a": value, "k": 1}}
    request = VAULT.decode_request(Operation.SEND, json.dumps({"message": message}).encode())
    assert isinstance(request, SendRequest)
    assert request.message.metadata == {"a2a": value, "k": 1}
    again = VAULT.decode_request(Operation.SEND, VAULT.encode_request(Operation.SEND, request))
    assert again == request


@each(
    ("url", "accepted"),
    [
        ("https://files.example/a", True),
        ("http://localhost:8080", True),
        ("http://127.0.0.1/", True),
        ("http://[::1]:80/x", True),
        ("https://xn--bcher-kva.example/", True),
        ("data:text/plain,x", False),
        ("s3://bucket/key", False),
        ("https://", False),
        ("https://a:99999/", False),
        ("https://999.1.1.1/", False),
        ("https://xn--/", False),
        ("https://exa mple/", False),
        ("https://a.example/\n", False),
        ("https://a.example/" + "x" * 2083, False),
        ("", False),
        (None, False),
    ],
)
def test_which_urls_a_file_may_have(url: str | None, accepted: bool) -> None:
    assert is_http(url) is accepted


AWKWARD_PARTS = strategies.parts | st.builds(
    Part,
    url=st.text(max_size=8).map(lambda text: "https://" + text) | st.sampled_from(["data:,x", "http://[", "a b"]),
    filename=st.none() | st.just("") | strategies.ids,
    media_type=st.none() | st.just("") | strategies.media_types,
)


@pytest.mark.proves("B-02", "B-06")
@given(st.lists(AWKWARD_PARTS, min_size=1, max_size=3), st.booleans())
def test_every_part_survives_in_messages_and_artifacts(parts: list[Part], typed: bool) -> None:
    message = Message(message_id="m", role=Role.USER, parts=tuple(parts))
    request = VAULT.decode_request(Operation.SEND, VAULT.encode_request(Operation.SEND, SendRequest(message=message)))
    assert isinstance(request, SendRequest)
    assert request.message == message

    artifact = Artifact(artifact_id="a", parts=tuple(parts), metadata={"type": "report"} if typed else None)
    task = Task(id="t", status=DONE.status, artifacts=(artifact,))
    read = VAULT.decode_result(Operation.GET, VAULT.encode_result(Operation.GET, task), strategies.GET)
    assert isinstance(read, Task)
    assert read.artifacts == (artifact,)


# --- results ---


@pytest.mark.proves("B-05", "B-06", "2-17")
@given(strategies.tasks)
def test_a_task_survives_except_for_the_ids_that_its_messages_share(task: Task) -> None:
    read = VAULT.decode_result(Operation.GET, VAULT.encode_result(Operation.GET, task), strategies.GET)
    assert isinstance(read, Task)
    assert read.status.state is task.status.state
    assert (read.id, read.context_id, read.artifacts) == (task.id, task.context_id, task.artifacts)
    stated = {key: value for key, value in (read.metadata or {}).items() if key != "createdAt"}
    assert stated == (task.metadata or {})
    assert [_bare(message) for message in read.history] == [_bare(message) for message in task.history]
    assert _bare(read.status.message) == _bare(task.status.message)


@pytest.mark.proves("B-05", "B-states")
@given(strategies.tasks)
def test_auth_required_is_marked_only_then(task: Task) -> None:
    written = json.loads(VAULT.encode_result(Operation.GET, task))["messages"][len(task.history) :]
    words = [part["content"] for message in written for part in message["parts"] if part["type"] == "text"]
    assert (words[:1] == [AUTH_REQUIRED]) is (task.status.state is TaskState.AUTH_REQUIRED)


def _bare(message: Message | None) -> Message | None:
    return message and msgspec.structs.replace(message, task_id=None, context_id=None)


@pytest.mark.proves("2-18", "B-12")
def test_a_task_that_cannot_be_canceled_is_a_result() -> None:
    refusal = VAULT.error_as_result(Operation.CANCEL, TaskNotCancelable("It is done"))
    assert refusal is not None
    assert json.loads(refusal) == {"success": False, "message": "It is done"}
    assert judge("agentvault", "vault.py", [{"type": "TaskCancelResult", "json": json.loads(refusal)}]) == [None]
    with pytest.raises(TaskNotCancelable, match="It is done"):
        VAULT.decode_result(Operation.CANCEL, refusal, CancelRequest(id="t-1"))


@pytest.mark.proves("B-12")
@pytest.mark.parametrize(("operation", "error"), [("GET", TaskNotCancelable()), ("CANCEL", errors.TaskNotFound())])
def test_every_other_error_is_an_error(operation: str, error: AccordError) -> None:
    assert VAULT.error_as_result(Operation[operation], error) is None


@pytest.mark.proves("2-33")
@each(
    ("operation", "answer"),
    [
        ("SEND", b"{}"),
        ("SEND", b'{"id":5}'),
        ("GET", b"[]"),
        ("GET", b"{"),
        ("GET", b'{"id":"","state":"WORKING"}'),
        ("GET", b'{"id":"t","state":"DANCING"}'),
        ("GET", b'{"id":"t","state":"WORKING","updatedAt":"yesterday"}'),
        ("GET", b'{"id":"t","state":"WORKING","messages":[{"role":"user","parts":[]}]}'),
        ("LIST", b'{"tasks":[{"id":"t"}]}'),
        ("CANCEL", b'{"success":"maybe"}'),
        ("PUSH_GET", b"{}"),
        ("EXTENDED_CARD", b"{}"),
    ],
)
def test_invalid_answers_are_agent_errors(operation: str, answer: bytes) -> None:
    with pytest.raises(InvalidAgentResponse):
        VAULT.decode_result(Operation[operation], answer, CardRequest())


# --- streams ---


@pytest.mark.proves("2-23", "2-24", "2-25", "B-14")
@given(strategies.events)
def test_events_are_bare_objects_under_their_name(event: Event) -> None:
    frame = VAULT.encode_event(event)
    assert VAULT.wraps_events is False
    assert frame.event in EVENTS
    assert "jsonrpc" not in json.loads(frame.data)


@pytest.mark.proves("2-26")
def test_an_error_in_a_stream_has_code_message_and_details() -> None:
    error = InvalidParams(
        "Step failed", violations=(errors.Violation("x", "Too long"),), retry_after=3, metadata={"step": "4"}
    )
    frame = VAULT.encode_stream_error(error)
    assert frame.event == "error"
    assert json.loads(frame.data) == {
        "code": "INVALID_PARAMS",
        "message": "Step failed",
        "details": {"step": "4", "violations": [{"field": "x", "description": "Too long"}], "retry_after": 3},
    }
    with pytest.raises(InvalidParams) as raised:
        VAULT.decode_event(frame)
    assert (raised.value.message, raised.value.violations) == (error.message, error.violations)
    assert (raised.value.retry_after, raised.value.metadata) == (error.retry_after, error.metadata)


@pytest.mark.proves("2-26")
def test_an_internal_error_is_the_profile_s_processing_error() -> None:
    frame = VAULT.encode_stream_error(errors.InternalError())
    assert json.loads(frame.data) == {"code": "AGENT_PROCESSING_ERROR", "message": "An internal error occurred"}
    foreign = {"code": "AGENT_PROCESSING_ERROR", "message": "Failed to process step X.", "details": {"step": "X"}}
    with pytest.raises(errors.InternalError, match="Failed to process step X") as raised:
        VAULT.decode_event(Frame(event="error", data=json.dumps(foreign).encode()))
    assert raised.value.metadata == {"step": "X"}


@pytest.mark.proves("2-26")
def test_failed_task_is_followed_by_a_processing_error() -> None:
    reason = Message(message_id="m", role=Role.AGENT, parts=(Part(text="No paper"),))
    status = TaskStatus(state=TaskState.FAILED, message=reason)
    frame = VAULT.encode_failure(Event(seq=3, body=StatusUpdate(task_id="t", context_id="c", status=status)))
    assert frame is not None
    assert (frame.event, frame.id) == ("error", None)
    assert json.loads(frame.data) == {
        "code": "AGENT_PROCESSING_ERROR",
        "message": "No paper",
        "details": {"taskId": "t"},
    }
    read = VAULT.decode_event(frame)
    assert isinstance(read, StatusUpdate)
    assert (read.task_id, read.status.state, read.status.message) == (
        "t",
        TaskState.FAILED,
        agent_message("No paper", "t"),
    )
    canceled = StatusUpdate(task_id="t", context_id="c", status=TaskStatus(state=TaskState.CANCELED))
    assert VAULT.encode_failure(Event(seq=3, body=canceled)) is None


@pytest.mark.proves("2-17", "2-25")
def test_chunks_of_a_streamed_text_are_one_string() -> None:
    chunks = Artifact(artifact_id="a", parts=(Part(text="Hello, "), Part(text=""), Part(text="Ada")))
    task = Task(id="t", status=TaskStatus(state=TaskState.COMPLETED), artifacts=(chunks,))
    wire = json.loads(VAULT.push_task(task))
    (written,) = wire["artifacts"]
    assert (written["type"], written["content"]) == ("text", "Hello, Ada")
    read = VAULT.read_push(json.dumps(wire).encode())
    assert isinstance(read, Task)
    assert read.artifacts == (chunks,)
    written["metadata"]["a2a"]["texts"] = [1, 2]  # of another text: the text counts
    changed = VAULT.read_push(json.dumps(wire).encode())
    assert isinstance(changed, Task)
    assert changed.artifacts[0].parts == (Part(text="Hello, Ada"),)


@pytest.mark.proves("2-26", "B-errors")
@each("kind", TABLE)
def test_every_error_can_end_a_stream(kind: type[AccordError]) -> None:
    with pytest.raises(errors.for_reason(kind().row.reason) or kind, match="why"):
        VAULT.decode_event(VAULT.encode_stream_error(kind("why")))


@pytest.mark.proves("2-26")
@pytest.mark.parametrize("data", [b"", b"oops", b"[]", b'{"code":"MELTDOWN","message":"x"}', b'{"code":7}'])
def test_unknown_error_events_are_errors(data: bytes) -> None:
    with pytest.raises(errors.RemoteError):
        VAULT.decode_event(Frame(event="error", data=data))


@pytest.mark.parametrize(
    "frame",
    [
        Frame(data=b""),
        Frame(data=b"{}"),
        Frame(event="task_status", data=b'{"taskId":"t"}'),
        Frame(event="task_status", data=b'{"taskId":"","state":"WORKING"}'),
        Frame(event="task_status", data=b'{"taskId":"t","state":"WORKING","timestamp":"noon"}'),
        Frame(event="task_artifact", data=b'{"taskId":"t","artifact":{}}'),
        Frame(event="task_message", data=b'{"taskId":"t","message":"hi"}'),
    ],
)
def test_invalid_events_are_agent_errors(frame: Frame) -> None:
    with pytest.raises(InvalidAgentResponse):
        VAULT.decode_event(frame)


@pytest.mark.proves("B-05")
@given(st.text(max_size=30))
def test_only_our_own_words_mean_that_authentication_is_required(words: str) -> None:
    said = Message(message_id="", role=Role.AGENT, parts=(Part(text=words),), task_id="t")
    for state in (TaskState.AUTH_REQUIRED, TaskState.WORKING):
        body = StatusUpdate(task_id="t", context_id="", status=TaskStatus(state=state, message=said))
        assert VAULT.decode_event(VAULT.encode_event(Event(seq=1, body=body))) == body


# --- errors and cards ---


@pytest.mark.proves("2-30", "2-31", "2-32", "B-errors")
@each("kind", TABLE)
def test_codes_are_standard_or_application_codes(kind: type[AccordError]) -> None:
    wire = VAULT.encode_error(kind("why"))
    assert wire.code in {-32700, -32600, -32601, -32602, -32603} or -32099 <= wire.code <= -32000
    assert wire.data == {"reason": kind().row.reason}


CARD = {
    "schemaVersion": "1.0",
    "humanReadableId": "acme/echo",
    "agentVersion": "1",
    "name": "Echo",
    "description": "",
    "url": "https://a.example",
    "provider": {"name": "Acme"},
    "capabilities": {"a2aVersion": "0.2"},
    "authSchemes": [{"scheme": "none"}],
}


@pytest.mark.proves("B-03")
@each("field", CARD)
def test_a_card_lacks_nothing_that_agentvault_requires(field: str) -> None:
    card = {name: value for name, value in CARD.items() if name != field}
    with pytest.raises(InvalidParams) as refused:
        VAULT.decode_card(json.dumps(card).encode())
    assert refused.value.violations[0].field == field


@pytest.mark.proves("B-03")
@pytest.mark.parametrize(
    ("scheme", "field"),
    [
        ({}, "authSchemes[0].scheme"),
        ({"scheme": "magic"}, "authSchemes[0].scheme"),
        ({"scheme": "oauth2"}, "authSchemes[0].tokenUrl"),
    ],
)
def test_a_scheme_that_cannot_be_used_is_refused(scheme: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        VAULT.decode_card(json.dumps(CARD | {"authSchemes": [scheme]}).encode())
    assert refused.value.violations[0].field == field


def test_two_schemes_of_a_kind_are_kept_apart() -> None:
    schemes = [{"scheme": "apiKey", "service_identifier": name} for name in ("one", "two")]
    card = VAULT.decode_card(json.dumps(CARD | {"authSchemes": schemes}).encode())
    assert card.profile is not None
    assert card.profile.service_identifiers == {"apiKey": "one", "apiKey2": "two"}
    assert VAULT.encode_card(card)["authSchemes"] == schemes


@pytest.mark.proves("B-03", "2-07")
@given(strategies.cards)
def test_only_open_cards_declare_no_authentication(card: AgentCard) -> None:
    asks = bool(card.security_schemes or card.security_requirements)  # also for what it does not describe
    open_to_all = not asks or any(not found.schemes for found in card.security_requirements)
    schemes = [found["scheme"] for found in VAULT.encode_card(card)["authSchemes"]]
    assert ("none" in schemes) is open_to_all


def test_vault_cards_do_not_offer_signatures() -> None:
    signature = ApiKeyScheme(location="header", name="x-a2a-signature", description="How it is made")
    card = VAULT.decode_card(json.dumps(CARD).encode())
    alone = replace(card, security_schemes={"s": SecurityScheme(api_key_security_scheme=signature)})
    (way,) = VAULT.encode_card(replace(alone, security_requirements=()))["authSchemes"]
    assert way == {"scheme": "bearer", "description": "A signature in the header x-a2a-signature: How it is made"}


def test_undescribed_requirements_are_named() -> None:
    card = VAULT.decode_card(json.dumps(CARD).encode())
    asking = replace(card, security_requirements=(SecurityRequirement(schemes={"magic": Scopes()}),))
    assert VAULT.encode_card(asking)["authSchemes"] == [
        {"scheme": "bearer", "description": "magic, which the card does not describe"}
    ]


# --- AgentVault's own judgement ---


@pytest.mark.proves("2-33")
def test_agentvault_s_models_accept_every_golden_wire() -> None:
    cases = [found for name, _, case in golden.cases() if name == "vault" for found in _judged(case)]
    assert len(cases) >= 60
    complaints = judge("agentvault", "vault.py", cases)
    assert [(case, why) for case, why in zip(cases, complaints, strict=True) if why] == []


def _judged(case: golden.Case) -> list[dict[str, Any]]:
    """What AgentVault has a model for, among what we write."""
    wire, operation = case.wire, case.operation or ""
    if case.direction == "in":
        return []
    match case.kind:
        case "request" if operation in REQUESTS:
            return [{"type": REQUESTS[operation], "json": wire}]
        case "result" if operation == "LIST":
            return [{"type": "Task", "json": task} for task in wire["tasks"]]
        case "result" if operation in RESULTS:
            return [{"type": RESULTS[operation], "json": wire}]
        case "event":
            return [{"type": EVENTS[wire["event"]], "json": wire["data"]}]
        case "card":
            return [{"type": "AgentCard", "json": wire}]
        case "push" if case.format != "simple":
            kind = next((EVENTS[f"task_{member}"] for member in ("artifact", "message") if member in wire), None)
            return [{"type": kind or (EVENTS["task_status"] if "taskId" in wire else "Task"), "json": wire}]
    return []


def _drawn(strategy: st.SearchStrategy[Any], count: int = 100) -> list[Any]:
    found: list[Any] = []

    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found[:count]


@pytest.mark.proves("2-33", "B-02")
def test_agentvault_accepts_our_output() -> None:
    tasks, events = _drawn(strategies.tasks), _drawn(strategies.events)
    parts = _drawn(st.lists(AWKWARD_PARTS, min_size=1, max_size=3).map(tuple))
    frames = [VAULT.encode_event(event) for event in events]
    sends = [SendRequest(message=Message(message_id="m", role=Role.USER, parts=found)) for found in parts]
    cases = [
        *[("Task", VAULT.encode_result(Operation.GET, task)) for task in tasks],
        *[("TaskSendResult", VAULT.encode_result(Operation.SEND, task)) for task in tasks],
        *[("TaskCancelResult", VAULT.encode_result(Operation.CANCEL, task)) for task in tasks],
        *[(EVENTS[str(frame.event)], frame.data) for frame in frames],
        *[("TaskSendParams", VAULT.encode_request(Operation.SEND, send)) for send in sends],
        *[
            ("TaskSendParams", VAULT.encode_request(Operation.SEND, send))
            for send in _drawn(strategies.requests["SEND"])
        ],
        *[("AgentCard", msgspec.json.encode(VAULT.encode_card(card))) for card in _drawn(strategies.cards)],
    ]
    asked = [{"type": kind, "json": json.loads(wire)} for kind, wire in cases]
    complaints = judge("agentvault", "vault.py", asked)
    assert [(case, why) for case, why in zip(asked, complaints, strict=True) if why] == []
