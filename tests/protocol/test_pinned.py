"""Small facts that several dialects share, each stated once more so that it cannot change unseen."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from accord.errors import InvalidParams
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    Artifact,
    ArtifactUpdate,
    CancelRequest,
    CardSignature,
    Event,
    Message,
    Part,
    PushConfig,
    PushFormat,
    PushPage,
    Role,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    Task,
    TaskFilter,
    TaskState,
    TaskStatus,
)
from accord.protocol.codec import convert
from accord.protocol.json_schema import MAX_STEPS, check
from accord.protocol.operations import Operation
from accord.protocol.parts import AnyPart, read_parts
from tests import strategies
from tests.cases import each
from tests.protocol.golden import CODECS

HELLO = Message(message_id="m-1", role=Role.USER, parts=(Part(text="hi"),))
DONE = TaskStatus(state=TaskState.REJECTED, timestamp="2024-03-15T18:30:00.000Z")
each_codec = pytest.mark.parametrize("name", CODECS)


def sent(name: str, params: Any) -> SendRequest:
    """Read a send."""
    found = CODECS[name].decode_request(Operation.SEND, json.dumps(params).encode())
    assert isinstance(found, SendRequest)
    return found


def again(name: str, request: SendRequest) -> SendRequest:
    """Write a send and read it."""
    return sent(name, json.loads(CODECS[name].encode_request(Operation.SEND, request)))


# --- roles ---

ROLES = [
    ("user", Role.USER, None),
    ("assistant", Role.AGENT, None),
    ("agent", Role.AGENT, None),
    ("system", Role.USER, {"role": "system"}),
    ("tool", Role.USER, {"role": "tool"}),
]


@pytest.mark.proves("B-04")
@pytest.mark.parametrize(("said", "role", "metadata"), ROLES)
def test_roles_read_from_vault_and_gen(said: str, role: Role, metadata: Any) -> None:
    part = {"type": "text", "content": "hi"}
    for name, message in (
        ("vault", {"role": said, "parts": [part]}),
        ("gen", {"role": said, "parts": [part]}),
        ("gen", {"metadata": {"role": said}, "parts": [part]}),
    ):
        found = sent(name, {"message": message}).message
        assert (found.role, found.metadata) == (role, metadata)


@pytest.mark.proves("B-04")
@each("name", ["vault", "gen"])
@each(
    ("role", "metadata", "said"),
    [
        (Role.USER, None, "user"),
        (Role.AGENT, None, "agent"),
        (Role.USER, {"role": "system"}, "system"),
        (Role.AGENT, {"role": "system"}, "system"),
        (Role.USER, {"role": "tool", "k": 1}, "tool"),
        (Role.AGENT, {"role": "tool"}, "tool"),
        (Role.USER, {"role": "captain"}, "user"),
        (Role.AGENT, {"role": 5}, "agent"),
    ],
)
def test_roles_written_to_vault_and_gen(name: str, role: Role, metadata: Any, said: str) -> None:
    request = SendRequest(message=replace(HELLO, role=role, metadata=metadata))
    wire = json.loads(CODECS[name].encode_request(Operation.SEND, request))["message"]
    if name == "vault":
        assert wire["role"] == ("assistant" if said == "agent" else said)
    else:
        assert wire["metadata"]["role"] == said
    assert again(name, request).message == request.message


# --- parts ---


@pytest.mark.proves("B-01", "B-02")
@each(
    ("wire", "part"),
    [
        # Without a discriminator: by the member that is there.
        ({"text": "x"}, Part(text="x")),
        ({"text": "", "mediaType": "text/markdown"}, Part(text="", media_type="text/markdown")),
        ({"content": "x"}, Part(text="x")),
        ({"content": {"a": 1}}, Part(data={"a": 1})),
        ({"content": [1]}, Part(data=[1])),
        ({"content": 5}, Part(data=5)),
        ({"content": None}, Part(data=None)),
        ({"data": None}, Part(data=None)),
        ({"data": "x", "content": "y"}, Part(data="x")),
        ({"url": "https://example.com", "content": "eA=="}, Part(url="https://example.com")),
        ({"raw": "eA"}, Part(raw=b"x")),
        ({"file": {"bytes": "_-8="}}, Part(raw=b"\xff\xef")),
        # With one: it decides, under either of its names.
        ({"kind": "text", "text": "x", "content": "y"}, Part(text="x")),
        ({"type": "text", "content": "x"}, Part(text="x")),
        ({"type": "data", "content": "x"}, Part(data="x")),
        ({"kind": "data", "type": "text", "data": 1, "text": "x"}, Part(data=1)),
        ({"type": "data", "content": {}, "mediaType": "application/json"}, Part(data={})),
        ({"type": "data", "content": {}, "mime_type": "text/csv"}, Part(data={}, media_type="text/csv")),
        ({"type": "data", "content": 1, "schema": {}}, Part(data=1, metadata={"schema": {}})),
        (
            {"type": "data", "content": 1, "schema": {"a": 1}, "metadata": {"k": 1}},
            Part(data=1, metadata={"k": 1, "schema": {"a": 1}}),
        ),
        ({"type": "file", "content": "eA==", "name": "n"}, Part(raw=b"x", filename="n")),
        ({"type": "file", "url": "u", "filename": "f", "name": "n"}, Part(url="u", filename="f")),
        ({"type": "file", "url": "u", "mime_type": "a/b"}, Part(url="u", media_type="a/b")),
        ({"type": "file", "url": "u", "mediaType": "c/d", "mime_type": "a/b"}, Part(url="u", media_type="c/d")),
        (
            {"kind": "file", "file": {"fileWithUri": "u", "name": "n", "mimeType": "a/b"}, "filename": "f"},
            Part(url="u", filename="n", media_type="a/b"),
        ),
        ({"kind": "file", "file": {"fileWithBytes": "eA=="}}, Part(raw=b"x")),
        ({"kind": "file", "file": {"bytes": ""}}, Part(raw=b"")),
        ({"type": "reference", "url": "u"}, Part(url="u", metadata={"reference": True})),
        (
            {"type": "reference", "url": "u", "name": "n", "mime_type": "a/b", "metadata": {"k": 1}},
            Part(url="u", filename="n", media_type="a/b", metadata={"k": 1, "reference": True}),
        ),
    ],
)
def test_accepted_parts(wire: Any, part: Part) -> None:
    assert read_parts([convert(wire, AnyPart)], "parts") == (part,)


@pytest.mark.proves("B-01", "B-02")
@each(
    ("wire", "reason"),
    [
        ({}, "Unknown part ''"),
        ({"kind": "video", "text": "x"}, "Unknown part 'video'"),
        ({"type": "text", "content": 5}, "A text part needs"),
        ({"type": "data", "text": "x"}, "A data part needs"),
        ({"type": "file", "content": 5}, "A file part needs"),
        ({"type": "file", "content": "no base64!"}, "Invalid base64"),
        ({"type": "file", "content": "aGVsbG8=="}, "Invalid base64"),
        ({"type": "file", "content": "===="}, "Invalid base64"),
        ({"type": "reference", "content": "u"}, "A reference part needs"),
    ],
)
def test_invalid_parts(wire: Any, reason: str) -> None:
    fine = AnyPart(text="x")
    with pytest.raises(InvalidParams, match=reason) as refused:
        read_parts([fine, convert(wire, AnyPart), fine], "parts")
    assert refused.value.violations[0].field == "parts[1]"


@pytest.mark.proves("B-16")
def test_empty_ids_are_missing() -> None:
    part = {"type": "text", "content": "hi"}
    found = sent("gen", {"message": {"id": "", "task_id": "", "context_id": "", "parts": [part]}}).message
    assert (found.message_id, found.task_id, found.context_id) == ("", None, None)
    for name in ("v03", "relay", "v03_rest"):
        message = {"messageId": "m-1", "role": "user", "taskId": "", "contextId": "", "parts": [{"text": "hi"}]}
        assert sent(name, {"message": message}).message == HELLO


# --- data and its schema ---


@pytest.mark.proves("4-09")
@each(
    ("data", "schema", "steps"),
    [
        # One for each schema, keyword's list and value, times one for each value of the data.
        (1, {}, 1),
        (1, {"type": "integer"}, 2),
        (1, {"allOf": [{}, {"minimum": 0}]}, 5),
        (1, {"$ref": "#/$defs/a", "$defs": {"a": {"minimum": 0}}}, 7),
        ([1, 2], {}, 3),
        ([[1], 2], {}, 4),
        # A member is its name, its value and the pair; text counts by its length.
        ({"a": 1, "b": [1]}, {}, 8),
        ("x" * 9, {}, 1),
        ("x" * 25, {}, 3),
        (["x" * 25], {"type": "array"}, 8),
    ],
)
def test_the_cost_of_a_check(data: Any, schema: dict[str, Any], steps: int) -> None:
    assert check(data, schema, "content", "schema") == steps
    assert check(data, schema, "content", "schema", MAX_STEPS - steps) == MAX_STEPS
    with pytest.raises(InvalidParams, match="too large for so complex a schema"):
        check(data, schema, "content", "schema", MAX_STEPS - steps + 1)


@pytest.mark.proves("4-09")
def test_parts_of_a_send_share_the_work_limit() -> None:
    part = {"type": "data", "content": [1] * 999, "schema": {"allOf": [{}] * 999}}
    assert len(sent("gen", {"message": {"parts": [part]}}).message.parts) == 1
    with pytest.raises(InvalidParams, match="too large for so complex a schema") as refused:
        sent("gen", {"message": {"parts": [part] * 2}})
    assert refused.value.violations[0].field == "message.parts[1].content"


# --- nulls ---

CARD = AgentCard(
    name="Trips",
    description="Plans trips",
    version="1",
    supported_interfaces=(
        AgentInterface(url="https://example.com/", protocol_binding="JSONRPC", protocol_version="0.3"),
    ),
    capabilities=AgentCapabilities(),
    default_input_modes=("text/plain",),
    default_output_modes=("text/plain",),
    skills=(),
)
NULLS = {"none": None, "deep": {"none": None, "list": [None]}}


@pytest.mark.proves("4-41")
@pytest.mark.parametrize("name", ["v1", "v03"])
@pytest.mark.parametrize("elsewhere", [{}, {"iconUrl": None, "provider": None, "securitySchemes": None}])
def test_nulls_in_free_data_are_kept_and_as_members_mean_nothing(name: str, elsewhere: dict[str, None]) -> None:
    able = AgentCapabilities(extensions=(AgentExtension(uri="https://example.com/x", params=NULLS),))
    signed = (CardSignature(protected="p", signature="s", header=NULLS),)
    card = replace(CARD, capabilities=able, signatures=signed)
    wire = CODECS[name].encode_card(card) | elsewhere
    assert CODECS[name].decode_card(json.dumps(wire).encode()) == card
    wire["capabilities"]["extensions"][0] |= {"params": None, "description": None, "required": None}
    wire["signatures"][0]["header"] = None
    read = CODECS[name].decode_card(json.dumps(wire).encode())
    assert read.capabilities.extensions == (AgentExtension(uri="https://example.com/x"),)
    assert read.signatures == (CardSignature(protected="p", signature="s"),)


@pytest.mark.proves("4-41")
@each_codec
def test_nulls_in_metadata_and_data_are_kept(name: str) -> None:
    parts = (Part(data=NULLS, metadata=NULLS), Part(data=None))
    message = replace(HELLO, parts=parts, metadata=NULLS)
    assert again(name, SendRequest(message=message)).message == message


@pytest.mark.parametrize("name", ["v03", "relay", "v03_rest"])
def test_an_empty_filter_filters_nothing(name: str) -> None:
    empty = {key: "" for key in ("contextId", "status", "pageToken", "statusTimestampAfter")}
    assert CODECS[name].decode_request(Operation.LIST, json.dumps(empty).encode()) == TaskFilter()


# --- addresses of a card ---

ONE, OLD, OLDER = "https://one.example/", "https://old.example/", "https://older.example/"


@pytest.mark.proves("B-03")
@pytest.mark.parametrize(
    ("stated", "version", "main", "others"),
    [
        # Where any address speaks 0.x, those of 1.0 are not listed; 0.3 comes before what is older.
        ([(ONE, "JSONRPC", "1.0"), (OLD, "JSONRPC", "0.3")], "0.3.0", (OLD, "JSONRPC"), []),
        (
            [(OLDER, "JSONRPC", "0.2"), (OLD, "GRPC", "0.3"), (ONE, "GRPC", "1.0")],
            "0.3.0",
            (OLD, "GRPC"),
            [(OLDER, "JSONRPC")],
        ),
        ([(OLDER, "GRPC", "0.2.6"), (OLDER, "JSONRPC", "0.2.6")], "0.2.6", (OLDER, "JSONRPC"), [(OLDER, "GRPC")]),
        # Else all are, JSON-RPC first; the same address twice is one.
        (
            [(ONE, "GRPC", "1.0"), (ONE, "JSONRPC", "1.0"), (ONE, "JSONRPC", "1.1")],
            "0.3.0",
            (ONE, "JSONRPC"),
            [(ONE, "GRPC")],
        ),
        ([(ONE, "GRPC", "1.0")], "0.3.0", (ONE, "GRPC"), []),
        ([], "0.3.0", ("", "JSONRPC"), []),
    ],
)
def test_which_addresses_a_card_of_0_3_has(stated: Any, version: str, main: Any, others: Any) -> None:
    interfaces = tuple(AgentInterface(url=at, protocol_binding=by, protocol_version=of) for at, by, of in stated)
    wire = CODECS["v03"].encode_card(replace(CARD, supported_interfaces=interfaces))
    assert (wire["protocolVersion"], wire["url"], wire["preferredTransport"]) == (version, *main)
    assert [(at["url"], at["transport"]) for at in wire.get("additionalInterfaces", [])] == others


@pytest.mark.proves("B-03")
@pytest.mark.parametrize(
    ("stated", "vault", "gen"),
    [
        ([(ONE, "JSONRPC", "1.0"), (OLD, "GRPC", "0.2"), (OLDER, "GRPC", "gen")], OLD, OLDER),
        ([(ONE, "GRPC", "1.0"), (OLD, "JSONRPC", "1.0")], OLD, OLD),
        ([(ONE, "GRPC", "1.0"), (OLD, "GRPC", "1.0")], ONE, ONE),
    ],
)
def test_which_address_agentvault_s_and_the_generic_card_have(stated: Any, vault: str, gen: str) -> None:
    interfaces = tuple(AgentInterface(url=at, protocol_binding=by, protocol_version=of) for at, by, of in stated)
    card = replace(CARD, supported_interfaces=interfaces)
    assert (CODECS["vault"].encode_card(card)["url"], CODECS["gen"].encode_card(card)["url"]) == (vault, gen)


# --- words ---


@pytest.mark.proves("2-23")
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((Part(text="a"), Part(text="b")), "a\nb"),
        ((Part(data={"a": [1]}),), '{"a":[1]}'),
        ((Part(url="https://example.com", filename="f"),), "https://example.com"),
        ((Part(raw=b"x", filename="f"),), "f"),
        ((Part(raw=b"x"),), ""),
    ],
)
def test_vault_status_texts(parts: tuple[Part, ...], words: str) -> None:
    status = TaskStatus(state=TaskState.WORKING, message=replace(HELLO, parts=parts), timestamp=DONE.timestamp)
    event = Event(seq=1, body=StatusUpdate(task_id="t-1", context_id="c-1", status=status))
    frame = CODECS["vault"].encode_event(event)
    assert frame is not None
    assert json.loads(frame.data)["message"] == words


# --- what is ours ---

OURS = PushConfig(
    url="https://example.com/hook", id="p-1", task_id="t-1", payload_format=PushFormat.SIMPLE, events=("completed",)
)


def members(wire: Any) -> Iterator[str]:
    if isinstance(wire, dict):
        yield from wire
    for inner in wire.values() if isinstance(wire, dict) else wire if isinstance(wire, list) else ():
        yield from members(inner)


@pytest.mark.proves("B-10", "C-02")
@each_codec
def test_webhook_extensions_are_sent_only_where_known(name: str) -> None:
    codec = CODECS[name]
    configuration = SendConfiguration(task_push_notification_config=OURS)
    for operation, wire in (
        ("SEND", codec.encode_request(Operation.SEND, SendRequest(message=HELLO, configuration=configuration))),
        ("PUSH_SET", codec.encode_request(Operation.PUSH_SET, OURS)),
        ("PUSH_SET", codec.encode_result(Operation.PUSH_SET, OURS)),
        ("PUSH_GET", codec.encode_result(Operation.PUSH_GET, OURS)),
        ("PUSH_LIST", codec.encode_result(Operation.PUSH_LIST, PushPage(configs=(OURS, OURS)))),
    ):
        found = set(members(json.loads(wire)))
        assert not found & {"payloadFormat", "payload_format"}, operation
        assert "events" not in found or name == "gen", operation


@pytest.mark.proves("B-10", "C-02")
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("v1", {"taskId": "t-1", "id": "p-1", "url": OURS.url, "payloadFormat": "simple", "events": ["completed"]}),
        ("vault", {"taskId": "t-1", "id": "p-1", "url": OURS.url, "payloadFormat": "simple", "events": ["completed"]}),
        (
            "gen",
            {
                "task_id": "t-1",
                "config_id": "p-1",
                "url": OURS.url,
                "payload_format": "simple",
                "events": ["completed"],
            },
        ),
        *[
            (
                name,
                {
                    "taskId": "t-1",
                    "pushNotificationConfig": {
                        "id": "p-1",
                        "url": OURS.url,
                        "payloadFormat": "simple",
                        "events": ["completed"],
                    },
                },
            )
            for name in ("v03", "relay", "v03_rest")
        ],
    ],
)
def test_a_webhook_s_format_and_events_are_read_from_everyone(name: str, params: Any) -> None:
    assert CODECS[name].decode_request(Operation.PUSH_SET, json.dumps(params).encode()) == OURS


# --- empty metadata ---

# Where `{}` is not kept: AgentVault's requests and status events have no metadata, and protobuf JSON's cancel neither.
LOST = {"vault": {"send", "cancel", "status"}, "v03_rest": {"cancel"}}
MADE = Artifact(artifact_id="a-1", parts=(Part(text="x", metadata={}),), metadata={})


@pytest.mark.proves("4-41")
@each_codec
def test_empty_metadata_is_kept_wherever_there_is_metadata(name: str) -> None:
    codec = CODECS[name]
    message = replace(HELLO, parts=(Part(text="hi", metadata={}),), metadata={})
    send = again(name, SendRequest(message=message, metadata={}))
    cancel = CancelRequest(id="t-1", metadata={})
    cancel = codec.decode_request(Operation.CANCEL, codec.encode_request(Operation.CANCEL, cancel))  # type: ignore[assignment]
    task = Task(id="t-1", context_id="c-1", status=DONE, artifacts=(MADE,), metadata={})
    task = codec.decode_result(Operation.GET, codec.encode_result(Operation.GET, task), strategies.GET)  # type: ignore[assignment]
    status = _event(name, StatusUpdate(task_id="t-1", context_id="c-1", status=DONE, metadata={}))
    made = _event(name, ArtifactUpdate(task_id="t-1", context_id="c-1", artifact=MADE, metadata={}))
    kept = {"send": send, "cancel": cancel, "status": status, "task": task, "made": made}
    lost = {place for place, found in kept.items() if found.metadata != {}}
    assert lost == LOST.get(name, set())
    assert send.message == message
    assert task.artifacts == (made.artifact,) == (MADE,)


def _event(name: str, body: Any) -> Any:
    frame = CODECS[name].encode_event(Event(seq=1, body=body, at=DONE.timestamp))
    assert frame is not None
    return CODECS[name].decode_event(frame)


@pytest.mark.proves("B-02")
@pytest.mark.parametrize("name", ["v03", "relay", "v03_rest"])
def test_empty_metadata_of_wrapped_data_is_dropped(name: str) -> None:
    found = again(name, SendRequest(message=replace(HELLO, parts=(Part(data=5, metadata={}),)))).message
    assert found.parts == (Part(data=5),)
