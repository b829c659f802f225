"""An issuer of tokens to test with: it has keys, describes itself, and can be out of reach."""

import asyncio
import base64
import json
from collections import Counter
from typing import Any

from joserfc.jwk import ECKey, Key

from accord.auth.schemes import FetchError
from accord.protocol import jose

URL = "https://id.example.com"
DISCOVERY = f"{URL}/.well-known/openid-configuration"
KEYS = f"{URL}/keys"
AT = 1_700_000_000


def key(kid: str = "k-1") -> Key:
    return ECKey.generate_key("P-256", {"kid": kid})


class Issuer:
    """What its URLs answer; whoever fetches is counted."""

    def __init__(self, *keys: Key) -> None:
        self.keys = list(keys or [key()])
        self.fetched: Counter[str] = Counter()
        self.asked = asyncio.Event()
        self.is_away = False
        self.held: asyncio.Event | None = None
        self.answers: dict[str, Any] = {DISCOVERY: {"issuer": URL, "jwks_uri": KEYS, "scopes_supported": []}}

    async def fetch(self, url: str) -> bytes:
        self.fetched[url] += 1
        self.asked.set()
        if self.held is not None:
            await self.held.wait()
        if self.is_away:
            raise FetchError("The test wants it so")
        own = {KEYS: {"keys": [one.as_dict(private=False) for one in self.keys]}}
        found = (own | self.answers)[url]
        return found if isinstance(found, bytes) else json.dumps(found).encode()

    def token(self, claims: dict[str, Any] | None = None, *, key: Key | None = None, **header: Any) -> str:
        """A token that is fine but for what is said; a claim that is None is left out."""
        signer = key or self.keys[0]
        stated = {"alg": "ES256", "kid": signer.kid, **header}
        return jose.sign_payload(encode(claims_of(claims)), {k: v for k, v in stated.items() if v is not None}, signer)


def claims_of(changed: dict[str, Any] | None = None) -> dict[str, Any]:
    fine = {"iss": URL, "aud": "accord", "sub": "alice", "iat": AT - 5, "nbf": AT - 5, "exp": AT + 300}
    return {name: value for name, value in (fine | (changed or {})).items() if value is not None}


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
