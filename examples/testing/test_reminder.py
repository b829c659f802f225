"""Tests of the reminder, with pytest, pytest-asyncio and what accord brings for tests."""

import httpx
import pytest
from reminder import reminder

from accord import Client
from accord.model import PushConfig, TaskState
from accord.testing import UnknownRequest, assert_task, scripted
from accord.testing.scripts import artifact, ask, fail, hang, say, stream


def weather(text="sunny"):
    return scripted(artifact(text), name="weather")


async def test_it_asks_and_reminds_an_hour_later(accord_server, accord_clock):
    async with accord_server(reminder, weather(), clock=accord_clock) as server:
        task = await server.send_text("tea")
        assert_task(task, state="input-required", text="In how many minutes?")
        task = await server.send_text("60", task=task, at_once=True)
        await accord_clock.advance(59 * 60)
        assert_task(await server.get(task), state="working")
        task = await accord_clock.until(server.reaches(task, TaskState.COMPLETED), within=120)
        assert_task(task, text="tea (sunny)")


async def test_it_wants_a_number(accord_server):
    async with accord_server(reminder, weather()) as server:
        task = await server.send_text("tea")
        task = await server.send_text("soon", task=task)
        assert_task(task, state="rejected", text="soon is no number of minutes")


@pytest.mark.parametrize("dialect", ["v1", "v03"])
async def test_callers_of_any_version_are_asked(accord_client, dialect):
    async with accord_client(reminder, weather(), dialect=dialect) as client:
        said = await client.send_text("tea")
        assert said.is_question


async def test_what_becomes_of_a_task_is_kept(accord_server):
    async with accord_server(reminder, weather(), kept=True) as server:
        task = await server.send_text("tea")
    async with accord_server(reminder, weather(), kept=True) as server:
        task = await server.send_text("0", task=task)
        assert_task(task, history=["user: tea", "agent: In how many minutes?", "user: 0", "agent: In 0 minutes"])


async def test_an_agent_that_does_what_the_test_says(accord_server):
    clerk = scripted(say("Looking"), ask("Which year?"), stream("19", "84"), fail("Out of print"))
    async with accord_server(clerk) as server:
        task = await server.send_text("a book")
        events = [event async for event in server.stream_text("1984", task=task)]
        outline = ["working", "artifact", "artifact", "failed"]
        assert_task(events, text="1984", events=outline)
        assert [message.parts[0].text for message in clerk.heard] == ["a book", "1984"]


async def test_one_that_hangs_is_cancelled(accord_server):
    async with accord_server(scripted(hang())) as server:
        task = await server.send_text("go", at_once=True)
        assert_task(await server.cancel(task), state="canceled")


async def test_webhooks_are_signed_and_sent_again(accord_server, accord_webhooks):
    key = "the key of the server"
    async with (
        accord_webhooks(keys=[key]) as hooks,
        accord_server(scripted(ask("Which?")), push={"signing_keys": [key]}) as server,
        server.client() as client,
    ):
        hooks.fail(1)
        await client.start("go", push=PushConfig(url=hooks.url))
        refused, again, *_ = await hooks.wait_for_any(2)
        assert (refused.status, again.event_id) == (503, refused.event_id)
        assert all(one.is_signed for one in hooks.all)


def test_anybody_can_call_it_over_a_socket(accord_socket_server):
    with accord_socket_server(weather()) as url:
        card = httpx.get(f"{url}/.well-known/agent-card.json").json()
        assert card["name"] == "weather"


async def test_a_remote_agent_as_it_answered_once(accord_cassette):
    async with accord_cassette() as tape, Client.connect("https://weather.example", transport=tape) as client:
        assert (await client.send_text("now")).text == "sunny"
        with pytest.raises(UnknownRequest, match="yesterday"):
            await client.send_text("yesterday")
