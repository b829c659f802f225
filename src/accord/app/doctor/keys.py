"""Keys and certificates: whether they can be read, open what they should, and are good for a while yet.

No secret is in what is found.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from accord.app.credentials import TENANT, own_keys, sealed_keys, seals_of
from accord.app.doctor.findings import Check, Finding, Patient, failed, ok, warning
from accord.app.outside import signing, trusting
from accord.app.server import CannotListen, check_tls
from accord.auth.scheme_settings import ApiKeys
from accord.client.credentials import KeyManagementError
from accord.config.files import BadSettings
from accord.config.settings import Credentials
from accord.engine.webhook_secrets import WebhookSecrets
from accord.protocol import urls
from accord.storage import schema
from accord.storage.address import PostgresAddress, SqliteAddress, open_store
from accord.storage.commands import authentication, webhooks
from accord.storage.store import Store, StoreRefused, StoreUnavailable

DAY = 24 * 3600
LOOKED_AT = 1000
"""Webhooks whose secrets are looked at."""

SOON_DAYS = 14
"""Until then there is time to renew something."""


def checks(patient: Patient) -> Iterator[Check]:
    """Yield what to look at."""
    settings = patient.settings
    if settings.card.signing_key is not None:
        yield Check("signing key", _signing)
    if settings.registry.signers is not None:
        yield Check("signers", _signers)
    if settings.server.tls_cert:
        yield Check("certificate", _certificate)
    if any(isinstance(scheme, ApiKeys) for scheme in settings.auth.schemes):
        yield Check("api keys", _api_keys)
    yield Check("credentials", _credentials)
    yield Check("webhook secrets", _webhook_secrets)
    if any(remote.key for remote in settings.remotes.values()):
        yield Check("credentials", _named)


async def _signing(patient: Patient) -> list[Finding]:
    try:
        signing(patient.settings.card)
    except ValueError as error:
        return [failed("signing key", f"card.signing_key: {error}", "name the file of a private JSON Web Key")]
    if urls.is_this_machine(urls.host_of(patient.url)):
        told = "cards are signed for callers on this machine only: no other address of the server is known"
        return [warning("signing key", told, "set server.url to the address that callers use")]
    return [ok("signing key", "cards can be signed")]


async def _signers(patient: Patient) -> list[Finding]:
    try:
        trusting(patient.settings.registry)
    except BadSettings as error:
        return [failed("signers", error, "name the file of a JSON Web Key set")]
    return [ok("signers", "the keys of registry.signers can be read")]


async def _certificate(patient: Patient) -> list[Finding]:
    """Say whether the server's certificate has its key, and until when it is good."""
    from cryptography.x509 import load_pem_x509_certificates

    server = patient.settings.server
    try:
        check_tls(server)
        chain = load_pem_x509_certificates(await asyncio.to_thread(Path(server.tls_cert or "").read_bytes))
    except (CannotListen, OSError, ValueError) as error:
        return [failed("certificate", error, "name a certificate chain and its key, in PEM")]
    until = min(one.not_valid_after_utc for one in chain)
    days = (until - datetime.now(UTC)).total_seconds() / DAY
    if days > SOON_DAYS:
        return [ok("certificate", f"good until {until:%Y-%m-%d}")]
    told = f"it {'expires' if days > 0 else 'expired'} on {until:%Y-%m-%d}"
    return [warning("certificate", told, "renew it") if days > 0 else failed("certificate", told, "renew it")]


# --- in the store -----------------------------------------------------------------------------------------------------


async def _api_keys(patient: Patient) -> list[Finding]:
    make = "make one: accord apikeys create"
    try:
        async with _opened(patient) as store:
            found = [key for key in await store.read(authentication.list_api_keys) if key.is_live]
    except (StoreRefused, StoreUnavailable):
        return [warning("api keys", "there is no store yet that has some", make)]
    if not found and len(patient.settings.auth.schemes) == 1:
        return [warning("api keys", "there is none, so nobody gets in", make)]
    ends = [key.id for key in found if key.expires_at and key.expires_at / 1000 < time.time() + SOON_DAYS * DAY]
    if ends:
        return [warning("api keys", f"within {SOON_DAYS} days these expire: {', '.join(ends)}", make)]
    return [ok("api keys", f"{len(found)} that can be used")]


async def _credentials(patient: Patient) -> list[Finding]:
    """Say whether what the store has of credentials can be opened."""
    settings = patient.settings.credentials
    has_keys = bool(settings.keys or settings.key_file)
    try:
        async with _opened(patient) as store:
            kept = await store.read(authentication.list_credentials, TENANT)
            if has_keys:
                await sealed_keys(store, settings).every(TENANT)
    except (StoreRefused, StoreUnavailable):
        kept = []  # which is said where the store is looked at
    except (KeyManagementError, BadSettings) as error:
        return [failed("credentials", error, "set credentials.keys to the key that sealed them")]
    if kept and not has_keys:
        told = f"the store has {len(kept)} that cannot be opened: there is no key"
        return [warning("credentials", told, "set credentials.keys to the key that sealed them")]
    return [ok("credentials", f"{len(kept)} can be opened")] if kept else []


async def _webhook_secrets(patient: Patient) -> list[Finding]:
    """Say whether secrets of webhooks are in plain text in the store, or sealed by an old key."""
    settings = patient.settings.credentials
    try:
        secrets = WebhookSecrets(seals_of(settings) if settings.keys or settings.key_file else None)
        async with _opened(patient) as store:
            kept = await store.read(webhooks.page, ("", "", ""), LOOKED_AT)
    except (StoreRefused, StoreUnavailable, KeyManagementError, BadSettings):
        return []  # which is said where the store or the credentials are looked at
    if bad := sum(not secrets.is_sealed(one.config) for one in kept):
        told = f"{bad} of {len(kept)} webhooks have theirs in plain text, or sealed by an old key"
        return [warning("webhook secrets", told, "set credentials.keys, then: accord creds rotate")]
    return []


async def _named(patient: Patient) -> list[Finding]:
    """Say which credentials are missing that agents elsewhere are called with."""
    settings = patient.settings
    wanted = {name: remote.key for name, remote in settings.remotes.items() if remote.key}
    try:
        async with _opened(patient):
            known = await own_keys(settings, patient.env)
    except (StoreRefused, StoreUnavailable):  # which has none yet
        known = await own_keys(structs.replace(settings, credentials=Credentials()), patient.env)
    except (KeyManagementError, BadSettings):
        return []  # which is said where they are opened
    missing = {key: name for name, key in wanted.items() if known.find(key) is None}
    return [
        failed("credentials", f"{key}, which remotes.{name} is called with, is not there", f"accord creds set {key}")
        for key, name in missing.items()
    ]


@asynccontextmanager
async def _opened(patient: Patient) -> AsyncIterator[Store]:
    """Open the store for looking; one that is not there, or has another schema, is refused."""
    address = patient.address
    if isinstance(address, SqliteAddress) and not (address.path and address.path.exists()):
        raise StoreRefused("There is no database yet")
    if isinstance(address, PostgresAddress):
        address = replace(address, listen=False, signals=())
    async with open_store(address, read_only=True) as store:
        await schema.check_schema(store)
        yield store
