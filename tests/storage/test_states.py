"""What is kept of a conversation: found by its later tasks only, written under the fence, gone with its last task."""

from typing import Any

import pytest

from accord.model import TaskState
from accord.storage.commands import conversation_state, jobs, task_lifecycle, tasks
from accord.storage.commands.conversation_state import ConversationValue, ValueRevision
from accord.storage.commands.retention import purge
from accord.storage.commands.tasks import Fenced
from tests.storage.conftest import (
    AGENT,
    AT,
    OTHER,
    TENANT,
    AnyStore,
    accepting,
    new,
    overlapped,
    postgres_only,
    table,
)


def keeping(key: str, value: str, epoch: int = 1, task_id: str = "t-1") -> ConversationValue:
    return ConversationValue(task_id=task_id, epoch=epoch, key=key, value=value, at=AT)


@pytest.fixture
async def with_tasks(ready: AnyStore) -> AnyStore:
    """A store with a conversation of two tasks, and tasks that differ from them in one thing each."""
    made: dict[str, dict[str, Any]] = {
        "t-1": {},
        "t-2": {},
        "another-context": {"context_id": "c-2"},
        "another-agent": {"agent": "other"},
        "another-owner": {"owner": "bob"},
    }
    for task_id, fields in made.items():
        await ready.do(tasks.create_task, TENANT, new(task_id, state=TaskState.COMPLETED, **fields), epoch=1)
    await ready.do(tasks.create_task, OTHER, new("another-tenant"), epoch=1)
    return ready


async def test_conversation_values_are_shared_and_replaced(with_tasks: AnyStore) -> None:
    assert await with_tasks.read(conversation_state.recall_value, TENANT, "t-1", "a") is None
    await with_tasks.do(conversation_state.put_value, TENANT, keeping("a", "1"))
    await with_tasks.do(conversation_state.put_value, TENANT, keeping("b", "2"))
    await with_tasks.do(conversation_state.put_value, TENANT, keeping("a", "3", task_id="t-2"))
    for task_id in ("t-1", "t-2"):
        assert await with_tasks.read(conversation_state.recall_value, TENANT, task_id, "a") == "3"
        assert await with_tasks.read(conversation_state.recall_value, TENANT, task_id, "b") == "2"
        assert await with_tasks.read(conversation_state.recall_value, TENANT, task_id, "c") is None


async def test_values_are_updated_only_from_the_current_version(with_tasks: AnyStore) -> None:
    async def revise(before: str | None, value: str, task_id: str = "t-1") -> bool:
        revision = ValueRevision(keeping("a", value, task_id=task_id), before)
        return await with_tasks.do(conversation_state.revise_value, TENANT, revision)

    assert not await revise("0", "1"), "there is nothing to be revised"
    assert await revise(None, "1")
    assert not await revise(None, "2", "t-2")
    assert not await revise("0", "2", "t-2")
    assert await with_tasks.read(conversation_state.recall_value, TENANT, "t-1", "a") == "1"
    assert await revise("1", "1 2", "t-2")
    assert await revise("1 2", "ümläut " * 10_000, "another-context") is False
    assert await with_tasks.read(conversation_state.recall_value, TENANT, "t-1", "a") == "1 2"
    assert await with_tasks.read(conversation_state.recall_value, TENANT, "another-context", "a") is None


@postgres_only
@pytest.mark.parametrize("before", [None, "0"])
async def test_concurrent_updates_retry_once(with_tasks: AnyStore, before: str | None) -> None:
    if before is not None:
        await with_tasks.do(conversation_state.put_value, TENANT, keeping("a", before))
    outcomes = await overlapped(
        with_tasks,
        lambda tx: conversation_state.revise_value(tx, TENANT, ValueRevision(keeping("a", "one"), before)),
        lambda tx: conversation_state.revise_value(
            tx, TENANT, ValueRevision(keeping("a", "two", task_id="t-2"), before)
        ),
    )
    assert outcomes == [True, False]
    assert await with_tasks.read(conversation_state.recall_value, TENANT, "t-1", "a") == "one"


async def test_values_are_private_to_the_conversation(with_tasks: AnyStore) -> None:
    await with_tasks.do(conversation_state.put_value, TENANT, keeping("a", "mine"))
    for task_id in ("another-context", "another-agent", "another-owner", "nowhere"):
        assert await with_tasks.read(conversation_state.recall_value, TENANT, task_id, "a") is None
    assert await with_tasks.read(conversation_state.recall_value, OTHER, "another-tenant", "a") is None
    await with_tasks.do(conversation_state.put_value, OTHER, keeping("a", "theirs", task_id="another-tenant"))
    assert await with_tasks.read(conversation_state.recall_value, TENANT, "t-1", "a") == "mine"


async def test_only_the_worker_that_holds_the_task_keeps_anything(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(node="n-1"))
    await ready.do(jobs.forget_node, "n-1")
    await ready.do(jobs.claim, "n-2", AGENT, 1)
    for epoch in (0, 1, 3):
        with pytest.raises(Fenced):
            await ready.do(conversation_state.put_value, TENANT, keeping("a", "zombie", epoch))
        with pytest.raises(Fenced):
            await ready.do(conversation_state.revise_value, TENANT, ValueRevision(keeping("a", "zombie", epoch), None))
    with pytest.raises(Fenced):
        await ready.do(conversation_state.put_value, TENANT, keeping("a", "x", 0, "nowhere"))
    await ready.do(conversation_state.put_value, TENANT, keeping("a", "2", 2))
    assert await ready.read(conversation_state.recall_value, TENANT, "t-1", "a") == "2"


@postgres_only
async def test_nothing_is_kept_while_the_task_changes_hands(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(node="n-1"))
    await ready.do(jobs.forget_node, "n-1")
    _, outcome = await overlapped(
        ready,
        lambda tx: jobs.claim(tx, "n-2", AGENT, 1),
        lambda tx: conversation_state.put_value(tx, TENANT, keeping("a", "zombie")),
    )
    assert isinstance(outcome, Fenced)
    assert await ready.read(table, "context_state") == []


async def test_it_goes_with_the_last_task_of_the_conversation(with_tasks: AnyStore) -> None:
    for task_id in ("t-1", "another-context", "another-agent", "another-owner"):
        await with_tasks.do(conversation_state.put_value, TENANT, keeping("a", task_id, task_id=task_id))
    open_task = new("t-3", context_id="c-2")
    await with_tasks.do(tasks.create_task, TENANT, open_task, epoch=1)

    left = []
    while await with_tasks.do(purge, 0, 1):
        left.append({value for (value, _) in await with_tasks.read(table, "context_state", "value, key")})

    assert len(left) == 5  # one task after the other
    assert "t-1" in left[0]
    assert left[-1] == {"another-context"}, "what the open task still needs is there, and nothing else"


async def test_conversations_with_tasks_keep_their_values(with_tasks: AnyStore) -> None:
    await with_tasks.do(conversation_state.put_value, TENANT, keeping("a", "1"))
    kept = conversation_state.ConversationKey(TENANT, "c-1", AGENT, "alice")
    await with_tasks.do(conversation_state.forget_conversations, {kept})
    assert await with_tasks.read(conversation_state.recall_value, TENANT, "t-1", "a") == "1"


async def test_the_history_is_ended_tasks_oldest_first(with_tasks: AnyStore) -> None:
    for number in (3, 4):
        ended = new(f"t-{number}", state=TaskState.COMPLETED, at=AT + number)
        await with_tasks.do(tasks.create_task, TENANT, ended)
    await with_tasks.do(tasks.create_task, TENANT, new("t-5", at=AT + 5))  # which has not ended
    found = await with_tasks.read(tasks.read_conversation, TENANT, "t-2", 10)
    assert [one.id for one in found] == ["t-1", "t-3", "t-4"]
    assert [one.id for one in await with_tasks.read(tasks.read_conversation, TENANT, "t-5", 2)] == ["t-3", "t-4"]
    assert await with_tasks.read(tasks.read_conversation, TENANT, "nowhere", 2) == []
