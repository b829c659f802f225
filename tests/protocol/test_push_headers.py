"""The headers of a webhook: what each configuration makes of them, what cannot be sent, and signatures."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.errors import InvalidParams
from accord.model import Authentication, PushConfig
from accord.protocol import http_headers
from tests.cases import each

URL = "https://example.com/hook"
AT = 1_700_000_000


def config(token: str | None = None, scheme: str | None = None, credentials: str | None = None) -> PushConfig:
    authentication = None if scheme is None else Authentication(scheme=scheme, credentials=credentials)
    return PushConfig(url=URL, id="w", token=token, authentication=authentication)


@pytest.mark.proves("B-09", "0-29", "3-12", "PUSH-DELIVER-001")
@each(
    ("given", "authorization", "token"),
    [
        (config(), None, None),
        (config(token="t-1"), "Bearer t-1", "t-1"),
        (config(scheme="Bearer", credentials="abc"), "Bearer abc", None),
        (config(scheme="Basic", credentials="dTpw"), "Basic dTpw", None),
        (config(scheme="ApiKey", credentials="k k"), "ApiKey k k", None),
        (config("t-1", "Basic", "dTpw"), "Basic dTpw", "t-1"),
        (config("t-1", "ApiKey"), "ApiKey t-1", "t-1"),
        (config(scheme="Bearer"), None, None),
        (config(token=""), None, None),
    ],
)
def test_webhooks_use_the_configured_authentication(
    given: PushConfig, authorization: str | None, token: str | None
) -> None:
    http_headers.check_push_config(given)
    found = http_headers.push_headers(given, "task-1", 7)
    assert found.pop("Authorization", None) == authorization
    assert found.pop("X-A2A-Notification-Token", None) == token
    assert found == {"X-A2A-Task-Id": "task-1", "X-A2A-Event-Id": "task-1:w:7"}


ids = st.tuples(st.text(max_size=9), st.text(max_size=9), st.integers(0, 99))


@pytest.mark.proves("C-13")
@given(ids, ids)
def test_ids_of_strangers_are_safe_in_a_header_and_no_two_are_alike(
    one: tuple[str, str, int], other: tuple[str, str, int]
) -> None:
    found = []
    for task, webhook, seq in (one, other):
        said = http_headers.push_headers(PushConfig(url=URL, id=webhook), task, seq)
        assert all(value.isascii() and value.isprintable() for value in said.values())
        found.append(said["X-A2A-Event-Id"])
    assert (found[0] == found[1]) == (one == other)


BAD = [
    "a\r\nX-Evil: 1",
    "a\nb",
    "a\rb",
    "a\x00b",
    "tab\tbed",
    "tokén",
    "токен",
    " s3cret",
    "s3cret ",
    "\x7f",
    "a" * 5000,
]


@each("secret", BAD)
@each("field", ["token", "authentication.credentials"])
def test_invalid_header_secrets_are_refused_unquoted(field: str, secret: str) -> None:
    given = config(token=secret) if field == "token" else config(scheme="Bearer", credentials=secret)
    with pytest.raises(InvalidParams) as refused:
        http_headers.check_push_config(given)
    assert refused.value.violations[0].field == field
    assert secret not in refused.value.message


@pytest.mark.parametrize("scheme", ["Bearer\r\nX: y", "two words", "Bea:rer", "схема", "a" * 65])
def test_a_scheme_is_one_word(scheme: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        http_headers.check_push_config(config(scheme=scheme, credentials="x"))
    assert refused.value.violations[0].field == "authentication.scheme"


def test_an_id_has_an_end() -> None:
    http_headers.check_push_config(PushConfig(url=URL, id="i" * 256))
    with pytest.raises(InvalidParams):
        http_headers.check_push_config(PushConfig(url=URL, id="i" * 257))


# --- signatures ---------------------------------------------------------------------------------------------------


@pytest.mark.proves("4-30")
def test_a_signature_is_one_hmac_for_each_key() -> None:
    wanted = [hmac.digest(key, b'1700000000.{"a":1}', "sha256").hex() for key in (b"one", "zwö".encode())]
    assert http_headers.sign_webhook(b'{"a":1}', AT, ["one", "zwö"]) == f"t=1700000000,v1={wanted[0]},v1={wanted[1]}"


def test_every_receiver_has_a_key_of_its_own() -> None:
    text = b"webhook key\nacme\nhooks.example\n443"
    own = hmac.digest(b"key", text, "sha256").hex()
    for url in ("https://hooks.example/a?b", "https://HOOKS.example:443", "https://user@hooks.example/c"):
        assert http_headers.receiver_key("key", url, "acme") == own
    others = [("key", "https://hooks.example", ""), ("new", "https://hooks.example", "acme")]
    others += [("key", url, "acme") for url in ("https://hooks.example:8443", "https://a.hooks.example")]
    assert own not in {http_headers.receiver_key(*other) for other in others}


@pytest.mark.proves("4-30")
def test_any_key_verifies_the_signature() -> None:
    body, now = b'{"state":"completed"}', AT + 299
    signed = http_headers.sign_webhook(body, AT, ["old", "new"])
    for keys in (["old"], ["new"], ["other", "new"]):
        assert http_headers.is_signed_webhook(signed, body, keys, now)
    assert not http_headers.is_signed_webhook(signed, body, ["other"], now)
    assert not http_headers.is_signed_webhook(signed, body, [], now)
    assert not http_headers.is_signed_webhook(signed, body + b" ", ["new"], now)
    assert not http_headers.is_signed_webhook(signed.replace(f"t={AT}", f"t={AT + 1}"), body, ["new"], now)
    assert not http_headers.is_signed_webhook(signed, body, ["new"], AT + 301)
    assert not http_headers.is_signed_webhook(signed, body, ["new"], AT - 301)


@pytest.mark.parametrize(
    "signature",
    ["", "t=1", "v1=00", "t=x,v1=" + "0" * 64, "t=1,v1=" + "0" * 63, "t=1,v2=" + "0" * 64, "t=１,v1=" + "0" * 64],  # noqa: RUF001
)
def test_invalid_signatures_prove_nothing(signature: str) -> None:
    assert not http_headers.is_signed_webhook(signature, b"", [""], 1)


def test_the_digest_is_sha256_over_the_whole_body() -> None:
    body = bytes(range(256)) * 5000
    wanted = hmac.new(b"k", b"5." + body, hashlib.sha256).hexdigest()
    assert http_headers.sign_webhook(body, 5, ["k"]) == f"t=5,v1={wanted}"
