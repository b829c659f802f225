"""Shared secrets in a header of any name, for callers that can send a header and nothing else."""

import hashlib
import hmac
import logging
from collections.abc import Mapping

from accord.auth.authentication import Identity, Presented, challenge
from accord.auth.scheme_settings import Header
from accord.auth.schemes import SchemeKind
from accord.errors import AuthenticationFailed
from accord.model import ApiKeyScheme, SecurityScheme

log = logging.getLogger("accord.access")


class HeaderAccess:
    """Authentication with a shared secret in a header."""

    name = "header"

    def __init__(self, settings: Header) -> None:
        """Accept the secrets of the settings."""
        if not settings.name or not settings.secrets:
            raise ValueError("A header for authentication needs a name and secrets")
        self._header = settings.name
        self._secrets = [(_digest(one.secret), one.identity()) for one in settings.secrets]

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """The A2A scheme: a key in a header."""
        return {"header": SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name=self._header))}

    @property
    def challenge(self) -> str:
        """A challenge that names the header, because HTTP has no registered scheme for it."""
        return challenge("ApiKey", header=self._header)

    async def identify(self, presented: Presented) -> Identity | None:
        """Return the owner of the request's secret, or None without one."""
        stated = presented.header(self._header)
        if stated is None:
            return None
        given = _digest(stated)
        # Compare with every secret, as digests of one length, so that the time reveals nothing about them.
        found = [identity for digest, identity in self._secrets if hmac.compare_digest(digest, given)]
        if not found:
            log.info("access.refused", extra={"scheme": self.name, "reason": "no such secret"})
            raise AuthenticationFailed
        return found[0]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


SCHEME = SchemeKind(settings=Header, build=lambda settings, _: HeaderAccess(settings))
