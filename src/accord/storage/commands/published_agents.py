"""Published agents: names, cards and visibility, search, and availability checks."""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from accord.storage.encoding import from_row
from accord.storage.store import Row, Tx, Value

S = TypeVar("S", bound="ListingSummary")

PRIVATE, TENANT, PUBLIC = "private", "tenant", "public"
"""Visibility of a published agent: to its owner, to its tenant, or to all callers."""

NAMES = 4_711_004
"""Advisory lock for taking names. Two concurrent requests must not both find a name free."""


class AgentNameTaken(Exception):
    """Another agent has that name."""


class ForeignNamespace(Exception):
    """The namespace of the name belongs to another owner."""


class CardIndex(Struct, frozen=True, kw_only=True):
    """Searchable fields of an agent card, and the card itself.

    All but name and description are in lower case. `tee` is the type of its trusted execution environment, or an empty
    string for an environment without a type.
    """

    handle: str
    name: str
    description: str
    words: str
    tags: Sequence[str] = ()
    tee: str | None = None
    card: str


class ListingSummary(Struct, frozen=True, kw_only=True):
    """A published agent without its card. Times are in epoch milliseconds. `revision` grows with every change."""

    tenant: str
    id: str
    owner: str
    handle: str
    visibility: str
    is_active: bool
    revision: int
    name: str
    description: str
    tee: str | None
    created_at: int
    updated_at: int


class Listing(ListingSummary, frozen=True, kw_only=True):
    """A published agent with its card."""

    card: str


class FoundListing(ListingSummary, frozen=True, kw_only=True):
    """A search result, with the state of the last availability check."""

    state: str | None


class VisibleAgents(Struct, frozen=True, kw_only=True):
    """The agents that a caller may see.

    They are its own, those shared with its tenant, and public ones. `sees_all` adds all agents of the tenant. Without a
    tenant only public agents are visible.
    """

    tenant: str | None
    owner: str = ""
    sees_all: bool = False


class AgentQuery(Struct, frozen=True, kw_only=True):
    """Search filters. Agents must match all `words` and `tags`, in lower case.

    `tee` is a type of trusted execution environment. `has_tee` filters by the presence of any.
    """

    words: Sequence[str] = ()
    tags: Sequence[str] = ()
    has_tee: bool | None = None
    tee: str | None = None
    is_owned: bool = False
    is_active: bool = True
    skip: int = 0
    limit: int = 100


_SUMMARY = "tenant, id, owner, handle, visibility, active, revision, name, description, tee, created_at, updated_at"
_COLUMNS = f"{_SUMMARY}, card"
_STATE = """(SELECT state FROM listing_check
             WHERE listing_check.tenant = listing.tenant AND listing_check.id = listing.id)"""


# --- changing -------------------------------------------------------------------------------------------------------


async def publish(
    tx: Tx, tenant: str, id: str, owner: str, visibility: str, facts: CardIndex, *, crosses: bool = False
) -> Listing:
    """Store a new agent, or restore the owner's removed agent of this name with its ID.

    Raises AgentNameTaken. Raises ForeignNamespace if the namespace has another owner in the tenant, unless `crosses` is
    set.
    """
    if await _is_taken(tx, tenant, id, facts.handle, visibility):
        return await _revive(tx, tenant, owner, visibility, facts)
    if not crosses:
        await _check_namespace(tx, tenant, owner, facts.handle)
    row = await tx.one(
        """INSERT INTO listing
               (tenant, id, owner, handle, visibility, name, description, words, tee, card, created_at, updated_at)
           VALUES (:tenant, :id, :owner, :handle, :visibility, :name, :description, :words, :tee, :card, {now}, {now})
           RETURNING """
        + _COLUMNS,
        tenant=tenant,
        id=id,
        owner=owner,
        visibility=visibility,
        **_values(facts),
    )
    if row is None:
        raise RuntimeError("The agent was inserted and is not there")
    await _index_card(tx, tenant, id, facts)
    return _listing(row)


async def _revive(tx: Tx, tenant: str, owner: str, visibility: str, facts: CardIndex) -> Listing:
    removed = await tx.one(
        """SELECT id, revision FROM listing
           WHERE tenant = :tenant AND handle = :handle AND owner = :owner AND active = 0""",
        tenant=tenant,
        handle=facts.handle,
        owner=owner,
    )
    if removed is not None:
        revived = await change(tx, tenant, removed[0], removed[1], visibility, True, facts)
        if revived is not None:
            return revived
    raise AgentNameTaken


async def _check_namespace(tx: Tx, tenant: str, owner: str, handle: str) -> None:
    """Raise ForeignNamespace if another owner has the namespace in this tenant.

    Its first agent, even if removed, determines its owner. The caller must hold the lock on names.
    """
    namespace = handle.partition("/")[0] + "/"
    first = await tx.one(
        """SELECT owner FROM listing WHERE tenant = :tenant AND substr(handle, 1, :length) = :namespace
           ORDER BY created_at, id LIMIT 1""",
        tenant=tenant,
        length=len(namespace),
        namespace=namespace,
    )
    if first is not None and first[0] != owner:
        raise ForeignNamespace


async def change(
    tx: Tx,
    tenant: str,
    id: str,
    revision: int,
    visibility: str,
    is_active: bool,
    facts: CardIndex,
    *,
    namespace_of: str | None = None,
) -> Listing | None:
    """Replace an agent's card and settings. Return None on a revision conflict. Raises AgentNameTaken.

    `namespace_of` is the required owner of the namespace: otherwise raises ForeignNamespace. Without it that check is
    skipped.
    """
    if await _is_taken(tx, tenant, id, facts.handle, visibility):
        raise AgentNameTaken
    if namespace_of is not None:
        await _check_namespace(tx, tenant, namespace_of, facts.handle)
    row = await tx.one(
        """UPDATE listing SET handle = :handle, visibility = :visibility, active = :active, revision = revision + 1,
               name = :name, description = :description, words = :words, tee = :tee, card = :card, updated_at = {now}
           WHERE tenant = :tenant AND id = :id AND revision = :revision
           RETURNING """
        + _COLUMNS,
        tenant=tenant,
        id=id,
        revision=revision,
        visibility=visibility,
        active=int(is_active),
        **_values(facts),
    )
    if row is None:
        return None
    await tx.run("DELETE FROM listing_tag WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id)
    await tx.run("DELETE FROM listing_check WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id)
    await _index_card(tx, tenant, id, facts, is_active=is_active)
    return _listing(row)


async def _is_taken(tx: Tx, tenant: str, id: str, handle: str, visibility: str) -> bool:
    """Whether another agent has this name.

    Names are unique within a tenant, and among public agents.
    """
    await tx.lock(NAMES)
    found = await tx.one(
        """SELECT 1 FROM listing WHERE handle = :handle AND id <> :id
           AND (tenant = :tenant OR (visibility = 'public' AND :visibility = 'public'))""",
        tenant=tenant,
        id=id,
        handle=handle,
        visibility=visibility,
    )
    return found is not None


async def remove(tx: Tx, tenant: str, id: str) -> None:
    """Deactivate an agent. Its owner keeps the name."""
    await tx.run(
        """UPDATE listing SET active = 0, revision = revision + 1, updated_at = {now}
           WHERE tenant = :tenant AND id = :id AND active = 1""",
        tenant=tenant,
        id=id,
    )
    await tx.run("DELETE FROM listing_check WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id)


async def _index_card(tx: Tx, tenant: str, id: str, facts: CardIndex, *, is_active: bool = True) -> None:
    """Store the card's tags, and schedule an availability check now."""
    tags: list[dict[str, Value]] = [{"tenant": tenant, "id": id, "tag": tag} for tag in facts.tags]
    await tx.many("INSERT INTO listing_tag (tenant, id, tag) VALUES (:tenant, :id, :tag)", tags)
    if is_active:
        await tx.run(
            "INSERT INTO listing_check (tenant, id, due_at) VALUES (:tenant, :id, {now})", tenant=tenant, id=id
        )


# --- finding --------------------------------------------------------------------------------------------------------


async def find(tx: Tx, seen: VisibleAgents, id: str) -> Listing | None:
    """Return a visible agent, or None."""
    condition, values = _visible(seen)
    row = await tx.one(f"SELECT {_COLUMNS} FROM listing WHERE id = :id AND {condition}", id=id, **values)
    return None if row is None else _listing(row)


async def find_by_name(tx: Tx, seen: VisibleAgents, handle: str) -> Listing | None:
    """Return a visible active agent by name. The tenant's own agent takes precedence over public ones."""
    condition, values = _visible(seen)
    row = await tx.one(
        f"""SELECT {_COLUMNS} FROM listing WHERE handle = :handle AND active = 1 AND {condition}
            ORDER BY CASE WHEN tenant = :home THEN 0 ELSE 1 END LIMIT 1""",
        handle=handle,
        home=seen.tenant or "",
        **values,
    )
    return None if row is None else _listing(row)


async def list_cards(tx: Tx, seen: VisibleAgents, limit: int) -> list[Listing]:
    """Return the visible active agents, latest change first."""
    condition, values = _visible(seen)
    rows = await tx.all(
        f"""SELECT {_COLUMNS} FROM listing WHERE active = 1 AND {condition}
            ORDER BY updated_at DESC, id LIMIT :limit""",
        limit=limit,
        **values,
    )
    return [_listing(row) for row in rows]


async def search(tx: Tx, seen: VisibleAgents, query: AgentQuery) -> tuple[list[FoundListing], int]:
    """Return a page of matching agents, latest change first, and the total number."""
    condition, values = _visible(seen)
    conditions = [condition]
    if query.is_active:
        conditions.append("active = 1")
    if query.is_owned:
        conditions.append("tenant = :own_tenant AND owner = :own")
        values |= {"own_tenant": seen.tenant or "", "own": seen.owner}
    if query.has_tee is not None:
        conditions.append(f"tee IS {'NOT ' if query.has_tee else ''}NULL")
    if query.tee is not None:
        conditions.append("tee = :tee")
        values["tee"] = query.tee
    for at, word in enumerate(query.words):
        conditions.append(f"words LIKE :word{at} ESCAPE '!'")
        values[f"word{at}"] = f"%{_literal(word)}%"
    for at, tag in enumerate(query.tags):
        conditions.append(
            f"""EXISTS (SELECT 1 FROM listing_tag
                        WHERE listing_tag.tenant = listing.tenant AND listing_tag.id = listing.id AND tag = :tag{at})"""
        )
        values[f"tag{at}"] = tag
    where = " AND ".join(conditions)
    counted = await tx.one(f"SELECT count(*) FROM listing WHERE {where}", **values)
    rows = await tx.all(
        f"""SELECT {_SUMMARY}, {_STATE} FROM listing WHERE {where}
            ORDER BY updated_at DESC, id LIMIT :limit OFFSET :skip""",
        **values,
        limit=query.limit,
        skip=query.skip,
    )
    return [from_row(FoundListing, row, is_active=bool) for row in rows], counted[0] if counted else 0


async def count_of_owner(tx: Tx, tenant: str, owner: str) -> int:
    """Return the number of an owner's agents, active or not."""
    row = await tx.one(
        "SELECT count(*) FROM listing WHERE tenant = :tenant AND owner = :owner", tenant=tenant, owner=owner
    )
    return row[0] if row else 0


def _visible(seen: VisibleAgents) -> tuple[str, dict[str, Value]]:
    if seen.tenant is None:
        return "visibility = 'public'", {}
    if seen.sees_all:
        return "(tenant = :tenant OR visibility = 'public')", {"tenant": seen.tenant}
    condition = "((tenant = :tenant AND (visibility <> 'private' OR owner = :owner)) OR visibility = 'public')"
    return condition, {"tenant": seen.tenant, "owner": seen.owner}


def _literal(word: str) -> str:
    """Escape text for LIKE."""
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _values(facts: CardIndex) -> dict[str, Value]:
    return {name: getattr(facts, name) for name in ("handle", "name", "description", "words", "tee", "card")}


def _listing(row: Row) -> Listing:
    return from_row(Listing, row, is_active=bool)


class DueCheck(Struct, frozen=True, kw_only=True):
    """An agent whose availability check is due. `failures` counts consecutive failures."""

    tenant: str
    id: str
    failures: int
    card: str


class LastCheck(Struct, frozen=True, kw_only=True):
    """The result of the last availability check.

    `state` is unset before the first check. Times are in epoch milliseconds. `up_at` is the time of the last success.
    """

    state: str | None = None
    detail: str | None = None
    failures: int = 0
    checked_at: int | None = None
    up_at: int | None = None


_CHECK_COLUMNS = "state, detail, failures, checked_at, up_at"


async def claim_checks(tx: Tx, limit: int, hold_ms: int) -> list[DueCheck]:
    """Claim due availability checks for `hold_ms`."""
    rows = await tx.all(
        """UPDATE listing_check SET due_at = {now} + :hold_ms
           WHERE (tenant, id) IN (
               SELECT tenant, id FROM listing_check WHERE due_at <= {now} ORDER BY due_at LIMIT :limit {skip_locked})
           RETURNING tenant, id, failures""",
        hold_ms=hold_ms,
        limit=limit,
    )
    found = [await _due_check(tx, *row) for row in rows]
    return [one for one in found if one is not None]


async def settle_check(tx: Tx, due: DueCheck, state: str, detail: str, *, is_up: bool, again_ms: int) -> LastCheck:
    """Store the result of a check and schedule the next one. An agent removed meanwhile has no row."""
    row = await tx.one(
        """UPDATE listing_check SET state = :state, detail = :detail, failures = :failures, checked_at = {now},
               up_at = CASE WHEN :is_up = 1 THEN {now} ELSE up_at END, due_at = {now} + :again_ms
           WHERE tenant = :tenant AND id = :id
           RETURNING """
        + _CHECK_COLUMNS,
        tenant=due.tenant,
        id=due.id,
        state=state,
        detail=detail,
        failures=0 if is_up else due.failures + 1,
        is_up=int(is_up),
        again_ms=again_ms,
    )
    return LastCheck() if row is None else from_row(LastCheck, row)


async def last_check(tx: Tx, tenant: str, id: str) -> LastCheck:
    """Return the result of an agent's last availability check."""
    row = await tx.one(
        f"SELECT {_CHECK_COLUMNS} FROM listing_check WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id
    )
    return LastCheck() if row is None else from_row(LastCheck, row)


async def claim_check(tx: Tx, tenant: str, id: str, hold_ms: int) -> DueCheck | None:
    """Claim an agent's availability check for `hold_ms`, due or not."""
    row = await tx.one(
        """UPDATE listing_check SET due_at = {now} + :hold_ms WHERE tenant = :tenant AND id = :id RETURNING failures""",
        tenant=tenant,
        id=id,
        hold_ms=hold_ms,
    )
    return None if row is None else await _due_check(tx, tenant, id, row[0])


async def _due_check(tx: Tx, tenant: str, id: str, failures: int) -> DueCheck | None:
    row = await tx.one("SELECT card FROM listing WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id)
    return None if row is None else DueCheck(tenant=tenant, id=id, failures=failures, card=row[0])


async def next_check_ms(tx: Tx) -> int | None:
    """Return the milliseconds until the next check is due; None without scheduled checks."""
    row = await tx.one("SELECT min(due_at) - {now} FROM listing_check")
    return None if row is None or row[0] is None else max(0, row[0])
