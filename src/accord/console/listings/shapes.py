"""What the registry's API takes and gives: AgentVault's members, and those that are added to them.

Plain structures, from which requests are read, answers are written and the OpenAPI document is made, so that none of
the three can say something else. Who may ask for what is `core.registry`; where it is answered, `console.listings.api`.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from accord.console.openapi import Problem
from accord.registry.cards import MAX_TAGS
from accord.registry.directory import MAX_DESCRIPTION, MAX_PAGE, Visibility
from accord.registry.trust import SignatureVerdict

Days = Annotated[float, Meta(gt=0, le=3650)]
Offset = Annotated[int, Meta(ge=0, le=10**9)]


# --- requests ---------------------------------------------------------------------------------------------------------


class PublishBody(Struct, frozen=True):
    """An agent to publish; its card is kept as it was written, since it may be signed."""

    card_data: Raw
    visibility: Visibility = Visibility.TENANT
    human_readable_id: str | None = None


class ChangeBody(Struct, frozen=True):
    """What shall be otherwise."""

    card_data: dict[str, Any] | None = None
    is_active: bool | None = None
    visibility: Visibility | None = None
    human_readable_id: str | None = None


class CheckBody(Struct, frozen=True):
    """A card to look at."""

    card_data: Raw


class KeyBody(Struct, frozen=True):
    """A key to make."""

    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION)] | None = None
    expires_days: Days | None = None


class Search(Struct, frozen=True):
    """The parameters of a search; `offset` is what some clients say for `skip`."""

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
    """The parameter of a look by name."""

    hri: str


# --- answers ----------------------------------------------------------------------------------------------------------


class Health(Struct, frozen=True, kw_only=True):
    """What came of the last look for an agent; `state` is null before the first."""

    state: str | None
    detail: str | None
    failures: int
    checked_at: str | None
    up_at: str | None


class Shown(Struct, frozen=True, kw_only=True):
    """An agent, all of it."""

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
    """Where a page is among all."""

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
    """Whether a card could be published, and under which name."""

    is_valid: bool
    detail: str | None = None
    findings: list[Problem] = []
    human_readable_id: str | UnsetType = UNSET
    signature: SignatureVerdict | UnsetType = UNSET
    validated_card_data: Raw | UnsetType = UNSET


class Developer(Struct, frozen=True, kw_only=True):
    """Who asks."""

    id: str
    name: str
    email: str | None
    tenant: str | None
    roles: list[str]
    is_verified: bool


class KeyInfo(Struct, frozen=True, kw_only=True):
    """A key, but for its secret."""

    id: str
    key_prefix: str
    description: str | None
    is_active: bool
    created_at: str | None
    expires_at: str | None
    last_used_at: str | None


class NewKey(Struct, frozen=True, kw_only=True):
    """A key, shown for the only time."""

    plain_api_key: str
    api_key_info: KeyInfo
