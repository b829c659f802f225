"""Negotiation: the rules in their order, and a rejection that says what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.errors import InvalidRequest, MethodNotFound, VersionNotSupported
from accord.protocol.negotiate import Inquiry, Rejection, Route, negotiate
from accord.protocol.operations import DialectName, Operation

V1, V03, VAULT, GEN, RELAY = DialectName
PUSH = "tasks/pushNotificationConfig/"

V03_SEND = b'{"message":{"kind":"message","role":"user","parts":[{"kind":"text","text":"x"}]}}'
RELAY_SEND = b'{"message":{"role":"user","parts":[{"type":"text","text":"x"}]}}'
GEN_SEND = b'{"message":{"id":"m","task_id":"t","parts":[{"type":"text","content":"x"}]}}'
GEN_BARE = b'{"message":{"id":"m","parts":[{"type":"text","content":"x"}]}}'
VAULT_SEND = b'{"message":{"role":"assistant","parts":[{"type":"text","content":"x"}]}}'


def route(method: str, params: bytes = b"{}", **more) -> Route:
    found = negotiate(Inquiry(method=method, params=params, **more))
    assert isinstance(found, Route), found
    return found


def rejection(method: str, params: bytes = b"{}", **more) -> Rejection:
    found = negotiate(Inquiry(method=method, params=params, **more))
    assert isinstance(found, Rejection), found
    return found


@pytest.mark.proves("B-00")
@pytest.mark.parametrize("dialect", DialectName)
def test_1_an_explicit_wish_beats_everything(dialect: DialectName) -> None:
    method = "GetTask" if dialect is V1 else "tasks/get"
    assert route(method, dialect=f" {dialect.value.upper()} ", version="1.0", path="/gen/").dialect is dialect


@pytest.mark.proves("B-00")
@pytest.mark.parametrize(
    ("path", "dialect"), [("/a2a/", VAULT), ("/a2a", VAULT), ("/jsonrpc", V03), ("/gen/", GEN), ("/gen", GEN)]
)
def test_2_a_mount_path_beats_version_and_shape(path: str, dialect: DialectName) -> None:
    assert route("message/send", RELAY_SEND, path=path, version="1.0").dialect is dialect


@pytest.mark.proves("B-00", "VER-CLIENT-002", "VER-SERVER-001")
def test_3_a_1_0_version_or_method_name_is_v1() -> None:
    assert route("SendMessage", version="1.0").dialect is V1
    assert route("SendMessage", version="1.0.7").dialect is V1
    assert route("SendMessage").dialect is V1
    refused = rejection("message/send", V03_SEND, version="1.0")
    assert isinstance(refused.error, MethodNotFound)
    assert refused.dialect is V1
    assert "v03" in refused.error.message


@pytest.mark.proves("B-00", "B-07")
@pytest.mark.parametrize(
    ("method", "dialect", "operation"),
    [
        ("tasks/send", VAULT, Operation.SEND),
        ("tasks/sendSubscribe", VAULT, Operation.SUBSCRIBE),
        (PUSH + "subscribe", GEN, Operation.PUSH_SET),
        (PUSH + "unsubscribe", GEN, Operation.PUSH_DELETE),
        ("agent/authenticatedExtendedCard", GEN, Operation.EXTENDED_CARD),
        ("agent/getAuthenticatedExtendedCard", V03, Operation.EXTENDED_CARD),
        ("tasks/resubscribe", V03, Operation.SUBSCRIBE),
        (PUSH + "set", V03, Operation.PUSH_SET),
    ],
)
def test_4_a_method_that_only_one_dialect_has(method: str, dialect: DialectName, operation: Operation) -> None:
    found = route(method, b'{"id":"t"}')
    assert (found.dialect, found.operation) == (dialect, operation)


@pytest.mark.proves("B-07")
def test_4_google_s_0_1_shares_two_names_with_vault() -> None:
    streamed = route("tasks/sendSubscribe", RELAY_SEND)
    assert (streamed.dialect, streamed.operation) == (RELAY, Operation.STREAM)
    assert route("tasks/send", RELAY_SEND).dialect is RELAY
    assert route("tasks/send", VAULT_SEND).dialect is VAULT


@pytest.mark.proves("B-00", "B-01")
@pytest.mark.parametrize(
    ("params", "dialect"),
    [
        (V03_SEND, V03),
        (RELAY_SEND, RELAY),
        (GEN_SEND, GEN),
        (GEN_BARE, GEN),
        (VAULT_SEND, VAULT),
        (b'{"message":{"parts":[{"kind":"text","text":"x"}]},"task_config":{}}', GEN),
        (b'{"message":{"parts":[{"kind":"text","text":"x"}]},"stream_config":null}', GEN),
        (b'{"message":{"parts":[{"kind":"text","text":"x"}]},"webhookUrl":"https://example.com"}', VAULT),
        (b'{"message":{"id":"m","parts":[{"type":"reference","url":"https://example.com"}]}}', GEN),
        (b'{"message":{"role":"tool","parts":[{"type":"file","url":"https://example.com"}]}}', VAULT),
        (b'{"message":{"role":"user","parts":[{"type":"data","data":{}}]}}', RELAY),
        (b'{"message":{"parts":[{"text":"x"}]}}', V03),
        (b"{}", V03),
        (b"[1]", V03),
        (b'{"message":5}', V03),
    ],
)
def test_5_the_shape_of_the_parameters(params: bytes, dialect: DialectName) -> None:
    assert route("message/send", params).dialect is dialect


@pytest.mark.proves("B-00", "B-16")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
def test_6_the_dialect_that_the_task_was_created_in(method: str) -> None:
    found = route(method, b'{"id":"t-1"}')
    assert (found.dialect, found.ask_task) == (V03, "t-1")
    assert found.settle(VAULT).dialect is VAULT
    assert found.settle(None, GEN).dialect is GEN
    assert found.settle(None).dialect is V03
    assert found.settle(V1).dialect is V03, "v1 has no such method, so its tasks are answered in 0.3"
    assert route(method, b'{"taskId":"t-1"}').ask_task == "t-1"
    assert route(method, b'{"task_id":"t-1"}').ask_task is None
    narrow = route(method, b'{"id":"t-1"}', enabled=frozenset({V03}))
    assert narrow.settle(VAULT).dialect is V03


@pytest.mark.proves("B-00", "VER-SERVER-002")
@pytest.mark.parametrize("version", [None, "", "  ", "0.3", "0.3.0", "0.2.6"])
def test_7_no_version_means_0_3(version: str | None) -> None:
    assert route("message/send", b'{"message":{"parts":[{"text":"x"}]}}', version=version).dialect is V03


@pytest.mark.proves("4-51", "VER-SERVER-003")
@pytest.mark.parametrize("version", ["99.0", "1.1", "2.0", "0.1", "1", "one", "1.0-rc", "-1.0"])
@pytest.mark.parametrize("method", ["SendMessage", "message/send"])
def test_an_unknown_version_is_refused(version: str, method: str) -> None:
    refused = rejection(method, version=version)
    assert isinstance(refused.error, VersionNotSupported)
    assert refused.error.metadata["supported"] == "0.2, 0.3, 1.0"


@pytest.mark.proves("VER-SERVER-003")
def test_an_unknown_version_is_refused_in_the_callers_dialect() -> None:
    assert rejection("message/send", version="9.9", path="/gen/").dialect is GEN
    assert rejection("message/send", version="9.9", dialect="vault").dialect is VAULT
    assert rejection("SendMessage", version="9.9").dialect is V1
    assert rejection("message/send", version="9.9").dialect is V03


def test_an_unknown_dialect_is_refused() -> None:
    refused = rejection("message/send", dialect="klingon")
    assert isinstance(refused.error, InvalidRequest)
    assert "v1, v03, vault, gen, relay" in refused.error.message


def test_a_dialect_that_is_not_enabled_is_refused_in_its_own_form() -> None:
    refused = rejection("message/send", GEN_SEND, enabled=frozenset({V1, V03}))
    assert isinstance(refused.error, VersionNotSupported)
    assert refused.dialect is GEN
    assert "enabled: v1, v03" in refused.error.message


@pytest.mark.proves("2-30")
def test_an_unknown_method_is_named() -> None:
    refused = rejection("tasks/dance")
    assert isinstance(refused.error, MethodNotFound)
    assert "tasks/dance" in refused.error.message


@given(st.text(), st.binary(), st.text(), st.none() | st.text(), st.none() | st.text())
def test_nothing_raises(method: str, params: bytes, path: str, dialect: str | None, version: str | None) -> None:
    negotiate(Inquiry(method=method, params=params, path=path, dialect=dialect, version=version))
