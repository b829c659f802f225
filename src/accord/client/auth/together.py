"""Several ways to authenticate at once, where a card asks for all of them.

It is no choice between ways, which is `choice`; here each adds its part to one request.
"""

import ssl
from collections.abc import Iterable

from accord.client.auth.certificates import Mtls
from accord.client.auth.flow import Auth, Flow
from accord.client.auth.signed import Hmac
from accord.client.wire import Outgoing, Reply


class Together:
    """All of some ways, in this order; a signature comes last, because it is over what the others added."""

    def __init__(self, auths: Iterable[Auth]) -> None:
        """Use all of `auths`."""
        self.auths = tuple(sorted(auths, key=lambda auth: isinstance(auth, Hmac)))

    def __repr__(self) -> str:
        return f"Together({list(self.auths)!r})"

    def prepare(self, request: Outgoing) -> Flow:
        """Return the request with everything added."""
        for auth in self.auths:
            request = yield from auth.prepare(request)
        return request

    def retry(self, request: Outgoing, refused: Reply) -> Flow | None:
        """Return the request with what can be had anew, and with the rest of it again."""
        if all(auth.retry(request, refused) is None for auth in self.auths):
            return None
        return self._again(request, refused)

    def _again(self, request: Outgoing, refused: Reply) -> Flow:
        for auth in self.auths:
            request = yield from auth.retry(request, refused) or auth.prepare(request)
        return request


def certificates_of(auth: Auth) -> list[Mtls]:
    """Return the certificates that connections are to be made with."""
    return [one for one in (auth.auths if isinstance(auth, Together) else (auth,)) if isinstance(one, Mtls)]


def tls_of(auth: Auth, context: ssl.SSLContext | None = None) -> ssl.SSLContext | None:
    """Return what connections are to be made with, or None if it does not matter.

    It is `context` with the certificates added, or one that verifies servers as the system does. Wrong files are a
    ValueError.
    """
    certificates = certificates_of(auth)
    if not certificates:
        return context
    context = context or ssl.create_default_context()
    for certificate in certificates:
        certificate.load(context)
    return context
