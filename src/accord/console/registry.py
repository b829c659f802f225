"""The registry API of AgentVault's clients: `/api/v1/agent-cards`, `/developers`, `/utils`.

`registry.directory` authorizes callers. Members that AgentVault does not have (`human_readable_id`, `visibility`,
`signature`, `health`) are added to its own. Sign-up is not offered: developers are callers of the server.
"""

from hashlib import sha256
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

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
    Listing,
    NameTaken,
    NotListed,
    SignatureVerdict,
    Visibility,
)
from accord.api.queries import StoredApiKey
from accord.console import openapi
from accord.console.openapi import Problem
from accord.console.routing import UNPROCESSABLE, ApiReply, ApiRequest, ApiSection, Refusal, route, time_of, view_of
from accord.errors import AuthenticationFailed, PermissionDenied

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


class NameQuery(Struct, frozen=True):
    """The parameter of a lookup by name."""

    hri: str


# --- answers ----------------------------------------------------------------------------------------------------------


class AgentHealth(Struct, frozen=True, kw_only=True):
    """The result of an agent's last check. `state` is null before the first."""

    state: str | None
    detail: str | None
    failures: int
    checked_at: str | None
    up_at: str | None


class PublishedAgent(Struct, frozen=True, kw_only=True):
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
    health: AgentHealth


class AgentSummary(Struct, frozen=True, kw_only=True):
    """An agent in a list."""

    id: str
    human_readable_id: str
    name: str
    description: str
    is_active: bool
    visibility: str
    health: str | None
    updated_at: str | None


class Pagination(Struct, frozen=True, kw_only=True):
    """The position of a page among all results."""

    total_items: int
    limit: int
    offset: int
    total_pages: int
    current_page: int


class AgentPage(Struct, frozen=True, kw_only=True):
    """A page of agents."""

    items: list[AgentSummary]
    pagination: Pagination


class CardValidation(Struct, frozen=True, kw_only=True):
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
AGENT = f"{CARDS}/(?P<id>[0-9a-fA-F-]{{36}})"
KEYS = f"{API}/developers/me/apikeys"

REFUSALS = {
    InvalidCard: Refusal(
        UNPROCESSABLE, "INVALID_CARD", lambda error: {"findings": [finding._asdict() for finding in error.findings]}
    ),
    NotListed: Refusal(404, "NOT_FOUND"),
    NameTaken: Refusal(409, "NAME_TAKEN", lambda error: {"human_readable_id": error.handle}),
}


class RegistryApi(ApiSection):
    """The registry endpoints."""

    def __init__(self, registry: AgentDirectory, developers: DeveloperKeys, checks: AvailabilityChecks) -> None:
        """Create the handlers for `registry` and `developers`. `checks` tests the availability of agents."""
        self._registry = registry
        self._developers = developers
        self._checks = checks

    @route("GET", f"{API}/openapi.json", is_open=True)
    async def described(self, _request: ApiRequest) -> dict[str, Any]:
        """Describe this API."""
        return openapi.describe("The registry", "1", API, self.routes())

    # --- cards ----------------------------------------------------------------------------------------------------

    @route("POST", f"{CARDS}/?", audited="PublishAgent", status=201)
    async def publish(self, request: ApiRequest, body: PublishBody) -> PublishedAgent:
        """Publish an agent."""
        listing = await self._registry.publish(
            request.caller, bytes(body.card_data), name=body.human_readable_id, visibility=body.visibility
        )
        return await self._view(listing, request)

    @route("GET", f"{CARDS}/?", is_open=True)
    async def search(self, request: ApiRequest, query: AgentSearch) -> AgentPage:
        """List agents."""
        if query.owned_only and request.visitor is None:
            raise AuthenticationFailed("Authenticate to list your own agents")
        skip = query.offset if query.skip is None else query.skip
        search = AgentQuery(
            words=tuple(dict.fromkeys(query.search.lower().split())),
            tags=tuple(dict.fromkeys(tag.strip().lower() for tag in query.tags)),
            has_tee=query.has_tee,
            tee=None if query.tee_type is None else query.tee_type.lower(),
            is_owned=query.owned_only,
            is_active=query.active_only,
            skip=skip,
            limit=query.limit,
        )
        listings, total = await self._registry.search(request.visitor, search)
        pagination = Pagination(
            total_items=total,
            limit=query.limit,
            offset=skip,
            total_pages=-(-total // query.limit),
            current_page=skip // query.limit + 1,
        )
        return AgentPage(items=[_summary(listing) for listing in listings], pagination=pagination)

    @route("GET", f"{CARDS}/by-hri/?", is_open=True)
    async def find_by_parameter(self, request: ApiRequest, query: NameQuery) -> PublishedAgent:
        """Show the agent with a name, in the path or as a parameter."""
        return await self._view(await self._registry.named(request.visitor, query.hri), request)

    @route("GET", f"{CARDS}/id/(?P<name>.+)", is_open=True)
    async def find_by_path(self, request: ApiRequest) -> PublishedAgent:
        """Show the agent with a name, in the path or as a parameter."""
        return await self._view(await self._registry.named(request.visitor, request.parts["name"]), request)

    @route("GET", AGENT, is_open=True)
    async def find(self, request: ApiRequest) -> PublishedAgent:
        """Show an agent."""
        return await self._view(await self._listing(request), request)

    @route("GET", f"{AGENT}/card", is_open=True, result=dict[str, Any])
    async def document(self, request: ApiRequest) -> ApiReply:
        """Return an agent's card alone, like any card. The catalog links here."""
        listing = await self._listing(request)
        if listing.visibility == PUBLIC:
            return ApiReply(document=listing.card.encode(), changed_ms=listing.updated_at)
        return ApiReply(body=Raw(listing.card.encode()))

    @route("PUT", AGENT, audited="ChangeAgent")
    async def change(self, request: ApiRequest, body: ChangeBody) -> PublishedAgent:
        """Change an agent."""
        change = Change(
            card=body.card_data, is_active=body.is_active, visibility=body.visibility, name=body.human_readable_id
        )
        return await self._view(await self._registry.change(request.caller, _id(request), change), request)

    @route("DELETE", AGENT, audited="RemoveAgent", status=204)
    async def remove(self, request: ApiRequest) -> None:
        """Remove an agent from the listings."""
        await self._registry.remove(request.caller, _id(request))

    @route("POST", f"{AGENT}/check")
    async def check(self, request: ApiRequest) -> PublishedAgent:
        """Check whether an agent is available."""
        listing = await self._registry.own(request.caller, _id(request))
        await self._checks.now(listing.tenant, listing.id)
        return await self._view(listing, request)

    @route("POST", f"{API}/utils/validate-card", is_open=True)
    async def validate(self, request: ApiRequest, body: CheckBody) -> CardValidation:
        """Validate a card for publishing."""
        try:
            card, verdict = self._registry.check(bytes(body.card_data))
        except InvalidCard as error:
            findings = [Problem(field=field, problem=problem) for field, problem in error.findings]
            return CardValidation(is_valid=False, detail=str(error), findings=findings)
        return CardValidation(
            is_valid=True,
            human_readable_id=card.facts.handle,
            signature=verdict,
            validated_card_data=Raw(card.facts.card.encode()),
        )

    async def _listing(self, request: ApiRequest) -> Listing:
        return await self._registry.find(request.visitor, _id(request))

    async def _view(self, listing: Listing, request: ApiRequest) -> PublishedAgent:
        caller = request.visitor
        verdict, card = self._registry.sift(listing.card.encode())
        check = await self._registry.health(listing)
        return view_of(
            PublishedAgent,
            listing,
            human_readable_id=listing.handle,
            developer_id=_developer(listing.tenant, listing.owner),
            developer_is_verified=bool(listing.owner),
            is_own=caller is not None and (caller.tenant, caller.owner) == (listing.tenant, listing.owner),
            card_data=Raw(card),
            created_at=time_of(listing.created_at),
            updated_at=time_of(listing.updated_at),
            signature=verdict,
            health=view_of(AgentHealth, check, checked_at=time_of(check.checked_at), up_at=time_of(check.up_at)),
        )

    # --- developers -----------------------------------------------------------------------------------------------

    @route("GET", f"{API}/developers/me")
    async def me(self, request: ApiRequest) -> Developer:
        """Show the caller's developer profile."""
        caller = request.caller
        if not caller.owner:
            raise PermissionDenied("This server has no authentication, so it has no developers")
        return Developer(
            id=_developer(caller.tenant, caller.owner),
            name=caller.owner,
            email=None,
            tenant=None if caller.roams else caller.tenant,
            roles=sorted(caller.roles or ()),
            is_verified=True,
        )

    @route("GET", KEYS)
    async def keys(self, request: ApiRequest) -> list[KeyInfo]:
        """List the caller's API keys."""
        return [_key_info(key) for key in await self._developers.held(request.caller)]

    @route("POST", KEYS, audited="MakeKey", status=201)
    async def create_key(self, request: ApiRequest, body: KeyBody | None) -> NewKey:
        """Create an API key. Its secret is shown only now."""
        options = body or KeyBody()
        key, stored = await self._developers.create(request.caller, options.description or "", options.expires_days)
        return NewKey(plain_api_key=key, api_key_info=_key_info(stored))

    @route("DELETE", f"{KEYS}/(?P<id>[0-9a-f]{{16,64}})", audited="EndKey", status=204)
    async def revoke_key(self, request: ApiRequest) -> None:
        """Revoke an API key of the caller."""
        if not await self._developers.revoke(request.caller, request.parts["id"]):
            raise NotListed("There is no such key of yours")


def _id(request: ApiRequest) -> str:
    return request.parts["id"].lower()


def _summary(listing: FoundListing) -> AgentSummary:
    changed = time_of(listing.updated_at)
    return view_of(AgentSummary, listing, human_readable_id=listing.handle, health=listing.state, updated_at=changed)


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
