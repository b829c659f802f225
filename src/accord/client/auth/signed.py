"""Signed requests: the secret stays here, and what is sent is good once and for minutes (4-30).

How a signature is made is `protocol.signing`, and `core.schemes.hmac` is what verifies it. The body and the target are
signed as they are sent, so nothing may be added to a request after this.
"""

import secrets
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from accord.client.auth.flow import with_header
from accord.client.auth.stated import Stated
from accord.client.wire import Outgoing
from accord.protocol import signing

NONCE_BYTES = 12
"""Enough that no two requests of one second have the same."""


class Hmac(Stated):
    """A signature with a shared secret; every request, also one that is repeated, gets its own."""

    def __init__(self, secret: str, *, key_id: str = "", now: Callable[[], float] = time.time) -> None:
        """Sign with `secret`, which the agent knows by the name `key_id`."""
        self._secret = secret.encode()
        self._key_id = key_id
        self._now = now

    def __repr__(self) -> str:
        return f"Hmac(key_id={self._key_id!r})"

    def added(self, request: Outgoing) -> Outgoing:
        """Add a signature."""
        parts = urlsplit(request.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        signed = signing.Request(method=request.method, target=target, nonce=secrets.token_urlsafe(NONCE_BYTES))
        value = signing.sign(
            request.body or b"", int(self._now()), (self._secret,), request=signed, key_id=self._key_id
        )
        return with_header(request, signing.HEADER, value)
