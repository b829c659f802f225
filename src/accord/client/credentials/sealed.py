"""Credentials in a server's database, encrypted, by tenant and id.

They are encrypted with AES-256-GCM under keys that are not in the database. The first key encrypts and all of them
decrypt, so a key can be rotated. The ciphertext is bound to tenant and id: it cannot be moved. A list never has
secrets.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable, Mapping

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from accord.client.credentials.credential import Credential, KeyManagementError, kinds_of, normalize_id
from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewCredential, StoredCredential
from accord.storage.store import Store

KEY_BYTES, NONCE_BYTES = 32, 12
FORM = b"\x01"
"""The first byte of a sealed text: its format version."""


class CredentialSealer:
    """Encrypts and decrypts credentials with a set of keys."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Read keys, the newest first: 32 bytes each, in base64 (of either alphabet) or hex."""
        self._keys = {_name(key): key for key in map(_read, keys)}
        if not self._keys:
            raise KeyManagementError("Missing key to seal credentials: set ACCORD_CREDENTIALS__KEYS")
        self.newest = next(iter(self._keys))

    def __repr__(self) -> str:
        return f"CredentialSealer({', '.join(self._keys)})"

    def seal(self, text: bytes, place: Iterable[str]) -> bytes:
        """Return a text encrypted with the newest key and bound to a place."""
        nonce = os.urandom(NONCE_BYTES)
        return FORM + nonce + AESGCM(self._keys[self.newest]).encrypt(nonce, text, _bound(self.newest, place))

    def open(self, sealed: bytes, key_id: str, place: Iterable[str]) -> bytes:
        """Return the decrypted text of a place, or raise KeyManagementError."""
        key = self._keys.get(key_id)
        if key is None:
            raise KeyManagementError(f"Unknown sealing key {key_id}: add it to credentials.keys")
        nonce, rest = sealed[len(FORM) : len(FORM) + NONCE_BYTES], sealed[len(FORM) + NONCE_BYTES :]
        try:
            if not sealed.startswith(FORM):
                raise ValueError("of another form")
            return AESGCM(key).decrypt(nonce, rest, _bound(key_id, place))
        except (InvalidTag, ValueError):
            raise KeyManagementError("The sealed text was changed, or moved to another place") from None


def _bound(key_id: str, place: Iterable[str]) -> bytes:
    """Return the associated data of the encryption. Length prefixes keep the parts apart."""
    parts = [part.encode() for part in ("accord credential", key_id, *place)]
    return b"".join(b"%d:%s" % (len(part), part) for part in parts)


def _read(text: str) -> bytes:
    """Decode a key. The error for an invalid key does not repeat it."""
    text = text.strip()
    try:
        if len(text) == 2 * KEY_BYTES:
            return bytes.fromhex(text)
        padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
        key = base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyManagementError(f"A sealing key must be {KEY_BYTES} random bytes in base64: openssl rand -base64 32")
    return key


def _name(key: bytes) -> str:
    """Return the id of a key, stored with each ciphertext. The key cannot be derived from it."""
    return hashlib.sha256(b"accord credential key\n" + key).hexdigest()[:16]


BATCH_SIZE = 100
"""Credentials that are resealed per query."""

_credential = msgspec.json.Decoder(Credential)


class CredentialSummary(Struct, frozen=True, kw_only=True):
    """A credential in a list, without its secrets. Times are in milliseconds."""

    id: str
    kinds: tuple[str, ...]
    key_id: str
    created_at: int
    updated_at: int


class OpenedCredentials:
    """Decrypted credentials, for `client.auth.choose_auth`."""

    def __init__(self, found: Mapping[str, Credential]) -> None:
        self._found = found

    def find(self, id: str) -> Credential | None:
        """Return the credential under an id."""
        return self._found.get(normalize_id(id))

    def __repr__(self) -> str:
        return f"OpenedCredentials({', '.join(self._found)})"


class SealedCredentials:
    """The credentials of all tenants of a store."""

    def __init__(self, store: Store, seals: CredentialSealer) -> None:
        self._store = store
        self._seals = seals

    async def put(self, tenant: str, id: str, credential: Credential) -> None:
        """Store a credential, replacing an existing credential with its id."""
        id, kinds = normalize_id(id), kinds_of(credential)
        if not id or not kinds:
            raise KeyManagementError("A credential needs an id and at least one secret")
        sealed = self._seals.seal(msgspec.json.encode(credential), (tenant, id))
        new = NewCredential(id=id, key_id=self._seals.newest, kinds=kinds, sealed=sealed)
        await self._store.do(authentication.put_credential, tenant, new)

    async def get(self, tenant: str, id: str) -> Credential | None:
        """Return a credential of a tenant."""
        stored = await self._store.read(authentication.find_credential, tenant, normalize_id(id))
        return None if stored is None else _credential.decode(self._opened(stored))

    async def every(self, tenant: str) -> OpenedCredentials:
        """Return all credentials of a tenant."""
        stored = await self._store.read(authentication.list_credentials, tenant)
        return OpenedCredentials({one.id: _credential.decode(self._opened(one)) for one in stored})

    async def listed(self, tenant: str) -> list[CredentialSummary]:
        """Return a tenant's credentials without their secrets."""
        stored = await self._store.read(authentication.list_credentials, tenant)
        return [msgspec.convert(one, CredentialSummary, from_attributes=True) for one in stored]

    async def remove(self, tenant: str, id: str) -> bool:
        """Remove a credential. Returns False if it does not exist."""
        return await self._store.do(authentication.remove_credential, tenant, normalize_id(id))

    async def rotate(self) -> int:
        """Reseal everything that an older key sealed, and return the count. The older key can then be removed."""
        count = 0
        while old := await self._store.read(authentication.list_credentials_to_reseal, self._seals.newest, BATCH_SIZE):
            for one in old:
                sealed = self._seals.seal(self._opened(one), (one.tenant, one.id))
                # A credential that was changed meanwhile is not overwritten, and is read again.
                count += await self._store.do(authentication.reseal_credential, one, self._seals.newest, sealed)
        return count

    def _opened(self, stored: StoredCredential) -> bytes:
        try:
            return self._seals.open(stored.sealed, stored.key_id, (stored.tenant, stored.id))
        except KeyManagementError as error:
            raise KeyManagementError(f"{stored.id}: {error}") from None
