"""Sealing: AES-256 in GCM, under keys that are kept apart from what they seal.

The first key seals and all of them open, so that a key can be changed while old seals are still about. What is sealed
is bound to its place: moved to another tenant or id it no longer opens. Keeping it is `sealed`.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from accord.client.keys.credential import KeyManagementError

KEY_BYTES, NONCE_BYTES = 32, 12
FORM = b"\x01"
"""The first byte of what is sealed, for the day when it is done otherwise."""


class Seals:
    """Keys to seal and open with."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Read keys, the newest first: 32 bytes each, in base64 (of either alphabet) or hex."""
        self._keys = {_name(key): key for key in map(_read, keys)}
        if not self._keys:
            raise KeyManagementError("There is no key to seal credentials with: set ACCORD_CREDENTIALS__KEYS")
        self.newest = next(iter(self._keys))

    def __repr__(self) -> str:
        return f"Seals({', '.join(self._keys)})"

    def seal(self, text: bytes, place: Iterable[str]) -> bytes:
        """Return a text sealed with the newest key for one place."""
        nonce = os.urandom(NONCE_BYTES)
        return FORM + nonce + AESGCM(self._keys[self.newest]).encrypt(nonce, text, _bound(self.newest, place))

    def open(self, sealed: bytes, key_id: str, place: Iterable[str]) -> bytes:
        """Return what was sealed for a place, or raise KeyManagementError."""
        key = self._keys.get(key_id)
        if key is None:
            raise KeyManagementError(f"The key {key_id} that sealed this is not among those of this server")
        nonce, rest = sealed[len(FORM) : len(FORM) + NONCE_BYTES], sealed[len(FORM) + NONCE_BYTES :]
        try:
            if not sealed.startswith(FORM):
                raise ValueError("of another form")
            return AESGCM(key).decrypt(nonce, rest, _bound(key_id, place))
        except (InvalidTag, ValueError):
            raise KeyManagementError("What was sealed has been changed, or is in another place") from None


def _bound(key_id: str, place: Iterable[str]) -> bytes:
    """Return what is authenticated besides the text; lengths keep one part from running into the next."""
    parts = [part.encode() for part in ("accord credential", key_id, *place)]
    return b"".join(b"%d:%s" % (len(part), part) for part in parts)


def _read(text: str) -> bytes:
    """Read a key, without repeating it if it is none."""
    text = text.strip()
    try:
        if len(text) == 2 * KEY_BYTES:
            return bytes.fromhex(text)
        padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
        key = base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyManagementError(f"A key to seal with is {KEY_BYTES} random bytes in base64: openssl rand -base64 32")
    return key


def _name(key: bytes) -> str:
    """Return what a key is called beside what it sealed: enough to find it, nothing to compute it from."""
    return hashlib.sha256(b"accord credential key\n" + key).hexdigest()[:16]
