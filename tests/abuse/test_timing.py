"""Guessing a secret piece by piece: a guess that is nearly right is refused on exactly the same path as any other.

No clock is used. On a shared machine noise is thousands of times what a comparison that stops early gives away, so that
a statistical test either finds nothing or fails for no reason. What can be compared exactly is every function that is
called on the way, Python's and C's, in order; a secret compared with `==` shows as a comparison that is missing.
"""

import base64
import gc
import hashlib
import hmac
import json
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from joserfc.jwk import OctKey

from accord.auth import api_keys as keys
from accord.auth import passwords
from accord.auth.authentication import Access, Presented
from accord.auth.scheme_settings import AnyScheme, ApiKeys, Header, Hmac, Jwt, Secret
from accord.auth.schemes import Ports, build_scheme
from accord.errors import AuthenticationFailed
from accord.http.files import FileClaim, FileLinks, UnsignedUrl
from accord.protocol import http_headers, jose
from accord.storage import schema
from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewApiKey
from accord.storage.sqlite.driver import SqliteStore
from accord.workflows import triggers
from accord.workflows.document import Hook

COMPARED = "compare_digest"
"""The one comparison that takes as long whatever it compares."""

SECRET = "0123456789abcdefghijklmnopqrstuv"
KEY = keys.new_key()
ISSUER = "https://id.example.com"
BODY = b"{}"


class Steps(list[str]):
    """What is called, in order."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.append(f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}")
        elif event == "c_call":
            self.append(argument.__qualname__)


@contextmanager
def followed() -> Iterator[Steps]:
    """Note what is called in the block, and nothing that the collector of garbage would call there."""
    steps, before = Steps(), sys.getprofile()
    gc.disable()
    sys.setprofile(steps)
    try:
        yield steps
    finally:
        sys.setprofile(before)
        gc.enable()


def finish(work: Coroutine[Any, Any, Any]) -> None:
    """Run what waits for nothing to its end, and see it refused."""
    try:
        work.send(None)
    except StopIteration:
        raise AssertionError("The guess was right") from None
    except AuthenticationFailed:
        return
    raise AssertionError("It waits for something, which takes as long as it takes")


def near(secret: str, alphabet: str = "AB") -> list[str]:
    """Guesses of the same length: wrong from the start, in the middle, and only at the end."""

    def wrong(at: int) -> str:
        other = next(letter for letter in alphabet if letter != secret[at])
        return secret[:at] + other * (len(secret) - at) if at else other * len(secret)

    return [wrong(at) for at in (0, 1, len(secret) // 2, len(secret) - 2, len(secret) - 1)]


def signed(secret: str, now: int) -> str:
    request = http_headers.SignedRequest(method="POST", target="/")
    return http_headers.sign_body(BODY, now, [secret.encode()], request=request, key_id="k")


def token(now: int) -> str:
    claims = {"iss": ISSUER, "aud": "accord", "sub": "alice", "exp": now + 300}
    return jose.sign_payload(json.dumps(claims).encode(), {"alg": "HS256"}, OctKey.import_key(SECRET))


def presenting(name: str, value: str) -> Presented:
    return Presented(headers=[(name.lower().encode(), value.encode())], body=BODY)


@pytest.fixture
async def ports() -> Any:
    store = SqliteStore(None)
    await schema.upgrade_schema(store)
    await store.do(authentication.create_api_key, NewApiKey(id=KEY.id, hash=KEY.hash, name="", owner="o"))
    yield Ports(store=store)
    await store.close()


Guess = Callable[[int], list[Presented]]


def _api_keys(_: int) -> list[Presented]:
    *start, secret = KEY.key.split("_", 2)
    return [presenting("X-API-Key", "_".join([*start, guess])) for guess in near(secret)]


def _headers(_: int) -> list[Presented]:
    return [presenting("X-Shared", guess) for guess in [*near(SECRET), "x", SECRET + "x", "x" * 1_000]]


def _signatures(now: int) -> list[Presented]:
    start, digest = signed(SECRET, now).rsplit("=", 1)
    return [presenting("X-A2A-Signature", f"{start}={guess}") for guess in near(digest, "ab")]


def _tokens(now: int) -> list[Presented]:
    start, signature = token(now).rsplit(".", 1)
    digest = base64.urlsafe_b64decode(signature + "=").hex()
    guesses = [base64.urlsafe_b64encode(bytes.fromhex(guess)).decode().rstrip("=") for guess in near(digest, "ab")]
    return [presenting("Authorization", f"Bearer {start}.{guess}") for guess in guesses]


SCHEMES: dict[str, tuple[AnyScheme, Guess]] = {
    "api-keys": (ApiKeys(remember_seconds=3600), _api_keys),
    "header": (
        Header(name="X-Shared", secrets=(Secret(secret="a" * 32, owner="a"), Secret(secret=SECRET, owner="b"))),
        _headers,
    ),
    "hmac": (Hmac(keys={"k": Secret(secret=SECRET)}), _signatures),
    "jwt": (Jwt(issuer=ISSUER, audience=("accord",), secret=SECRET), _tokens),
}


@pytest.mark.proves("4-27")
@pytest.mark.parametrize("name", SCHEMES)
async def test_a_guess_that_is_nearly_right_is_refused_like_any_other(name: str, ports: Ports) -> None:
    settings, guesses = SCHEMES[name]
    access = Access(build_scheme([settings], ports))
    ways = []
    for presented in guesses(int(time.time())):
        with pytest.raises(AuthenticationFailed):
            await access.admit(presented)  # what is read once and remembered
        with followed() as steps:
            finish(access.admit(presented))
        ways.append(list(steps))
    assert len(ways) >= 5
    assert any(COMPARED in step for step in ways[0]), "it is compared as secrets are"
    for way in ways[1:]:
        assert way == ways[0]


async def test_unknown_keys_are_compared_in_constant_time(ports: Ports) -> None:
    access = Access(build_scheme([ApiKeys(remember_seconds=3600)], ports))
    counts = []
    for key in (keys.new_key().key, f"ak_{KEY.id}_{'A' * 43}"):
        with pytest.raises(AuthenticationFailed):
            await access.admit(presenting("X-API-Key", key))
        with followed() as steps:
            finish(access.admit(presenting("X-API-Key", key)))
        counts.append([sum(name in step for step in steps) for name in (COMPARED, "sha256")])
    assert counts == [[1, 1], [1, 1]]


def test_a_password_that_is_nearly_right_takes_the_same_path() -> None:
    salt = bytes(16)
    hash = hashlib.scrypt(b"correct horse", salt=salt, n=2, r=8, p=1)
    kept = passwords.Scrypt(2, 8, 1, salt, hash)  # quickly: how long it takes is not the question
    assert kept.fits("correct horse")
    ways = []
    for guess in [*near("correct horse"), "", "x" * 200]:
        with followed() as steps:
            assert not kept.fits(guess)
        ways.append(list(steps))
    assert any(COMPARED in step for step in ways[0])
    assert all(way == ways[0] for way in ways)


def _hook(guess: str) -> bool:
    call = triggers.WebhookCall("/", {"x-hub-signature-256": f"sha256={guess}"}, BODY)
    try:
        return bool(triggers.verify_webhook(Hook(path="x", signature="github"), SECRET, call, 0, 300))
    except AuthenticationFailed:
        return False


LINKS = FileLinks(SECRET.encode(), "http://localhost/", 3600.0, lambda: 0.0)
LINK = LINKS._path(FileClaim("acme", "t-1", "x", 3600), "a.txt")
"""The path of a file: what it claims, the signature of that, its name."""


def _link(guess: str) -> bool:
    try:
        LINKS.read(f"{LINK.partition('.')[0]}.{guess}/a.txt")
    except UnsignedUrl:
        return False
    return True


SIGNATURES: dict[str, tuple[Callable[[str], bool], str]] = {
    "webhook": (_hook, hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()),
    "file": (_link, LINK.partition(".")[2].partition("/")[0]),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_that_is_nearly_right_takes_the_same_path(name: str) -> None:
    fits, right = SIGNATURES[name]
    assert fits(right)
    ways = []
    for guess in near(right, "ab"):
        with followed() as steps:
            assert not fits(guess)
        ways.append(list(steps))
    assert any(COMPARED in step for step in ways[0])
    assert all(way == ways[0] for way in ways)


def test_the_way_of_looking_sees_a_comparison_that_stops_early() -> None:
    """What this file would find: a loop that ends at the first difference."""

    def careless(guess: str) -> bool:
        return len(guess) == len(SECRET) and all(_same(one, other) for one, other in zip(guess, SECRET, strict=True))

    def _same(one: str, other: str) -> bool:
        return one == other

    ways = []
    for guess in near(SECRET):
        with followed() as steps:
            assert not careless(guess)
        ways.append(list(steps))
    assert len({len(way) for way in ways}) == len(ways)
