"""What is done once, and who else does it: steps and calls of other agents."""

import asyncio
import functools
import threading
from ast import literal_eval
from collections import Counter
from typing import Any

import pytest

from accord import Context, agent
from accord.engine.node import Limits
from accord.engine.outcome import CallFailed, Failed
from accord.model import GetRequest, Task, TaskState
from accord.service.host import Host
from accord.service.service import Service
from accord.storage.commands.task_lists import TaskListQuery, list_tasks
from tests.engine.conftest import ALICE, BOB, Hosting, said, saying, state, text
from tests.engine.doubles import change, sent

S = TaskState


async def answer(service: Service, task: Task, word: str = "go on") -> Task:
    return await sent(service, saying(word, task_id=task.id), ALICE)


async def children(host: Host, parent: Task) -> list[tuple[str, str, str]]:
    """The tasks that a task started: their agent, owner and state."""
    found, _ = await host.node.store.read(list_tasks, "acme", TaskListQuery(parent_id=parent.id))
    return sorted((child.agent, child.owner, child.state) for child in found)


# --- steps --------------------------------------------------------------------------------------------------------


class Ledger:
    """Counts what is really done."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.threads: set[bool] = set()

    def note(self, name: str, value: Any = None) -> Any:
        self.done[name] += 1
        self.threads.add(threading.current_thread() is threading.main_thread())
        return value

    async def note_later(self, name: str, value: Any = None) -> Any:
        await asyncio.sleep(0)
        return self.note(name, value)


async def test_steps_of_every_kind_are_done_once(hosting: Hosting) -> None:
    ledger = Ledger()

    def plain(value: int) -> list[int]:
        return ledger.note("plain", [value])  # type: ignore[no-any-return]

    @agent
    async def steps(ctx: Context) -> dict[str, Any]:
        found = {
            "plain": await ctx.step("plain", plain, 1),
            "method": await ctx.step("method", ledger.note, "method", {"a": None}),
            "partial": await ctx.step("partial", functools.partial(ledger.note, "partial", 2.5)),
            "async": await ctx.step("async", ledger.note_later, "async", "x"),
            "lambda": await ctx.step("lambda", lambda: ledger.note_later("lambda", True)),
            "nothing": await ctx.step("nothing", ledger.note, "nothing"),
            "ask:1": await ctx.step("ask:1", ledger.note, "ask:1", "no answer"),
            "sleep:1": await ctx.step("sleep:1", ledger.note, "sleep:1", "no time"),
        }
        await ctx.sleep(0.001)
        await ctx.ask("Again?")
        return found

    host = await hosting(steps)
    task = await sent(host.default, saying("go"), ALICE)
    assert state(task) is S.INPUT_REQUIRED
    task = await answer(host.default, task)
    assert task.artifacts[0].parts[0].data == {
        "plain": [1],
        "method": {"a": None},
        "partial": 2.5,
        "async": "x",
        "lambda": True,
        "nothing": None,
        "ask:1": "no answer",
        "sleep:1": "no time",
    }
    assert set(ledger.done.values()) == {1}
    assert len(ledger.done) == 8


async def test_a_step_that_fails_is_done_again(hosting: Hosting) -> None:
    ledger = Ledger()

    async def flaky() -> str:
        ledger.note("flaky")
        if ledger.done["flaky"] < 3:
            raise ConnectionError("not yet")
        return "done"

    @agent
    async def retries(ctx: Context) -> str:
        while True:
            try:
                return await ctx.step("flaky", flaky)
            except ConnectionError:
                await ctx.status("once more")

    host = await hosting(retries)
    assert text(await sent(host.default, saying("go"), ALICE)) == "done"
    assert ledger.done["flaky"] == 3


async def test_steps_may_be_done_at_the_same_time(hosting: Hosting) -> None:
    ledger = Ledger()
    both = asyncio.Barrier(2)

    async def meet(name: str) -> str:
        ledger.note(name)
        await both.wait()
        return name

    @agent
    async def parallel(ctx: Context) -> str:
        await ctx.status("begun")
        pair = await asyncio.gather(ctx.step("a", meet, "a"), ctx.step("b", meet, "b"))
        same = await asyncio.gather(*(ctx.step("c", ledger.note_later, "c", at) for at in range(3)))
        assert len(set(same)) == 1
        return "".join(pair)

    host = await hosting(parallel)
    assert text(await sent(host.default, saying("go"), ALICE)) == "ab"
    assert ledger.done == {"a": 1, "b": 1, "c": 1}


async def test_output_is_committed_before_a_step_starts(hosting: Hosting) -> None:
    seen: list[list[str]] = []

    async def look(service: Service, task_id: str) -> None:
        task = await service.get(GetRequest(id=task_id), ALICE)
        seen.append([part.text or "" for artifact in task.artifacts for part in artifact.parts])

    @agent
    async def says(ctx: Context) -> None:
        await ctx.artifact("before")
        look_at = functools.partial(look, host.default, ctx.task_id)
        await asyncio.gather(ctx.step("one", look_at), ctx.step("two", look_at))

    host = await hosting(says)
    await sent(host.default, saying("go"), ALICE)
    assert seen == [["before"], ["before"]]


class Door:
    """Something that blocks its thread."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def pass_through(self) -> bool:
        self.reached.set()
        return self.opened.wait(10)


async def test_blocking_steps_do_not_block_others(hosting: Hosting) -> None:
    door = Door()

    @agent
    async def waits(ctx: Context) -> bool:
        return await ctx.step("door", door.pass_through)

    host = await hosting(waits, inner)
    waiting = asyncio.create_task(sent(host.default, saying("go"), ALICE))
    await asyncio.to_thread(door.reached.wait, 10)
    assert text(await sent(host.services["inner"], saying("go"), ALICE)) == "<go>"
    door.opened.set()
    assert (await waiting).artifacts[0].parts[0].data is True


async def test_unstorable_step_results_fail_the_task(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> None:
    @agent
    async def keeps(ctx: Context) -> None:
        await ctx.step("object", object)

    host = await hosting(keeps)
    assert state(await sent(host.default, saying("go"), ALICE)) is S.FAILED
    assert "object" in caplog.text


# --- calls --------------------------------------------------------------------------------------------------------


@agent
async def doubles(ctx: Context) -> dict[str, Any]:
    return {"doubled": ctx.text * 2, "owner": ctx.caller.owner, "tenant": ctx.tenant}


@agent
async def says(ctx: Context) -> None:
    await ctx.complete(f"said {ctx.text}")


@agent
async def refuses(ctx: Context) -> None:
    raise Failed("no paper")


@agent
async def calls(ctx: Context) -> str:
    """Calls the agent that it is told to call."""
    try:
        said = await ctx.call(ctx.text, "ab")
    except CallFailed as error:
        return f"{error.task.status.state.name}: {error}"
    return f"{said.text or said.data}"


async def test_calls_return_the_other_agent_s_reply(hosting: Hosting) -> None:
    host = await hosting(calls, doubles, says)
    task = await sent(host.default, saying("doubles"), ALICE)
    assert literal_eval(text(task)) == {"doubled": "abab", "owner": "alice", "tenant": "acme"}
    assert await children(host, task) == [("doubles", "alice", "completed")]
    assert text(await sent(host.default, saying("says"), ALICE)) == "said ab"


async def test_failed_calls_give_the_reason(hosting: Hosting) -> None:
    host = await hosting(calls, refuses)
    assert text(await sent(host.default, saying("refuses"), ALICE)) == "FAILED: The task is FAILED: no paper"
    unknown = await sent(host.default, saying("nobody"), ALICE)
    assert (state(unknown), said(unknown)) == (S.FAILED, "Unknown agent 'nobody'")


@agent
async def outer(ctx: Context) -> str:
    both = await asyncio.gather(*(ctx.call("middle", word, key=word) for word in ("a", "b")))
    return " ".join(said.text for said in both)


@agent
async def middle(ctx: Context) -> str:
    first = await ctx.call("inner", f"{ctx.text}1")
    return f"{first.text}{(await ctx.call('inner', f'{ctx.text}2')).text}"


@agent
async def inner(ctx: Context) -> str:
    return f"<{ctx.text}>"


@pytest.mark.parametrize(
    "limits",
    [
        Limits(lease_seconds=3.0, poll_seconds=0.2),
        Limits(lease_seconds=3.0, poll_seconds=0.2, slots=1),
        Limits(lease_seconds=3.0, poll_seconds=0.2, slots=1, tenant_runs=1),
    ],
    ids=["roomy", "one-slot", "one-run-per-tenant"],
)
async def test_calls_nest_however_little_room_there_is(hosting: Hosting, limits: Limits) -> None:
    host = await hosting(outer, middle, inner, limits=limits)
    tasks = await asyncio.gather(*(sent(host.default, saying("go"), caller) for caller in (ALICE, BOB, ALICE)))
    assert [text(task) for task in tasks] == ["<a1><a2> <b1><b2>"] * 3
    assert host.node._executions == {}
    assert not host.node.slots.waiting


async def test_an_agent_may_call_itself_however_few_of_it_may_run(hosting: Hosting) -> None:
    @agent(concurrency=1)
    async def countdown(ctx: Context) -> str:
        number = int(ctx.text)
        return "0" if number == 0 else f"{number} {await ctx.call('countdown', str(number - 1))}"

    host = await hosting(countdown, limits=Limits(lease_seconds=3.0, poll_seconds=0.2, slots=1))
    assert text(await sent(host.default, saying("3"), ALICE)) == "3 2 1 0"


async def test_a_call_is_made_once_however_often_the_caller_runs(hosting: Hosting) -> None:
    ledger = Ledger()

    @agent
    async def worker(ctx: Context) -> str:
        return str(ledger.note("work", f"worked on {ctx.text}"))

    @agent
    async def boss(ctx: Context) -> str:
        work = await ctx.call("worker", "it")
        await ctx.ask("Content?")
        return work.text

    host = await hosting(boss, worker)
    task = await sent(host.default, saying("go"), ALICE)
    await change(host.node.store, "DELETE FROM idempotency")  # as if a day had passed
    assert text(await answer(host.default, task)) == "worked on it"
    assert ledger.done["work"] == 1
