"""From what a card asks for and what credentials there are to a way to authenticate.

Alternatives are tried in AgentVault's order (a key, OAuth, nothing; the rest between), since the order of a card's
requirements means nothing to A2A; the first that there are credentials for is taken. How each is made is `ways`, where
credentials are kept `client.keys`.

A card is written by its agent, so the id that it names gives it no credential. Without `hosts`, a credential is sent
only to the host that its id names.
"""

from collections.abc import Collection, Iterable, Sequence
from shlex import quote
from typing import NamedTuple

from accord.client.auth.flow import Auth
from accord.client.auth.signed import Hmac
from accord.client.auth.stated import Anonymous, ApiKey, Basic, Bearer, CustomHeader
from accord.client.auth.together import Together
from accord.client.auth.ways import Way, way_of
from accord.client.keys import Credential, Keys
from accord.client.keys.credential import host_ids, host_names, is_for
from accord.client.keys.variables import spelled
from accord.model import AgentCard, Scopes, SecurityRequirement
from accord.protocol import hosts

LAST = 9
"""The rank of what cannot be had: a scheme that a card requires and does not describe."""


class NoCredentials(Exception):
    """A card asks for something that there are no credentials for; the message says what would do."""


class Chosen(NamedTuple):
    """A way to authenticate, the names that the card has for it, and the ids whose credentials it uses."""

    auth: Auth
    schemes: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


def choose(card: AgentCard, keys: Keys | None = None, *, service: str | None = None, origin: str = "") -> Auth:
    """Return how to authenticate to a card's agent, or raise NoCredentials.

    Credentials are looked up by `service`; without it by the scheme's `service_identifier`, the card's
    `humanReadableId`, and the agent's host with and without its port. It may have to ask the operating system.
    `origin` is the address that served the card, which is empty if the caller does not know it.
    """
    return chosen(card, keys, service=service, origin=origin).auth


def chosen(card: AgentCard, keys: Keys | None = None, *, service: str | None = None, origin: str = "") -> Chosen:
    """Return the way to authenticate with its schemes and ids; see `choose`."""
    question = _Question(card, keys or _Nothing(), service, origin)
    missing: list[str] = []
    for requirement in question.alternatives():
        found = question.satisfied(requirement)
        if isinstance(found, Chosen):
            return found
        missing.append(found)
    unspoken = question.unspoken()
    if unspoken is not None:
        return unspoken
    if question.is_optional:
        return Chosen(Anonymous())
    raise NoCredentials(f"{card.name} asks for {'; or for '.join(missing)}")


def ids_of(card: AgentCard, service: str | None = None) -> tuple[str, ...]:
    """Return every id under which credentials for a card's agent may be, the likeliest first."""
    if service:
        return (service,)
    named = card.profile.service_identifiers.values() if card.profile else ()
    return tuple(dict.fromkeys([*named, *_own_ids(card)]))


class _Nothing:
    def find(self, id: str) -> Credential | None:
        return None


class _Question:
    """One card, and who is asked for credentials."""

    def __init__(self, card: AgentCard, keys: Keys, service: str | None, origin: str) -> None:
        self._card = card
        self._keys = keys
        self._service = service
        self._origin = origin
        stated = card.security_requirements
        # A card that describes ways in and requires none lets everybody in, and further maybe those who use one.
        alone = [SecurityRequirement(schemes={name: Scopes()}) for name in card.security_schemes]
        self._requirements = stated or tuple(alone)
        self.is_optional = not stated or any(not requirement.schemes for requirement in stated)

    def alternatives(self) -> list[SecurityRequirement]:
        """Return what would do, the preferred first."""

        def rank(requirement: SecurityRequirement) -> int:
            ways = [self._way(name) for name in requirement.schemes]
            return max(LAST if way is None else way.rank for way in ways)

        return sorted((one for one in self._requirements if one.schemes), key=rank)

    def satisfied(self, requirement: SecurityRequirement) -> Chosen | str:
        """Return all that a requirement asks for together, or what is missing."""
        found = [self._one(name, scopes.list) for name, scopes in requirement.schemes.items()]
        missing = [one for one in found if isinstance(one, str)]
        if missing:
            return " and ".join(missing)
        parts = [one for one in found if isinstance(one, Chosen)]
        auths = [one.auth for one in parts]
        ids = tuple(dict.fromkeys(id for one in parts for id in one.ids))
        return Chosen(auths[0] if len(auths) == 1 else Together(auths), tuple(requirement.schemes), ids)

    def unspoken(self) -> Chosen | None:
        """Return a way that the card does not mention: some have no word for signatures, and some say nothing."""
        for id in ids_of(self._card, self._service):
            credential = self._keys.find(id)
            if credential is None or self._strays(id, credential):
                continue
            try:
                auth = _unasked(credential, is_named=self._service is not None)
            except ValueError as error:
                raise NoCredentials(f"What is kept under `{id}` cannot be used: {error}") from None
            if auth is not None:
                return Chosen(auth, (), (id,))
        return None

    def _way(self, name: str) -> Way | None:
        scheme = self._card.security_schemes.get(name)
        return None if scheme is None else way_of(scheme)

    def _one(self, name: str, scopes: Sequence[str]) -> Chosen | str:
        """Return how to satisfy one scheme, or what is missing for it."""
        way = self._way(name)
        if way is None:
            return f"`{name}`, which its card does not describe"
        ids = self._ids(name)
        reasons, commands = [], []
        for id in ids:
            credential = self._keys.find(id)
            try:
                auth = None if credential is None else way.make(credential, scopes)
            except ValueError as error:
                reasons.append(f"what is kept under `{id}` cannot be used: {error}")
                continue
            if credential is None or auth is None:
                continue
            strays = self._strays(id, credential, () if isinstance(auth, Bearer) else way.sent_to)
            if not strays and not _is_downgraded(self._card, way):
                return Chosen(auth, (name,), (id,))
            target = " and ".join(strays) if strays else f"{way.sent_to[0]}, which is not https"
            reasons.append(f"the credential `{id}` is not for {target}")
            commands += [allowing(id, credential, strays)] if strays else []
        return _wanted(way, ids, reasons, commands)

    def _strays(self, id: str, credential: Credential, tokens: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the hosts that a credential would be sent to and was not stored for.

        The host that `id` names may have further ports, and the card that it serves may name any token endpoint. The
        caller's own `service` is for every host, unless the credential has `hosts`.
        """
        urls = _urls(self._card)
        if credential.hosts or self._service:
            return strays(credential, [*urls, *tokens])
        if id.lower() in host_names(self._origin):
            return _others(host_ids(self._origin)[-1:], urls)
        return _others((id,), [*urls, *tokens])

    def _ids(self, scheme: str) -> list[str]:
        """Return the ids for one scheme: those that the card has for other schemes are not meant."""
        if self._service:
            return [self._service]
        named = self._card.profile.service_identifiers.get(scheme) if self._card.profile else None
        return list(dict.fromkeys([*([named] if named else []), *_own_ids(self._card)]))


def _unasked(credential: Credential, *, is_named: bool) -> Auth | None:
    """Return what to send where the card asks for nothing: a secret that is sent as it is only if somebody says so."""
    if credential.hmac is not None:
        return Hmac(credential.hmac.secret, key_id=credential.hmac.key_id)
    if credential.headers:
        return CustomHeader(credential.headers)
    if not is_named:
        return None
    if credential.bearer is not None:
        return Bearer(credential.bearer)
    if credential.api_key is not None:
        return ApiKey(credential.api_key)
    return None if credential.basic is None else Basic(credential.basic.username, credential.basic.password)


def _wanted(way: Way, ids: Sequence[str], reasons: Sequence[str], commands: Sequence[str]) -> str:
    """Say what is missing and what to do about it."""
    id = ids[0] if ids else "<id>"
    nothing = f"nothing of the kind is kept under {' or '.join(f'`{one}`' for one in ids)}"
    variables = way.variables.format(id=spelled(id).upper())
    # Quoted, because a card's author writes the id, and a reader may copy the command into a shell.
    fix = f"set {variables}, or run `accord creds set {quote(ids[0]) if ids else id} --kind {way.kind}`"
    return f"{way.wants} ({'; '.join(reasons) or nothing}; {' or '.join(commands) or fix})"


def _own_ids(card: AgentCard) -> list[str]:
    """Return what an agent is known by: its own name in AgentVault's registry, else where it is."""
    own = [card.profile.human_readable_id] if card.profile and card.profile.human_readable_id else []
    return own + [id for url in _urls(card)[:1] for id in host_ids(url)]


def _urls(card: AgentCard) -> list[str]:
    return [interface.url for interface in card.supported_interfaces]


def strays(credential: Credential, urls: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts of addresses that are not among a credential's `hosts`; without any, it is for all hosts."""
    return _others(credential.hosts, urls) if credential.hosts else ()


def allowing(id: str, credential: Credential, refused: Iterable[str]) -> str:
    """Return what an operator does to have a credential sent to further hosts."""
    own = credential.hosts or ((id,) if is_host(id) else ())
    allowed = list(dict.fromkeys([*own, *refused]))
    options = " ".join(f"--host {quote(host)}" for host in allowed)
    variable = f"ACCORD_HOSTS_{spelled(id).upper()}={quote(','.join(allowed))}"
    return f"to allow that, run `accord creds set {quote(id)} --kind hosts {options}` or set {variable}"


def _others(allowed: Collection[str], urls: Iterable[str]) -> tuple[str, ...]:
    """Return the first name of each host that has none among those allowed."""
    refused = [url for url in urls if not is_for(allowed, url)]
    return tuple(dict.fromkeys((host_ids(url) or ["an address without a host"])[0] for url in refused))


def is_host(id: str) -> bool:
    """Whether an id reads as a host, with or without a port."""
    return "/" not in id and (hosts.is_loopback(hosts.host_of(id)) or "." in id or ":" in id)


def _is_downgraded(card: AgentCard, way: Way) -> bool:
    """Whether an agent that is reached safely would have a secret sent elsewhere in the clear."""
    is_safe = all(url.startswith("https:") for url in _urls(card))
    return is_safe and any(not url.startswith("https:") for url in way.sent_to)
