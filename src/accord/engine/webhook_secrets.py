"""Secrets of webhooks, encrypted in the store.

A token and credentials are sealed separately. The rest of a webhook's configuration stays readable for commands.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec.structs import replace

from accord.model import PushConfig
from accord.storage.commands import webhooks
from accord.storage.store import Store

SEALED = "\x01"
"""First character of a sealed secret: `http_headers.check_push_config` refuses it in a caller's secret."""

PURPOSE = "webhook"
"""First part of the place that a sealed secret is bound to."""

PAGE = 500
"""Webhooks per page when secrets are sealed again."""


class NoKey(Exception):
    """A webhook's secrets are sealed, and the server lacks the key."""


class SealPort(Protocol):
    """Keys that seal and open: the newest seals, all open (`client.credentials.sealed`)."""

    newest: str

    def seal(self, text: bytes, place: Iterable[str]) -> bytes:
        """Return a text sealed for one place."""

    def open(self, sealed: bytes, key_id: str, place: Iterable[str]) -> bytes:
        """Return the text that was sealed for a place."""


class WebhookSecrets:
    """Seals and opens the secrets of webhooks."""

    def __init__(self, seals: SealPort | None = None) -> None:
        """Seal with `seals`. Without them secrets are stored in plain text."""
        self._seals = seals

    def seal(self, tenant: str, config: PushConfig) -> PushConfig:
        """Return a configuration with sealed secrets, for the store."""
        return config if self._seals is None else _mapped(config, tenant, self._sealed)

    def open(self, tenant: str, config: PushConfig) -> PushConfig:
        """Return a stored configuration with its secrets in plain text. Raises the errors of the seals."""
        return _mapped(config, tenant, self._opened)

    async def reseal(self, store: Store) -> int:
        """Seal all secrets in plain text or under an older key. Return the number of webhooks."""
        count = 0
        after = ("", "", "")
        while page := await store.read(webhooks.page, after, PAGE):
            for kept in page:
                if not self.is_sealed(kept.config):
                    sealed = self.seal(kept.tenant, self.open(kept.tenant, kept.config))
                    # If its caller has replaced the webhook meanwhile, it is sealed already.
                    count += await store.do(webhooks.reseal, kept, sealed)
            after = (page[-1].tenant, page[-1].task_id, page[-1].id)
        return count

    def is_sealed(self, config: PushConfig) -> bool:
        """Whether every secret of a stored configuration is sealed with the newest key."""
        begins = SEALED if self._seals is None else f"{SEALED}{self._seals.newest}:"
        return all(secret.startswith(begins) for secret in _secrets(config))

    def _sealed(self, secret: str, place: tuple[str, ...]) -> str:
        assert self._seals is not None
        sealed = self._seals.seal(secret.encode(), place)
        return f"{SEALED}{self._seals.newest}:{urlsafe_b64encode(sealed).decode()}"

    def _opened(self, stored: str, place: tuple[str, ...]) -> str:
        if not stored.startswith(SEALED):
            return stored
        key_id, _, sealed = stored.removeprefix(SEALED).partition(":")
        if self._seals is None:
            raise NoKey(f"Unknown sealing key {key_id} of the secrets of this webhook: add it to credentials.keys")
        return self._seals.open(urlsafe_b64decode(sealed), key_id, place).decode()


def _mapped(config: PushConfig, tenant: str, change: Callable[[str, tuple[str, ...]], str]) -> PushConfig:
    """Return a configuration with changed secrets, each bound to its tenant, webhook and field."""
    place = (PURPOSE, tenant, config.task_id or "", config.id or "")
    if config.token:
        config = replace(config, token=change(config.token, (*place, "token")))
    stated = config.authentication
    if stated is not None and stated.credentials:
        credentials = change(stated.credentials, (*place, "credentials"))
        config = replace(config, authentication=replace(stated, credentials=credentials))
    return config


def _secrets(config: PushConfig) -> list[str]:
    credentials = config.authentication.credentials if config.authentication else None
    return [secret for secret in (config.token, credentials) if secret]
