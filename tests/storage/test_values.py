"""Values that not every engine can keep are refused by all, and alike; what only looks like one is kept."""

import pytest

from accord.storage.commands import steps, tasks
from accord.storage.store import BadValue, Tx
from tests.storage.conftest import AT, TENANT, AnyStore, appending, chunk, new

BAD_TEXT = ["\0", "in the\0middle", "half a pair \ud83d"]


@pytest.mark.parametrize("text", BAD_TEXT)
async def test_text_that_cannot_be_kept_is_refused_and_leaves_nothing(ready: AnyStore, text: str) -> None:
    await ready.do(steps.put_step, TENANT, "t-1", "good", "before", AT)

    async def put_twice(tx: Tx) -> None:
        await steps.put_step(tx, TENANT, "t-1", "also good", "{}", AT)
        await steps.put_step(tx, TENANT, "t-1", text, "{}", AT)

    async def put_many(tx: Tx) -> None:
        rows = [{"key": "also good"}, {"key": text}]
        await tx.many("INSERT INTO step (tenant, task_id, key, output, at) VALUES ('a', 'b', :key, '', 1)", rows)

    for command in (put_twice, put_many):
        with pytest.raises(BadValue):
            await ready.do(command)
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"good": "before"}


@pytest.mark.parametrize("text", BAD_TEXT)
async def test_nothing_is_found_by_such_text_either(ready: AnyStore, text: str) -> None:
    with pytest.raises(BadValue):
        await ready.read(tasks.read_task, TENANT, text)
    assert await ready.read(tasks.read_task, TENANT, "t-1") is None


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
async def test_a_number_beyond_64_bits_is_refused(ready: AnyStore, number: int) -> None:
    with pytest.raises(BadValue):
        await ready.do(steps.put_step, TENANT, "t-1", "key", "{}", number)
    await ready.do(steps.put_step, TENANT, "t-1", "key", "{}", 2**63 - 1)


async def test_agent_text_may_contain_anything(ready: AnyStore) -> None:
    text = "\0 and \U0001f600, kept as JSON"
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(tasks.append, TENANT, appending("t-1", chunk(text)))
    stored = await ready.read(tasks.read_task, TENANT, "t-1")
    assert stored is not None
    assert stored.task().artifacts[0].parts[0].text == text
