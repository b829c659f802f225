"""The operating system's keyring, under the names that AgentVault uses there.

    key                   service agentvault:<id>         user <id>
    OAuth client          service agentvault:oauth:<id>   users clientId and clientSecret
    bearer token          service agentvault:bearer:<id>  user <id>
    everything else       service accord:<id>             user <id>, as JSON

A keyring cannot be listed, only asked for an id. The package is the extra `keyring` and is imported when it is asked.
"""

import logging
from types import ModuleType
from typing import Any

import msgspec
from msgspec.structs import replace

from accord.client.keys.credential import Credential, KeyManagementError, OAuthClient, kinds_of, normalized

log = logging.getLogger("accord.keys")

MISSING = "The keyring needs an extra: pip install 'accord[keyring]'"
ID, SECRET = "clientId", "clientSecret"

_credential = msgspec.json.Decoder(Credential)


class NoKeyring(KeyManagementError):
    """This machine has none."""


class OsKeyring:
    """Credentials in the keyring, each asked for once."""

    def __init__(self) -> None:
        """Ask nothing yet."""
        self._known: dict[str, Credential | None] = {}

    def asked(self, id: str) -> Credential | None:
        """Return what was found for an id before, without asking."""
        return self._known.get(normalized(id))

    def find(self, id: str) -> Credential | None:
        """Return what is there for an id; a keyring that does not work has nothing, and says so in the log."""
        id = normalized(id)
        if id not in self._known:
            try:
                self._known[id] = _read(_keyring(), id)
            except NoKeyring as error:  # as on most servers: there is nothing in it, and nothing wrong with that
                log.debug("there is no keyring", extra={"reason": str(error)})
                self._known[id] = None
            except KeyManagementError as error:
                log.warning("the keyring cannot be asked", extra={"id": id, "reason": str(error)})
                self._known[id] = None
        return self._known[id]

    def put(self, id: str, credential: Credential) -> None:
        """Keep what a credential has; raises KeyManagementError if that fails."""
        id, keyring = normalized(id), _keyring()
        for service, user, secret in _places(id, credential):
            _call(keyring, "set_password", service, user, secret)
        rest = replace(credential, api_key=None, bearer=None, oauth=None)
        if kinds_of(rest):
            text = msgspec.json.encode(rest).decode()
            _call(keyring, "set_password", f"accord:{id}", id, text)
        self._known.pop(id, None)

    def remove(self, id: str) -> bool:
        """Take everything of an id out; false if there was nothing."""
        id, keyring = normalized(id), _keyring()
        everything = Credential(api_key="-", bearer="-", oauth=OAuthClient(client_id="-", client_secret="-"))
        places = [(service, user) for service, user, _ in _places(id, everything)] + [(f"accord:{id}", id)]
        there = [place for place in places if _call(keyring, "get_password", *place) is not None]
        for place in there:
            _call(keyring, "delete_password", *place)
        self._known.pop(id, None)
        return bool(there)


def _places(id: str, credential: Credential) -> list[tuple[str, str, str]]:
    """Return where AgentVault looks for what a credential has: service, user, secret."""
    oauth = credential.oauth or OAuthClient()
    places = [
        (f"agentvault:{id}", id, credential.api_key),
        (f"agentvault:bearer:{id}", id, credential.bearer),
        (f"agentvault:oauth:{id}", ID, oauth.client_id),
        (f"agentvault:oauth:{id}", SECRET, oauth.client_secret),
    ]
    return [(service, user, secret) for service, user, secret in places if secret]


def _read(keyring: ModuleType, id: str) -> Credential | None:
    def ask(service: str, user: str) -> str | None:
        found: str | None = _call(keyring, "get_password", service, user)
        return found or None

    rest = ask(f"accord:{id}", id)
    try:
        found = _credential.decode(rest) if rest else Credential()
    except msgspec.MsgspecError:
        raise KeyManagementError(f"What the keyring has for accord:{id} is not a credential") from None
    client = OAuthClient(
        client_id=ask(f"agentvault:oauth:{id}", ID), client_secret=ask(f"agentvault:oauth:{id}", SECRET)
    )
    is_whole = client.client_id and client.client_secret  # half of it is as good as nothing, and AgentVault's says so
    found = replace(
        found,
        api_key=ask(f"agentvault:{id}", id),
        bearer=ask(f"agentvault:bearer:{id}", id),
        oauth=client if is_whole else None,
    )
    return found if kinds_of(found) else None


def _keyring() -> ModuleType:
    try:
        import keyring
    except ImportError:
        raise KeyManagementError(MISSING) from None
    return keyring


def _call(keyring: ModuleType, function: str, *arguments: str) -> Any:
    """Call the keyring; its backends raise whatever their platform does, and must not take a program with them."""
    try:
        return getattr(keyring, function)(*arguments)
    except keyring.errors.NoKeyringError:
        raise NoKeyring("This machine has no keyring") from None
    except Exception as error:
        raise KeyManagementError(f"The keyring does not work: {type(error).__name__}") from error
