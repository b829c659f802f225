"""The table of authentication schemes, and their construction and description on the card.

A scheme is imported only if the settings name it.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from accord.auth.authentication import Access, Scheme
from accord.auth.scheme_settings import AnyScheme, Jwt, MaskedSettings, Plugin
from accord.entries import Group
from accord.model import HttpAuthScheme, Scopes, SecurityRequirement, SecurityScheme
from accord.storage.store import Store


class FetchError(Exception):
    """A URL could not be read. The message contains the reason."""


Fetch = Callable[[str], Awaitable[bytes]]
"""Reads a URL within limits of time and size, or raises FetchError."""


class Ports(Struct, frozen=True, kw_only=True):
    """The services for schemes. `now` is the wall clock, `clock` a monotonic one, both in seconds."""

    store: Store | None = None
    fetch: Fetch | None = None
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic


class SchemeKind(Struct, frozen=True, kw_only=True):
    """An authentication scheme type. `build` creates a scheme from settings, or raises ValueError with the reason.

    `settings` is a subclass of `MaskedSettings` with the allowed options. Its `SECRET` fields are masked.
    """

    build: Callable[[Any, Ports], Scheme]
    settings: type[MaskedSettings] = MaskedSettings


SCHEMES = Group(
    "accord.auth",
    "authentication scheme",
    SchemeKind,
    {
        "api-keys": "accord.auth.api_keys:SCHEME",
        "basic": "accord.auth.passwords:SCHEME",
        "header": "accord.auth.shared_secrets:HEADER",
        "hmac": "accord.auth.shared_secrets:HMAC",
        "jwt": "accord.auth.jwt:SCHEME",
        "mtls": "accord.auth.mtls:SCHEME",
    },
    taken=("plugin",),
)
"""All schemes by name. `type` in settings is one of these, or `plugin` with the `name` of another."""


def build_scheme(settings: Sequence[AnyScheme], ports: Ports) -> list[Scheme]:
    """Return the schemes of the settings. Raises ValueError with the reason if one cannot work."""
    prefixes = [one.owner_prefix for one in settings if isinstance(one, Jwt)]
    if len(set(prefixes)) < len(prefixes):
        raise ValueError(
            "Two issuers of tokens need different `owner_prefix`es: a subject is unique only to its issuer"
        )
    return [_scheme_of(one, ports) for one in settings]


def _scheme_of(settings: AnyScheme, ports: Ports) -> Scheme:
    if not isinstance(settings, Plugin):
        return SCHEMES.load(str(settings.__struct_config__.tag)).build(settings, ports)
    if settings.name in SCHEMES.ours:
        raise ValueError(f'{settings.name} is not a plugin: write `type = "{settings.name}"`')
    kind = SCHEMES.load(settings.name)
    try:
        options = msgspec.convert(settings.options, kind.settings, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"the options of {settings.name}: {error}") from None
    return kind.build(options, ports)


CardSecurity = tuple[dict[str, SecurityScheme], tuple[SecurityRequirement, ...]]


def security_of(access: Access) -> CardSecurity:
    """Return the security section of a server's cards. Without mandatory authentication no scheme is required."""
    schemes, requirements = card_security(access.schemes)
    return schemes, () if access.is_open else requirements


def card_security(schemes: Iterable[Scheme]) -> CardSecurity:
    """Return a card's `security_schemes` and `security_requirements`, of which one is enough."""
    described: dict[str, SecurityScheme] = {}
    for scheme in schemes:
        for name, security in (scheme.security or _undescribed(scheme)).items():
            described[_free(name, described)] = security
    return described, tuple(SecurityRequirement(schemes={name: Scopes()}) for name in described)


def _undescribed(scheme: Scheme) -> dict[str, SecurityScheme]:
    """Return the HTTP authentication scheme of a challenge, for schemes without a description."""
    http_scheme = scheme.challenge.partition(" ")[0] or scheme.name
    return {scheme.name: SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme=http_scheme))}


def _free(name: str, taken: dict[str, SecurityScheme]) -> str:
    number = 1
    while (candidate := name if number == 1 else f"{name}{number}") in taken:
        number += 1
    return candidate
