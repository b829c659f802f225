"""Whether published agents are there: what is asked, what counts, how often, and where nothing is asked at all."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from accord.a2a import Caller
from accord.outbound import HttpSession, Policy
from accord.protocol.cards import decode_card
from accord.registry import availability
from accord.registry.availability import (
    Availability,
    AvailabilityChecks,
    CheckResult,
    ForbiddenAddress,
    ServerAnswer,
    UnreachableServer,
    check_agent,
)
from accord.registry.directory import AgentDirectory
from accord.registry.names import UnknownName
from accord.server.optional_services import registry_requester
from accord.storage.commands.published_agents import DueCheck, LastCheck
from accord.storage.store import Store, StoreUnavailable, Tx
from tests.outbound.conftest import Listening, listening
from tests.registry.conftest import FAR, V1, document
from tests.storage.conftest import AnyStore

__all__ = ["listening"]

WEATHER = decode_card(document(FAR))
CALLER = Caller(owner="alice", tenant="acme")
DAY = 24 * 3600 * 1000


class Web:
    """What servers answer, by URL; others have nothing."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.answers = answers or {}
        self.asked: list[str] = []

    async def __call__(self, method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        assert (method, body) == ("GET", None)
        self.asked.append(url)
        answer = self.answers.get(url, self.answers.get("*", 404))
        if isinstance(answer, Exception):
            raise answer
        return (
            ServerAnswer(status=answer, body=b"") if isinstance(answer, int) else ServerAnswer(status=200, body=answer)
        )


async def test_an_agent_that_serves_its_card_is_up() -> None:
    web = Web({"https://weather.example/.well-known/agent.json": document(FAR)})
    assert await check_agent(WEATHER, web) == CheckResult(Availability.UP, "Its card is there")
    assert web.asked == [
        "https://weather.example/a2a/.well-known/agent-card.json",
        "https://weather.example/.well-known/agent-card.json",
        "https://weather.example/.well-known/agent.json",
    ]
    other = Web({"*": document(FAR, name="Climate")})
    assert await check_agent(WEATHER, other) == CheckResult(
        Availability.UP, "Its card is there, which calls itself 'Climate'"
    )


@pytest.mark.parametrize(
    ("answers", "state", "detail"),
    [
        ({"https://weather.example/a2a/": 405}, Availability.UP, "It answers 405"),
        ({"*": b"<html>"}, Availability.UP, "It answers 200"),
        ({"*": 503}, Availability.DOWN, "It answers 503"),
        ({"*": UnreachableServer("No connection")}, Availability.DOWN, "No connection"),
        ({"*": ForbiddenAddress("Only https is allowed")}, Availability.UNCHECKED, "Only https is allowed"),
    ],
)
async def test_other_answers_that_count_as_up(answers: dict[str, Any], state: Availability, detail: str) -> None:
    found = await check_agent(WEATHER, Web(answers))
    assert (found.state, found.detail[: len(detail)]) == (state, detail)


async def test_an_agent_without_http_is_not_looked_for() -> None:
    grpc = [{"url": "trips.example:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]
    web = Web()
    assert (await check_agent(decode_card(document(V1, supportedInterfaces=grpc)), web)).state is Availability.UNCHECKED
    assert web.asked == []


async def test_a_look_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(availability, "LOOK_SECONDS", 0.01)
    assert (await check_agent(WEATHER, never)).state is Availability.DOWN


async def test_private_networks_are_not_checked(listening: Listening) -> None:
    inside = await listening()
    card = decode_card(document(FAR, url=f"http://127.0.0.1:{inside.port}/"))
    async with HttpSession.strict() as outbound:
        assert (await check_agent(card, registry_requester(outbound))).state is Availability.UNCHECKED
    assert inside.connections == 0
    async with HttpSession.strict(Policy(allow_hosts=frozenset({"127.0.0.1"}))) as outbound:
        assert (await check_agent(card, registry_requester(outbound))).state is Availability.UP
    assert inside.connections > 0


# --- again and again --------------------------------------------------------------------------------------------------


async def due_in(store: Store) -> float:
    """Seconds until the next look."""

    async def read(tx: Tx) -> int:
        row = await tx.one("SELECT min(due_at - checked_at) FROM listing_check")
        assert row is not None
        return int(row[0])

    return round(await store.read(read) / 1000, 1)


async def pass_time(tx: Tx) -> None:
    await tx.run("UPDATE listing_check SET due_at = due_at - :ms", ms=DAY)


async def published(store: Store, **more: Any) -> str:
    return (await AgentDirectory(store).publish(CALLER, document(FAR, **more))).id


async def test_unavailable_agents_are_checked_less_often(ready: AnyStore) -> None:
    id = await published(ready)
    web = Web({"*": 404})
    node = AvailabilityChecks(ready, web, every=300, chance=lambda: 0.5)
    assert await node.once() == 1
    assert await due_in(ready) == 300
    web.answers["*"] = UnreachableServer("Gone")
    waits = []
    for _ in range(12):
        await ready.do(pass_time)
        assert await node.once() == 1
        waits.append(await due_in(ready))
    assert waits == [60 * 2**at for at in range(9)] + [6 * 3600] * 3
    gone = await node.now("acme", id)
    assert (gone.state, gone.detail, gone.failures) == ("down", "Gone", 13)
    web.answers["*"] = document(FAR)
    back = await node.now("acme", id)
    assert (back.state, back.failures) == ("up", 0)
    assert await due_in(ready) == 300
    assert await node.once() == 0


async def test_looks_are_spread(ready: AnyStore) -> None:
    await published(ready)
    for chance, wait in ((0.0, 270), (1.0, 330)):
        await ready.do(pass_time)
        await AvailabilityChecks(ready, Web(), every=300, chance=partial(float, chance)).once()
        assert await due_in(ready) == wait


async def test_a_node_looks_until_it_is_stopped(ready: AnyStore) -> None:
    arrived: asyncio.Queue[str] = asyncio.Queue()

    async def web(method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        arrived.put_nowait(url)
        return ServerAnswer(status=200, body=document(FAR))

    registry, node = AgentDirectory(ready), AvailabilityChecks(ready, web, every=300)
    registry.on_news = node.wake
    node.start()
    try:
        for name in ("acme/one", "acme/two"):
            await registry.publish(CALLER, document(FAR, humanReadableId=name))
            assert (await arrived.get()).startswith("https://weather.example/")
    finally:
        await node.stop()
    await node.stop()


async def test_check_results_are_stored_and_shared(ready: AnyStore) -> None:
    ids = [await published(ready, humanReadableId=f"acme/n{at}") for at in range(20)]
    webs = [Web({"*": document(FAR)}) for _ in range(2)]
    nodes = [AvailabilityChecks(ready, web, every=300) for web in webs]

    async def work(node: AvailabilityChecks) -> None:
        while await node.once():
            pass

    await asyncio.gather(*map(work, nodes))
    assert len(webs[0].asked) + len(webs[1].asked) == 20
    registry = AgentDirectory(ready)
    listings = [await registry.find(CALLER, id) for id in ids]
    assert {(await registry.health(listing)).state for listing in listings} == {"up"}


async def test_cards_of_other_versions_are_skipped(ready: AnyStore) -> None:
    ids = [await published(ready, humanReadableId=f"acme/n{at}") for at in range(2)]

    async def age(tx: Tx) -> None:
        await tx.run("UPDATE listing SET card = '{}' WHERE id = :id", id=ids[0])

    await ready.do(age)
    assert await AvailabilityChecks(ready, Web(), every=300).once() == 2
    registry = AgentDirectory(ready)
    states = [(await registry.health(await registry.find(CALLER, id))).state for id in ids]
    assert states == ["unchecked", "up"]
    assert list(await registry.catalog(CALLER)) == ids[1:]
    with pytest.raises(UnknownName, match="cannot be read"):
        await registry.resolve(CALLER, "acme/n0")
    assert (await registry.resolve(CALLER, "acme/n1")).name == "Weather"
    with pytest.raises(UnknownName, match="no agent"):
        await registry.resolve(CALLER, "acme/n2")


async def test_one_failed_note_does_not_stop_others(ready: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [await published(ready, humanReadableId=f"acme/n{at}") for at in range(3)]
    node = AvailabilityChecks(ready, Web(), every=300)
    settle = node._settle

    async def fails(due: DueCheck) -> LastCheck:
        if due.id == ids[0]:
            raise StoreUnavailable("away")
        return await settle(due)

    monkeypatch.setattr(node, "_settle", fails)
    with pytest.raises(StoreUnavailable):
        await node.once()
    registry = AgentDirectory(ready)
    states = [(await registry.health(await registry.find(CALLER, id))).state for id in ids]
    assert states == [None, "up", "up"]


async def test_a_store_that_is_away_is_waited_for(
    ready: AnyStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes on after whatever went wrong; here it is the question itself."""
    tried = asyncio.Event()

    def broken(*_: Any) -> Any:
        tried.set()
        raise RuntimeError("broken")

    monkeypatch.setattr(availability, "REST_SECONDS", 0.0)
    node = AvailabilityChecks(ready, Web(), every=300)
    kept = node.once
    monkeypatch.setattr(node, "once", broken)
    node.start()
    await tried.wait()
    looked = asyncio.Event()

    async def again() -> int:
        looked.set()
        return await kept()

    monkeypatch.setattr(node, "once", again)
    await looked.wait()
    await node.stop()
    assert "registry.loop_failed" in caplog.text


def test_states_match_the_documentation() -> None:
    assert json.dumps([state.value for state in Availability]) == '["up", "down", "unchecked"]'
