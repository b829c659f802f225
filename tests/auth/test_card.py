"""What the card says about authentication: every way that is enforced, also one that has nothing to say of itself."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from accord.auth.authentication import Identity, Presented
from accord.auth.schemes import card_security
from accord.model import ApiKeyScheme, HttpAuthScheme, Scopes, SecurityRequirement, SecurityScheme

KEY = SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name="X-Key"))


class Way:
    """A way to authenticate, as another package may have written it."""

    def __init__(
        self,
        name: str,
        challenge: str = "",
        security: Mapping[str, SecurityScheme] = MappingProxyType({}),
    ) -> None:
        self.name, self.challenge, self.security = name, challenge, security

    async def identify(self, presented: Presented) -> Identity | None:
        return None


@pytest.mark.proves("CARD-PROTO-001")
@pytest.mark.parametrize(
    ("challenge", "scheme"), [('Ticket realm="accord"', "Ticket"), ("Negotiate", "Negotiate"), ("", "tickets")]
)
def test_schemes_without_description_use_their_challenge(challenge: str, scheme: str) -> None:
    schemes, requirements = card_security([Way("tickets", challenge)])
    described = schemes["tickets"].http_auth_security_scheme
    assert described is not None
    assert (described.scheme, described.description) == (scheme, None)
    assert requirements == (SecurityRequirement(schemes={"tickets": Scopes()}),)


def test_schemes_with_one_name_are_numbered() -> None:
    schemes, requirements = card_security([Way("a", security={"key": KEY}), Way("key", "Own"), Way("a", "Own")])
    own = SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="Own"))
    assert schemes == {"key": KEY, "key2": own, "a": own}
    assert [list(one.schemes) for one in requirements] == [["key"], ["key2"], ["a"]]


def test_open_servers_declare_no_schemes() -> None:
    assert card_security([]) == ({}, ())
