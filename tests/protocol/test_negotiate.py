"""Negotiation: every word of the rules, their order, and a rejection that says what is wrong.

The tables here are written from the rules, not from the code: a word that is moved or lost there fails here.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.errors import InvalidParams, InvalidRequest, MethodNotFound, VersionNotSupported
from accord.protocol.cards import decode_card
from accord.protocol.negotiation import DialectRoute, Inquiry, Rejection, answer_dialect, negotiate
from accord.protocol.operations import DialectName, Operation
from tests.cases import each

V1, V03, VAULT, GEN, RELAY = DialectName
PUSH = "tasks/pushNotificationConfig/"


def sent(*parts: dict, **message: Any) -> dict:
    return {"message": {"role": "user", "parts": list(parts), **message}}


KIND = {"kind": "text", "text": "x"}
TYPE_TEXT = {"type": "text", "text": "x"}
TYPE_CONTENT = {"type": "text", "content": "x"}
BARE = {"text": "x"}


def inquire(method: str, params: object = None, **more: Any) -> DialectRoute | Rejection:
    return negotiate(Inquiry(method=method, params=json.dumps({} if params is None else params).encode(), **more))


def route(method: str, params: object = None, **more: Any) -> DialectRoute:
    found = inquire(method, params, **more)
    assert isinstance(found, DialectRoute), found
    return found


def rejection(method: str, params: object = None, **more: Any) -> Rejection:
    found = inquire(method, params, **more)
    assert isinstance(found, Rejection), found
    return found


# --- the rules ----------------------------------------------------------------------------------------------------


@pytest.mark.proves("B-00")
@pytest.mark.parametrize("dialect", DialectName)
def test_1_an_explicit_wish_beats_everything(dialect: DialectName) -> None:
    method = "GetTask" if dialect is V1 else "tasks/get"
    found = route(method, {"task_id": "t"}, dialect=f" {dialect.value.upper()} ", version="1.0", path="/gen/")
    assert (found.dialect, found.ask_task) == (dialect, None)


@pytest.mark.proves("B-00")
@pytest.mark.parametrize(
    ("path", "dialect"), [("/a2a/", VAULT), ("/a2a", VAULT), ("/jsonrpc", V03), ("/gen/", GEN), ("/gen", GEN)]
)
def test_2_a_mount_path_beats_version_and_shape(path: str, dialect: DialectName) -> None:
    assert route("message/send", sent(TYPE_TEXT), path=path, version="1.0").dialect is dialect
    assert rejection("SendMessage", path=path).dialect is dialect, "not even a 1.0 name is 1.0 there"
    assert route("tasks/get", {"id": "t"}, path=path).ask_task is None


@pytest.mark.proves("B-00")
@pytest.mark.parametrize("path", ["/", "", "/a2a/x", "/gen.json", "/v1"])
def test_2_other_paths_select_nothing(path: str) -> None:
    assert route("message/send", sent(TYPE_TEXT), path=path).dialect is RELAY
    assert route("SendMessage", path=path).dialect is V1


@pytest.mark.proves("B-00", "VER-CLIENT-002", "VER-SERVER-001")
def test_3_version_1_0_is_v1_in_any_shape() -> None:
    for version in ("1.0", "1.0.7", " 1.0 "):
        refused = rejection("tasks/send", sent(KIND, task_id="t"), version=version)
        assert isinstance(refused.error, MethodNotFound)
        assert (refused.dialect, "vault" in refused.error.message) == (V1, True)


@pytest.mark.proves("B-00")
@each("operation", Operation)
@each("version", [None, "0.3", "1.0"])
def test_3_method_names_of_1_0_are_v1_in_any_version(operation: Operation, version: str | None) -> None:
    found = route(operation.value, {"task_id": "t", "webhookUrl": "u"}, version=version)
    assert (found.dialect, found.operation) == (V1, operation)


ONE_DIALECT_S_METHODS = [
    ("tasks/send", VAULT, Operation.SEND),
    ("tasks/sendSubscribe", VAULT, Operation.SUBSCRIBE),
    (PUSH + "subscribe", GEN, Operation.PUSH_SET),
    (PUSH + "unsubscribe", GEN, Operation.PUSH_DELETE),
    ("agent/authenticatedExtendedCard", GEN, Operation.EXTENDED_CARD),
    ("agent/getAuthenticatedExtendedCard", V03, Operation.EXTENDED_CARD),
    ("tasks/resubscribe", V03, Operation.SUBSCRIBE),
    (PUSH + "set", V03, Operation.PUSH_SET),
    ("tasks/pushNotification/set", V03, Operation.PUSH_SET),
    ("tasks/pushNotification/get", V03, Operation.PUSH_GET),
]


@pytest.mark.proves("B-00", "B-07")
@each(("method", "dialect", "operation"), ONE_DIALECT_S_METHODS)
def test_4_a_method_that_only_one_dialect_has(method: str, dialect: DialectName, operation: Operation) -> None:
    other_shapes = [{"id": "t"}, {"task_id": "t"}, {"webhookUrl": "u"}]
    for params in other_shapes:
        found = route(method, params)
        assert (found.dialect, found.operation, found.ask_task) == (dialect, operation, None)


@pytest.mark.proves("B-07")
def test_4_google_s_0_1_shares_two_names_with_vault() -> None:
    for message in (sent(TYPE_TEXT), sent(TYPE_CONTENT), sent()):
        streamed = route("tasks/sendSubscribe", message)
        assert (streamed.dialect, streamed.operation) == (RELAY, Operation.STREAM)
    assert route("tasks/sendSubscribe", {"id": "t"}).operation is Operation.SUBSCRIBE
    assert route("tasks/send", sent(TYPE_TEXT)).dialect is RELAY
    assert route("tasks/send", sent(TYPE_CONTENT)).dialect is VAULT
    assert route(PUSH + "set", sent(TYPE_TEXT)).dialect is V03, "only those two names are shared"


GEN_PARAMS = [
    *["task_id", "task_config", "stream_config"],
    *["context_id", "history_length", "include_artifacts", "page_size", "page_token", "status_timestamp_after"],
    *["config_id", "payload_format"],
]
GEN_MESSAGE = ["task_id", "message_id", "context_id"]


@pytest.mark.proves("B-00", "B-16")
@each("method", ["message/send", "message/stream", "tasks/get", "tasks/list", PUSH + "get"])
@each("name", GEN_PARAMS)
@each("value", [None, 3, {}])
def test_5_a_parameter_in_snake_case_is_gen_s(method: str, name: str, value: object) -> None:
    others = {"id": "t", "webhookUrl": "https://example.com"} | sent(KIND, TYPE_TEXT, role="assistant")
    for params in ({name: value}, others | {name: value}):
        found = route(method, params)
        assert (found.dialect, found.ask_task) == (GEN, None)


@pytest.mark.proves("B-00")
@pytest.mark.parametrize("name", GEN_MESSAGE)
def test_5_a_message_in_snake_case_is_gen_s(name: str) -> None:
    assert route("message/send", sent(KIND, kind="message", **{name: "x"})).dialect is GEN
    assert route("message/send", sent(TYPE_TEXT, **{name: "x"}) | {"webhookUrl": "u"}).dialect is GEN


@pytest.mark.proves("B-00", "B-01")
@each(
    ("params", "dialect"),
    [
        # `content` without `kind`: gen's, but for the roles and the webhook that only vault has
        (sent(TYPE_CONTENT), GEN),
        (sent({"content": None}), GEN),
        (sent(TYPE_CONTENT, KIND), GEN),
        (sent(TYPE_CONTENT, TYPE_TEXT), GEN),
        ({"message": {"id": "m", "parts": [TYPE_CONTENT]}}, GEN),
        (sent({"type": "file", "mime_type": "a/b"}, role="tool"), GEN),
        (sent({"type": "reference", "url": "https://example.com"}, id="m"), GEN),
        (sent(TYPE_CONTENT, role="agent"), GEN),
        (sent(TYPE_CONTENT, role="assistant"), VAULT),
        (sent(TYPE_CONTENT, role="system"), VAULT),
        (sent(TYPE_CONTENT, role="tool"), VAULT),
        (sent(TYPE_CONTENT, id="m", role="tool"), VAULT),
        (sent(KIND, TYPE_CONTENT, role="tool"), VAULT),
        (sent({"type": "file", "url": "https://example.com"}, role="tool"), VAULT),
        (sent(KIND) | {"webhookUrl": "https://example.com"}, VAULT),
        (sent(TYPE_CONTENT) | {"webhookUrl": None}, VAULT),
        (sent(TYPE_TEXT) | {"webhookUrl": "https://example.com"}, VAULT),
        # `type` and `text`
        (sent(TYPE_TEXT), RELAY),
        (sent(TYPE_TEXT, id="m"), RELAY),
        (sent(KIND, TYPE_TEXT, kind="message"), RELAY),
        (sent({"type": "data", "data": {}}), RELAY),
        # `kind`
        (sent(KIND), V03),
        (sent(KIND, role="assistant"), V03),
        (sent(KIND, id="m"), V03),
        (sent(KIND | {"type": "text"}), V03),
        (sent(KIND | {"content": "x"}), V03),
        (sent(KIND | {"mime_type": "a/b"}), V03),
        (sent(BARE, kind="message"), V03),
        # nothing that tells
        (sent(BARE), V03),
        (sent(BARE, role="assistant"), V03),
        (sent(), V03),
        ({}, V03),
        ([1], V03),
        ({"message": 5}, V03),
        ({"metadata": {"task_id": "t", "webhookUrl": "u"}}, V03),
    ],
)
def test_5_the_shape_of_the_message(params: object, dialect: DialectName) -> None:
    for method in ("message/send", "message/stream"):
        assert route(method, params).dialect is dialect


@pytest.mark.proves("B-00")
def test_5_shapes_of_disabled_dialects_fall_back_to_0_3() -> None:
    only = frozenset({V03})
    assert route("message/send", sent(TYPE_TEXT, kind="message"), enabled=only).dialect is V03
    assert rejection("message/send", sent(TYPE_TEXT), enabled=only).dialect is RELAY


@pytest.mark.proves("B-00")
@pytest.mark.parametrize("told", [sent(KIND), sent(BARE, kind="message"), sent(TYPE_TEXT), {"webhookUrl": "u"}])
def test_5_a_shape_beats_the_task_s_own_dialect(told: dict) -> None:
    assert route("tasks/get", told | {"id": "t"}).ask_task is None


@pytest.mark.proves("B-00", "B-16")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/subscribe"])
def test_6_the_dialect_that_the_task_was_created_in(method: str) -> None:
    found = route(method, {"id": "t-1"})
    assert (found.dialect, found.ask_task) == (V03, "t-1")
    assert route(method, {"taskId": "t-1"}).ask_task == "t-1"
    assert route(method, {"id": "t-1", "taskId": "t-2"}).ask_task == "t-1"
    assert route(method, {"id": "t-1", "historyLength": 1}).ask_task == "t-1"
    for nameless in ({}, {"id": 5}, {"id": None}, {"task_id": "t-1"}):
        assert route(method, nameless).ask_task is None


@pytest.mark.proves("B-00")
@pytest.mark.parametrize("method", ["tasks/list", PUSH + "get", PUSH + "list", PUSH + "delete", "message/send"])
def test_6_no_other_method_asks_for_the_task(method: str) -> None:
    found = route(method, {"id": "t-1"})
    assert (found.dialect, found.ask_task) == (V03, None)


@pytest.mark.proves("B-00")
@each(
    ("origin", "last", "dialect"),
    [
        (VAULT, GEN, VAULT),
        (GEN, VAULT, GEN),
        (RELAY, V03, RELAY),
        (V03, RELAY, V03),
        (None, GEN, GEN),
        (None, None, V03),
        (V1, None, V03),
        (V1, RELAY, RELAY),
        (None, V1, V03),
    ],
)
def test_6_the_task_s_origin_comes_before_the_caller_s_last_dialect(
    origin: DialectName | None, last: DialectName | None, dialect: DialectName
) -> None:
    settled = route("tasks/get", {"id": "t-1"}).settle(origin, last)
    assert (settled.dialect, settled.operation, settled.method) == (dialect, Operation.GET, "tasks/get")
    assert settled.ask_task is None


@pytest.mark.proves("B-00")
def test_6_a_dialect_that_is_off_settles_nothing() -> None:
    narrow = route("tasks/get", {"id": "t-1"}, enabled=frozenset({V03, GEN}))
    assert narrow.settle(VAULT).dialect is V03
    assert narrow.settle(VAULT, GEN).dialect is GEN


@pytest.mark.proves("B-00", "VER-SERVER-002")
@pytest.mark.parametrize("version", [None, "", "  ", "0.3", "0.3.0", "0.2.6"])
def test_7_missing_and_old_versions_mean_0_3(version: str | None) -> None:
    assert route("message/send", sent(BARE), version=version).dialect is V03
    assert route("message/send", sent(TYPE_TEXT), version=version).dialect is RELAY


@pytest.mark.proves("B-00")
@pytest.mark.parametrize("version", ["0.2", "0.3", "0.3.0"])
def test_extended_card_with_an_old_version_is_0_3(version: str) -> None:
    found = route("agent/authenticatedExtendedCard", {}, version=version)
    assert (found.dialect, found.operation) == (V03, Operation.EXTENDED_CARD)


# --- rejections ---------------------------------------------------------------------------------------------------


@pytest.mark.proves("4-51", "VER-SERVER-003")
@each("version", ["99.0", "1.1", "2.0", "0.1", "0.4", "1", "one", "1.0-rc", "-1.0", "."])
@each("method", ["SendMessage", "message/send"])
def test_an_unknown_version_is_refused(version: str, method: str) -> None:
    refused = rejection(method, version=version)
    assert isinstance(refused.error, VersionNotSupported)
    assert refused.error.metadata["supported"] == "0.2, 0.3, 1.0"
    assert repr(version) in refused.error.message


@pytest.mark.proves("4-51", "VER-SERVER-003")
@each(
    ("version", "enabled", "supported"),
    [
        ("0.3", {V1}, "1.0"),
        ("0.2", {V1, VAULT, GEN}, "1.0"),
        ("1.0", {V03, GEN}, "0.2, 0.3"),
        ("1.0", {RELAY}, "0.2, 0.3"),
        ("1.0", {VAULT}, "none"),
        ("99.0", {V1}, "1.0"),
    ],
)
@each("more", [{}, {"dialect": "v1"}, {"dialect": "v03"}, {"path": "/a2a"}, {"method": "GetTask"}])
def test_a_version_whose_dialect_is_off_is_refused(
    version: str, enabled: set[DialectName], supported: str, more: dict[str, Any]
) -> None:
    refused = rejection(**({"method": "tasks/get"} | more), version=version, enabled=frozenset(enabled))
    assert isinstance(refused.error, VersionNotSupported)
    assert refused.error.metadata["supported"] == supported
    assert refused.error.message.endswith(f"is not supported here; supported: {supported}")


@pytest.mark.parametrize("dialects", [[V03], [RELAY], [V03, V1]], ids=str)
def test_versions_of_an_enabled_dialect_are_served(dialects: list[DialectName]) -> None:
    assert isinstance(route("tasks/get", {"id": "t"}, version="0.3", enabled=frozenset(dialects)), DialectRoute)


@pytest.mark.proves("VER-SERVER-003")
def test_an_unknown_version_is_refused_in_the_callers_dialect() -> None:
    assert rejection("message/send", version="9.9", path="/gen/").dialect is GEN
    assert rejection("message/send", version="9.9", dialect="vault").dialect is VAULT
    assert rejection("SendMessage", version="9.9").dialect is V1
    assert rejection("SendMessage", version="9.9", dialect="v03").dialect is V03
    assert rejection("SendMessage", version="9.9", path="/gen").dialect is GEN
    assert rejection("message/send", version="9.9").dialect is V03


def test_an_unknown_dialect_is_refused() -> None:
    refused = rejection("message/send", dialect="klingon")
    assert isinstance(refused.error, InvalidRequest)
    assert refused.dialect is V03
    assert "v1, v03, vault, gen, relay" in refused.error.message


def test_a_dialect_that_is_not_enabled_is_refused_in_its_own_form() -> None:
    refused = rejection("message/send", sent(TYPE_CONTENT), enabled=frozenset({V1, V03}))
    assert isinstance(refused.error, VersionNotSupported)
    assert refused.dialect is GEN
    assert "enabled: v1, v03" in refused.error.message


@pytest.mark.proves("2-30")
def test_an_unknown_method_is_named() -> None:
    refused = rejection("tasks/dance")
    assert isinstance(refused.error, MethodNotFound)
    assert refused.dialect is V03
    assert "tasks/dance" in refused.error.message


@pytest.mark.proves("B-00")
@pytest.mark.parametrize(
    ("path", "dialect", "version", "answer"),
    [
        ("/gen", "vault", "1.0", VAULT),
        ("/a2a/", None, "1.0", VAULT),
        ("/", None, "1.0", V1),
        ("/", None, "0.3", V03),
        ("/", "", None, V03),
        ("/gen", "klingon", None, V03),
        ("/", None, "9.9", V03),
    ],
)
def test_invalid_requests_are_refused_by_header_path_and_version(
    path: str, dialect: str | None, version: str | None, answer: DialectName
) -> None:
    assert answer_dialect(path, dialect, version) is answer


@pytest.mark.proves("B-03")
def test_a_human_readable_id_marks_a_vault_card() -> None:
    card = {
        "schemaVersion": "1.0",
        "humanReadableId": "acme/trips",
        "agentVersion": "2.1.0",
        "name": "Trips",
        "description": "Plans trips",
        "url": "https://example.com/a2a",
        "provider": {"name": "Acme"},
        "capabilities": {"a2aVersion": "1.0"},
    }
    with pytest.raises(InvalidParams) as refused:
        decode_card(json.dumps(card).encode())
    assert [violation.field for violation in refused.value.violations] == ["authSchemes"], "which only vault requires"
    whole = card | {"authSchemes": [{"scheme": "none"}]}
    assert decode_card(json.dumps(whole).encode()).version == "2.1.0"


@pytest.mark.proves("B-00")
def test_only_the_first_parts_are_looked_at_however_many_there_are() -> None:
    many: list[dict[str, Any]] = [{}] * 100_000
    assert route("message/send", sent(TYPE_TEXT, *many)).dialect is RELAY
    assert route("message/send", sent(*many[:7], TYPE_TEXT)).dialect is RELAY
    assert route("message/send", sent(*many[:8], TYPE_TEXT)).dialect is V03
    params = json.dumps(sent(TYPE_TEXT, *many)).encode().replace(b"{}]", b"5]")
    found = negotiate(Inquiry(method="message/send", params=params))
    assert found.dialect is RELAY, "what follows is skipped, whatever it is"


@given(st.text(), st.binary(), st.text(), st.none() | st.text(), st.none() | st.text())
def test_nothing_raises(method: str, params: bytes, path: str, dialect: str | None, version: str | None) -> None:
    negotiate(Inquiry(method=method, params=params, path=path, dialect=dialect, version=version))


# --- members in place of kinds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "by_member"),
    [
        (sent(BARE), True),
        (sent(BARE, messageId="m"), True),
        (sent(BARE, KIND), False),
        (sent(BARE, kind="message"), False),
        ({"id": "t"}, False),
    ],
)
def test_a_caller_of_0_3_that_leaves_kind_out_names_things_by_members(params: dict, by_member: bool) -> None:
    found = route("message/send", params)
    assert (found.dialect, found.by_member) == (V03, by_member)
    assert not route("message/send", params, path="/jsonrpc").by_member, "there it is 0.3 and nothing else"
