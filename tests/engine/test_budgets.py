"""A task that has used more than it may ends with all that it has called; callers may only tighten a budget."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from accord import Context, agent
from accord.agents.function import FunctionAgent
from accord.engine.outcome import CallFailed, OverBudget
from accord.errors import InvalidParams
from accord.model import GetRequest, SendRequest, Task, TaskState
from accord.service.host import Host
from accord.storage.commands.task_endings import LEFT_BEHIND
from accord.storage.commands.task_lists import TaskListQuery, list_tasks
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, said, saying, state, text
from tests.engine.doubles import reaches, rows, sent, until

S = TaskState


def within(words: str, **fields: Any) -> SendRequest:
    """A message with a budget."""
    names = ("maxTokens", "maxCost", "deadline")
    budget = {name: fields.pop(name) for name in names if name in fields}
    return _stating(saying(words, **fields), budget)


def _stating(request: SendRequest, budget: Any) -> SendRequest:
    return replace(request, message=replace(request.message, metadata={"budget": budget}))


def eater(name: str = "eater", **options: Any) -> FunctionAgent:
    """An agent that uses as many tokens as it is told to, one at a time, and says so."""

    async def eats(ctx: Context) -> str:
        for number in range(int(ctx.text)):
            await ctx.status(f"{number}")
            await ctx.usage(input_tokens=1, cost=0.5)
        return "full"

    return agent(name=name, **options)(eats)


def spent(task: Task) -> int:
    assert task.metadata is not None
    return int(task.metadata["usage"]["totalTokens"])


async def states(host: Host) -> dict[str, str]:
    """The agent of every task, and the task's state."""
    page, _ = await host.node.store.read(list_tasks, "acme", TaskListQuery())
    return {stored.agent: stored.state for stored in page}


async def none_is_left(host: Host) -> bool:
    return not host.node._executions and await rows(host.node.store, "job", "kind") == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"max_tokens": 3}, "The budget of 3 tokens is spent"),
        ({"max_cost": 1.5}, "The budget of 1.5 (cost) is spent"),
    ],
)
async def test_the_agents_own_budget_ends_its_tasks(hosting: Hosting, options: dict[str, Any], why: str) -> None:
    host = await hosting(eater(**options))
    assert text(await sent(host.default, saying("3"), ALICE)) == "full"  # all of it may be used
    task = await sent(host.default, saying("5"), ALICE)
    assert (state(task), said(task), spent(task)) == (S.FAILED, why, 4)
    assert [message.parts[0].text for message in task.history[1:]] == ["0", "1", "2", "3"]
    await until(lambda: none_is_left(host))


async def test_a_caller_may_only_tighten(hosting: Hosting) -> None:
    host = await hosting(eater(max_tokens=3))
    assert said(await sent(host.default, within("5", maxTokens=1), ALICE)) == "The budget of 1 tokens is spent"
    assert said(await sent(host.default, within("5", maxTokens=100), ALICE)) == "The budget of 3 tokens is spent"
    assert said(await sent(host.default, within("5", maxCost=0.5), ALICE)) == "The budget of 0.5 (cost) is spent"
    assert said(await sent(host.default, within("5", maxTokens=2.0), ALICE)) == "The budget of 2 tokens is spent"
    assert said(await sent(host.default, within("1", maxTokens=0), ALICE)) == "The budget of 0 tokens is spent"


async def test_a_budget_may_be_stated_for_the_request_instead(hosting: Hosting) -> None:
    host = await hosting(eater())
    task = await sent(host.default, saying("5", metadata={"budget": {"maxTokens": 2}}), ALICE)
    assert (said(task), task.history[0].metadata) == ("The budget of 2 tokens is spent", {"budget": {"maxTokens": 2}})
    both = replace(within("5", maxTokens=1), metadata={"budget": {"maxTokens": 3}})
    assert said(await sent(host.default, both, ALICE)) == "The budget of 1 tokens is spent"
    with pytest.raises(InvalidParams, match=r"`metadata\.budget\.maxTokens`"):
        await host.default.send(saying("5", metadata={"budget": {"maxTokens": "few"}}), ALICE)


async def test_later_messages_can_tighten_the_budget(hosting: Hosting) -> None:
    @agent
    async def asks(ctx: Context) -> str:
        await ctx.usage(input_tokens=5, key="first")
        for turn in range(3):
            await ctx.ask("More?", key=str(turn))
            await ctx.usage(input_tokens=5, key=str(turn))
        return "done"

    host = await hosting(asks)
    task = await sent(host.default, within("go", maxTokens=30), ALICE)
    task = await sent(host.default, within("yes", task_id=task.id, maxTokens=10), ALICE)
    assert (state(task), spent(task)) == (S.INPUT_REQUIRED, 10)
    task = await sent(host.default, within("yes", task_id=task.id, maxTokens=100), ALICE)
    assert (state(task), said(task)) == (S.FAILED, "The budget of 10 tokens is spent")


async def test_an_agent_that_catches_everything_stops_all_the_same(hosting: Hosting) -> None:
    caught: list[Exception] = []
    stopped = asyncio.Event()

    @agent(max_tokens=1)
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.usage(input_tokens=2)
        except Exception as error:
            caught.append(error)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    host = await hosting(stubborn)
    task = await sent(host.default, saying("x"), ALICE)
    assert (state(task), said(task)) == (S.FAILED, "The budget of 1 tokens is spent")
    await stopped.wait()
    assert [type(error) for error in caught] == [OverBudget]


async def test_a_parent_ends_while_it_waits_for_the_child_that_spends(hosting: Hosting) -> None:
    stopped: list[str] = []

    @agent(max_tokens=5)
    async def patron(ctx: Context) -> None:
        await ctx.usage(input_tokens=3)
        try:
            await asyncio.gather(ctx.call("eater", "9", key="a"), ctx.call("sleeper", "x", key="b"))
        finally:
            stopped.append("patron")

    @agent
    async def sleeper(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("sleeper")

    host = await hosting(patron, eater(), sleeper)
    task = await sent(host.default, saying("x"), ALICE)
    assert (state(task), said(task), spent(task)) == (S.FAILED, "The budget of 5 tokens is spent", 6)
    assert await states(host) == {"patron": "failed", "eater": "canceled", "sleeper": "canceled"}
    page, _ = await host.node.store.read(list_tasks, "acme", TaskListQuery(agents=("eater",)))
    child = page[0].task()
    assert (said(child), spent(child)) == (LEFT_BEHIND, 3)
    await until(lambda: none_is_left(host))
    assert sorted(stopped) == ["patron", "sleeper"]


async def test_the_topmost_ends_and_on_other_nodes_too(hosting: Hosting) -> None:
    @agent(max_tokens=4)
    async def trunk(ctx: Context) -> str:
        return (await ctx.call("branch", "9")).text

    @agent(max_tokens=4)
    async def branch(ctx: Context) -> str:
        return (await ctx.call("eater", ctx.text)).text

    first, second = await hosting(trunk), await hosting(branch, eater())
    first.services |= {"branch": second.default}
    task = await sent(first.default, saying("x"), ALICE)
    assert (state(task), spent(task)) == (S.FAILED, 5)
    assert await states(first) == {"trunk": "failed", "branch": "canceled", "eater": "canceled"}
    await until(lambda: none_is_left(first))
    await until(lambda: none_is_left(second))


async def test_children_get_the_remaining_budget(hosting: Hosting) -> None:
    asked: list[Any] = []

    @agent
    async def patron(ctx: Context) -> str:
        await ctx.usage(input_tokens=4, cost=0.25)
        return (await ctx.call("child", "x")).text

    @agent
    async def child(ctx: Context) -> str:
        asked.append((ctx.message.metadata, ctx.deadline))
        return "done"

    host = await hosting(patron, child)
    soon = datetime.now(UTC) + timedelta(hours=1)
    request = within("x", maxTokens=10, maxCost=1, deadline=soon.isoformat())
    assert text(await sent(host.default, request, ALICE)) == "done"
    await sent(host.default, saying("x"), ALICE)
    assert asked == [
        ({"budget": {"maxTokens": 6, "maxCost": 0.75}}, pytest.approx(soon.timestamp(), abs=0.001)),
        (None, None),
    ]


async def test_a_childs_own_budget_ends_the_child_alone(hosting: Hosting) -> None:
    @agent
    async def patron(ctx: Context) -> str:
        try:
            return (await ctx.call("eater", "9")).text
        except CallFailed as error:
            return str(error)

    host = await hosting(patron, eater(max_tokens=2))
    task = await sent(host.default, saying("x"), ALICE)
    assert text(task) == "The task is FAILED: The budget of 2 tokens is spent"
    assert (state(task), spent(task)) == (S.COMPLETED, 3)


async def test_a_child_s_usage_ends_its_waiting_parent(hosting: Hosting) -> None:
    """The parent is parked with its child's question, and is only rows, when the child goes on and spends."""

    @agent(max_tokens=5)
    async def patron(ctx: Context) -> str:
        return (await ctx.call("curious", "x")).text

    @agent
    async def curious(ctx: Context) -> str:
        await ctx.ask("How many?")
        await ctx.usage(output_tokens=9)
        return "done"

    host = await hosting(patron, curious)
    task = await sent(host.default, saying("x"), ALICE)
    assert state(task) is S.INPUT_REQUIRED
    page, _ = await host.node.store.read(list_tasks, "acme", TaskListQuery(agents=("curious",)))
    await sent(host.services["curious"], saying("nine", task_id=page[0].id), ALICE)
    task = await reaches(host.default, task.id, S.FAILED, ALICE)
    assert said(task) == "The budget of 5 tokens is spent"
    await until(lambda: none_is_left(host))


# --- deadlines --------------------------------------------------------------------------------------------------------


@agent
async def idle(ctx: Context) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("as_time", [False, True])
async def test_a_deadline_ends_a_task_and_its_children(hosting: Hosting, as_time: bool) -> None:
    begun = asyncio.Event()

    @agent
    async def delegates(ctx: Context) -> None:
        await asyncio.gather(ctx.call("idle", "x", key="a"), ctx.call("tells", "x", key="b"))

    @agent
    async def tells(ctx: Context) -> None:
        begun.set()
        await asyncio.Event().wait()

    host = await hosting(delegates, idle, tells)
    due: Any = (datetime.now(UTC) + timedelta(seconds=2)).isoformat() if as_time else 2
    task = await sent(host.default, within("x", deadline=due, configuration=AT_ONCE), ALICE)
    await begun.wait()
    task = await reaches(host.default, task.id, S.FAILED, ALICE)
    assert said(task) == "The task did not finish in time"
    assert await states(host) == {"delegates": "failed", "idle": "canceled", "tells": "canceled"}
    await until(lambda: none_is_left(host))


async def test_deadlines_are_bounded_by_the_agent_s_timeout(hosting: Hosting) -> None:
    seen: list[float | None] = []

    @agent(timeout=1000)
    async def looks(ctx: Context) -> None:
        seen.append(ctx.deadline)

    host = await hosting(looks)
    before = host.node.now_ms() / 1000
    await sent(host.default, within("x", deadline=5000), ALICE)
    await sent(host.default, within("x", deadline=20), ALICE)
    late, soon = seen
    assert late is not None
    assert soon is not None
    assert before + 1000 <= late < before + 5000
    assert before + 20 <= soon < late


async def test_a_later_message_may_set_a_deadline(hosting: Hosting) -> None:
    @agent
    async def asks(ctx: Context) -> None:
        await ctx.ask("Ready?")
        await asyncio.Event().wait()

    host = await hosting(asks)
    task = await sent(host.default, within("x", deadline=3600), ALICE)
    task = await sent(host.default, within("yes", task_id=task.id, deadline=0.2), ALICE)
    assert (state(task), said(task)) == (S.FAILED, "The task did not finish in time")


async def test_a_message_is_repeated_after_its_deadline(hosting: Hosting) -> None:
    host = await hosting(eater())
    due = (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat()
    request = within("1", message_id="again", deadline=due)
    first = await sent(host.default, request, ALICE)
    past = within("1", message_id="again", deadline=due)
    assert (await sent(host.default, past, ALICE)).id == first.id


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ({"maxTokens": -1}, "`message.metadata.budget.maxTokens`: Expected `float` >= 0.0"),
        ({"maxTokens": 1.5}, "`message.metadata.budget.maxTokens`: Expected a whole number"),
        ({"maxTokens": "many"}, "`message.metadata.budget.maxTokens`: Expected `float | null`, got `str`"),
        ({"maxCost": -1}, "`message.metadata.budget.maxCost`: Expected `float` >= 0.0"),
        ({"deadline": 0}, "`message.metadata.budget.deadline`: Expected `float` > 0.0"),
        (
            {"deadline": "soon"},
            "`message.metadata.budget.deadline`: Expected seconds, or an ISO 8601 time with its zone",
        ),
        ({"deadline": "2030-01-01T00:00:00"}, "an ISO 8601 time with its zone"),
        ({"max_tokens": 5}, "`message.metadata.budget`: Object contains unknown field `max_tokens`"),
        (5, "`message.metadata.budget`: Expected `object`, got `int`"),
        (None, "`message.metadata.budget`: Expected `object`, got `null`"),
    ],
)
async def test_a_budget_that_is_wrong_is_refused(hosting: Hosting, budget: Any, why: str) -> None:
    host = await hosting(idle)
    with pytest.raises(InvalidParams) as refused:
        await host.default.send(_stating(saying("x"), budget), ALICE)
    assert why in refused.value.message
    assert await rows(host.node.store, "task", "id") == []


async def test_open_tasks_keep_their_budget(hosting: Hosting) -> None:
    host = await hosting(eater())
    task = await sent(host.default, within("1", maxTokens=5, configuration=AT_ONCE), ALICE)
    found = await host.default.get(GetRequest(id=task.id), ALICE)
    assert found.history[0].metadata == {"budget": {"maxTokens": 5}}


async def test_the_example_of_the_documentation(hosting: Hosting) -> None:
    from examples.agents.budget_agent import writer

    host = await hosting(writer)
    task = await sent(host.default, saying("rain wind"), ALICE)
    assert (text(task), spent(task)) == ("There is rain.\nThere is wind.\n", 128)
    task = await sent(host.default, saying("rain " * 40), ALICE)
    assert (state(task), said(task)) == (S.FAILED, "The budget of 1000 tokens is spent")
    assert len(task.artifacts[0].parts) == 15  # said while there was something left
