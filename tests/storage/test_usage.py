"""What tasks use: counted once for each step, for every task above, under the fence; too much ends the topmost."""

import asyncio

import pytest
from msgspec.structs import replace

from accord.model import TaskState
from accord.protocol.budgets import Budget, BudgetAccount, TokenUsage, TotalUsage
from accord.storage.commands import steps, task_endings, task_lifecycle
from accord.storage.commands.steps import ParentExecution, RemoteUsage, UsageRequest
from accord.storage.commands.tasks import Fenced
from tests.storage.conftest import AT, BOUND_SECONDS, TENANT, AnyStore, accepting, claimed, postgres_only, stored

S = TaskState


def spending(task_id: str = "t-1", epoch: int = 1, step: str = "usage:1", **fields: object) -> UsageRequest:
    given = {"use": TokenUsage(input_tokens=3, output_tokens=1, cost=0.5), "budget": Budget(), "at": AT + 9, **fields}
    return UsageRequest(task_id=task_id, epoch=epoch, step=step, **given)  # type: ignore[arg-type]


async def account(store: AnyStore, task_id: str = "t-1") -> BudgetAccount:
    return await store.read(steps.read_account, TENANT, task_id)


def calling(parent: ParentExecution, task_id: str) -> task_lifecycle.AcceptRequest:
    """A message that makes a child."""
    made = accepting(task_id, node="n-1", parent=parent)
    return replace(made, new=replace(made.new, parent_id=parent.task_id))


async def family(store: AnyStore, *budgets: Budget) -> None:
    """Tasks t-1, t-2 ... each called by the one before, with the budget of its place; a node holds them all."""
    await store.do(task_lifecycle.accept_task, TENANT, accepting("t-1", node="n-1"))
    for number, budget in enumerate(budgets[:-1], 1):
        parent = ParentExecution(task_id=f"t-{number}", epoch=1, step=f"child:{number}", budget=budget)
        await store.do(task_lifecycle.accept_task, TENANT, calling(parent, f"t-{number + 1}"))


async def test_a_use_counts_once_for_each_step(ready: AnyStore) -> None:
    await family(ready, Budget())
    first = await ready.do(task_endings.charge_usage, TENANT, spending(model="small"))
    again = await ready.do(task_endings.charge_usage, TENANT, spending(model="small"))
    used = TokenUsage(input_tokens=3, output_tokens=1, cost=0.5)
    assert (first.counted, again.counted, first.over) == (((used, "small"),), (), None)
    assert first.account == again.account == await account(ready)
    more = await ready.do(task_endings.charge_usage, TENANT, spending(step="usage:2"))
    assert more.account.used == TokenUsage(input_tokens=6, output_tokens=2, cost=1.0)
    assert more.account.models == {"small": TokenUsage(input_tokens=3, output_tokens=1, cost=0.5)}


async def test_budget_left_is_the_least_of_the_task_and_its_parents(ready: AnyStore) -> None:
    await family(ready, Budget(max_tokens=10), Budget())
    await ready.do(task_endings.charge_usage, TENANT, spending("t-1"))
    own = Budget(max_tokens=100, max_cost=2.0)
    await ready.do(task_endings.charge_usage, TENANT, spending("t-2", step="usage:2", budget=own))
    assert await ready.read(steps.remaining_budget, TENANT, "t-1") == Budget(max_tokens=2)
    assert await ready.read(steps.remaining_budget, TENANT, "t-2") == Budget(max_tokens=2, max_cost=1.5)
    assert await ready.read(steps.remaining_budget, TENANT, "t-none") == Budget()


async def test_fenced_executions_count_no_usage(ready: AnyStore) -> None:
    await family(ready, Budget())
    for lost in (spending(epoch=2), spending("t-none")):
        with pytest.raises(Fenced):
            await ready.do(task_endings.charge_usage, TENANT, lost)
    assert await account(ready) == BudgetAccount()


async def test_usage_counts_for_all_ancestors_only(ready: AnyStore) -> None:
    await family(ready, Budget(), Budget(), Budget())
    await ready.do(task_endings.charge_usage, TENANT, spending("t-2"))
    found = [(await account(ready, f"t-{number}")).used.tokens for number in (1, 2, 3)]
    assert found == [4, 4, 0]


async def test_the_topmost_that_has_used_too_much_ends_with_all_below(ready: AnyStore) -> None:
    await family(ready, Budget(max_tokens=100), Budget(max_tokens=3), Budget(max_tokens=2))
    spent = await ready.do(task_endings.charge_usage, TENANT, spending("t-3", budget=Budget(max_tokens=2)))
    assert spent.over == "The budget of 3 tokens is spent"
    found = [await stored(ready, f"t-{number}") for number in (1, 2, 3)]
    assert [one.task_state for one in found] == [S.SUBMITTED, S.FAILED, S.CANCELED]
    assert [(one.task().metadata or {}).get("usage", {}).get("totalTokens") for one in found] == [None, 4, 4]
    with pytest.raises(Fenced):
        await ready.do(task_endings.charge_usage, TENANT, spending("t-3", step="usage:2"))


async def test_ended_tasks_count_usage_without_ending_again(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    job = await claimed(ready)
    over = spending(epoch=job.epoch, budget=Budget(max_tokens=1))
    assert (await ready.do(task_endings.charge_usage, TENANT, over)).over is not None
    ended = await stored(ready)
    later = replace(over, epoch=ended.epoch, step="usage:2")
    assert (await ready.do(task_endings.charge_usage, TENANT, later)).over is None
    assert (await stored(ready)).last_seq == ended.last_seq


async def test_a_budget_only_becomes_tighter(ready: AnyStore) -> None:
    await family(ready, Budget())
    for budget in (Budget(), Budget(max_tokens=5), Budget(max_tokens=9, max_cost=2), Budget(max_cost=3)):
        await ready.do(steps.tighten_budget, TENANT, "t-1", budget, AT)
    assert (await account(ready)).budget == Budget(max_tokens=5, max_cost=2)


@postgres_only
async def test_siblings_that_spend_at_the_same_time_lose_nothing(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1", node="n-1"))
    children = [f"t-c{number}" for number in range(4)]
    for child in children:
        parent = ParentExecution(task_id="t-1", epoch=1, step=f"child:{child}")
        await ready.do(task_lifecycle.accept_task, TENANT, calling(parent, child))
    async with asyncio.timeout(BOUND_SECONDS):
        await asyncio.gather(
            *(
                ready.do(task_endings.charge_usage, TENANT, spending(child, step=f"usage:{number}"))
                for number in range(5)
                for child in children
            )
        )
    assert (await account(ready)).used.tokens == 4 * 20
    assert {(await account(ready, child)).used.tokens for child in children} == {20}


async def test_a_line_is_locked_from_the_top(ready: AnyStore) -> None:
    await family(ready, Budget(), Budget(), Budget())
    line = await ready.do(steps.lock_ancestors, TENANT, "t-3")
    assert [head.id for head in line] == ["t-1", "t-2", "t-3"]
    assert await ready.do(steps.lock_ancestors, TENANT, "t-none") == []
    charged = await ready.do(steps.charge_accounts, TENANT, line, spending("t-3", budget=Budget(max_tokens=9)))
    assert charged is not None
    assert charged.uses == ((spending().use, None),)
    assert [one.used.tokens for one in charged.accounts] == [4, 4, 4]
    assert [one.budget.max_tokens for one in charged.accounts] == [None, None, 9]
    assert await ready.do(steps.charge_accounts, TENANT, line, spending("t-3")) is None
    assert await ready.read(steps.read_account, TENANT, "t-3") == charged.accounts[-1]


# --- what agents elsewhere say -----------------------------------------------------------------------------------


def telling(tokens: int, task_id: str = "t-1") -> RemoteUsage:
    """An agent elsewhere that has used so many tokens in all."""
    return RemoteUsage(task_id=task_id, name="r-1", total=TotalUsage(input_tokens=tokens), at=AT + 9)


async def test_remote_usage_counts_as_a_sum_for_ancestors(ready: AnyStore) -> None:
    await family(ready, Budget(), Budget())
    for tokens, counted in ((3, 3), (3, 0), (5, 2), (4, 0)):
        heard = await ready.do(task_endings.charge_remote_usage, TENANT, telling(tokens, "t-2"))
        assert [use.input_tokens for use, _ in heard.counted] == ([counted] if counted else [])
        assert heard.over is None
    assert [(await account(ready, one)).used.tokens for one in ("t-1", "t-2")] == [5, 5]


async def test_excess_remote_usage_ends_the_root_task(ready: AnyStore) -> None:
    await family(ready, Budget(max_tokens=4), Budget())
    await ready.do(task_endings.charge_usage, TENANT, spending("t-1", budget=Budget(max_tokens=4)))
    heard = await ready.do(task_endings.charge_remote_usage, TENANT, telling(1, "t-2"))
    assert heard.over == "The budget of 4 tokens is spent"
    assert [(await stored(ready, one)).task_state for one in ("t-1", "t-2")] == [S.FAILED, S.CANCELED]


async def test_a_task_that_is_gone_is_not_counted_for(ready: AnyStore) -> None:
    assert await ready.do(steps.charge_remote_total, TENANT, [], telling(3)) is None
    assert await account(ready) == BudgetAccount()
