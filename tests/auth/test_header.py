"""Shared secrets in a header of any name."""

import hmac
from typing import Any

import pytest

from accord.auth.authentication import Identity, Presented
from accord.auth.scheme_settings import Header, Secret
from accord.auth.shared_secrets import HeaderAccess
from accord.errors import AuthenticationFailed
from tests.auth.conftest import bringing

FIRST, SECOND = "the secret of the first", "the secret of the second"

pytestmark = pytest.mark.proves("4-28")


@pytest.fixture
def access() -> HeaderAccess:
    secrets = (Secret(secret=FIRST, owner="one", tenant="acme"), Secret(secret=SECOND, owner="two", roles=("user",)))
    return HeaderAccess(Header(name="X-Acme-Auth", secrets=secrets))


async def test_a_secret_identifies_its_owner(access: HeaderAccess) -> None:
    assert await access.identify(bringing(X_Acme_Auth=FIRST)) == Identity(owner="one", tenant="acme")
    assert await access.identify(bringing(x_acme_auth=SECOND)) == Identity(owner="two", roles=frozenset({"user"}))
    assert await access.identify(bringing(X_API_Key=FIRST)) is None
    assert access.challenge == 'ApiKey realm="accord", header="X-Acme-Auth"'
    described = access.security["header"].api_key_security_scheme
    assert described is not None
    assert (described.location, described.name) == ("header", "X-Acme-Auth")


@pytest.mark.parametrize("text", ["", "x", FIRST[:-1], FIRST + "x", FIRST.upper(), f" {FIRST}", "x" * 1_000_000, "é"])
async def test_anything_else_is_refused(text: str, access: HeaderAccess) -> None:
    with pytest.raises(AuthenticationFailed):
        await access.identify(bringing(X_Acme_Auth=text))


async def test_duplicate_headers_are_refused(access: HeaderAccess) -> None:
    twice = Presented(headers=[(b"x-acme-auth", FIRST.encode()), (b"x-acme-auth", b"wrong")])
    assert await access.identify(twice) is None


async def test_every_secret_is_always_compared(access: HeaderAccess, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(len(other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for text in (FIRST, SECOND):
        await access.identify(bringing(X_Acme_Auth=text))
    with pytest.raises(AuthenticationFailed):
        await access.identify(bringing(X_Acme_Auth="x"))
    assert compared == [32] * 6


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "", "secrets": (Secret(secret=FIRST, owner="one"),)},
        {"name": "X", "secrets": ()},
        {"name": "X", "secrets": (Secret(secret=FIRST),)},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="name"):
        HeaderAccess(Header(**settings))


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(ValueError, match="16 characters"):
        Secret(secret="hunter2", owner="one")
