"""The lifecycle: the whole transition table, artifacts chunk by chunk, history limits, and fold = apply repeated."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

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
from tests.cases import each

S = TaskState
AT = "2024-01-01T00:00:00.000Z"


def message(name: str, role: Role = Role.AGENT) -> Message:
    return Message(message_id=name, role=role, parts=(Part(text=name),))


def task(state: TaskState = S.WORKING, said: str | None = None) -> Task:
    return Task(id="t", context_id="c", status=TaskStatus(state=state, message=message(said) if said else None))


def status(state: TaskState, said: str | None = None) -> StatusUpdate:
    found = TaskStatus(state=state, timestamp=AT, message=message(said) if said else None)
    return StatusUpdate(task_id="t", context_id="c", status=found)


def chunk(
    text: str, *, append: bool = True, artifact_id: str = "a", last_chunk: bool = False, **more: Any
) -> ArtifactUpdate:
    artifact = Artifact(artifact_id=artifact_id, parts=(Part(text=text),), **more)
    return ArtifactUpdate(task_id="t", context_id="c", artifact=artifact, append=append, last_chunk=last_chunk)


def said(name: str) -> MessageUpdate:
    return MessageUpdate(task_id="t", context_id="c", message=message(name))


def logged(bodies: list[Any]) -> list[Event]:
    return [Event(seq=seq, body=body) for seq, body in enumerate(bodies, 1)]


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
@each("before", S)
@each("after", S)
def test_every_pair_of_states(before: TaskState, after: TaskState) -> None:
    if (before, after) in ALLOWED:
        assert apply(task(before), status(after)).status.state is after
        return
    with pytest.raises(IllegalTransition, match=f"{before.name} to {after.name}"):
        apply(task(before), status(after))


@pytest.mark.proves("C-04")
@pytest.mark.parametrize("state", [S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED, S.UNKNOWN])
def test_repeating_an_end_changes_nothing(state: TaskState) -> None:
    ended = task(state, said="first")
    assert apply(ended, status(state, said="again")) is ended


@pytest.mark.proves("C-04")
@pytest.mark.parametrize("state", [S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED, S.AUTH_REQUIRED])
def test_repeating_any_other_state_is_progress(state: TaskState) -> None:
    again = apply(task(state, said="first"), status(state, said="again"))
    assert again.status == status(state, said="again").status
    assert again.history == (message("first"),)


@pytest.mark.proves("C-04", "B-05")
def test_late_reports_keep_earlier_content() -> None:
    lost = task(S.UNKNOWN, said="no answer")
    found = fold(lost, logged([status(S.UNKNOWN, said="still none"), chunk("late"), status(S.COMPLETED)]))
    assert found.status.state is S.COMPLETED
    assert found.history == (message("no answer"),)
    assert texts(found) == [["late"]]


@pytest.mark.proves("C-04")
def test_nothing_joins_or_revives_a_task_that_has_ended() -> None:
    ended = task(S.COMPLETED)
    for body in (chunk("late"), chunk("late", append=False), said("late")):
        with pytest.raises(TaskEnded, match="COMPLETED"):
            apply(ended, body)
        with pytest.raises(TaskEnded):
            fold(task(), logged([status(S.COMPLETED), body]))
    for revived in (task(S.SUBMITTED), status(S.WORKING)):
        with pytest.raises(IllegalTransition, match="COMPLETED to"):
            apply(ended, revived)
        with pytest.raises(IllegalTransition, match="COMPLETED to"):
            fold(task(), logged([status(S.COMPLETED), revived]))
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
    answer = MessageUpdate(task_id="t", context_id="c", message=message("this one", Role.USER))
    done = apply(apply(apply(asked, answer), status(S.WORKING)), status(S.COMPLETED))
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


def test_first_chunks_create_the_artifact() -> None:
    assert texts(apply(task(), chunk("late"))) == [["late"]]


def test_an_empty_text_begins_an_artifact_and_adds_nothing_to_one() -> None:
    end = chunk("", last_chunk=True)
    assert texts(fold(task(), logged([chunk("one"), end]))) == [["one"]]
    assert texts(fold(task(), logged([chunk("one"), end, chunk("two"), end]))) == [["one", "two"]]
    assert texts(fold(task(), logged([end, chunk("one")]))) == [["", "one"]]
    assert texts(fold(task(), logged([end, end]))) == [[""]]


@pytest.mark.proves("3-29")
def test_the_last_chunk_closes_nothing() -> None:
    """Nothing records it: a chunk after it is added, and replacing starts anew, as at any other time."""
    whole = fold(task(), logged([chunk("one", append=False), chunk("two", last_chunk=True)]))
    assert texts(apply(whole, chunk("three"))) == [["one", "two", "three"]]
    assert texts(apply(whole, chunk("anew", append=False))) == [["anew"]]
    again = [chunk(text, last_chunk=True) for text in ("one", "two", "three")]
    assert texts(fold(task(), logged(again))) == [["one", "two", "three"]]


def test_a_whole_task_takes_the_place_of_all_before_it() -> None:
    whole = replace(task(said="whole"), artifacts=(chunk("sent").artifact,))
    log = [chunk("old", append=False), said("old"), status(S.WORKING, said="old"), whole, chunk("new"), said("new")]
    found = fold(task(), logged(log))
    assert texts(found) == [["sent", "new"]]
    assert (found.history, found.status) == ((message("new"),), whole.status)


@pytest.mark.parametrize("append", [True, False])
def test_of_two_artifacts_that_share_an_id_the_first_changes(append: bool) -> None:
    twins = tuple(chunk(text).artifact for text in ("first", "second"))
    found = apply(Task(id="t", status=TaskStatus(state=S.WORKING), artifacts=twins), chunk("new", append=append))
    assert texts(found) == [["first", "new"] if append else ["new"], ["second"]]


def test_a_chunk_without_a_name_leaves_the_name() -> None:
    named = chunk("one", append=False, name="n", description="d", metadata={"k": 1}, extensions=("e", "f"))
    plain = chunk("two", name="", metadata={"k": 2}, extensions=("f", "g"))
    found = fold(task(), logged([named, plain])).artifacts[0]
    assert (found.name, found.description) == ("n", "d")
    assert (found.metadata, found.extensions) == ({"k": 2}, ("e", "f", "g"))
    assert named.artifact.metadata == {"k": 1}


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


# Few ids, so that the updates of a log meet each other.
met_artifacts = st.builds(replace, strategies.artifacts, artifact_id=st.sampled_from("ab"))
artifact_bodies = st.builds(
    replace, strategies.artifact_updates, task_id=st.just("t"), context_id=st.just("c"), artifact=met_artifacts
)
owned_bodies = st.one_of(
    artifact_bodies,
    st.sampled_from([status(S.WORKING, said="w"), status(S.WORKING), status(S.UNKNOWN, said="lost")]),
    strategies.messages.map(lambda found: MessageUpdate(task_id="t", context_id="c", message=found)),
    met_artifacts.map(lambda found: replace(task(said="whole"), artifacts=(found,))),
)


def accepted(bodies: list[Any]) -> list[Event]:
    """Return the log that a task makes of events: those it refuses are left out."""
    found, log = task(), []
    for body in bodies:
        try:
            found = apply(found, body)
        except IllegalTransition:
            continue
        log.append(body)
    return logged(log)


@given(st.lists(owned_bodies, max_size=12).map(accepted))
def test_fold_is_apply_repeated(log: list[Event]) -> None:
    assert fold(task(), log) == reduce(apply, [event.body for event in log], task())


@given(st.lists(owned_bodies, max_size=8).map(accepted))
def test_a_snapshot_may_be_cut_anywhere(log: list[Event]) -> None:
    whole = fold(task(), log)
    for cut in range(len(log) + 1):
        assert fold(fold(task(), log[:cut]), log[cut:]) == whole


@given(st.lists(artifact_bodies, max_size=8))
def test_the_last_chunk_changes_nothing_in_the_task(bodies: list[ArtifactUpdate]) -> None:
    unmarked = [replace(body, last_chunk=False) for body in bodies]
    assert fold(task(), logged(bodies)) == fold(task(), logged(unmarked))


@given(st.lists(owned_bodies, max_size=8).map(accepted))
def test_folding_changes_neither_the_task_nor_the_log(log: list[Event]) -> None:
    begun = fold(task(), log[:4])
    before = msgspec.json.encode((begun, log))
    fold(begun, log[4:])
    assert msgspec.json.encode((begun, log)) == before


def test_folding_nothing_gives_the_same_task() -> None:
    begun = task(said="hi")
    assert fold(begun, []) is begun


def test_folding_many_chunks_keeps_all_in_order() -> None:
    folded = fold(task(), logged([chunk(str(seq)) for seq in range(1, 5001)]))
    assert texts(folded) == [[str(seq) for seq in range(1, 5001)]]


class CountedId(str):
    """An id that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedId.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


LONG_LOGS: dict[str, Callable[[int], Any]] = {
    "artifacts": lambda at: chunk("x", append=False, artifact_id=CountedId(f"a{at}")),
    "artifacts that begin with a chunk": lambda at: chunk("x", artifact_id=CountedId(f"a{at}")),
    "an artifact replaced": lambda at: chunk("x", append=False, artifact_id=CountedId("a")),
    "chunks of one artifact": lambda at: chunk("x", artifact_id=CountedId("a")),
    "chunks of three artifacts in turn": lambda at: chunk("x", artifact_id=CountedId(f"a{at % 3}")),
    "chunks with metadata and extensions": lambda at: chunk("x", metadata={f"k{at}": at}, extensions=(f"e{at}",)),
    "chunks between statuses": lambda at: chunk("x") if at % 2 else status(S.WORKING, said=f"s{at}"),
    "messages": lambda at: said(f"m{at}"),
    "statuses that say something": lambda at: status(S.WORKING, said=f"s{at}"),
}


@pytest.mark.parametrize("make", LONG_LOGS.values(), ids=LONG_LOGS)
def test_folding_twice_as_much_is_twice_the_work(make: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted: the elements of every list in every struct that is made, and the ids that are compared."""
    copied = 0

    def counting(struct: Any, **changes: Any) -> Any:
        nonlocal copied
        made = replace(struct, **changes)
        copied += sum(len(value) for value in msgspec.structs.asdict(made).values() if isinstance(value, tuple | dict))
        return made

    def work(size: int) -> int:
        nonlocal copied
        copied, CountedId.compared = 0, 0
        log = logged([make(at) for at in range(size)])
        fold(task(), log)
        return copied + CountedId.compared

    monkeypatch.setattr(lifecycle, "replace", counting)
    small, large = work(300), work(600)
    assert small > 0
    assert large <= 2.1 * small
