"""What a run knows of its task's log: the task so far, when it is written down, and what is unread in it."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from accord.engine.log_writer import SNAPSHOT_EVENTS, SUSPENDED_SHARE, TaskLog, UnreadMessages, last_state
from accord.engine.messages import CHILD_TASK
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    EventBody,
    Message,
    MessageUpdate,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)

S = TaskState


def message(text: str, role: Role = Role.USER, **fields: object) -> Message:
    return Message(message_id=f"m-{text}", role=role, parts=(Part(text=text),), **fields)  # type: ignore[arg-type]


def heard(text: str) -> MessageUpdate:
    return MessageUpdate(task_id="t", context_id="c", message=message(text))


def status(state: TaskState, text: str | None = None) -> StatusUpdate:
    said = None if text is None else message(text, Role.AGENT)
    return StatusUpdate(task_id="t", context_id="c", status=TaskStatus(state=state, message=said))


def chunk(text: str) -> ArtifactUpdate:
    artifact = Artifact(artifact_id="a", parts=(Part(text=text),))
    return ArtifactUpdate(task_id="t", context_id="c", artifact=artifact, append=True)


def turn(number: int) -> list[EventBody]:
    """What an answer and the next question add to a log."""
    return [status(S.WORKING), heard(f"{number}"), status(S.INPUT_REQUIRED, f"{number}?")]


def new(seq: int = 0, kept: int = 0) -> TaskLog:
    task = Task(id="t", context_id="c", status=TaskStatus(state=S.WORKING), history=(message("first"),))
    return TaskLog(task, seq, kept)


def ids(history: Sequence[Message]) -> list[str]:
    return [said.message_id for said in history]


# --- the task so far ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [False, True])
def test_the_task_includes_uncommitted_events(*, ends: bool) -> None:
    log = new()
    assert ids(log.after([]).history) == ["m-first"]
    assert ids(log.after([heard("a")]).history) == ["m-first", "m-a"]
    bodies: list[EventBody] = [heard("a"), status(S.WORKING, "b")]
    log.snapshot(bodies, ends=ends)
    log.committed(bodies)
    log.caught_up([Event(seq=3, body=heard("c"))])
    assert log.seq == 3
    assert ids(log.after([status(S.WORKING), heard("d")]).history) == ["m-first", "m-a", "m-c", "m-b", "m-d"]
    assert [log.message_at(at).message_id for at in range(3)] == ["m-first", "m-a", "m-c"]


def test_failed_commits_leave_the_log_unchanged() -> None:
    log = new()
    assert log.snapshot([heard("a")], ends=True) is not None
    assert (log.seq, ids(log.after([]).history)) == (0, ["m-first"])
    assert log.snapshot([heard("b")]) is None
    log.committed([heard("b")])
    assert (log.seq, ids(log.after([]).history)) == (1, ["m-first", "m-b"])


def test_the_last_state_is_that_of_the_last_status() -> None:
    assert last_state([status(S.WORKING), status(S.COMPLETED), chunk("x")]) is S.COMPLETED
    assert last_state([chunk("x")]) is None


# --- when it is written down --------------------------------------------------------------------------------------


def written(log: TaskLog, batches: Sequence[Sequence[EventBody]], *, suspends: bool = False) -> list[int]:
    """Commit batches and return the numbers of the events after which the task was written down."""
    found = []
    for bodies in batches:
        fresh = log.snapshot(bodies, suspends=suspends)
        log.committed(bodies)
        if fresh is not None:
            assert fresh == log.after([])
            found.append(log.seq)
    return found


def test_a_stream_is_written_down_whenever_it_has_doubled() -> None:
    chunks = [[chunk("x")]] * (8 * SNAPSHOT_EVENTS)
    assert written(new(), chunks) == [SNAPSHOT_EVENTS * times for times in (1, 2, 4, 8)]


def test_a_task_that_ends_is_written_down() -> None:
    assert new().snapshot([status(S.COMPLETED)], ends=True) is not None
    assert new(seq=1000, kept=1000).snapshot([], ends=True) is not None


def test_a_short_talk_is_written_down_with_every_turn() -> None:
    turns = [turn(number) for number in range(10)]
    assert written(new(), turns, suspends=True) == [3 * number for number in range(1, 11)]


def test_a_task_that_suspends_unchanged_is_not_written_down_again() -> None:
    assert new(seq=5, kept=5).snapshot([], suspends=True) is None
    assert new(seq=5, kept=4).snapshot([], suspends=True) is not None


def test_snapshots_are_written_after_a_sixteenth_of_growth() -> None:
    seqs = written(new(), [turn(number) for number in range(2000)], suspends=True)
    for before, after in pairwise(seqs):
        assert before / SUSPENDED_SHARE - 1 <= after - before <= before / SUSPENDED_SHARE + 3
    assert sum(seqs) <= 2 * SUSPENDED_SHARE * 6000, "what is written is linear in what is said"


def test_unsaved_events_of_earlier_executions_count() -> None:
    assert new(seq=169, kept=160).snapshot([status(S.INPUT_REQUIRED)], suspends=True) is not None
    assert new(seq=168, kept=160).snapshot([status(S.INPUT_REQUIRED)], suspends=True) is None
    assert new(seq=199, kept=100).snapshot([chunk("x")]) is not None
    assert new(seq=198, kept=100).snapshot([chunk("x")]) is None


# --- what is unread -----------------------------------------------------------------------------------------------

HISTORY = (
    message("before"),
    message("turn"),
    message("a"),
    message("says", Role.AGENT),
    message("b"),
    message("c"),
)


def test_later_messages_are_consumed_once_oldest_first() -> None:
    unread = UnreadMessages("m-turn", HISTORY, {})
    assert [unread.take(HISTORY) for _ in range(4)] == [2, 4, 5, None]
    assert unread.take((*HISTORY, message("a"))) == 6, "whose ids may repeat"


def test_messages_consumed_by_earlier_executions_are_read() -> None:
    taken = {"m-turn/ask:1": "2", "m-turn/ask:name": "5"}
    others = {"m-before/ask:1": "4", "m-turn/sleep:1": "4", "wait:name": "4", "m-turn/ask:1/step:x": '"4"'}
    unread = UnreadMessages("m-turn", HISTORY, taken | others)
    assert [unread.take(HISTORY) for _ in range(2)] == [4, None]


def test_a_turn_whose_message_is_not_there_began_with_the_first() -> None:
    assert UnreadMessages("m-gone", HISTORY, {}).take(HISTORY) == 1


def test_answers_to_forwarded_questions_belong_to_the_child() -> None:
    asked = message("of a child", Role.AGENT, metadata={CHILD_TASK: "t-2"})
    history = (message("turn"), asked, message("for it"), message("for us"))
    assert UnreadMessages("m-turn", history, {}).take(history) == 3
