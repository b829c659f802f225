"""What a browser carries while somebody is away at an issuer: a cookie with what has to come back the same.

So any node may finish what another began, and nothing is kept for those who never come back. It is no secret of the
server's: whoever changes it can only fail to sign in. The flow is `console.entry.oidc`.
"""

import base64
import hmac

import msgspec
from msgspec import Struct


class Pending(Struct, frozen=True, kw_only=True, array_like=True):
    """What has to come back the same; `next` is the page that somebody wants to see then."""

    issuer: str
    state: str
    nonce: str
    verifier: str
    next: str

    def __repr__(self) -> str:
        return f"Pending(issuer={self.issuer!r})"

    def written(self) -> str:
        """Return it as a cookie's value."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> "Pending | None":
        """Return what a cookie's value says, None if it says nothing."""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        except (ValueError, msgspec.MsgspecError):
            return None

    def fits(self, issuer: str, state: str) -> bool:
        """Whether this is what came back."""
        return self.issuer == issuer and hmac.compare_digest(self.state.encode(), state.encode())
