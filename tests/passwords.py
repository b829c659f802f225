"""Hashes of passwords that cost nothing: a real one takes a fifth of a second, to make and each time it is tried.

What `accord hash-password` makes, and what it costs, is the matter of tests/auth/test_basic.py and
tests/cli/test_apikeys.py; a server that has such a hash is asked in tests/abuse/test_secrets.py.
"""

import base64
import hashlib

_SALT = b"saltsalt"


def cheap_hash(password: str) -> str:
    """What settings keep of a password, in the form that they keep it, made with hardly any work."""
    made = hashlib.scrypt(password.encode(), salt=_SALT, n=2, r=8, p=1, dklen=32)
    return f"scrypt$2$8$1${base64.b64encode(_SALT).decode()}${base64.b64encode(made).decode()}"
