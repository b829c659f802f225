"""Snapshots that are remembered: only long ones, only so many, and never instead of what the store has now."""

from msgspec.structs import replace

from accord.engine.task_store import SHORT, SnapshotCache
from accord.model import Message, MessageUpdate, Part, Role, Task, TaskState, TaskStatus
from accord.storage.commands.tasks import StoredTask
from accord.storage.encoding import encode_body, encode_task
from accord.storage.store import Row

LENGTH = 2 * SHORT


def message(text: str) -> Message:
    return Message(message_id="m", role=Role.USER, parts=(Part(text=text),))


def stored(task_id: str = "t", letter: str = "x", length: int = LENGTH, events: tuple[Row, ...] = ()) -> StoredTask:
    """A task as it is kept, with a snapshot of so many characters."""
    task = Task(id=task_id, context_id="c", status=TaskStatus(state=TaskState.WORKING), history=(message(""),))
    rest = length - len(encode_task(task))
    return StoredTask(
        id=task_id,
        context_id="c",
        agent="a",
        owner="o",
        origin=None,
        parent_id=None,
        state="working",
        last_seq=len(events),
        min_seq=1,
        epoch=0,
        pushes=0,
        deadline_at=None,
        updated_at=0,
        doc_seq=0,
        doc=encode_task(replace(task, history=(message(letter * rest),))),
        events=events,
    )


def is_known(snapshots: SnapshotCache, kept: StoredTask) -> bool:
    """Whether reading a task twice gives what was decoded once."""
    first, second = (snapshots.task("acme", kept) for _ in range(2))
    assert first == second == kept.task()
    return first.history[0] is second.history[0]


def test_a_long_snapshot_is_decoded_once_and_a_short_one_not_kept() -> None:
    snapshots = SnapshotCache()
    assert is_known(snapshots, stored(length=SHORT + 1))
    assert not is_known(snapshots, stored("short", length=SHORT))
    assert snapshots.characters == SHORT + 1


def test_later_events_are_folded_onto_the_snapshot() -> None:
    snapshots = SnapshotCache()
    kind, data = encode_body(MessageUpdate(task_id="t", context_id="c", message=message("more")))
    before, after = stored(), stored(events=((1, kind, data, 0),))
    first, second = snapshots.task("acme", before), snapshots.task("acme", after)
    assert second == after.task()
    assert second.history[0] is first.history[0]
    assert snapshots.task("acme", before) == first


def test_another_snapshot_is_another_task() -> None:
    snapshots = SnapshotCache()
    for tenant, letter in (("acme", "x"), ("acme", "y"), ("globex", "z"), ("acme", "y")):
        kept = stored(letter=letter)
        assert snapshots.task(tenant, kept) == kept.task()
    assert snapshots.characters == 2 * LENGTH


def test_least_recently_read_snapshots_are_evicted() -> None:
    snapshots = SnapshotCache(3 * LENGTH)
    tasks = [stored(f"t-{number}") for number in range(4)]
    first = [snapshots.task("acme", kept) for kept in tasks[:3]]
    assert snapshots.task("acme", tasks[0]).history[0] is first[0].history[0]
    snapshots.task("acme", tasks[3])
    assert snapshots.characters == 3 * LENGTH
    again = {at: snapshots.task("acme", tasks[at]).history[0] is first[at].history[0] for at in (0, 2, 1)}
    assert again == {0: True, 2: True, 1: False}


def test_long_snapshots_are_not_cached() -> None:
    snapshots = SnapshotCache(LENGTH - 1)
    assert not is_known(snapshots, stored())
    assert snapshots.characters == 0
