"""Steps: kept once, under the fence, for their own task."""

import pytest

from accord.storage.commands import jobs, steps, task_lifecycle, tasks
from accord.storage.commands.steps import StepResult
from accord.storage.commands.tasks import Fenced
from tests.storage.conftest import AGENT, AT, OTHER, TENANT, AnyStore, accepting, new, overlapped, postgres_only


def step(key: str, output: str, epoch: int = 1, task_id: str = "t-1") -> StepResult:
    return StepResult(task_id=task_id, epoch=epoch, key=key, output=output, at=AT)


@pytest.fixture
async def with_tasks(ready: AnyStore) -> AnyStore:
    """A store in which two tenants have the same two tasks."""
    for tenant in (TENANT, OTHER):
        for task_id in ("t-1", "t-2"):
            await ready.do(tasks.create_task, tenant, new(task_id), epoch=1)
    return ready


async def test_a_step_is_kept_once(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new(), epoch=1)
    assert await ready.do(steps.put_step, TENANT, "t-1", "a", "1", AT) is True
    assert await ready.do(steps.put_step, TENANT, "t-1", "a", "2", AT) is False
    await ready.do(steps.commit_step, TENANT, step("a", "3"))
    await ready.do(steps.commit_step, TENANT, step("b", "4"))
    await ready.do(steps.commit_step, TENANT, step("b", "5"))
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"a": "1", "b": "4"}
    assert await ready.read(steps.find_step, TENANT, "t-1", "a") == "1"
    assert await ready.read(steps.find_step, TENANT, "t-1", "c") is None


async def test_steps_belong_to_one_task_of_one_tenant(with_tasks: AnyStore) -> None:
    await with_tasks.do(steps.commit_step, TENANT, step("a", "mine"))
    await with_tasks.do(steps.put_step, OTHER, "t-2", "a", "theirs", AT)
    assert await with_tasks.read(steps.load_steps, TENANT, "t-1") == {"a": "mine"}
    assert await with_tasks.read(steps.load_steps, OTHER, "t-2") == {"a": "theirs"}
    for tenant, task_id in ((TENANT, "t-2"), (OTHER, "t-1")):
        assert await with_tasks.read(steps.load_steps, tenant, task_id) == {}
        assert await with_tasks.read(steps.find_step, tenant, task_id, "a") is None


async def test_only_the_worker_that_holds_the_task_commits_a_step(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(node="n-1"))
    await ready.do(jobs.forget_node, "n-1")
    await ready.do(steps.commit_step, TENANT, step("a", "1"))
    await ready.do(jobs.claim, "n-2", AGENT, 1)
    for epoch in (0, 1, 3):
        with pytest.raises(Fenced):
            await ready.do(steps.commit_step, TENANT, step("b", "zombie", epoch))
    with pytest.raises(Fenced):
        await ready.do(steps.commit_step, TENANT, step("b", "x", 0, "nowhere"))
    with pytest.raises(Fenced):
        await ready.do(steps.commit_step, OTHER, step("b", "x", 2))
    await ready.do(steps.commit_step, TENANT, step("b", "2", 2))
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"a": "1", "b": "2"}


@postgres_only
async def test_a_step_is_not_committed_while_the_task_changes_hands(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(node="n-1"))
    await ready.do(jobs.forget_node, "n-1")
    _, outcome = await overlapped(
        ready,
        lambda tx: jobs.claim(tx, "n-2", AGENT, 1),
        lambda tx: steps.commit_step(tx, TENANT, step("a", "zombie")),
    )
    assert isinstance(outcome, Fenced)
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {}
