"""Up to when schedules have been seen to."""

from accord.storage.commands import workflow_runs
from accord.storage.store import Store


async def test_new_schedules_start_now_and_known_ones_resume(ready: Store) -> None:
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


async def test_schedule_cursors_never_move_back(ready: Store) -> None:
    await ready.do(workflow_runs.schedule_positions, "flow", ["daily"], 100)
    await ready.do(workflow_runs.advance_schedule, "flow", "daily", 300)
    await ready.do(workflow_runs.advance_schedule, "flow", "daily", 200)
    assert await ready.do(workflow_runs.schedule_positions, "flow", ["daily"], 500) == {"daily": 300}
