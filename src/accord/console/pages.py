"""Tokens that say where a page ended: a position in an order, not a number of rows.

What changes meanwhile neither repeats nor hides anything that stays. They mean nothing to callers.
"""

import base64
from typing import Any, TypeVar

import msgspec

from accord.protocol.codec import invalid_field

T = TypeVar("T")


class Token:
    """Such tokens."""

    @staticmethod
    def write(position: Any) -> str:
        """Return the token of a position."""
        return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")

    @staticmethod
    def read(token: str | None, kind: type[T]) -> T | None:
        """Return the position that a token is of; none is the beginning."""
        if not token:
            return None
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=kind)
        except (ValueError, msgspec.DecodeError):
            raise invalid_field("page", "Not a token that this server gave out") from None
