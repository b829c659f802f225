"""Who is let in: several schemes at once, what was wrong, and what could have been brought instead."""

from collections.abc import Mapping
from typing import Any

import pytest

from accord.a2a import Caller
from accord.auth.authentication import MAX_NAME, Access, Identity, Presented, challenge
from accord.auth.schemes import card_security
from accord.errors import AgentUnavailable, AuthenticationFailed
from accord.model import ApiKeyScheme, HttpAuthScheme, Scopes, SecurityRequirement, SecurityScheme
from tests.cases import each

KEY = SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name="X-Key"))
BASIC = SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="Basic"))


class Fixed:
    """A scheme that always finds the same: somebody, nothing, or that something is wrong."""

    def __init__(self, name: str, found: Identity | Exception | None, **security: SecurityScheme) -> None:
        self.name = name
        self.security: Mapping[str, SecurityScheme] = security
        self.challenge = challenge(name)
        self._found = found

    async def identify(self, presented: Presented) -> Identity | None:
        if isinstance(self._found, Exception):
            raise self._found
        return self._found


def wrong(*challenges: str) -> AuthenticationFailed:
    failure = AuthenticationFailed()
    failure.challenges = challenges
    return failure


ALICE = Identity(owner="alice", tenant="acme", roles=frozenset({"user"}))
ANYBODY = Presented(peer="192.0.2.7")


async def test_without_schemes_all_callers_are_anonymous() -> None:
    access = Access()
    assert access.is_open
    assert await access.admit(ANYBODY) == Caller(roams=True, peer="192.0.2.7")


@pytest.mark.proves("4-24")
async def test_the_first_matching_scheme_authenticates() -> None:
    access = Access([Fixed("one", None), Fixed("two", wrong()), Fixed("three", ALICE), Fixed("four", wrong())])
    assert not access.is_open
    assert await access.admit(ANYBODY) == Caller(
        owner="alice", tenant="acme", roles=frozenset({"user"}), scheme="three", peer="192.0.2.7"
    )


async def test_only_an_identity_without_a_tenant_roams() -> None:
    for tenant, roams in (("acme", False), ("", False), ("*", False), (None, True)):
        caller = await Access([Fixed("one", Identity(owner="bob", tenant=tenant))]).admit(ANYBODY)
        assert (caller.roams, caller.tenant, caller.roles) == (roams, tenant or "", frozenset())


@pytest.mark.proves("3-21", "AUTH-SERVER-002")
async def test_missing_credentials_get_all_challenges() -> None:
    access = Access([Fixed("Bearer", None), Fixed("Basic", None), Fixed("Bearer", None)])
    with pytest.raises(AuthenticationFailed) as refused:
        await access.admit(ANYBODY)
    assert refused.value.challenges == ('Bearer realm="accord"', 'Basic realm="accord"')
    assert refused.value.message == "The credentials are missing or invalid"


async def test_wrong_credentials_get_their_challenge() -> None:
    invalid = challenge("Bearer", error="invalid_token")
    access = Access([Fixed("Basic", None), Fixed("Bearer", wrong(invalid)), Fixed("X", wrong())])
    with pytest.raises(AuthenticationFailed) as refused:
        await access.admit(ANYBODY)
    assert refused.value.challenges == (
        'Basic realm="accord"',
        'Bearer realm="accord", error="invalid_token"',
        'X realm="accord"',
    )


@pytest.mark.parametrize("error", [RuntimeError("a bug"), AgentUnavailable("no store")])
async def test_failing_schemes_admit_no_caller(error: Exception) -> None:
    with pytest.raises(type(error)):
        await Access([Fixed("broken", error), Fixed("open", ALICE)]).admit(ANYBODY)


@pytest.mark.parametrize(
    "fields",
    [{"owner": ""}, {"owner": "a" * (MAX_NAME + 1)}, {"owner": "a", "tenant": "t" * (MAX_NAME + 1)}],
)
def test_empty_and_overlong_names_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="names"):
        Identity(**fields)
    assert len(Identity(owner="a" * MAX_NAME).owner) == MAX_NAME


def test_repeated_headers_are_ignored() -> None:
    once = Presented(headers=[(b"x-key", b"a"), (b"x-other", b"b")])
    twice = Presented(headers=[(b"x-key", b"a"), (b"x-key", b"a")])
    assert (once.header("X-Key"), twice.header("X-Key"), once.header("X-None")) == ("a", None, None)


@each(
    ("value", "found"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("BEARER   abc ", "abc"),
        ("Bearer", ""),
        ("Bearer\tabc", None),
        ("Basic abc", None),
        ("BearerX abc", None),
        ("", None),
    ],
)
def test_credentials_belong_to_one_scheme(value: str, found: str | None) -> None:
    assert Presented(headers=[(b"authorization", value.encode())]).credentials("Bearer") == found


def test_a_challenge_is_quoted() -> None:
    assert challenge("X", a='say "hi" \\') == r'X realm="accord", a="say \"hi\" \\"'


@pytest.mark.proves("3-13", "2-06")
def test_the_card_lists_enforced_schemes_as_alternatives() -> None:
    schemes = [Fixed("a", None, key=KEY), Fixed("b", None, basic=BASIC, key=BASIC), Fixed("c", None)]
    assert card_security(schemes) == (
        {
            "key": KEY,
            "basic": BASIC,
            "key2": BASIC,
            "c": SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="c")),
        },
        tuple(SecurityRequirement(schemes={name: Scopes()}) for name in ("key", "basic", "key2", "c")),
    )
    assert card_security([]) == ({}, ())
