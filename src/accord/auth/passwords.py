"""Password hashes in settings: `scrypt$<n>$<r>$<p>$<salt>$<hash>`."""

import base64
import binascii
import hashlib
import hmac
import os
import re
from typing import NamedTuple

N, R, P = 2**15, 8, 3
"""32 MiB and three passes: one of several equally strong settings that OWASP recommends."""

SALT_BYTES, HASH_BYTES = 16, 32
MAX_MEMORY = 256 * 1024 * 1024
"""Maximum memory of a hash. A larger one is a mistake, and could stop the server."""

_FORM = re.compile(r"scrypt\$(\d{1,9})\$(\d{1,3})\$(\d{1,3})\$([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+)", re.ASCII)


class Scrypt(NamedTuple):
    """A password hash and its parameters."""

    n: int
    r: int
    p: int
    salt: bytes
    hash: bytes

    def __repr__(self) -> str:
        return f"Scrypt(n={self.n}, r={self.r}, p={self.p})"

    def fits(self, password: str) -> bool:
        """Whether the password has this hash, compared in constant time. It is slow on purpose."""
        return hmac.compare_digest(_scrypt(password, self.n, self.r, self.p, self.salt, len(self.hash)), self.hash)


def hash_password(password: str) -> str:
    """Return the hash of a password, with its parameters and salt."""
    salt = os.urandom(SALT_BYTES)
    parts = (salt, _scrypt(password, N, R, P, salt, HASH_BYTES))
    return "$".join(("scrypt", str(N), str(R), str(P), *(base64.b64encode(part).decode() for part in parts)))


def read(text: str) -> Scrypt:
    """Parse a password hash of the settings."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError("A password is kept as `accord hash-password` prints it, not as it is")
    n, r, p = (int(match[at]) for at in (1, 2, 3))
    try:
        salt, hash = (base64.b64decode(match[at], validate=True) for at in (4, 5))
    except binascii.Error:
        raise ValueError("The hash of a password is not base64") from None
    if n < 2 or n & (n - 1) or not r or not p or 128 * n * r > MAX_MEMORY or len(salt) < 8 or len(hash) < HASH_BYTES:
        raise ValueError("The hash of a password was not made by scrypt as it is used here")
    return Scrypt(n, r, p, salt, hash)


def _scrypt(password: str, n: int, r: int, p: int, salt: bytes, size: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=2 * MAX_MEMORY, dklen=size)
