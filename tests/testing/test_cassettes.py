"""Cassettes: a conversation is recorded once, without secrets, and played back word for word without the agent."""

import json
import re
from contextlib import aclosing
from pathlib import Path

import pytest

from accord import Client, RemoteAgent
from accord.agents.remote import RemoteTerms, ReportMode
from accord.client.auth import Bearer
from accord.client.remote_task import message_of
from accord.model import GetRequest, PushConfig, SendRequest, Task
from accord.outbound import HttpRequest
from accord.testing import AsgiTransport, UnknownRequest, assert_task, cassette, running, scripted, serving
from accord.testing.cassettes import PlaybackTransport, _without_secrets, recorded_request
from accord.testing.scripts import artifact, ask, stream

URL = "https://clerk.example"
CLERK = scripted(ask("Which year?"), stream("19", "84"), name="clerk")


async def converse(transport: object) -> list[str]:
    """What a client hears: a question, the pieces of an answer, and the task that it becomes."""
    async with Client.connect(URL, transport=transport) as client:  # type: ignore[arg-type]  # a tape is one
        asked = await client.send_text("a book")
        pieces = [piece async for piece in client.stream_text("1984", task_id=asked.task_id)]
        assert asked.task_id is not None
        task = await client.get(GetRequest(id=asked.task_id))
    return [asked.text, *pieces, task.status.state.name]


async def recorded(path: Path) -> list[str]:
    async with (
        running(CLERK, server={"url": URL}) as a2a,
        cassette(path, record=True, transport=AsgiTransport(a2a.app)) as tape,
    ):
        return await converse(tape)


async def test_recordings_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "clerk.json"
    heard = await recorded(path)
    assert heard == ["Which year?", "19", "84", "COMPLETED"]
    for _ in range(2):
        async with cassette(path) as tape:
            assert await converse(tape) == heard
            assert isinstance(tape, PlaybackTransport)
            assert tape.unplayed == []


async def test_another_request_is_an_error_that_shows_the_nearest(tmp_path: Path) -> None:
    await recorded(tmp_path / "clerk.json")
    async with cassette(tmp_path / "clerk.json") as tape:
        async with Client.connect(URL, transport=tape) as client:
            with pytest.raises(UnknownRequest) as refused:
                await client.send_text("a newspaper")
        assert isinstance(tape, PlaybackTransport)
        assert len(tape.unplayed) == 3
    said = str(refused.value)
    assert said.startswith(f"POST {URL}/ is not in {tmp_path}/clerk.json; the nearest of 3 is:")
    assert re.search(r'^-\s+"text": "a book"$', said, re.MULTILINE)
    assert re.search(r'^\+\s+"text": "a newspaper"$', said, re.MULTILINE)


async def test_an_exchange_is_played_once(tmp_path: Path) -> None:
    await recorded(tmp_path / "clerk.json")
    async with cassette(tmp_path / "clerk.json") as tape:
        await converse(tape)
        with pytest.raises(UnknownRequest, match="all that was recorded has been played"):
            await tape.open(HttpRequest(method="GET", url=f"{URL}/.well-known/agent-card.json"))


async def test_secrets_are_not_written_down(tmp_path: Path) -> None:
    path, key = tmp_path / "secret.json", "s3cret-of-the-caller"
    who = {"secret": f"Bearer {key}", "owner": "alice"}
    hook = PushConfig(url="https://hooks.example/x", token="s3cret-of-a-webhook")
    async with (
        running(
            CLERK,
            server={"url": URL},
            auth={"schemes": [{"type": "header", "name": "Authorization", "secrets": [who]}]},
        ) as a2a,
        cassette(path, record=True, transport=AsgiTransport(a2a.app)) as tape,
        Client.connect(URL, transport=tape, auth=Bearer(key)) as client,
    ):
        await client.start("a book", push=hook)
    text = path.read_text()
    assert "a book" in text
    assert "s3cret-of-the-caller" not in text
    assert "s3cret-of-a-webhook" not in text
    async with cassette(path) as tape, Client.connect(URL, transport=tape, auth=Bearer("other")) as client:
        assert (await client.start("a book", push=hook)).id, "other credentials are as good: there are none in it"


async def test_secrets_in_addresses_forms_and_streams_are_not_either() -> None:
    kind = ("Content-Type", "application/x-www-form-urlencoded")
    form = recorded_request(
        HttpRequest(
            method="POST",
            url="https://me:s3cret@id.example/token?api_key=s3cret&x=1",
            headers=(kind, ("X-Api-Key", "s3cret")),
            body=b"grant_type=client_credentials&client_secret=s3cret",
        ),
        set(),
    )
    assert "s3cret" not in repr(form)
    assert form.url == "https://id.example/token?api_key=%2A%2A%2A&x=1"
    assert (
        _without_secrets('id: 1\ndata: {"token": "s3cret", "n": 1}\n\n') == 'id: 1\ndata: {"token": "***", "n": 1}\n\n'
    )


async def test_replay_matches_agent_ids_and_ignores_generated_ones(tmp_path: Path) -> None:
    await recorded(tmp_path / "clerk.json")
    tape = json.loads((tmp_path / "clerk.json").read_text())
    sent = [one["request"]["body"]["json"] for one in tape["exchanges"][1:]]
    assert {one["id"] for one in sent} == {"<new>"}
    assert sent[0]["params"]["message"]["messageId"] == "<new>"
    task_id = tape["exchanges"][1]["reply"]["body"]["json"]["result"]["task"]["id"]
    assert sent[1]["params"]["message"]["taskId"] == task_id
    async with cassette(tmp_path / "clerk.json") as player, Client.connect(URL, transport=player) as client:
        await client.send_text("a book")
        with pytest.raises(UnknownRequest):
            await client.send_text("1984", task_id="01a1e2ae-0000-7000-8000-000000000000")


async def test_tasks_can_be_read_while_subscribed(tmp_path: Path) -> None:
    async def follow(transport: object) -> list[str]:
        found = []
        async with (
            Client.connect(URL, transport=transport) as client,  # type: ignore[arg-type]  # a tape is one
            aclosing(client.stream(SendRequest(message=message_of("a book")))) as events,
        ):
            async for event in events:
                if isinstance(event.body, Task):
                    found.append((await client.get(GetRequest(id=event.body.id))).id)
        return found

    async with (
        running(CLERK, server={"url": URL}) as a2a,
        cassette(tmp_path / "a.json", record=True, transport=AsgiTransport(a2a.app)) as tape,
    ):
        seen = await follow(tape)
    async with cassette(tmp_path / "a.json") as tape:
        assert await follow(tape) == seen
    assert seen


async def test_remote_agents_can_be_cassettes(tmp_path: Path) -> None:
    clerk = scripted(artifact("1984"), name="clerk")

    async def asked(transport: object) -> None:
        # webhooks would come back to an address that nobody listens at
        elsewhere = RemoteAgent(URL, name="clerk", terms=RemoteTerms(mode=ReportMode.POLL), transport=transport)
        async with running(elsewhere) as here:
            assert_task(await here.send_text("go"), state="completed", text="1984")

    async with (
        running(clerk, server={"url": URL}) as there,
        cassette(tmp_path / "a.json", record=True, transport=AsgiTransport(there.app)) as tape,
    ):
        await asked(tape)
    async with cassette(tmp_path / "a.json") as tape:
        await asked(tape)


async def test_the_usual_transport_is_recorded_as_well(tmp_path: Path) -> None:
    with serving(scripted(artifact("sunny"), name="weather")) as url:
        async with cassette(tmp_path / "a.json", record=True) as tape, Client.connect(url, transport=tape) as client:
            assert (await client.send_text("now")).text == "sunny"
    async with cassette(tmp_path / "a.json") as tape, Client.connect(url, transport=tape) as client:
        assert (await client.send_text("now")).text == "sunny"


async def test_invalid_cassettes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="record it with record=True, or --accord-record"):
        async with cassette(tmp_path / "none.json"):
            pass
    (tmp_path / "old.json").write_text('{"format": "accord cassette 0", "exchanges": []}')
    with pytest.raises(ValueError, match="no cassette of this version"):
        async with cassette(tmp_path / "old.json"):
            pass
