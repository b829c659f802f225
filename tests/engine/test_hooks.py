"""What the core tells whoever observes it."""

import asyncio
import time

import pytest

from accord import Context, agent
from accord.engine.hooks import Detail, EventsAppended, ExecutionEnded, ExecutionStarted, Hook, Hooks, TaskAccepted
from accord.model import TaskState
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, saying, text
from tests.engine.doubles import Watch, sent

S = TaskState


@agent
async def asks(ctx: Context) -> str:
    return f"{await ctx.ask('Well?')}"


@agent
async def fails(ctx: Context) -> None:
    raise RuntimeError


async def test_hooks_get_the_task_lifecycle(hosting: Hosting) -> None:
    watch = Watch()
    host = await hosting(asks, hooks=Hooks((watch,)))
    began = time.monotonic()
    task = await sent(host.default, saying("x"), ALICE)
    await host.default.send(saying("good", task_id=task.id), ALICE)
    ended = await watch.until(ExecutionEnded, 2)
    elapsed = time.monotonic() - began
    assert {(detail.tenant, detail.task_id, detail.agent) for detail in watch.details} == {("acme", task.id, "asks")}
    assert [detail.is_new for detail in watch.of(TaskAccepted)] == [True, False]
    assert [detail.attempt for detail in watch.of(ExecutionStarted)] == [1, 1]
    assert [(detail.seq, detail.count) for detail in watch.of(EventsAppended)] == [(2, 1), (6, 2)]
    assert [detail.state for detail in ended] == [S.INPUT_REQUIRED, S.COMPLETED]
    assert all(detail.seconds > 0 for detail in ended)
    assert sum(detail.seconds for detail in ended) < elapsed, "one after the other, between two looks at the clock"
    kinds = [type(detail) for detail in watch.details]
    assert kinds.index(ExecutionStarted) < kinds.index(EventsAppended) < kinds.index(ExecutionEnded)


async def test_a_repeated_send_makes_nothing_new(hosting: Hosting) -> None:
    watch = Watch()
    host = await hosting(asks, hooks=Hooks((watch,)))
    for _ in range(2):
        await host.default.send(saying("x", "same"), ALICE)
    assert [detail.is_new for detail in watch.of(TaskAccepted)] == [True, False]
    assert len(await watch.until(ExecutionEnded)) == 1


async def test_hooks_get_failures(hosting: Hosting) -> None:
    watch = Watch()
    host = await hosting(fails, hooks=Hooks((watch,)))
    await host.default.send(saying("x"), ALICE)
    assert [detail.state for detail in await watch.until(ExecutionEnded)] == [S.FAILED]


async def test_a_run_that_is_handed_over_has_no_state(hosting: Hosting) -> None:
    watch = Watch()

    @agent
    async def endless(ctx: Context) -> None:
        await asyncio.Event().wait()

    host = await hosting(endless, hooks=Hooks((watch,)))
    await host.default.send(saying("x", configuration=AT_ONCE), ALICE)
    await watch.until(ExecutionStarted)
    await host.stop(0)
    assert [detail.state for detail in watch.of(ExecutionEnded)] == [None]


def broken(detail: Detail) -> None:
    raise RuntimeError("observing is hard")


@pytest.mark.parametrize("kinds", [{}, {ExecutionStarted: broken}], ids=["of everything", "of a kind"])
async def test_failing_hooks_are_isolated(
    hosting: Hosting, caplog: pytest.LogCaptureFixture, kinds: dict[type[Detail], Hook]
) -> None:
    watch = Watch()
    host = await hosting(asks, hooks=Hooks((watch,), kinds) if kinds else Hooks((broken, watch)))
    task = await sent(host.default, saying("x"), ALICE)
    assert text(await sent(host.default, saying("good", task_id=task.id), ALICE)) == "good"
    assert len(await watch.until(ExecutionEnded, 2)) == 2
    assert "observing is hard" in caplog.text


def test_hooks_run_in_order() -> None:
    told: list[str] = []
    hooks = Hooks((lambda _: told.append("first"), lambda _: told.append("second")))
    hooks.emit(TaskAccepted(tenant="", task_id="t", agent="a", is_new=True))
    assert told == ["first", "second"]


def test_hooks_get_only_their_event_type() -> None:
    told: list[str] = []
    hooks = Hooks(
        by_kind={TaskAccepted: lambda _: told.append("accepted"), ExecutionEnded: lambda _: told.append("ended")}
    )
    hooks.emit(TaskAccepted(tenant="", task_id="t", agent="a", is_new=True))
    hooks.emit(EventsAppended(tenant="", task_id="t", agent="a", seq=1, count=1))
    assert told == ["accepted"]
