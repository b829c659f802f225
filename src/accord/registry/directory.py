"""The directory of published agents: publication, changes, search, and API keys of developers.

To a caller, an agent that it may not see does not exist.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import Admission, Caller
from accord.auth.api_keys import new_key
from accord.auth.roles import Rights, Roles
from accord.engine.ids import new_id
from accord.errors import AccordError, AgentUnavailable, PermissionDenied, RateLimited
from accord.model import AgentCard
from accord.protocol.cards import decode_card
from accord.protocol.operations import Operation
from accord.registry import cards, names
from accord.registry.cards import CardObjection, InvalidCard, PublishableCard, SignatureVerdict, SignedBy, TrustedKeys
from accord.storage.commands import authentication, published_agents
from accord.storage.commands.authentication import NewApiKey, StoredApiKey
from accord.storage.commands.published_agents import AgentQuery, FoundListing, LastCheck, Listing, VisibleAgents
from accord.storage.store import Store

MAX_KEYS = 50
"""Maximum live API keys of one owner."""

MAX_DESCRIPTION = 256
DAY_MS = 24 * 3600 * 1000


class DeveloperKeys:
    """The API keys of authenticated callers."""

    def __init__(self, store: Store, *, accepts_keys: bool, roles: Roles | None = None) -> None:
        """Manage API keys in `store`, if the server accepts API keys."""
        self._store = store
        self._roles = roles or Roles()
        self._accepts_keys = accepts_keys

    async def create(self, caller: Caller, description: str, days: float | None = None) -> tuple[str, StoredApiKey]:
        """Create an API key. Returns the key, which is not stored, and its stored record."""
        if not caller.owner or not self._accepts_keys:
            raise PermissionDenied("This server does not accept API keys, so none can be created (--auth api-keys)")
        if caller.roles is not None and not self._roles.makes_keys(caller.roles):
            raise PermissionDenied("Your roles do not include making keys")
        if len(await self.held(caller)) >= MAX_KEYS:
            raise RateLimited(f"You have {MAX_KEYS} keys already; delete one", metadata={"limit": "keys"})
        ticket = caller.ticket or Admission(kind="")
        new = new_key(ticket.key_id or "")
        record = NewApiKey(
            id=new.id,
            hash=new.hash,
            name=description,
            owner=caller.owner,
            tenant=_tenant(caller),
            roles=sorted(caller.roles or ()),
            lasts_ms=None if days is None else round(days * DAY_MS),
            until=ticket.until,
        )
        return new.key, await self._store.do(authentication.create_api_key, record)

    async def held(self, caller: Caller) -> list[StoredApiKey]:
        """Return the caller's live API keys."""
        return (
            await self._store.read(authentication.list_owner_api_keys, caller.owner, _tenant(caller))
            if caller.owner
            else []
        )

    async def revoke(self, caller: Caller, id: str) -> bool:
        """Revoke an API key of the caller. False if the caller has no key with this id."""
        return bool(caller.owner) and await self._store.do(
            authentication.revoke_owner_api_key, id, caller.owner, _tenant(caller)
        )


def _tenant(caller: Caller) -> str | None:
    return None if caller.roams else caller.tenant


MAX_LISTINGS = 1000
"""Maximum agents of one owner, so that an owner cannot fill the store."""

MAX_PAGE = 250
MAX_CATALOG = 1000
"""Maximum agents of a page, and of the catalog, which has no pages."""

TRIES = 5
"""Maximum attempts at a change while others change the same agent."""


class Visibility(Enum):
    """The callers that see a published agent: its owner, its tenant, or all."""

    PRIVATE = published_agents.PRIVATE
    TENANT = published_agents.TENANT
    PUBLIC = published_agents.PUBLIC


class NotListed(Exception):
    """The agent does not exist, or the caller may not see it."""


class NameTaken(Exception):
    """Another agent has that name."""

    def __init__(self, handle: str) -> None:
        super().__init__(f"There is an agent {handle} already")
        self.handle = handle


class Change(Struct, frozen=True, kw_only=True):
    """A change to a published agent. `card` has only the changed members. `name` takes precedence over the card's."""

    card: dict[str, Any] | None = None
    is_active: bool | None = None
    visibility: Visibility | None = None
    name: str | None = None


class AgentDirectory:
    """The published agents of a store."""

    def __init__(
        self, store: Store, *, roles: Roles | None = None, trust: TrustedKeys | None = None, signed_only: bool = False
    ) -> None:
        """Manage agents in `store`. With `signed_only`, cards must be signed by a key of `trust`."""
        self._store = store
        self._roles = roles or Roles()
        self._trust = trust or TrustedKeys()
        self._signed_only = signed_only
        self._known: dict[tuple[str, int], AgentCard | None] = {}
        self.on_news: Callable[[], None] = lambda: None
        """Called when an agent needs an availability check."""

    # --- changes --------------------------------------------------------------------------------------------------

    def check(self, document: bytes, name: str | None = None) -> tuple[PublishableCard, SignatureVerdict]:
        """Return a card's content and signature verdict, or raise InvalidCard if it could not be published.

        Of a card that a trusted key has signed, only the members that the signature covers are published. The
        publisher chooses the name, so it is read from the whole card.
        """
        publishable = cards.read(document, name)
        verdict, counted = self._trust.sift(document)
        if verdict.state is SignedBy.TRUSTED:
            publishable = cards.read(counted, publishable.facts.handle)
        if self._signed_only and verdict.state is not SignedBy.TRUSTED:
            raise InvalidCard(
                (CardObjection("signatures", f"Only cards signed by a trusted key are taken: {verdict.detail}"),)
            )
        return publishable, verdict

    async def publish(
        self, caller: Caller, document: bytes, *, name: str | None = None, visibility: Visibility = Visibility.TENANT
    ) -> Listing:
        """Publish a card under `name`, or else under its own name."""
        publishable, _ = self.check(document, name)
        self._entitle(caller, publishable.facts.handle)
        if await self._store.read(published_agents.count_of_owner, caller.tenant, caller.owner) >= MAX_LISTINGS:
            raise RateLimited(f"{MAX_LISTINGS} agents are published already", metadata={"limit": "listings"})
        self._check_public(caller, publishable.facts.handle, visibility)
        new = (caller.tenant, new_id(), caller.owner, visibility.value, publishable.facts)
        crosses = self._crosses(caller, publishable.facts.handle)
        with _translated_conflicts(publishable.facts.handle):
            listing = await self._store.do(published_agents.publish, *new, crosses=crosses)
        self.on_news()
        return listing

    async def change(self, caller: Caller, id: str, change: Change) -> Listing:
        """Change an agent. Requires its owner or an admin of the tenant."""
        for _ in range(TRIES):
            changed = await self._change(caller, await self.own(caller, id), change)
            if changed is not None:
                self.on_news()
                return changed
        raise AgentUnavailable("Others are changing this agent", retry_after=1)

    async def _change(self, caller: Caller, listing: Listing, change: Change) -> Listing | None:
        """Change an agent, or return None if it was changed since it was read.

        Its name changes only if another is given.
        """
        document = listing.card.encode() if change.card is None else cards.merged(listing.card, change.card)
        renames = change.card is not None and "humanReadableId" in change.card
        publishable, _ = self.check(document, change.name or (None if renames else listing.handle))
        self._entitle(caller, publishable.facts.handle)
        visibility = listing.visibility if change.visibility is None else change.visibility.value
        is_active = listing.is_active if change.is_active is None else change.is_active
        seen, handle = (listing.tenant, listing.id, listing.revision), publishable.facts.handle
        if (visibility, handle) != (listing.visibility, listing.handle):
            self._check_public(caller, handle, Visibility(visibility))
        looks = handle != listing.handle and not self._crosses(caller, handle)
        given = (*seen, visibility, is_active, publishable.facts)
        with _translated_conflicts(handle):
            return await self._store.do(published_agents.change, *given, namespace_of=listing.owner if looks else None)

    async def remove(self, caller: Caller, id: str) -> None:
        """Remove an agent. Only its owner may publish it again under the same name."""
        listing = await self.own(caller, id)
        await self._store.do(published_agents.remove, listing.tenant, listing.id)

    async def own(self, caller: Caller, id: str) -> Listing:
        """Return an agent that the caller may change, or raise PermissionDenied."""
        listing = await self.find(caller, id)
        is_own = (listing.tenant, listing.owner) == (caller.tenant, caller.owner)
        if not is_own and not (listing.tenant == caller.tenant and self._visible_to(caller).sees_all):
            raise PermissionDenied("This agent was published by another owner")
        self._entitle(caller, listing.handle)
        return listing

    # --- lookups --------------------------------------------------------------------------------------------------

    async def find(self, caller: Caller | None, id: str) -> Listing:
        """Return an agent by its id. An inactive agent is visible only in its own tenant."""
        listing = await self._store.read(published_agents.find, self._visible_to(caller), id)
        if listing is None or not (listing.is_active or (caller is not None and caller.tenant == listing.tenant)):
            raise NotListed("There is no such agent")
        return listing

    async def named(self, caller: Caller | None, name: str) -> Listing:
        """Return an active agent by its name."""
        is_name = names.is_name(names.handle(name))
        listing = (
            await self._store.read(published_agents.find_by_name, self._visible_to(caller), names.handle(name))
            if is_name
            else None
        )
        if listing is None:
            raise NotListed(f"There is no agent {name[: names.MAX_NAME]!r}")
        return listing

    async def search(self, caller: Caller | None, query: AgentQuery) -> tuple[list[FoundListing], int]:
        """Return a page of agents and their total. A caller without a tenant sees only active agents."""
        visible = self._visible_to(caller)
        if visible.tenant is None:
            query = replace(query, is_active=True)
        return await self._store.read(published_agents.search, visible, query)

    async def resolve(self, caller: Caller | None, name: str) -> AgentCard:
        """Return the card of an agent by its name, or raise UnknownName."""
        try:
            listing = await self.named(caller, name)
        except NotListed as error:
            raise names.UnknownName(str(error)) from None
        try:
            return _card(listing)
        except AccordError as error:
            raise names.UnknownName(f"{name}: its card cannot be read: {error.message}") from None

    async def catalog(self, caller: Caller | None) -> dict[str, AgentCard]:
        """Return the cards that a caller sees, by agent id and under their published names."""
        cards_found = await self._store.read(published_agents.list_cards, self._visible_to(caller), MAX_CATALOG)
        previous = self._known
        self._known = {
            (one.id, one.revision): previous.get((one.id, one.revision)) or _readable(one) for one in cards_found
        }
        return {id: card for (id, _), card in self._known.items() if card is not None}

    async def health(self, listing: Listing) -> LastCheck:
        """Return the result of the last check of an agent."""
        return await self._store.read(published_agents.last_check, listing.tenant, listing.id)

    def sift(self, document: bytes) -> tuple[SignatureVerdict, bytes]:
        """Return a card's signature verdict, and the accepted part of the card; see `TrustedKeys.sift`."""
        return self._trust.sift(document)

    # --- authorization --------------------------------------------------------------------------------------------

    def _visible_to(self, caller: Caller | None) -> VisibleAgents:
        """Return the agents visible to a caller. A caller whose roles grant nothing counts as anonymous."""
        if caller is None or (caller.roles is not None and not self._roles.has_any(caller.roles)):
            return VisibleAgents(tenant=None)
        sees_all = caller.roles is not None and _looks_after(self._roles.rights(caller.roles, ""))
        return VisibleAgents(tenant=caller.tenant, owner=caller.owner, sees_all=sees_all)

    def _entitle(self, caller: Caller, handle: str) -> None:
        """Raise PermissionDenied unless a role of the caller grants every operation of an agent with this name."""
        if caller.roles is not None and self._roles.rights(caller.roles, handle).keys() != set(Operation):
            raise PermissionDenied(f"Your roles do not include publishing {handle}")

    def _check_public(self, caller: Caller, handle: str, visibility: Visibility) -> None:
        """Refuse to publish an agent to other tenants.

        Allowed are callers with a role that names its namespace, and admins of the server.
        """
        if visibility is not Visibility.PUBLIC or caller.roles is None:
            return
        is_operator = caller.is_of_server and _looks_after(self._roles.rights(caller.roles, handle))
        if not is_operator and not self._roles.names_namespace(caller.roles, handle):
            namespace = handle.partition("/")[0]
            raise PermissionDenied(
                f'Publishing {handle} for every tenant requires a role with agents = ["{namespace}/*"], '
                "or an admin of the server itself"
            )

    def _crosses(self, caller: Caller, handle: str) -> bool:
        """Whether a caller may publish under a namespace of another owner in its tenant."""
        if caller.roles is None:
            return True
        return _looks_after(self._roles.rights(caller.roles, "")) or self._roles.names_namespace(caller.roles, handle)


@contextmanager
def _translated_conflicts(handle: str) -> Iterator[None]:
    """Turn the store's name conflicts into NameTaken and PermissionDenied."""
    try:
        yield
    except published_agents.AgentNameTaken:
        raise NameTaken(handle) from None
    except published_agents.ForeignNamespace:
        namespace = handle.partition("/")[0]
        raise PermissionDenied(
            f'{namespace}/* belongs to another owner: publishing requires a role with agents = ["{namespace}/*"]'
        ) from None


def _looks_after(rights: Rights) -> bool:
    """Whether rights include all operations and the tasks of other owners."""
    return rights.keys() == set(Operation) and rights[Operation.CANCEL].sees_all


def _card(listing: Listing) -> AgentCard:
    return names.under(decode_card(listing.card.encode()), listing.handle)


def _readable(listing: Listing) -> AgentCard | None:
    """Return a card, or None if only another version of Accord can read it. One such card does not fail a list."""
    try:
        return _card(listing)
    except AccordError:
        return None
