"""A channel as an agent: what is asked of the relay, whose answer is taken, and what becomes of none."""

import asyncio
import inspect
from typing import Any

import httpx
import pytest
from aiohttp import web

from accord import RelayA2AAdapter
from accord.a2a import Caller
from accord.agents.relay.agent import AGENT_TYPE, RelayOptions
from accord.agents.relay.channel import RelayUnavailable, parse_messages
from accord.api.agent_types import AgentArguments
from accord.engine.messages import text_of
from accord.model import Message, Part, Role, StatusUpdate, Task, TaskState
from accord.retries import RetryPolicy
from accord.testing import running, text_in
from accord.testing.inprocess import Running
from tests.agents.relay.relays import BOUND_SECONDS, broker, hears, joined, relay


def adapter(url: str, **more: Any) -> RelayA2AAdapter:
    return RelayA2AAdapter("rk_asks", base_url=url, **{"poll_interval": 0.01, "timeout": 30.0} | more)


@pytest.mark.proves("1-46")
def test_the_adapter_matches_the_specification() -> None:
    signature = inspect.signature(RelayA2AAdapter)
    assert {name: one.default for name, one in signature.parameters.items()} == {
        "relay_api_key": inspect.Parameter.empty,
        "channel": "general",
        "target_agent": None,
        "base_url": "https://api.relaycast.dev",
        "poll_interval": 2.0,
        "timeout": 300.0,
    }
    made = RelayA2AAdapter("rk_live_secret", "ops", "Worker1")
    assert (made.api_key, made.channel, made.target_agent) == ("rk_live_secret", "ops", "Worker1")
    assert (made.base_url, made.poll_interval, made.timeout) == ("https://api.relaycast.dev", 2.0, 300.0)
    assert "secret" not in repr(made)


@pytest.mark.proves("1-47", "1-48")
async def test_a_task_is_posted_and_the_channel_read_until_it_is_done() -> None:
    async with relay() as there:
        polls = 0

        def read() -> web.Response:
            nonlocal polls
            polls += 1
            if polls == 4:
                there.messages.append({"from": "Worker1", "text": "DONE:   it is 42 "})
            return web.json_response(there.messages)

        there.read = read
        made = adapter(there.url, channel="ops")
        assert await made.invoke("what is it?", "c-1") == "it is 42"
    posts = [one for one in there.asked if one.method == "POST"]
    reads = [one for one in there.asked if one.method == "GET"]
    assert len(posts) == 1
    assert (posts[0].path, posts[0].headers["Authorization"]) == ("/channels/messages", "Bearer rk_asks")
    assert set(there.bodies[0]) == {"channel", "text"}
    assert there.bodies[0]["channel"] == "ops"
    assert there.bodies[0]["text"].startswith("what is it?")
    assert {(one.path_qs, one.headers["Authorization"]) for one in reads} == {
        ("/channels/messages?channel=ops&limit=20", "Bearer rk_asks")
    }


def test_it_needs_no_server_and_no_loop_of_its_own() -> None:
    async def ask(text: str) -> str:
        async with broker() as url, joined(url, "rk_worker") as worker:
            made.base_url = url
            asking = asyncio.create_task(made.invoke(text))
            await hears(worker, lambda said: said.startswith(text))
            await worker.post(f"DONE: {text}!")
            return await asyncio.wait_for(asking, BOUND_SECONDS)

    made = adapter("")
    assert [asyncio.run(ask(text)) for text in ("one", "two")] == ["one!", "two!"]


@pytest.mark.proves("1-49", "C-10")
async def test_old_and_foreign_answers_are_passed_over() -> None:
    async with relay() as there:
        there.messages += [{"from": "Worker1", "text": "DONE: old"}, {"from": "Bob", "text": "hello"}]

        def posted(message: dict[str, Any]) -> web.Response:
            there.keeps(message)
            there.messages.append({"from": "Worker2", "text": "DONE: theirs"})
            there.messages.append({"from": "Worker1", "text": "DONE: [a2a:somebody-else] theirs as well"})
            there.messages.append({"from": "Worker1", "text": "DONE: mine"})
            return web.json_response({})

        there.posted = posted
        made = adapter(there.url, target_agent="Worker1")
        assert await made.invoke("go") == "mine"


@pytest.mark.proves("1-50")
async def test_without_an_answer_time_is_up() -> None:
    async with relay() as there:
        there.messages.append({"from": "Worker1", "text": "DONE: old"})
        made = adapter(there.url, timeout=0.05)
        with pytest.raises(TimeoutError) as late:
            await made.invoke("go")
        assert str(late.value) == "No DONE response within 0.05s"
        async with running(made) as a2a:
            task = await a2a.send_text("go")
    assert (task.status.state, text_in(task)) == (TaskState.FAILED, "No DONE response within 0.05s")


@pytest.mark.proves("1-51")
async def test_the_card_matches_the_adapter() -> None:
    made = adapter("http://localhost", channel="ops")
    about = made.get_metadata()
    assert (about.name, about.description) == ("Agent Relay", "Multi-agent workspace (channel: ops)")
    assert about.streaming is False
    async with running(made) as a2a:
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app=a2a.app), base_url="http://localhost:8000")
        card = (await http.get("/.well-known/agent.json")).json()
    assert (card["name"], card["description"]) == (about.name, about.description)


@pytest.mark.proves("1-52")
async def test_other_servers_of_adapters_can_serve_it() -> None:
    """The real a2a-adapter takes it for one of its own."""
    import a2a_adapter

    async with broker() as url, joined(url, "rk_worker") as worker:
        made = adapter(url)
        card = a2a_adapter.build_agent_card(made)
        assert (card.name, card.capabilities.streaming) == ("Agent Relay", False)
        app = a2a_adapter.to_a2a(made)
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost", timeout=30)
        message = {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "go"}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
        asking = asyncio.create_task(http.post("/", json=body))
        asked = await hears(worker, lambda text: text.startswith("go"))
        task_id = asked.partition("[a2a:")[2].removesuffix("]")
        await worker.post(f"DONE: [a2a:{task_id}] by the other one")
        task = (await asyncio.wait_for(asking, BOUND_SECONDS)).json()["result"]
        assert task["id"] == task_id
        assert "by the other one" in str(task)
        await made.close()


async def test_many_ask_at_once_and_each_gets_its_own() -> None:
    async with broker() as url, joined(url, "rk_worker") as worker:
        made = adapter(url, target_agent="Worker1")
        asking = [asyncio.create_task(made.invoke(f"number {at}", task_id=f"t-{at}")) for at in range(8)]
        seen = 0
        async with asyncio.timeout(BOUND_SECONDS):
            while seen < 8:
                seen = len([entry for entry in await worker.latest(50) if entry.is_request])
                await asyncio.sleep(0.01)
        await worker.post("DONE: to nobody in particular")
        for at in reversed(range(8)):
            await worker.post(f"DONE: [a2a:t-{at}] answer {at}")
        assert await asyncio.gather(*asking) == [f"answer {at}" for at in range(8)]


async def test_a_hosted_adapter_reports_progress_and_result() -> None:
    async with broker() as url, joined(url, "rk_worker") as worker, running(adapter(url)) as a2a:
        task = await a2a.send_text("count", at_once=True)
        assert f"[a2a:{task.id}]" in await hears(worker, lambda text: text.startswith("count"))
        await worker.post(f"half of it [a2a:{task.id}]")
        await worker.post(f"DONE: [a2a:{task.id}] three")
        done = await a2a.reaches(task, TaskState.COMPLETED)
        assert text_in(done) == "three"
        assert "half of it" in [part.text for said in done.history for part in said.parts]
        failing = await a2a.send_text("fail", at_once=True)
        await hears(worker, lambda text: text.startswith("fail"))
        await worker.post(f"FAILED: [a2a:{failing.id}] no such city")
        failed = await a2a.reaches(failing, TaskState.FAILED)
        assert text_in(failed) == "no such city"


async def test_intermediate_messages_are_streamed() -> None:
    async with (
        broker() as url,
        joined(url, "rk_worker") as worker,
        running(adapter(url, target_agent="Worker1")) as a2a,
    ):
        told: list[str] = []
        async with asyncio.timeout(BOUND_SECONDS):
            async for event in a2a.stream_text("count"):
                body = event.body
                if isinstance(body, Task):
                    await hears(worker, lambda text: text.startswith("count"))
                    await worker.post("I begin to count")
                if isinstance(body, StatusUpdate) and body.status.message is not None:
                    told.append(text_of(body.status.message.parts))
                    if told == ["I begin to count"]:
                        await worker.post(f"half of it [a2a:{body.task_id}]")
                    if told[-1] == "half of it":
                        await worker.post(f"DONE: [a2a:{body.task_id}] three")
    assert told == ["I begin to count", "half of it"]


async def test_requests_carry_their_conversation() -> None:
    async with broker() as url, joined(url, "rk_worker") as worker, running(adapter(url)) as a2a:

        async def posted(number: int, owner: str, context_id: str | None) -> tuple[Task, str]:
            """Ask as somebody, and return what the worker reads."""
            message = Message(
                message_id=f"m-{number}", role=Role.USER, parts=(Part(text=f"number {number}"),), context_id=context_id
            )
            task = await Running(a2a.app, Caller(owner=owner), BOUND_SECONDS).send(message, at_once=True)
            assert isinstance(task, Task)
            text = await hears(worker, lambda text: f"[a2a:{task.id}]" in text)
            await worker.post(f"DONE: [a2a:{task.id}]")
            return task, text

        first, text = await posted(0, "ada", None)
        others = [("ada", first.context_id), ("bob", first.context_id), ("ada", None)]
        texts = [text, *[(await posted(at, *other))[1] for at, other in enumerate(others, 1)]]
    found = [entry.context for entry in parse_messages({"text": text} for text in texts)]
    assert None not in found
    assert found[0] == found[1]
    assert len(set(found)) == 3, "neither another caller's nor another conversation's"


# --- when the relay does not do as it should --------------------------------------------------------------------------


def _broken(status: int, **more: Any) -> Any:
    return lambda *_: web.Response(status=status, **more)


@pytest.mark.parametrize("status", [401, 403, 400])
async def test_refused_keys_are_reported_at_once(status: int) -> None:
    async with relay() as there:
        there.read = _broken(status, text="secret details")
        async with running(adapter(there.url)) as a2a:
            task = await a2a.send_text("go")
    assert (task.status.state, text_in(task)) == (TaskState.FAILED, f"The relay refused: HTTP {status}")


async def test_short_outages_of_a_relay_are_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.agents.relay.RETRIES", RetryPolicy(first_seconds=0.001, attempts=3))
    async with relay() as there:
        troubles = [_broken(503), _broken(200, text="<html>"), _broken(200, body=b"{}")]

        def posted(message: dict[str, Any]) -> web.Response:
            if len(there.bodies) == 1:
                return web.Response(status=502)
            there.keeps(message)
            there.messages.append({"from": "Worker1", "text": "DONE: at last"})
            return web.json_response({})

        def read() -> web.Response:
            is_asked = bool(there.bodies)
            trouble = troubles.pop() if is_asked and troubles else None
            return web.json_response(there.messages) if trouble is None else trouble()

        there.posted, there.read = posted, read
        made = adapter(there.url)
        assert await made.invoke("go") == "at last"
    assert (len(there.bodies), troubles) == (2, [])


async def test_possibly_posted_messages_are_not_repeated() -> None:
    async with relay() as there:

        async def posted(message: dict[str, Any]) -> web.Response:
            there.keeps(message)
            there.messages.append({"from": "Worker1", "text": "DONE: heard"})
            transport = there.asked[-1].transport
            assert transport is not None
            transport.abort()
            return web.Response()

        there.posted = posted
        made = adapter(there.url)
        assert await made.invoke("go") == "heard"
    assert len(there.bodies) == 1


async def test_an_unreachable_relay_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accord.agents.relay.RETRIES", RetryPolicy(first_seconds=0.001, attempts=3))
    async with relay() as there:
        url = there.url
    made = adapter(url)
    with pytest.raises(RelayUnavailable, match="cannot be reached"):
        await made.invoke("go")


async def test_lost_executions_resume_their_request() -> None:
    """Whether it had been posted is seen in the channel."""
    async with relay() as there:
        made = adapter(there.url, target_agent="Worker1")
        hold, posted = asyncio.Event(), there.keeps

        async def once(message: dict[str, Any]) -> web.Response:
            posted(message)
            hold.set()
            return web.json_response({})

        there.posted = once
        lost = await made.before("go", "t-1")
        await made.ask(lost)
        again = Resumed({"relay": _encoded(lost)})
        answering = asyncio.create_task(made._posted_request(again))  # type: ignore[arg-type]  # all that it needs of a context
        asked = await asyncio.wait_for(answering, BOUND_SECONDS)
        assert len(there.bodies) == 1
        there.messages.append({"from": "Worker1", "text": "DONE: [a2a:t-1] all the same"})
        assert await made.answer(asked) == "all the same"
        there.messages.clear()
        assert (await made._posted_request(Resumed({"relay": _encoded(lost)}))).tag == "t-1"  # type: ignore[arg-type]
        assert len(there.bodies) == 2, "what is not there was not posted"
        await made.close()


class Resumed:
    """What a run that is begun again knows."""

    def __init__(self, kept: dict[str, str]) -> None:
        self._kept = kept

    def kept(self, key: str) -> str | None:
        return self._kept.get(key)

    async def keep(self, key: str, value: str) -> str:
        return self._kept.setdefault(key, value)


def _encoded(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_make_it() -> None:
    options = RelayOptions(relay_api_key="rk_secret", channel="ops", target_agent="Worker1", base_url="http://x")
    made = AGENT_TYPE.make(AgentArguments(options=options, name="ops"))
    assert isinstance(made, RelayA2AAdapter)
    assert (made.profile.name, made.channel, made.poll_interval, made.timeout) == ("ops", "ops", 2.0, 300.0)
    assert made.profile.description == "Multi-agent workspace (channel: ops)"
    assert "rk_secret" not in repr(options)
    with pytest.raises(ValueError, match="relay_api_key: "):
        AGENT_TYPE.make(AgentArguments(options=RelayOptions()))


async def test_the_broker_is_limited_and_authenticates_senders() -> None:
    async with broker() as url, httpx.AsyncClient(base_url=url, timeout=BOUND_SECONDS) as http:
        path, key = "/channels/messages", {"Authorization": "Bearer rk_worker"}
        hello = {"channel": "general", "text": "hello", "from": "somebody else"}
        assert (await http.post(path, json=hello)).status_code == 401
        assert (await http.get(path, headers={"Authorization": "Bearer no"})).status_code == 401
        posted = (await http.post(path, json=hello, headers=key)).json()
        assert (posted["from"], posted["id"]) == ("Worker1", 1)
        for body in (b"", b"[]", b'{"channel": ""}', b'{"channel": "x"}', b'{"channel": 3, "text": "x"}'):
            assert (await http.post(path, content=body, headers=key)).status_code == 400
        assert (await http.post(path, content=b"x" * 9_000_000, headers=key)).status_code == 413
        assert (await http.get(path, params={"limit": "all"}, headers=key)).status_code == 400
        for number in range(1100):
            await http.post(path, json={"channel": "busy", "text": str(number)}, headers=key)
        read = (await http.get(path, params={"channel": "busy", "limit": 5000}, headers=key)).json()
        assert [len(read), read[0]["text"], read[-1]["text"]] == [1000, "100", "1099"]
        latest = (await http.get(path, params={"channel": "busy"}, headers=key)).json()
        assert [one["text"] for one in latest] == [str(number) for number in range(1080, 1100)]
        after = {"channel": "busy", "after": read[-1]["id"], "wait": 20}
        waiting = asyncio.create_task(http.get(path, params=after, headers=key))
        await http.post(path, json={"channel": "busy", "text": "news"}, headers=key)
        assert [one["text"] for one in (await waiting).json()] == ["news"]
        refused = [
            (await http.post(path, json={"channel": f"c{at}", "text": "x"}, headers=key)).status_code
            for at in range(110)
        ]
        assert refused.count(201) == 98
        assert set(refused) == {201, 429}
