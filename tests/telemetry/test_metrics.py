"""What the core tells is counted: tasks, runs, events, deliveries, nodes."""

import asyncio

import pytest

from accord import Context, Failed, agent
from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.engine.hooks import Detail, ExecutionEnded, ExecutionStarted, Hooks, LeaseLost, NodeReaped, TaskFinished
from accord.engine.webhook_delivery import NotDelivered, WebhookDelivery
from accord.errors import AuthenticationFailed, TaskNotCancelable
from accord.model import CancelRequest, PushConfig, PushFormat, SendConfiguration
from accord.telemetry.metrics import BUCKETS, Durations, Metrics, Tally
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, saying
from tests.engine.doubles import Watch, change, sent, until
from tests.telemetry.conftest import parrot


@agent
async def asks(ctx: Context) -> str:
    return f"{await ctx.ask('Well?')}"


@agent
async def endless(ctx: Context) -> None:
    await asyncio.Event().wait()


def moved(metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """Every counter and gauge that is not 0."""
    found = {
        tally.metric.name: {labels: number for labels, number in tally.items() if number}
        for tally in metrics.all
        if isinstance(tally, Tally)
    }
    return {name: numbers for name, numbers in found.items() if numbers}


async def test_the_life_of_a_task_is_counted(hosting: Hosting, metrics: Metrics) -> None:
    watch = Watch()
    host = await hosting(asks, hooks=Hooks((watch,), metrics.notes))
    task = await sent(host.default, saying("x"), ALICE)
    await host.default.send(saying("good", task_id=task.id), ALICE)
    await watch.until(ExecutionEnded, 2)
    assert moved(metrics) == {
        "accord_tasks_created_total": {("asks",): 1},
        "accord_tasks_ended_total": {("asks", "completed"): 1},
        "accord_runs_started_total": {("asks",): 2},
        "accord_runs_ended_total": {("asks", "input_required"): 1, ("asks", "completed"): 1},
        "accord_events_appended_total": {("asks",): 3},
    }
    assert sum(metrics.run_seconds["asks",].counts) == 2


async def test_usage_is_counted_per_agent(hosting: Hosting, metrics: Metrics) -> None:
    @agent
    async def uses(ctx: Context) -> None:
        await ctx.usage(input_tokens=7, output_tokens=5, cost=0.25, key="once")
        await ctx.usage(input_tokens=7, output_tokens=5, cost=0.25, key="once")

    @agent
    async def calls(ctx: Context) -> None:
        await ctx.call("uses", "x")
        await ctx.usage(input_tokens=1)

    host = await hosting(calls, uses, hooks=Hooks(by_kind=metrics.notes))
    await sent(host.default, saying("x"), ALICE)
    assert metrics.input_tokens == {("calls",): 1, ("uses",): 7}
    assert metrics.output_tokens == {("calls",): 0, ("uses",): 5}
    assert metrics.cost == {("calls",): 0, ("uses",): 0.25}


async def test_a_task_that_waits_for_its_caller_and_is_cancelled_is_counted(hosting: Hosting, metrics: Metrics) -> None:
    host = await hosting(asks, hooks=Hooks(by_kind=metrics.notes))
    task = await sent(host.default, saying("x"), ALICE)
    assert metrics.tasks_ended == {}
    await host.default.cancel(CancelRequest(id=task.id), ALICE)
    assert metrics.tasks_ended == {("asks", "canceled"): 1}
    with pytest.raises(TaskNotCancelable):
        await host.default.cancel(CancelRequest(id=task.id), ALICE)
    assert metrics.tasks_ended == {("asks", "canceled"): 1}


async def test_a_task_whose_time_is_up_is_counted(hosting: Hosting, metrics: Metrics) -> None:
    @agent(timeout=0.2)
    async def late(ctx: Context) -> None:
        await asyncio.Event().wait()

    watch = Watch()
    host = await hosting(late, hooks=Hooks((watch,), metrics.notes))
    await host.default.send(saying("x", configuration=AT_ONCE), ALICE)
    await watch.until(TaskFinished)
    await watch.until(ExecutionEnded)
    assert metrics.tasks_ended == {("late", "failed"): 1}


async def test_children_ended_with_their_parent_are_counted(hosting: Hosting, metrics: Metrics) -> None:
    @agent
    async def leaves(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.call("endless", "x"))
            await called.wait()
            raise Failed("enough")

    @agent
    async def waits(ctx: Context) -> None:
        await ctx.call("endless", "x")

    @agent(name="endless")
    async def child(ctx: Context) -> None:
        called.set()
        await asyncio.Event().wait()

    called, watch = asyncio.Event(), Watch()
    host = await hosting(leaves, waits, child, hooks=Hooks((watch,), metrics.notes))
    await sent(host.default, saying("x"), ALICE)
    assert metrics.tasks_ended == {("leaves", "failed"): 1, ("endless", "canceled"): 1}
    called.clear()
    task = await sent(host.services["waits"], saying("x", configuration=AT_ONCE), ALICE)
    await called.wait()
    await host.services["waits"].cancel(CancelRequest(id=task.id), ALICE)
    assert {found: number for found, number in metrics.tasks_ended.items() if found[0] != "leaves"} == {
        ("waits", "canceled"): 1,
        ("endless", "canceled"): 2,
    }


async def test_a_task_that_is_over_its_budget_is_counted(hosting: Hosting, metrics: Metrics) -> None:
    @agent(max_tokens=3)
    async def uses(ctx: Context) -> None:
        await ctx.usage(input_tokens=7)

    host = await hosting(uses, hooks=Hooks(by_kind=metrics.notes))
    await sent(host.default, saying("x"), ALICE)
    assert metrics.tasks_ended == {("uses", "failed"): 1}


async def test_a_task_that_lost_its_node_too_often_is_counted(hosting: Hosting, metrics: Metrics) -> None:
    watch = Watch()
    host = await hosting(endless, hooks=Hooks((watch,), metrics.notes))
    await host.default.send(saying("x", configuration=AT_ONCE), ALICE)
    await watch.until(ExecutionStarted)
    await change(host.node.store, "UPDATE job SET node = 'gone', attempts = max_attempts")
    await watch.until(TaskFinished)
    assert metrics.tasks_ended == {("endless", "failed"): 1}


async def test_a_run_that_is_stopped_has_no_state(hosting: Hosting, metrics: Metrics) -> None:
    watch = Watch()
    host = await hosting(endless, hooks=Hooks((watch,), metrics.notes))
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await watch.until(ExecutionStarted)
    await host.default.cancel(CancelRequest(id=task.id), ALICE)
    await watch.until(ExecutionEnded)
    assert metrics.runs_stopped == {("endless",): 1}
    assert metrics.runs_ended == {}


async def test_a_node_that_is_gone_and_the_run_that_is_repeated_are_counted(hosting: Hosting, metrics: Metrics) -> None:
    watch = Watch()
    host = await hosting(endless, hooks=Hooks((watch,), metrics.notes))
    await host.default.send(saying("x", configuration=AT_ONCE), ALICE)
    await watch.until(ExecutionStarted)
    assert metrics.runs_repeated == {}
    await change(host.node.store, "UPDATE job SET node = 'gone'")  # which has no lease
    await watch.until(NodeReaped)
    await watch.until(ExecutionStarted, 2)
    assert metrics.nodes_reaped == {(): 1}
    assert metrics.runs_started == {("endless",): 2}
    assert metrics.runs_repeated == {("endless",): 1}


async def test_a_lease_that_was_not_renewed_in_time_is_counted(hosting: Hosting, metrics: Metrics) -> None:
    watch = Watch()
    host = await hosting(endless, hooks=Hooks((watch,), metrics.notes))
    assert metrics.lease_losses == {(): 0}
    host.node.membership._beaten -= 2 * host.node.limits.lease_seconds  # as if it had not been heard of for so long
    await watch.until(LeaseLost)
    assert metrics.lease_losses == {(): 1}


class Sender:
    """Refuses one webhook for good."""

    def check(self, config: PushConfig) -> None: ...

    def form(self, dialect: str) -> PushFormat:
        return PushFormat.TASK

    async def send(self, delivery: WebhookDelivery) -> None:
        if delivery.config.id == "refused":
            raise NotDelivered("Gone", is_final=True)


@pytest.mark.parametrize(("id", "outcome"), [("taken", "ok"), ("refused", "failed")])
async def test_deliveries_are_counted(hosting: Hosting, metrics: Metrics, id: str, outcome: str) -> None:
    host = await hosting(parrot, hooks=Hooks(by_kind=metrics.notes), sender=Sender())
    hook = PushConfig(id=id, url="https://example.com/hook")
    await host.default.send(saying("x", configuration=SendConfiguration(task_push_notification_config=hook)), ALICE)

    async def is_counted() -> bool:
        return metrics.push_deliveries[(outcome,)] > 0

    await until(is_counted)
    assert {found for found, number in metrics.push_deliveries.items() if number} == {(outcome,)}


async def test_failed_authentication_is_counted(metrics: Metrics) -> None:
    async def admit(presented: Presented) -> Caller:
        if presented.header("x-secret") != "right":
            raise AuthenticationFailed
        return ALICE

    watched = metrics.watched(admit)
    assert await watched(Presented(headers=[(b"x-secret", b"right")])) is ALICE
    assert metrics.unauthenticated == {(): 0}
    with pytest.raises(AuthenticationFailed):
        await watched(Presented(headers=[(b"x-secret", b"wrong")]))
    assert metrics.unauthenticated == {(): 1}


def test_uncounted_events_are_ignored(metrics: Metrics) -> None:
    class Unknown(Detail, frozen=True, kw_only=True):
        pass

    Hooks(by_kind=metrics.notes).emit(Unknown(tenant="", task_id="", agent="a"))
    assert moved(metrics) == {}


def test_agents_begin_with_zeros() -> None:
    metrics = Metrics(["a", "b"])
    assert metrics.runs_started == {("a",): 0, ("b",): 0}
    assert metrics.push_deliveries == {("ok",): 0, ("failed",): 0}
    assert metrics.tasks_ended.keys() == {
        (name, state) for name in "ab" for state in ("completed", "failed", "canceled", "rejected", "unknown")
    }
    assert set(metrics.tasks_ended.values()) == {0}
    assert metrics.runs_ended == {}


def test_a_duration_belongs_to_the_first_bucket_that_holds_it(metrics: Metrics) -> None:
    durations = Durations(metrics.run_seconds.metric)
    for seconds in (0.0, BUCKETS[0], BUCKETS[0] * 1.01, BUCKETS[-1], BUCKETS[-1] + 1):
        durations.observe(("a",), seconds)
    counts = durations["a",].counts
    assert (counts[0], counts[1], counts[-2], counts[-1], sum(counts)) == (2, 1, 1, 1, 5)
    assert durations["a",].total == pytest.approx(601.00201)
