"""The lifecycle: the whole transition table, artifacts chunk by chunk, history limits, and fold = apply repeated."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    Message,
    MessageUpdate,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.protocol import lifecycle
from accord.protocol.lifecycle import ENDED, TERMINAL, TRANSITIONS, IllegalTransition, TaskEnded, WrongTask, apply, fold
from tests import strategies

S = TaskState
AT = "2024-01-01T00:00:00.000Z"


def message(name: str, role: Role = Role.AGENT) -> Message:
    return Message(message_id=name, role=role, parts=(Part(text=name),))


def task(state: TaskState = S.WORKING, said: str | None = None) -> Task:
    return Task(id="t", context_id="c", status=TaskStatus(state=state, message=message(said) if said else None))


def status(state: TaskState, said: str | None = None) -> StatusUpdate:
    found = TaskStatus(state=state, timestamp=AT, message=message(said) if said else None)
    return StatusUpdate(task_id="t", context_id="c", status=found)


def chunk(text: str, *, append: bool = True, artifact_id: str = "a", **more) -> ArtifactUpdate:
    artifact = Artifact(artifact_id=artifact_id, parts=(Part(text=text),), **more)
    return ArtifactUpdate(task_id="t", context_id="c", artifact=artifact, append=append)


def texts(found: Task) -> list[list[str | None]]:
    return [[part.text for part in artifact.parts] for artifact in found.artifacts]


# The table of C-04, spelt out a second time so that a slip in either is seen.
NON_END = {S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED, S.AUTH_REQUIRED}
ALLOWED = (
    {(S.SUBMITTED, to) for to in (S.WORKING, S.INPUT_REQUIRED, S.AUTH_REQUIRED)}
    | {(S.WORKING, S.INPUT_REQUIRED), (S.WORKING, S.AUTH_REQUIRED)}
    | {(S.INPUT_REQUIRED, S.WORKING), (S.AUTH_REQUIRED, S.WORKING)}
    | {(before, end) for before in NON_END for end in (S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED, S.UNKNOWN)}
    | {(S.UNKNOWN, end) for end in (S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED)}
    | {(state, state) for state in S}
)


@pytest.mark.proves("C-04", "0-35", "0-37", "3-30")
@pytest.mark.parametrize("before", S)
@pytest.mark.parametrize("after", S)
def test_every_pair_of_states(before: TaskState, after: TaskState) -> None:
    if (before, after) in ALLOWED:
        assert apply(task(before), status(after)).status.state is after
        return
    with pytest.raises(IllegalTransition, match=f"{before.name} to {after.name}"):
        apply(task(before), status(after))


@pytest.mark.proves("C-04")
@pytest.mark.parametrize("state", [state for state in S if state in TERMINAL])
def test_repeating_a_terminal_state_changes_nothing(state: TaskState) -> None:
    ended = task(state, said="first")
    assert apply(ended, status(state, said="again")) is ended


@pytest.mark.proves("C-04")
def test_nothing_joins_or_revives_a_task_that_has_ended() -> None:
    ended = task(S.COMPLETED)
    said = MessageUpdate(task_id="t", context_id="c", message=message("late"))
    for body in (chunk("late"), chunk("late", append=False), said):
        with pytest.raises(TaskEnded, match="COMPLETED"):
            apply(ended, body)
        with pytest.raises(TaskEnded):
            fold(ended, [Event(seq=1, body=body)])
    with pytest.raises(IllegalTransition):
        apply(ended, task(S.SUBMITTED))
    newer = Task(id="t", status=TaskStatus(state=S.COMPLETED, timestamp=AT))
    assert apply(ended, newer) == newer


@pytest.mark.proves("3-31", "B-05")
def test_unknown_ends_waits_but_a_late_report_may_leave_it() -> None:
    assert S.UNKNOWN in ENDED
    assert S.UNKNOWN not in TERMINAL
    assert apply(task(S.UNKNOWN), status(S.COMPLETED)).status.state is S.COMPLETED
    assert all(TRANSITIONS[state] == {state} for state in TERMINAL)


def test_a_new_status_moves_the_old_one_s_message_into_the_history() -> None:
    asked = apply(task(S.WORKING, said="thinking"), status(S.INPUT_REQUIRED, said="which?"))
    assert [entry.message_id for entry in asked.history] == ["thinking"]
    said = MessageUpdate(task_id="t", context_id="c", message=message("this one", Role.USER))
    done = apply(apply(apply(asked, said), status(S.WORKING)), status(S.COMPLETED))
    assert [entry.message_id for entry in done.history] == ["thinking", "this one", "which?"]


@pytest.mark.proves("3-29")
def test_an_artifact_is_made_extended_and_replaced() -> None:
    found = apply(task(), chunk("one ", append=False, name="n", metadata={"a": 1}))
    found = apply(found, chunk("two", description="d", metadata={"b": 2}, extensions=("e",)))
    assert texts(found) == [["one ", "two"]]
    artifact = found.artifacts[0]
    assert (artifact.name, artifact.description, artifact.metadata) == ("n", "d", {"a": 1, "b": 2})
    assert artifact.extensions == ("e",)
    found = apply(found, chunk("second", append=False, artifact_id="b"))
    found = apply(found, chunk("anew", append=False))
    assert texts(found) == [["anew"], ["second"]]
    assert found.artifacts[0].name is None


def test_a_chunk_of_an_artifact_nobody_has_seen_begins_it() -> None:
    assert texts(apply(task(), chunk("late"))) == [["late"]]


def test_events_of_another_task_are_refused() -> None:
    for body in (
        StatusUpdate(task_id="other", context_id="c", status=TaskStatus(state=S.WORKING)),
        MessageUpdate(task_id="other", context_id="c", message=message("m")),
        chunk("x").__class__(task_id="other", context_id="c", artifact=chunk("x").artifact, append=True),
        Task(id="other", status=TaskStatus(state=S.WORKING)),
        message("m"),
    ):
        with pytest.raises(WrongTask):
            apply(task(), body)
        with pytest.raises(WrongTask):
            fold(task(), [Event(seq=1, body=body)])


@pytest.mark.proves("CORE-HIST-001", "CORE-HIST-002")
@pytest.mark.parametrize(("length", "left"), [(None, "abc"), (0, ""), (1, "c"), (2, "bc"), (3, "abc"), (9, "abc")])
def test_history_limits(length: int | None, left: str) -> None:
    long = Task(id="t", status=TaskStatus(state=S.WORKING), history=tuple(message(name) for name in "abc"))
    limited = lifecycle.limit_history(long, length)
    assert "".join(entry.message_id for entry in limited.history) == left
    assert len(long.history) == 3


def chunk_of(update: ArtifactUpdate) -> ArtifactUpdate:
    artifact = Artifact(
        artifact_id=update.artifact.artifact_id[:1],
        parts=update.artifact.parts,
        name=update.artifact.name,
        metadata=update.artifact.metadata,
        extensions=update.artifact.extensions,
    )
    return ArtifactUpdate(task_id="t", context_id="c", artifact=artifact, append=update.append)


owned_bodies = st.one_of(
    strategies.artifact_updates.map(chunk_of),
    st.just(status(S.WORKING, said="w")),
    strategies.messages.map(lambda said: MessageUpdate(task_id="t", context_id="c", message=said)),
)


@given(st.lists(owned_bodies, max_size=12))
def test_fold_is_apply_repeated(bodies: list) -> None:
    events = [Event(seq=seq, body=body) for seq, body in enumerate(bodies, 1)]
    assert fold(task(), events) == reduce(apply, bodies, task())


def test_folding_many_chunks_keeps_all_in_order() -> None:
    events = [Event(seq=seq, body=chunk(str(seq))) for seq in range(1, 5001)]
    folded = fold(task(), events)
    assert texts(folded) == [[str(seq) for seq in range(1, 5001)]]
