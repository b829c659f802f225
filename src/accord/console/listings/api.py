"""The registry over HTTP, as AgentVault's clients know it: `/api/v1/agent-cards`, `/developers`, `/utils`.

It reads parameters and shapes answers; who may do what is `core.registry`. Members that AgentVault does not have
(`human_readable_id`, `visibility`, `signature`, `health`) are added to its own. There is no sign-up and no password:
developers are whom the server's own schemes let in.
"""

from hashlib import sha256
from typing import Any

from msgspec import Raw
from msgspec.json import Decoder

from accord.a2a import Caller
from accord.auth.api_keys import PREFIX
from accord.console import openapi
from accord.console.listings.shapes import (
    ByName,
    ChangeBody,
    CheckBody,
    Developer,
    Health,
    KeyBody,
    KeyInfo,
    NewKey,
    Page,
    Pages,
    PublishBody,
    Search,
    Shown,
    Summary,
    Validated,
)
from accord.console.openapi import Problem
from accord.console.routing import UNPROCESSABLE, Asked, Refusal, Reply, Route, time_of
from accord.errors import AuthenticationFailed, PermissionDenied
from accord.protocol import codec
from accord.registry.availability import AvailabilityChecks
from accord.registry.cards import InvalidCard
from accord.registry.directory import AgentDirectory, Change, DeveloperKeys, NameTaken, NotListed
from accord.registry.remote import API
from accord.storage.commands.apikeys import StoredKey
from accord.storage.commands.checks import Checked
from accord.storage.commands.registry import PUBLIC, Found, Listing, Query

CARDS = f"{API}/agent-cards"
_ID = "[0-9a-fA-F-]{36}"

REFUSALS = {
    InvalidCard: Refusal(
        UNPROCESSABLE, "INVALID_CARD", lambda error: {"findings": [one._asdict() for one in error.findings]}
    ),
    NotListed: Refusal(404, "NOT_FOUND"),
    NameTaken: Refusal(409, "NAME_TAKEN", lambda error: {"human_readable_id": error.handle}),
}

_publish, _change = Decoder(PublishBody), Decoder(ChangeBody)
_check, _key = Decoder(CheckBody), Decoder(KeyBody)


class RegistryApi:
    """The handlers of the registry."""

    def __init__(self, registry: AgentDirectory, developers: DeveloperKeys, checks: AvailabilityChecks) -> None:
        """Answer from `registry` and `developers`, and look for agents with `checks`."""
        self._registry = registry
        self._developers = developers
        self._checks = checks

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        by_id = f"{CARDS}/(?P<id>{_ID})"
        keys = f"{API}/developers/me/apikeys"
        return (
            Route("POST", f"{CARDS}/?", self.publish, noted="PublishAgent", takes=PublishBody, status=201, gives=Shown),
            Route("GET", f"{CARDS}/?", self.search, is_open=True, finds=Search, gives=Page),
            Route("GET", f"{CARDS}/by-hri/?", self.by_name, is_open=True, finds=ByName, gives=Shown),
            Route("GET", f"{CARDS}/id/(?P<name>.+)", self.by_name, is_open=True, gives=Shown),
            Route("GET", by_id, self.find, is_open=True, gives=Shown),
            Route("GET", f"{by_id}/card", self.document, is_open=True, gives=dict[str, Any]),
            Route("PUT", by_id, self.change, noted="ChangeAgent", takes=ChangeBody, gives=Shown),
            Route("DELETE", by_id, self.remove, noted="RemoveAgent", status=204),
            Route("POST", f"{by_id}/check", self.look, gives=Shown),
            Route("POST", f"{API}/utils/validate-card", self.validate, is_open=True, takes=CheckBody, gives=Validated),
            Route("GET", f"{API}/developers/me", self.me, gives=Developer),
            Route("GET", keys, self.keys, gives=list[KeyInfo]),
            Route("POST", keys, self.make_key, noted="MakeKey", takes=KeyBody, status=201, gives=NewKey),
            Route("DELETE", f"{keys}/(?P<id>[0-9a-f]{{16,64}})", self.end_key, noted="EndKey", status=204),
            Route("GET", f"{API}/openapi.json", self.described, is_open=True, gives=dict[str, Any]),
        )

    async def described(self, asked: Asked) -> Reply:
        """Describe this API."""
        return Reply(body=openapi.describe("The registry", "1", API, self.routes()))

    # --- cards ----------------------------------------------------------------------------------------------------

    async def publish(self, asked: Asked) -> Reply:
        """Publish an agent."""
        body = codec.decode(asked.body, _publish)
        listing = await self._registry.publish(
            asked.known, bytes(body.card_data), name=body.human_readable_id, visibility=body.visibility
        )
        return Reply(201, await self._shown(listing, asked.caller))

    async def search(self, asked: Asked) -> Reply:
        """List agents."""
        search = asked.found(Search, "tags")
        if search.owned_only and asked.caller is None:
            raise AuthenticationFailed("Say who you are to list your own agents")
        skip = search.offset if search.skip is None else search.skip
        query = Query(
            words=tuple(dict.fromkeys(search.search.lower().split())),
            tags=tuple(dict.fromkeys(tag.strip().lower() for tag in search.tags)),
            has_tee=search.has_tee,
            tee=None if search.tee_type is None else search.tee_type.lower(),
            is_owned=search.owned_only,
            is_active=search.active_only,
            skip=skip,
            limit=search.limit,
        )
        found, total = await self._registry.search(asked.caller, query)
        pages = Pages(
            total_items=total,
            limit=search.limit,
            offset=skip,
            total_pages=-(-total // search.limit),
            current_page=skip // search.limit + 1,
        )
        return Reply(body=Page(items=[_summary(one) for one in found], pagination=pages))

    async def by_name(self, asked: Asked) -> Reply:
        """Show the agent with a name, in the path or as a parameter."""
        name = asked.parts.get("name") or asked.query.get("hri", [""])[0]
        if not name:
            raise codec.invalid_field("hri", "Required field is missing")
        return Reply(body=await self._shown(await self._registry.named(asked.caller, name), asked.caller))

    async def find(self, asked: Asked) -> Reply:
        """Show an agent."""
        return Reply(body=await self._shown(await self._found(asked), asked.caller))

    async def document(self, asked: Asked) -> Reply:
        """Show an agent's card and nothing else, to be read like any card; the catalog points here."""
        listing = await self._found(asked)
        if listing.visibility == PUBLIC:
            return Reply(document=listing.card.encode(), changed_ms=listing.updated_at)
        return Reply(body=Raw(listing.card.encode()))

    async def change(self, asked: Asked) -> Reply:
        """Change an agent."""
        body = codec.decode(asked.body, _change)
        change = Change(
            card=body.card_data, is_active=body.is_active, visibility=body.visibility, name=body.human_readable_id
        )
        listing = await self._registry.change(asked.known, asked.parts["id"].lower(), change)
        return Reply(body=await self._shown(listing, asked.caller))

    async def remove(self, asked: Asked) -> Reply:
        """Take an agent out of sight."""
        await self._registry.remove(asked.known, asked.parts["id"].lower())
        return Reply(204)

    async def look(self, asked: Asked) -> Reply:
        """Look whether an agent is there."""
        listing = await self._registry.own(asked.known, asked.parts["id"].lower())
        await self._checks.now(listing.tenant, listing.id)
        return Reply(body=await self._shown(listing, asked.caller))

    async def validate(self, asked: Asked) -> Reply:
        """Say whether a card could be published."""
        document = bytes(codec.decode(asked.body, _check).card_data)
        try:
            found, verdict = self._registry.check(document)
        except InvalidCard as error:
            findings = [Problem(field=field, problem=problem) for field, problem in error.findings]
            return Reply(body=Validated(is_valid=False, detail=str(error), findings=findings))
        return Reply(
            body=Validated(
                is_valid=True,
                human_readable_id=found.facts.handle,
                signature=verdict,
                validated_card_data=Raw(found.facts.card.encode()),
            )
        )

    async def _found(self, asked: Asked) -> Listing:
        return await self._registry.find(asked.caller, asked.parts["id"].lower())

    async def _shown(self, listing: Listing, caller: Caller | None) -> Shown:
        verdict, counted = self._registry.sift(listing.card.encode())
        is_own = caller is not None and (caller.tenant, caller.owner) == (listing.tenant, listing.owner)
        return Shown(
            id=listing.id,
            human_readable_id=listing.handle,
            name=listing.name,
            description=listing.description,
            is_active=listing.is_active,
            visibility=listing.visibility,
            developer_id=_developer(listing.tenant, listing.owner),
            developer_is_verified=bool(listing.owner),
            is_own=is_own,
            card_data=Raw(counted),
            created_at=time_of(listing.created_at),
            updated_at=time_of(listing.updated_at),
            signature=verdict,
            health=_health(await self._registry.health(listing)),
        )

    # --- developers -----------------------------------------------------------------------------------------------

    async def me(self, asked: Asked) -> Reply:
        """Say who the caller is."""
        caller = asked.known
        if not caller.owner:
            raise PermissionDenied("This server asks nobody who they are, so there are no developers")
        return Reply(
            body=Developer(
                id=_developer(caller.tenant, caller.owner),
                name=caller.owner,
                email=None,
                tenant=None if caller.roams else caller.tenant,
                roles=sorted(caller.roles or ()),
                is_verified=True,
            )
        )

    async def keys(self, asked: Asked) -> Reply:
        """List the caller's keys."""
        return Reply(body=[_key_info(key) for key in await self._developers.held(asked.known)])

    async def make_key(self, asked: Asked) -> Reply:
        """Make a key, and show it for the only time."""
        body = codec.decode(asked.body or b"{}", _key)
        key, kept = await self._developers.create(asked.known, body.description or "", body.expires_days)
        return Reply(201, NewKey(plain_api_key=key, api_key_info=_key_info(kept)))

    async def end_key(self, asked: Asked) -> Reply:
        """End a key of the caller."""
        if not await self._developers.revoke(asked.known, asked.parts["id"]):
            raise NotListed("There is no such key of yours")
        return Reply(204)


def _summary(found: Found) -> Summary:
    return Summary(
        id=found.id,
        human_readable_id=found.handle,
        name=found.name,
        description=found.description,
        is_active=found.is_active,
        visibility=found.visibility,
        health=found.state,
        updated_at=time_of(found.updated_at),
    )


def _health(checked: Checked) -> Health:
    return Health(
        state=checked.state,
        detail=checked.detail,
        failures=checked.failures,
        checked_at=time_of(checked.checked_at),
        up_at=time_of(checked.up_at),
    )


def _key_info(key: StoredKey) -> KeyInfo:
    return KeyInfo(
        id=key.id,
        key_prefix=f"{PREFIX}{key.id}_",
        description=key.name or None,
        is_active=key.is_live,
        created_at=time_of(key.created_at),
        expires_at=time_of(key.expires_at),
        last_used_at=time_of(key.used_at),
    )


def _developer(tenant: str, owner: str) -> str:
    """Return what tells developers apart without telling who they are: owners may be mail addresses."""
    return sha256(f"{tenant}\0{owner}".encode()).hexdigest()[:16]
