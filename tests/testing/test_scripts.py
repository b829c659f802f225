"""Scripted agents: each move is what it says, and is made once however often the run is begun again."""

import asyncio
from typing import Any

import pytest

from accord.engine.context import Context
from accord.model import TaskState as S
from accord.testing import Move, assert_task, running, scripted
from accord.testing.scripts import (
    artifact,
    ask,
    call,
    complete,
    crash,
    do,
    fail,
    hang,
    reject,
    require_auth,
    say,
    sleep,
    step,
    stream,
    wait_for,
)


@pytest.mark.parametrize(
    ("moves", "state", "text"),
    [
        ((), "completed", ""),
        ((artifact("made"),), "completed", "made"),
        ((artifact({"a": 1}, name="data"), artifact("b", id="other")), "completed", "b"),
        ((stream("a", "b", "c"),), "completed", "abc"),
        ((complete("bye"),), "completed", "bye"),
        ((say("working"), fail("no luck")), "failed", "no luck"),
        ((reject("not that"),), "rejected", "not that"),
        ((ask("what?"),), "input-required", "what?"),
        ((require_auth("who are you?"),), "auth-required", "who are you?"),
        ((sleep(0.001), artifact("rested")), "completed", "rested"),
    ],
)
async def test_script_moves_match_their_name(moves: tuple[Move, ...], state: str, text: str) -> None:
    async with running(scripted(*moves)) as a2a:
        assert_task(await a2a.send_text("go"), state=state, text=text)


async def test_crashes_leak_nothing_to_the_caller() -> None:
    async with running(scripted(crash(ValueError("a secret")), attempts=1)) as a2a:
        failed = assert_task(await a2a.send_text("go"), state="failed")
        assert "a secret" not in str(failed)


async def test_moves_before_an_answer_are_made_once() -> None:
    done: list[str] = []

    async def counted(ctx: Context) -> object:
        done.append(ctx.text)
        return object()  # nothing that could be kept

    clerk = scripted(do(counted), say("one"), ask("two?"), stream("three"), ask("four?"), artifact("five", id="last"))
    async with running(clerk) as a2a:
        task = await a2a.send_text("begin")
        task = await a2a.send_text("2", task=task)
        assert_task(task, state="input-required", artifacts=["three"])
        task = await a2a.send_text("4", task=task)
        said = ["user: begin", "agent: one", "agent: two?", "user: 2", "agent: four?", "user: 4"]
        assert_task(task, state="completed", artifacts={"result": "three", "last": "five"}, history=said)
    assert done == ["begin"]
    assert [message.parts[0].text for message in clerk.heard] == ["begin", "2", "4"]


async def test_a_stream_comes_in_its_pieces() -> None:
    async with running(scripted(say("soon"), stream("a", "b"))) as a2a:
        events = [event async for event in a2a.stream_text("go")]
    assert_task(events, text="ab", events=["submitted", "working", "working", "artifact", "artifact", "completed"])


async def test_scripts_wait_for_signals() -> None:
    async with running(scripted(wait_for("go"), artifact("went"))) as a2a:
        task = await a2a.send_text("x", at_once=True)
        await a2a.hand_in(task, "go", {"by": "the test"})
        assert_task(await a2a.reaches(task, S.COMPLETED), text="went")


async def test_it_does_steps_and_calls_others() -> None:
    done: list[int] = []

    def count(by: int) -> int:
        done.append(by)
        return by

    lead = scripted(step("count", count, 3), call("helper", "help"), ask("enough?"), name="lead")
    helper = scripted(artifact("helped"), name="helper")
    async with running(lead, helper) as a2a:
        task = await a2a.send_text("go")
        assert_task(await a2a.send_text("yes", task=task), state="completed")
    assert done == [3]
    assert [message.parts[0].text for message in helper.heard] == ["help"]


async def test_it_hangs_until_it_is_cancelled() -> None:
    async with running(scripted(hang())) as a2a:
        task = await a2a.send_text("go", at_once=True)
        assert_task(await a2a.cancel(task), state="canceled")


async def test_descriptions_are_on_the_card() -> None:
    async with running(scripted(name="oracle", description="Knows", version="3.0")) as a2a, a2a.client() as client:
        assert (client.card.name, client.card.description, client.card.version) == ("oracle", "Knows", "3.0")
        assert [skill.name for skill in client.card.skills] == ["oracle"]


async def test_many_tasks_at_a_time_do_not_disturb_each_other() -> None:
    async with running(scripted(ask("what?"), artifact("done"))) as a2a:

        async def talk(number: int) -> Any:
            task = await a2a.send_text(f"begin {number}")
            return await a2a.send_text(f"answer {number}", task=task)

        for number, task in enumerate(await asyncio.gather(*(talk(number) for number in range(10)))):
            assert_task(task, history=[f"user: begin {number}", "agent: what?", f"user: answer {number}"])
