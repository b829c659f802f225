"""What a tenant may run at once, on all nodes together: also when they claim at the same moment, and with calls."""

from accord.storage.commands import jobs, task_lifecycle
from tests.storage.conftest import AGENT, TENANT, AnyStore, accepting, new, overlapped, postgres_only


async def claim(store: AnyStore, node: str, limit: int = 1) -> list[str]:
    return [job.key for job in await store.do(jobs.claim, node, AGENT, 10, limit)]


@postgres_only
async def test_nodes_that_claim_at_the_same_moment_count_each_other(ready: AnyStore) -> None:
    for task in ("t-1", "t-2", "t-3"):
        await ready.do(task_lifecycle.accept_task, TENANT, accepting(task))
    first, second = await overlapped(
        ready,
        lambda tx: jobs.claim(tx, "n-1", AGENT, 10, 1),
        lambda tx: jobs.claim(tx, "n-2", AGENT, 10, 1),
    )
    assert ([job.key for job in first], second) == (["t-1"], [])


async def test_jobs_waiting_for_children_do_not_count(ready: AnyStore) -> None:
    for task in ("parent", "other"):
        await ready.do(task_lifecycle.accept_task, TENANT, accepting(task))
    assert await claim(ready, "n-1") == ["parent"]
    assert await claim(ready, "n-2") == []
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("child", new=new("child", parent_id="parent")))
    assert await claim(ready, "n-2") == ["other"], "the parent waits, and the oldest comes first"
    assert await claim(ready, "n-1") == []
    assert await claim(ready, "n-1", limit=2) == ["child"]
