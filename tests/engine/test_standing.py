"""Streams end with what they were opened with: a key or session that somebody ended, a token that has expired."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from accord.a2a import Admission, Caller
from accord.auth import authentication
from accord.auth.authentication import OpenStreams
from accord.errors import AgentUnavailable, AuthenticationFailed
from accord.model import Event, SubscribeRequest
from accord.server.pipeline import pipeline
from tests.http.scripted import EVENTS, Scripted

KEY = Admission(kind="keys", id="k-1", key_id="k-1")
ALICE = Caller(owner="alice", ticket=KEY)


class Keys:
    """Keys, and how often it was asked about them."""

    def __init__(self) -> None:
        self.good = {"k-1", "k-2"}
        self.is_away = False
        self.asked = 0
        self._again = asyncio.Event()

    async def are_asked(self, more: int) -> None:
        """Wait until it was asked so many times more."""
        wanted = self.asked + more
        async with asyncio.timeout(10):
            while self.asked < wanted:
                self._again.clear()
                await self._again.wait()

    async def look(self, id: str) -> bool:
        self.asked += 1
        self._again.set()
        if self.is_away:
            raise AgentUnavailable
        return id in self.good


async def endless() -> AsyncIterator[int]:
    yield 1
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "LOOK_SECONDS", 0.01)


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
async def kept(keys: Keys) -> AsyncIterator[OpenStreams]:
    made = OpenStreams({"keys": keys.look}, lambda: 1000)
    yield made
    await made.stop()


async def heard(items: AsyncIterator[int]) -> list[int]:
    async with asyncio.timeout(10):
        return [item async for item in items]


async def test_silent_streams_end_with_their_credential(kept: OpenStreams, keys: Keys) -> None:
    reading = asyncio.create_task(heard(kept.kept(endless(), KEY)))
    other = asyncio.create_task(heard(kept.kept(endless(), replace(KEY, id="k-2"))))
    await keys.are_asked(3)
    keys.good.discard("k-1")
    with pytest.raises(AuthenticationFailed):
        await reading
    assert reading.cancelling() == 0
    await keys.are_asked(2)
    assert not other.done()
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other


async def test_unread_streams_end_at_the_next_read(kept: OpenStreams, keys: Keys) -> None:
    items = kept.kept(endless(), KEY)
    assert await anext(items) == 1
    keys.good.clear()
    await keys.are_asked(2)
    with pytest.raises(AuthenticationFailed):
        await anext(items)


async def test_admissions_end_at_their_expiry(kept: OpenStreams) -> None:
    assert await anext(kept.kept(endless(), Admission(kind="jwt", until=2000))) == 1
    with pytest.raises(AuthenticationFailed):
        await heard(kept.kept(endless(), Admission(kind="jwt", until=1000)))


async def test_streams_continue_while_the_store_is_away(kept: OpenStreams, keys: Keys) -> None:
    keys.is_away = True
    reading = asyncio.create_task(heard(kept.kept(endless(), KEY)))
    await keys.are_asked(3)
    assert not reading.done()
    keys.is_away, keys.good = False, set()
    with pytest.raises(AuthenticationFailed):
        await reading


async def test_many_streams_of_one_key_are_one_question_and_none_are_none(kept: OpenStreams, keys: Keys) -> None:
    reading = [asyncio.create_task(heard(kept.kept(endless(), KEY))) for _ in range(50)]
    await keys.are_asked(1)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    assert (keys.asked, kept._streams) == (1, {})
    items = endless()
    assert kept.kept(items, None) is items


async def test_a_guarded_stream_ends_so_and_gives_everything_back(kept: OpenStreams, keys: Keys) -> None:
    closed: list[int] = []

    async def silent(request: SubscribeRequest, caller: Caller, after: int | None) -> AsyncIterator[Event]:
        yield EVENTS[0]
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(1)

    inner = Scripted()
    inner.subscribe = silent
    events = pipeline(inner, "echo", streams=kept).subscribe(SubscribeRequest(id="t-1"), ALICE)
    await anext(events)
    keys.good.clear()
    with pytest.raises(AuthenticationFailed, match="has expired or was revoked"):
        await anext(events)
    assert closed == [1]
