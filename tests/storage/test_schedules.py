"""Up to when schedules have been seen to."""

from accord.storage.commands import workflow_runs
from accord.storage.store import Store


async def test_a_new_schedule_begins_now_and_a_known_one_where_it_was(ready: Store) -> None:
    assert await ready.do(workflow_runs.schedule_positions, "flow", ["daily", "hourly"], 100) == {
        "daily": 100,
        "hourly": 100,
    }
    await ready.do(workflow_runs.advance_schedule, "flow", "daily", 160)
    assert await ready.do(workflow_runs.schedule_positions, "flow", ["daily", "weekly"], 300) == {
        "daily": 160,
        "weekly": 300,
    }
    assert await ready.do(workflow_runs.schedule_positions, "other", ["daily"], 400) == {"daily": 400}


async def test_what_has_been_seen_to_is_not_unseen(ready: Store) -> None:
    await ready.do(workflow_runs.schedule_positions, "flow", ["daily"], 100)
    await ready.do(workflow_runs.advance_schedule, "flow", "daily", 300)
    await ready.do(workflow_runs.advance_schedule, "flow", "daily", 200)
    assert await ready.do(workflow_runs.schedule_positions, "flow", ["daily"], 500) == {"daily": 300}
