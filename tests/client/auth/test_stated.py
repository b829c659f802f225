"""What is sent as it is: where it goes in a request, what it replaces, and what cannot be sent."""

import pytest

from accord.client.auth import Anonymous, ApiKey, BasicAuth, Bearer, ClientAuth, CustomHeader, HmacAuth, MtlsAuth
from accord.outbound import HttpReply, HttpRequest
from accord.protocol import http_headers

REQUEST = HttpRequest(method="POST", url="https://a.example/x?q=1", headers=(("Accept", "*/*"),), body=b"body")
REFUSED = HttpReply(status=401, headers={}, body=b"")


def prepared(auth: ClientAuth, request: HttpRequest = REQUEST) -> HttpRequest:
    """The request as it is sent, which must not need anything else to be sent before."""
    flow = auth.prepare(request)
    with pytest.raises(StopIteration) as done:
        next(flow)
    assert auth.retry(request, REFUSED) is None
    sent = done.value.value
    assert isinstance(sent, HttpRequest)
    return sent


@pytest.mark.proves("2-07")
def test_anonymous_auth_sends_nothing() -> None:
    assert prepared(Anonymous()) is REQUEST


@pytest.mark.proves("2-08")
@pytest.mark.parametrize(
    ("auth", "added"),
    [
        (ApiKey("k1"), ("X-Api-Key", "k1")),
        (ApiKey("k1", name="X-Other"), ("X-Other", "k1")),
        (Bearer("t"), ("Authorization", "Bearer t")),
        (Bearer("t", scheme="Token"), ("Authorization", "Token t")),
        (BasicAuth("Aladdin", "open sesame"), ("Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")),
        (ApiKey("k1", location="cookie", name="sid"), ("Cookie", "sid=k1")),
        (ApiKey("k 1;x", location="cookie", name="sid"), ("Cookie", 'sid="k 1\\073x"')),
    ],
)
def test_a_header_is_added_and_the_rest_stays(auth: ClientAuth, added: tuple[str, str]) -> None:
    sent = prepared(auth)
    assert sent.headers == (("Accept", "*/*"), added)
    assert (sent.method, sent.url, sent.body) == (REQUEST.method, REQUEST.url, REQUEST.body)
    assert prepared(auth, sent) == sent  # a second time changes nothing


def test_query_keys_are_encoded_and_replaced() -> None:
    auth = ApiKey("a&b=c d", location="query", name="the key")
    sent = prepared(auth)
    assert sent.url == "https://a.example/x?q=1&the%20key=a%26b%3Dc%20d"
    assert prepared(auth, sent).url == sent.url


def test_other_cookies_stay() -> None:
    request = HttpRequest(method="GET", url="https://a.example/", headers=(("cookie", "a=b; sid=old"),))
    assert prepared(ApiKey("new", location="cookie", name="sid"), request).headers == (("Cookie", "a=b; sid=new"),)


def test_auth_headers_replace_existing_ones() -> None:
    assert prepared(CustomHeader({"accept": "x", "X-Y": "z"})).headers == (("accept", "x"), ("X-Y", "z"))


def test_signatures_cover_the_request_and_never_repeat() -> None:
    auth = HmacAuth("a secret of the tests", key_id="partner", now=lambda: 1_700_000_000.9)
    first, second = (dict(prepared(auth).headers)[http_headers.SIGNATURE_HEADER] for _ in range(2))
    assert first != second
    found = http_headers.parse_signature(first)
    assert found is not None
    assert (found.key_id, found.timestamp) == ("partner", 1_700_000_000)
    request = http_headers.SignedRequest(method="POST", target="/x?q=1", nonce=found.nonce)
    assert http_headers.is_signed_by(found, b"body", [b"a secret of the tests"], request=request)
    assert not http_headers.is_signed_by(found, b"other", [b"a secret of the tests"], request=request)


@pytest.mark.parametrize("secret", ["", "line\nbreak", "line\n", " spaced", "spaced ", "ünïcode", "nul\0"])
def test_invalid_header_values_are_refused_unquoted(secret: str) -> None:
    for make in (ApiKey, Bearer, lambda text: CustomHeader({"X": text})):
        with pytest.raises(ValueError, match="printable ASCII") as refused:
            make(secret)
        assert not secret or secret not in str(refused.value)


def test_places_and_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="'body'"):
        ApiKey("k", location="body")
    with pytest.raises(ValueError, match="colon"):
        BasicAuth("a:b", "c")


@pytest.mark.parametrize(
    "auth",
    [
        ApiKey("s3cret"),
        Bearer("s3cret"),
        BasicAuth("u", "s3cret"),
        CustomHeader({"X": "s3cret"}),
        HmacAuth("s3cret"),
        MtlsAuth("f", password="s3cret"),
    ],
)
def test_no_repr_has_a_secret(auth: ClientAuth) -> None:
    assert "s3cret" not in repr(auth)
    assert type(auth).__name__ in repr(auth)
