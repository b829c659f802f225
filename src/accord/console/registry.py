"""The registry API of AgentVault's clients: `/api/v1/agent-cards`, `/developers`, `/utils`.

`registry.directory` authorizes callers. Members that AgentVault does not have (`human_readable_id`, `visibility`,
`signature`, `health`) are added to its own. Sign-up is not offered: developers are callers of the server.
"""

from hashlib import sha256
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.json import Decoder

from accord.a2a import Caller
from accord.api.access import PREFIX
from accord.api.directory import (
    API,
    MAX_DESCRIPTION,
    MAX_PAGE,
    MAX_TAGS,
    PUBLIC,
    AgentDirectory,
    AgentQuery,
    AvailabilityChecks,
    Change,
    DeveloperKeys,
    FoundListing,
    InvalidCard,
    LastCheck,
    Listing,
    NameTaken,
    NotListed,
    SignatureVerdict,
    Visibility,
)
from accord.api.queries import StoredApiKey
from accord.console import openapi
from accord.console.openapi import Problem
from accord.console.routing import UNPROCESSABLE, ApiReply, ApiRequest, ApiRoute, Refusal, time_of
from accord.errors import AuthenticationFailed, PermissionDenied
from accord.protocol import codec

Days = Annotated[float, Meta(gt=0, le=3650)]
Offset = Annotated[int, Meta(ge=0, le=10**9)]


# --- requests ---------------------------------------------------------------------------------------------------------


class PublishBody(Struct, frozen=True):
    """An agent to publish. Its card is stored as written, since it may be signed."""

    card_data: Raw
    visibility: Visibility = Visibility.TENANT
    human_readable_id: str | None = None


class ChangeBody(Struct, frozen=True):
    """Changes of a published agent."""

    card_data: dict[str, Any] | None = None
    is_active: bool | None = None
    visibility: Visibility | None = None
    human_readable_id: str | None = None


class CheckBody(Struct, frozen=True):
    """A card to validate."""

    card_data: Raw


class KeyBody(Struct, frozen=True):
    """An API key to create."""

    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION)] | None = None
    expires_days: Days | None = None


class AgentSearch(Struct, frozen=True):
    """The parameters of a search. `offset` is an alias of `skip`."""

    skip: Offset | None = None
    offset: Offset = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    active_only: bool = True
    search: Annotated[str, Meta(max_length=100)] = ""
    tags: Annotated[list[str], Meta(max_length=MAX_TAGS)] = []
    has_tee: bool | None = None
    tee_type: Annotated[str, Meta(max_length=50)] | None = None
    owned_only: bool = False


class ByName(Struct, frozen=True):
    """The parameter of a lookup by name."""

    hri: str


# --- answers ----------------------------------------------------------------------------------------------------------


class Health(Struct, frozen=True, kw_only=True):
    """The result of an agent's last check. `state` is null before the first."""

    state: str | None
    detail: str | None
    failures: int
    checked_at: str | None
    up_at: str | None


class Shown(Struct, frozen=True, kw_only=True):
    """A published agent with all details."""

    id: str
    human_readable_id: str
    name: str
    description: str
    is_active: bool
    visibility: str
    developer_id: str
    developer_is_verified: bool
    is_own: bool
    card_data: Raw
    created_at: str | None
    updated_at: str | None
    signature: SignatureVerdict
    health: Health


class Summary(Struct, frozen=True, kw_only=True):
    """An agent in a list."""

    id: str
    human_readable_id: str
    name: str
    description: str
    is_active: bool
    visibility: str
    health: str | None
    updated_at: str | None


class Pages(Struct, frozen=True, kw_only=True):
    """The position of a page among all results."""

    total_items: int
    limit: int
    offset: int
    total_pages: int
    current_page: int


class Page(Struct, frozen=True, kw_only=True):
    """A page of agents."""

    items: list[Summary]
    pagination: Pages


class Validated(Struct, frozen=True, kw_only=True):
    """Whether a card could be published, and its name."""

    is_valid: bool
    detail: str | None = None
    findings: list[Problem] = []
    human_readable_id: str | UnsetType = UNSET
    signature: SignatureVerdict | UnsetType = UNSET
    validated_card_data: Raw | UnsetType = UNSET


class Developer(Struct, frozen=True, kw_only=True):
    """The caller as a developer."""

    id: str
    name: str
    email: str | None
    tenant: str | None
    roles: list[str]
    is_verified: bool


class KeyInfo(Struct, frozen=True, kw_only=True):
    """An API key without its secret."""

    id: str
    key_prefix: str
    description: str | None
    is_active: bool
    created_at: str | None
    expires_at: str | None
    last_used_at: str | None


class NewKey(Struct, frozen=True, kw_only=True):
    """A new API key, the only response with its secret."""

    plain_api_key: str
    api_key_info: KeyInfo


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
    """The registry endpoints."""

    def __init__(self, registry: AgentDirectory, developers: DeveloperKeys, checks: AvailabilityChecks) -> None:
        """Create the handlers for `registry` and `developers`. `checks` tests the availability of agents."""
        self._registry = registry
        self._developers = developers
        self._checks = checks

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        by_id = f"{CARDS}/(?P<id>{_ID})"
        keys = f"{API}/developers/me/apikeys"
        return (
            ApiRoute(
                "POST", f"{CARDS}/?", self.publish, noted="PublishAgent", takes=PublishBody, status=201, gives=Shown
            ),
            ApiRoute("GET", f"{CARDS}/?", self.search, is_open=True, finds=AgentSearch, gives=Page),
            ApiRoute("GET", f"{CARDS}/by-hri/?", self.by_name, is_open=True, finds=ByName, gives=Shown),
            ApiRoute("GET", f"{CARDS}/id/(?P<name>.+)", self.by_name, is_open=True, gives=Shown),
            ApiRoute("GET", by_id, self.find, is_open=True, gives=Shown),
            ApiRoute("GET", f"{by_id}/card", self.document, is_open=True, gives=dict[str, Any]),
            ApiRoute("PUT", by_id, self.change, noted="ChangeAgent", takes=ChangeBody, gives=Shown),
            ApiRoute("DELETE", by_id, self.remove, noted="RemoveAgent", status=204),
            ApiRoute("POST", f"{by_id}/check", self.look, gives=Shown),
            ApiRoute(
                "POST", f"{API}/utils/validate-card", self.validate, is_open=True, takes=CheckBody, gives=Validated
            ),
            ApiRoute("GET", f"{API}/developers/me", self.me, gives=Developer),
            ApiRoute("GET", keys, self.keys, gives=list[KeyInfo]),
            ApiRoute("POST", keys, self.make_key, noted="MakeKey", takes=KeyBody, status=201, gives=NewKey),
            ApiRoute("DELETE", f"{keys}/(?P<id>[0-9a-f]{{16,64}})", self.end_key, noted="EndKey", status=204),
            ApiRoute("GET", f"{API}/openapi.json", self.described, is_open=True, gives=dict[str, Any]),
        )

    async def described(self, asked: ApiRequest) -> ApiReply:
        """Describe this API."""
        return ApiReply(body=openapi.describe("The registry", "1", API, self.routes()))

    # --- cards ----------------------------------------------------------------------------------------------------

    async def publish(self, asked: ApiRequest) -> ApiReply:
        """Publish an agent."""
        body = codec.decode(asked.body, _publish)
        listing = await self._registry.publish(
            asked.known, bytes(body.card_data), name=body.human_readable_id, visibility=body.visibility
        )
        return ApiReply(201, await self._shown(listing, asked.caller))

    async def search(self, asked: ApiRequest) -> ApiReply:
        """List agents."""
        search = asked.found(AgentSearch, "tags")
        if search.owned_only and asked.caller is None:
            raise AuthenticationFailed("Say who you are to list your own agents")
        skip = search.offset if search.skip is None else search.skip
        query = AgentQuery(
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
        return ApiReply(body=Page(items=[_summary(one) for one in found], pagination=pages))

    async def by_name(self, asked: ApiRequest) -> ApiReply:
        """Show the agent with a name, in the path or as a parameter."""
        name = asked.parts.get("name") or asked.query.get("hri", [""])[0]
        if not name:
            raise codec.invalid_field("hri", "Required field is missing")
        return ApiReply(body=await self._shown(await self._registry.named(asked.caller, name), asked.caller))

    async def find(self, asked: ApiRequest) -> ApiReply:
        """Show an agent."""
        return ApiReply(body=await self._shown(await self._found(asked), asked.caller))

    async def document(self, asked: ApiRequest) -> ApiReply:
        """Return an agent's card alone, like any card. The catalog links here."""
        listing = await self._found(asked)
        if listing.visibility == PUBLIC:
            return ApiReply(document=listing.card.encode(), changed_ms=listing.updated_at)
        return ApiReply(body=Raw(listing.card.encode()))

    async def change(self, asked: ApiRequest) -> ApiReply:
        """Change an agent."""
        body = codec.decode(asked.body, _change)
        change = Change(
            card=body.card_data, is_active=body.is_active, visibility=body.visibility, name=body.human_readable_id
        )
        listing = await self._registry.change(asked.known, asked.parts["id"].lower(), change)
        return ApiReply(body=await self._shown(listing, asked.caller))

    async def remove(self, asked: ApiRequest) -> ApiReply:
        """Remove an agent from the listings."""
        await self._registry.remove(asked.known, asked.parts["id"].lower())
        return ApiReply(204)

    async def look(self, asked: ApiRequest) -> ApiReply:
        """Check whether an agent is available."""
        listing = await self._registry.own(asked.known, asked.parts["id"].lower())
        await self._checks.now(listing.tenant, listing.id)
        return ApiReply(body=await self._shown(listing, asked.caller))

    async def validate(self, asked: ApiRequest) -> ApiReply:
        """Validate a card for publishing."""
        document = bytes(codec.decode(asked.body, _check).card_data)
        try:
            found, verdict = self._registry.check(document)
        except InvalidCard as error:
            findings = [Problem(field=field, problem=problem) for field, problem in error.findings]
            return ApiReply(body=Validated(is_valid=False, detail=str(error), findings=findings))
        return ApiReply(
            body=Validated(
                is_valid=True,
                human_readable_id=found.facts.handle,
                signature=verdict,
                validated_card_data=Raw(found.facts.card.encode()),
            )
        )

    async def _found(self, asked: ApiRequest) -> Listing:
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

    async def me(self, asked: ApiRequest) -> ApiReply:
        """Show the caller's developer profile."""
        caller = asked.known
        if not caller.owner:
            raise PermissionDenied("This server asks nobody who they are, so there are no developers")
        return ApiReply(
            body=Developer(
                id=_developer(caller.tenant, caller.owner),
                name=caller.owner,
                email=None,
                tenant=None if caller.roams else caller.tenant,
                roles=sorted(caller.roles or ()),
                is_verified=True,
            )
        )

    async def keys(self, asked: ApiRequest) -> ApiReply:
        """List the caller's API keys."""
        return ApiReply(body=[_key_info(key) for key in await self._developers.held(asked.known)])

    async def make_key(self, asked: ApiRequest) -> ApiReply:
        """Create an API key. Its secret is shown only now."""
        body = codec.decode(asked.body or b"{}", _key)
        key, kept = await self._developers.create(asked.known, body.description or "", body.expires_days)
        return ApiReply(201, NewKey(plain_api_key=key, api_key_info=_key_info(kept)))

    async def end_key(self, asked: ApiRequest) -> ApiReply:
        """Revoke an API key of the caller."""
        if not await self._developers.revoke(asked.known, asked.parts["id"]):
            raise NotListed("There is no such key of yours")
        return ApiReply(204)


def _summary(found: FoundListing) -> Summary:
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


def _health(checked: LastCheck) -> Health:
    return Health(
        state=checked.state,
        detail=checked.detail,
        failures=checked.failures,
        checked_at=time_of(checked.checked_at),
        up_at=time_of(checked.up_at),
    )


def _key_info(key: StoredApiKey) -> KeyInfo:
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
    """Return a stable id of a developer that does not reveal the owner, which may be a mail address."""
    return sha256(f"{tenant}\0{owner}".encode()).hexdigest()[:16]
