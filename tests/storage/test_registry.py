"""Published agents in the store: one holder to a name, who sees what, and looks that belong to one node at a time."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from accord.storage.commands import published_agents
from accord.storage.commands.published_agents import (
    PRIVATE,
    PUBLIC,
    TENANT,
    AgentNameTaken,
    AgentQuery,
    CardIndex,
    LastCheck,
    Listing,
    VisibleAgents,
)
from accord.storage.store import Tx
from tests.storage.conftest import AnyStore

MINUTE = 60_000
ALICE, BOB = VisibleAgents(tenant="acme", owner="alice"), VisibleAgents(tenant="acme", owner="bob")
CAROL, NOBODY = VisibleAgents(tenant="globex", owner="carol"), VisibleAgents(tenant=None)
ADMIN = VisibleAgents(tenant="acme", owner="dora", sees_all=True)

FACTS = CardIndex(
    handle="acme/weather",
    name="Weather",
    description="Forecasts",
    words="acme/weather\nweather\nforecasts 100%_sure!",
    tags=("weather", "public"),
    tee="intel sgx",
    card='{"name": "Weather", "ü": "\\u0000"}',
)


async def publish(
    store: AnyStore, id: str, *, owner: str = "alice", tenant: str = "acme", visibility: str = TENANT, **facts: Any
) -> Listing:
    facts = {"handle": f"org/{id}"} | facts
    return await store.do(published_agents.publish, tenant, id, owner, visibility, replace(FACTS, **facts))


async def found(store: AnyStore, seen: VisibleAgents, **query: Any) -> list[str]:
    listings, total = await store.read(published_agents.search, seen, AgentQuery(**query))
    if not query.get("skip") and "limit" not in query:
        assert total == len(listings)
    return sorted(listing.id for listing in listings)


async def pass_time(tx: Tx, milliseconds: int) -> None:
    for column in ("due_at", "checked_at", "up_at"):
        await tx.run(f"UPDATE listing_check SET {column} = {column} - :ms", ms=milliseconds)


async def set_age(tx: Tx, id: str, at: int) -> None:
    await tx.run("UPDATE listing SET updated_at = :at WHERE id = :id", id=id, at=at)


# --- names ------------------------------------------------------------------------------------------------------------


async def test_an_agent_is_kept_as_it_was_published(ready: AnyStore) -> None:
    made = await ready.do(published_agents.publish, "acme", "a", "alice", TENANT, FACTS)
    assert made == Listing(
        tenant="acme",
        id="a",
        owner="alice",
        handle="acme/weather",
        visibility=TENANT,
        is_active=True,
        revision=1,
        name="Weather",
        description="Forecasts",
        tee="intel sgx",
        card=FACTS.card,
        created_at=made.created_at,
        updated_at=made.created_at,
    )
    assert await ready.read(published_agents.find, ALICE, "a") == made
    assert await ready.read(published_agents.find_by_name, BOB, "acme/weather") == made
    assert await ready.read(published_agents.find, ALICE, "b") is None


async def test_names_are_unique_per_tenant_and_publicly(ready: AnyStore) -> None:
    await publish(ready, "a", handle="x/y")
    for owner in ("alice", "bob"):
        with pytest.raises(AgentNameTaken):
            await publish(ready, "b", owner=owner, handle="x/y")
    await publish(ready, "c", tenant="globex", handle="x/y", visibility=PUBLIC)
    with pytest.raises(AgentNameTaken):
        await publish(ready, "d", tenant="initech", handle="x/y", visibility=PUBLIC)
    await publish(ready, "d", tenant="initech", handle="x/y", visibility=PRIVATE)
    assert await ready.read(published_agents.count_of_owner, "acme", "alice") == 1


async def test_a_name_in_the_own_tenant_comes_before_a_public_one(ready: AnyStore) -> None:
    await publish(ready, "theirs", tenant="globex", owner="carol", handle="x/y", visibility=PUBLIC)
    named = [await ready.read(published_agents.find_by_name, seen, "x/y") for seen in (ALICE, CAROL, NOBODY)]
    assert [one.id for one in named if one] == ["theirs"] * 3
    await publish(ready, "ours", handle="x/y", visibility=PRIVATE)
    named = [await ready.read(published_agents.find_by_name, seen, "x/y") for seen in (ALICE, BOB, CAROL, NOBODY)]
    assert [one.id for one in named if one] == ["ours", "theirs", "theirs", "theirs"]


async def test_a_removed_agent_keeps_its_name_for_its_owner(ready: AnyStore) -> None:
    await publish(ready, "a", handle="x/y", tags=("old",))
    await ready.do(published_agents.remove, "acme", "a")
    assert await ready.read(published_agents.find_by_name, ALICE, "x/y") is None
    assert await found(ready, ALICE) == []
    assert await found(ready, ALICE, is_active=False) == ["a"]
    with pytest.raises(AgentNameTaken):
        await publish(ready, "b", owner="bob", handle="x/y")
    back = await publish(ready, "b", handle="x/y", name="New", tags=("new",), visibility=PUBLIC)
    assert (back.id, back.name, back.is_active, back.visibility) == ("a", "New", True, PUBLIC)
    assert await found(ready, ALICE, tags=("new",)) == ["a"]
    assert await found(ready, ALICE, tags=("old",)) == []


async def test_concurrent_claims_of_a_name_have_one_winner(ready: AnyStore) -> None:
    tries = [publish(ready, f"n{at}", tenant=f"t{at % 3}", handle="x/y", visibility=PUBLIC) for at in range(9)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert [type(one) for one in outcomes].count(Listing) == 1
    assert [type(one) for one in outcomes].count(AgentNameTaken) == 8


# --- changes ----------------------------------------------------------------------------------------------------------


async def test_stale_updates_are_refused(ready: AnyStore) -> None:
    made = await publish(ready, "a")
    new = replace(FACTS, handle="org/a", name="Second")
    changes = [ready.do(published_agents.change, "acme", "a", made.revision, TENANT, True, new) for _ in range(4)]
    done = [one for one in await asyncio.gather(*changes) if one is not None]
    assert [(one.name, one.revision) for one in done] == [("Second", 2)]
    assert await ready.do(published_agents.change, "acme", "a", 1, TENANT, True, new) is None
    assert await ready.do(published_agents.change, "globex", "a", 2, TENANT, True, new) is None


async def test_a_change_cannot_take_anothers_name(ready: AnyStore) -> None:
    await publish(ready, "a")
    await publish(ready, "far", tenant="globex", handle="far/away", visibility=PUBLIC)
    b = await publish(ready, "b")
    for handle, visibility in (("org/a", TENANT), ("far/away", PUBLIC)):
        with pytest.raises(AgentNameTaken):
            await ready.do(
                published_agents.change, "acme", "b", b.revision, visibility, True, replace(FACTS, handle=handle)
            )
    moved = await ready.do(
        published_agents.change, "acme", "b", b.revision, TENANT, True, replace(FACTS, handle="far/away")
    )
    assert moved is not None
    assert moved.handle == "far/away"


# --- finding ----------------------------------------------------------------------------------------------------------


async def test_listing_visibility(ready: AnyStore) -> None:
    for visibility in (PRIVATE, TENANT, PUBLIC):
        await publish(ready, visibility, visibility=visibility)
    seen = {"alice": ALICE, "bob": BOB, "carol": CAROL, "nobody": NOBODY, "admin": ADMIN}
    sees = {name: await found(ready, one) for name, one in seen.items()}
    everything = [PRIVATE, PUBLIC, TENANT]
    assert sees == {
        "alice": everything,
        "bob": [PUBLIC, TENANT],
        "carol": [PUBLIC],
        "nobody": [PUBLIC],
        "admin": everything,
    }
    for name, one in seen.items():
        for id in everything:
            assert (await ready.read(published_agents.find, one, id) is not None) == (id in sees[name])
            assert (await ready.read(published_agents.find_by_name, one, f"org/{id}") is not None) == (id in sees[name])
        assert {card.id for card in await ready.read(published_agents.list_cards, one, 10)} == set(sees[name])
    assert await found(ready, BOB, is_owned=True) == []
    assert await found(ready, ALICE, is_owned=True) == everything
    assert await found(ready, replace(ALICE, tenant="globex"), is_owned=True) == []


async def test_search_results(ready: AnyStore) -> None:
    await publish(ready, "a")
    await publish(ready, "b", words="something else", tags=("weather",), tee=None)
    await publish(ready, "c", words="forecasts of else", tags=(), tee="")
    assert await found(ready, ALICE, words=("forecast",)) == ["a", "c"]
    assert await found(ready, ALICE, words=("forecast", "else")) == ["c"]
    assert await found(ready, ALICE, words=("100%_sure!",)) == ["a"]
    for wild in ("%", "_", "!", "f_recasts"):  # they mean themselves
        assert await found(ready, ALICE, words=(wild,)) == (["a"] if wild != "f_recasts" else [])
    assert await found(ready, ALICE, tags=("weather",)) == ["a", "b"]
    assert await found(ready, ALICE, tags=("weather", "public")) == ["a"]
    assert await found(ready, ALICE, tags=("weather", "nothing")) == []
    assert await found(ready, ALICE, has_tee=True) == ["a", "c"]
    assert await found(ready, ALICE, has_tee=False) == ["b"]
    assert await found(ready, ALICE, tee="intel sgx") == ["a"]
    assert await found(ready, ALICE, words=("else",), tags=("weather",), has_tee=False) == ["b"]


async def test_pages_are_the_latest_first_and_overlap_nowhere(ready: AnyStore) -> None:
    for at in range(7):
        await publish(ready, f"n{at}")
        await ready.do(set_age, f"n{at}", 1000 if at < 3 else 2000 + at)
    pages = [await ready.read(published_agents.search, ALICE, AgentQuery(skip=skip, limit=3)) for skip in (0, 3, 6, 9)]
    assert [[one.id for one in page] for page, _ in pages] == [["n6", "n5", "n4"], ["n3", "n0", "n1"], ["n2"], []]
    assert {total for _, total in pages} == {7}


# --- looks ------------------------------------------------------------------------------------------------------------


async def test_a_new_agent_is_due_at_once_and_belongs_to_one_node(ready: AnyStore) -> None:
    for at in range(6):
        await publish(ready, f"n{at}")
    claims = await asyncio.gather(*(ready.do(published_agents.claim_checks, 2, MINUTE) for _ in range(5)))
    ids = [due.id for claim in claims for due in claim]
    assert sorted(ids) == [f"n{at}" for at in range(6)]
    assert {(due.tenant, due.card, due.failures) for claim in claims for due in claim} == {("acme", FACTS.card, 0)}
    wait = await ready.read(published_agents.next_check_ms)
    assert wait is not None
    assert 0 < wait <= MINUTE
    await ready.do(pass_time, MINUTE)  # whoever looked has died
    assert len(await ready.do(published_agents.claim_checks, 10, MINUTE)) == 6


async def test_check_results_are_stored(ready: AnyStore) -> None:
    await publish(ready, "a")
    assert await ready.read(published_agents.last_check, "acme", "a") == LastCheck()
    (due,) = await ready.do(published_agents.claim_checks, 1, MINUTE)
    up = await ready.do(published_agents.settle_check, due, "up", "It is there", is_up=True, again_ms=5 * MINUTE)
    assert (up.state, up.failures, up.up_at) == ("up", 0, up.checked_at)
    (page, _) = await ready.read(published_agents.search, ALICE, AgentQuery())
    assert [one.state for one in page] == ["up"]
    assert await ready.do(published_agents.claim_checks, 1, MINUTE) == []
    for failures in (1, 2):
        await ready.do(pass_time, 5 * MINUTE)
        (due,) = await ready.do(published_agents.claim_checks, 1, MINUTE)
        down = await ready.do(published_agents.settle_check, due, "down", "Gone", is_up=False, again_ms=5 * MINUTE)
        assert (down.state, down.failures, down.up_at == down.checked_at) == ("down", failures, False)
        assert await ready.read(published_agents.last_check, "acme", "a") == down
    again = await ready.do(published_agents.claim_check, "acme", "a", MINUTE)
    assert again is not None
    assert again.failures == 2
    assert await ready.do(published_agents.claim_check, "globex", "a", MINUTE) is None


async def test_removed_agents_are_not_checked_and_changed_ones_again(ready: AnyStore) -> None:
    made = await publish(ready, "a")
    (due,) = await ready.do(published_agents.claim_checks, 1, MINUTE)
    await ready.do(published_agents.remove, "acme", "a")
    assert await ready.do(published_agents.settle_check, due, "up", "", is_up=True, again_ms=1) == LastCheck()
    assert await ready.read(published_agents.next_check_ms) is None
    assert await ready.do(published_agents.claim_check, "acme", "a", MINUTE) is None
    await ready.do(
        published_agents.change, "acme", "a", made.revision + 1, TENANT, True, replace(FACTS, handle="org/a", card="{}")
    )
    (due,) = await ready.do(published_agents.claim_checks, 1, MINUTE)
    assert due.card == "{}"
