"""The live feed: nothing is missed between list and stream, after a break or of other nodes, nor seen of others."""

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from accord.console import feed as feeds
from accord.console import feed_subscribers as audiences
from accord.console.feed import Feed
from accord.testing import call
from tests.console.conftest import AGENTS, Asking, Ear, serving
from tests.registry.conftest import SCHEMES

COMPLETED = [(1, "working", None), (2, "completed", None)]


async def feed_of(server: Asking, by: str = "alice") -> int:
    found: int = (await server.get("/tasks", by=by))["feed"]
    return found


def telling(server: Asking) -> Feed:
    """The feed of a server, which is among those who hear its hints."""
    observers = server.app.host.node.hub._observers
    (found,) = [one for observe in observers if isinstance(one := getattr(observe, "__self__", None), Feed)]
    return found


def states_of(ear: Ear, task_id: str) -> list[str]:
    return [state for _, state, _ in ear.states(task_id)]


@pytest.mark.proves("0-34", "0-51", "0-79")
async def test_feeds_send_every_status_in_order(server: Asking) -> None:
    async with server.listening() as ear:
        task_id = await server.begin("reporter", "5")
        row = await ear.hears("task", id=task_id, status="completed")
        said = [(state, text) for _, state, text in ear.states(task_id)]
        assert said == [("working", None), *(("working", f"step {n}") for n in range(5)), ("completed", None)]
        numbers = [seq for seq, _, _ in ear.states(task_id)]
        assert numbers == sorted(numbers)
        listed = (await server.get("/tasks"))["items"][0]
        assert row == listed


async def test_nothing_is_missed_between_a_list_and_the_stream(server: Asking) -> None:
    asked = await server.begin("asker", "before the list")
    await server.reaches(asked, "input-required")
    feed = await feed_of(server)
    made = await server.done("echo", "between the list and the stream")
    await server.post(f"/tasks/{asked}/reply", {"text": "Monday"})
    await server.reaches(asked)
    async with server.listening(after=feed) as ear:
        await ear.hears("task", id=made["id"], status="completed")
        later = await server.begin("echo", "after that")
        await ear.hears("task", id=later, status="completed")
        assert states_of(ear, made["id"]) == ["working", "completed"]
        assert states_of(ear, asked)[-1] == "completed"
        assert states_of(ear, later) == ["working", "completed"]


async def test_reconnected_feeds_send_missed_events_once(server: Asking) -> None:
    async with server.listening() as ear:
        first = await server.begin("echo", "first")
        await ear.hears("task", id=first, status="completed")
        seen = ear.last
        async with server.listening(by="dora") as other:
            meanwhile = await server.begin("echo", "meanwhile")
            await other.hears("task", id=meanwhile, status="completed")
    async with server.listening(last=seen) as again:
        await again.hears("task", id=meanwhile, status="completed")
        assert again.states(first) == []
        assert states_of(again, meanwhile) == ["working", "completed"]
        assert again.last > seen
    async with server.listening(last=again.last) as third:
        final = await server.begin("echo", "at last")
        await third.hears("task", id=final, status="completed")
        assert {body["id"] for kind, body in third.heard if kind == "task"} == {final}


async def test_unobserved_events_are_read_from_the_store(server: Asking) -> None:
    feed = await feed_of(server)
    ids = [(await server.done("echo", f"n {number}"))["id"] for number in range(3)]
    async with server.listening(after=feed) as ear:
        await ear.hears("task", id=ids[-1], status="completed")
        for task_id in ids:
            assert states_of(ear, task_id) == ["working", "completed"]
    # It asks again for what it got only a part of, and not for what it got.
    assert ear.last == feed
    async with server.listening(after=feed) as ear:
        await ear.hears("task", id=ids[-1], status="completed")
        more = await server.begin("echo", "more")
        await ear.hears("task", id=more, status="completed")
        assert ear.last > feed


async def test_a_restart_is_bridged(address: str) -> None:
    async with serving(address) as server, server.listening() as ear:
        asked = await server.begin("asker")
        await ear.hears("task", id=asked, status="input-required")
        seen = ear.last
    async with serving(address) as server:
        await server.post(f"/tasks/{asked}/reply", {"text": "Monday"})
        await server.reaches(asked)
        async with server.listening(last=seen) as ear:
            await ear.hears("reset")  # of what is no task nothing is kept
            assert states_of(ear, asked)[-2:] == ["working", "completed"]
            more = await server.begin("echo", "and on")
            await ear.hears("task", id=more, status="completed")


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_events_of_other_nodes_reach_the_feed(address: str) -> None:
    async with serving(address) as one, serving(address) as other:
        feed = await feed_of(one)
        async with one.listening() as ear:
            task_id = await other.begin("reporter", "3")
            await ear.hears("task", id=task_id, status="completed")
            said = [text for _, _, text in ear.states(task_id)]
            assert [text for text in said if text] == ["step 0", "step 1", "step 2"]
        async with other.listening(after=feed) as ear:  # numbers of one node are understood by the other
            await ear.hears("task", id=task_id, status="completed")


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_lost_hints_only_make_it_later(address: str) -> None:
    """The nodes do not hear each other at all."""
    deaf = f"{address}{'&' if '?' in address else '?'}listen=off"
    async with serving(deaf) as one, serving(deaf) as other, one.listening() as ear:
        task_id = await other.begin("reporter", "2")
        await ear.hears("task", id=task_id, status="completed")
        assert [text for _, _, text in ear.states(task_id) if text] == ["step 0", "step 1"]


@pytest.mark.proves("0-46")
async def test_feeds_hide_invisible_tasks(server: Asking) -> None:
    async with AsyncExitStack() as stack:
        ears = {
            name: await stack.enter_async_context(server.listening(by=name))
            for name in ("alice", "bob", "carol", "dora", "rita")
        }
        made = {name: (await server.done("echo", f"of {name}", by=name))["id"] for name in ("alice", "bob", "carol")}
        for name, task_id in made.items():
            await ears[name].hears("task", id=task_id, status="completed")
        for name in ("alice", "bob"):
            await ears["dora"].hears("task", id=made[name], status="completed")
        heard = {}
        for name, ear in ears.items():
            await ear.rest()
            heard[name] = {body["owner"] for kind, body in ear.heard if kind == "task"}
        assert heard == {
            "alice": {"alice"},
            "bob": {"bob"},
            "carol": {"carol"},
            "dora": {"alice", "bob"},
            "rita": set(),
        }
        feed = int(ears["bob"].heard[0][1]["seq"])
    for name, owners in (("bob", {"bob"}), ("carol", {"carol"}), ("dora", {"alice", "bob"}), ("rita", set())):
        async with server.listening(by=name, after=feed) as ear:
            telling(server).send("agent", {"slug": "echo"}, tenant=None, owner=None)
            await ear.hears("agent")  # after all that was missed
            assert {body["owner"] for kind, body in ear.heard if kind == "task"} == owners
    assert (await call(server.app, method="GET", path="/api/events", headers={"Host": "localhost:8000"})).status == 401


async def test_feeds_far_behind_request_a_reload(server: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "MISSED", 3)
    feed = await feed_of(server)
    for number in range(4):
        await server.done("echo", f"n {number}")
    async with server.listening(after=feed) as ear:
        await ear.hears("reset")
        assert [kind for kind, _ in ear.heard] == ["hello", "reset"]
        more = await server.begin("echo", "more")
        await ear.hears("task", id=more, status="completed")
        number = ear.last
    async with server.listening(after=number) as ear:
        again = await server.begin("reporter", "9")
        await ear.hears("task", id=again, status="completed")
    async with server.listening(last=number) as ear:  # from what is remembered, it is too much as well
        await ear.hears("reset")


async def test_a_page_that_does_not_read_is_let_go_and_misses_nothing(
    quick: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audiences, "MAX_UNREAD_BYTES", 2000)
    stuck, gone = asyncio.Event(), asyncio.Event()
    sent: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append(b"")
            return {"type": "http.request", "body": b"", "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if piece := message.get("body"):
            sent.append(piece)
            if b"event: task" in piece:
                await stuck.wait()  # it reads nothing more for now

    headers = [(name.lower().encode(), value.encode()) for name, value in quick.headers("alice").items()]
    scope = {"type": "http", "method": "GET", "path": "/api/events", "query_string": b"", "headers": headers}
    page = asyncio.create_task(quick.app(scope, receive, send))
    async with quick.listening() as ear:
        ids = []
        for _ in range(4):
            ids.append(await quick.begin("reporter", "4"))
            await ear.hears("task", id=ids[-1], status="completed")
        first = len(sent)
        stuck.set()
        await page  # it was ended by the server: the page is asked to come back
    assert len(sent) == first
    decoded = b"".join(sent)
    last = int(decoded.rpartition(b"id: ")[2].partition(b"\n")[0])
    async with quick.listening(last=last) as again:
        for task_id in ids:
            told = {seq for seq, _, _ in again.states(task_id)}
            before = {seq for seq, _, _ in ear.states(task_id)}
            while not before <= told | _seqs(decoded, task_id):
                await again.hears("task")
                told = {seq for seq, _, _ in again.states(task_id)}


def _seqs(stream: bytes, task_id: str) -> set[int]:
    """The numbers of a task's events in what was sent."""
    lines = [line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data: {")]
    rows = [json.loads(line) for line in lines]
    return {row["seq"] for row in rows if row.get("id") == task_id}


async def test_task_viewers_are_notified_of_log_growth(server: Asking) -> None:
    asked = await server.begin("asker")
    seq = (await server.reaches(asked, "input-required"))["seq"]
    other = (await server.done("echo", by="bob"))["id"]
    async with server.listening(topics=f"task:{asked},task:{other}") as ear:
        assert await ear.hears("log", taskId=asked) == {"taskId": asked, "seq": seq}
        await server.post(f"/tasks/{asked}/reply", {"text": "Monday"})
        done = await server.reaches(asked)
        await ear.hears("log", taskId=asked, seq=done["seq"])
        assert {body["taskId"] for kind, body in ear.heard if kind == "log"} == {asked}
    assert (await server("GET", "/events", query="topics=everything")).status == 422
    assert (await server("GET", "/events", query="topics=task:%00")).status == 422


async def test_other_notifications_respect_visibility(quick: Asking) -> None:
    number = await feed_of(quick)
    tell = telling(quick).send
    async with quick.listening() as alice, quick.listening(by="bob") as bob, quick.listening(by="carol") as carol:
        tell("chat", {"id": "c-1"}, tenant="acme", owner="alice")
        tell("delivery", {"id": "d-1"}, tenant="acme", owner="alice", agent="Echo")
        tell("agent", {"slug": "echo"}, tenant=None, owner=None, agent="Echo")
        for ear in (alice, bob, carol):
            await ear.hears("agent")
        kinds = {name: [kind for kind, _ in ear.heard[1:]] for name, ear in (("a", alice), ("b", bob), ("c", carol))}
        assert kinds == {"a": ["chat", "delivery", "agent"], "b": ["agent"], "c": ["agent"]}
    async with quick.listening(after=number) as again:
        await again.hears("agent")
        assert [kind for kind, _ in again.heard[1:]] == ["chat", "delivery", "agent"]


async def test_created_tasks_reach_the_feed(server: Asking) -> None:
    async with server.listening() as ear:
        held = await server.begin("echo", "later", hold=True)
        row = await ear.hears("task", id=held)
        assert (row["status"], row["waiting"], row["seq"]) == ("submitted", "execute", 0)
        await server.post(f"/tasks/{held}/execute")
        done = await ear.hears("task", id=held, status="completed")
        assert done["waiting"] is None


async def test_an_idle_stream_is_kept_alive_and_ends_after_a_while(
    quick: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "KEEP_ALIVE_SECONDS", 0.01)
    monkeypatch.setattr(feeds, "LIFE_SECONDS", 0.05)
    async with quick.listening() as ear:
        body = await ear.answer.read()
        assert b": keep-alive\n\n" in body
        assert ear.answer.headers["content-type"] == "text/event-stream"


async def test_streams_of_one_caller_are_limited() -> None:
    settings = {"auth": {"schemes": SCHEMES}, "limits": {"streams": 1}}
    async with serving("sqlite://:memory:", *AGENTS, **settings) as server:
        async with server.listening():
            assert (await server("GET", "/events")).status == 429
            async with server.listening(by="bob"):
                pass
        async with server.listening():
            pass


async def test_roaming_callers_share_one_stream_limit() -> None:
    settings = {"auth": {"schemes": SCHEMES}, "limits": {"streams": 1}}
    async with serving("sqlite://:memory:", *AGENTS, **settings) as server, server.listening(by="root"):
        for query in ("tenant=acme", "tenant=globex", ""):
            assert (await server("GET", "/events", by="root", query=query)).status == 429


async def test_numbers_that_are_none_are_refused(quick: Asking) -> None:
    assert (await quick("GET", "/events", query="after=x")).status == 422
