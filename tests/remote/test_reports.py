"""What a report means: whose it is, whether it is news, and which events it makes. Pure values, no store."""

import pytest
from msgspec.structs import replace

from accord.model import (
    Artifact,
    ArtifactUpdate,
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
from accord.model.base import timestamp_ms
from accord.remote.reports import (
    OTHER_CONTEXT,
    REMOTE_TASK,
    ForeignReport,
    LocalTask,
    Report,
    ReportEffect,
    report_effect,
)
from accord.storage.commands.remote_tasks import RemoteLink

S = TaskState
NOW = 1_700_000_000_000
LINK = RemoteLink(task_id="t-1", agent="there", remote_id="r-1", context_id="c-there", sent=1, heard_at=NOW - 1000)


def here(state: TaskState = S.WORKING, **fields: object) -> LocalTask:
    status = TaskStatus(state=state)
    task = Task(id="t-1", context_id="c-1", status=status, **fields)  # type: ignore[arg-type]
    return LocalTask(task_id="t-1", context_id="c-1", state=state, task=task)


def said(text: str, message_id: str = "m-1") -> Message:
    return Message(message_id=message_id, role=Role.AGENT, parts=(Part(text=text),))


def status(state: TaskState, at: int | None = None, text: str | None = None) -> TaskStatus:
    timestamp = None if at is None else timestamp_ms(NOW + at)
    return TaskStatus(state=state, message=said(text) if text else None, timestamp=timestamp)


def update(state: TaskState, at: int | None = None, text: str | None = None) -> StatusUpdate:
    return StatusUpdate(task_id="r-1", context_id="c-there", status=status(state, at, text))


def task(state: TaskState, at: int | None = None, **fields: object) -> Task:
    return Task(id="r-1", context_id="c-there", status=status(state, at), **fields)  # type: ignore[arg-type]


def artifact(text: str, id: str = "a") -> Artifact:
    return Artifact(artifact_id=id, parts=(Part(text=text),))


def heard(body: EventBody, link: RemoteLink = LINK, place: LocalTask | None = None, **fields: object) -> ReportEffect:
    return report_effect(Report(body=body, **fields), link, place or here(), NOW)  # type: ignore[arg-type]


def states(found: ReportEffect) -> list[TaskState]:
    return [body.status.state for body in found.bodies if isinstance(body, StatusUpdate)]


def test_a_whole_task_brings_its_artifacts_and_its_end() -> None:
    found = heard(task(S.COMPLETED, artifacts=(artifact("well"),)))
    made, ended = found.bodies
    assert isinstance(made, ArtifactUpdate)
    assert isinstance(ended, StatusUpdate)
    assert (made.task_id, made.context_id, made.artifact, made.append) == ("t-1", "c-1", artifact("well"), False)
    assert (ended.task_id, ended.status.state, ended.status.timestamp) == ("t-1", S.COMPLETED, timestamp_ms(NOW))
    assert found.link.state is S.COMPLETED


@pytest.mark.proves("0-44")
def test_an_artifact_that_is_here_already_is_not_made_again() -> None:
    found = heard(
        task(S.WORKING, artifacts=(artifact("one"), artifact("two", "b"))), place=here(artifacts=(artifact("one"),))
    )
    assert [body.artifact.artifact_id for body in found.bodies if isinstance(body, ArtifactUpdate)] == ["b"]


@pytest.mark.proves("0-44")
def test_the_same_report_twice_changes_nothing() -> None:
    first = heard(task(S.WORKING, at=1, artifacts=(artifact("one"),)))
    again = heard(
        task(S.WORKING, at=1, artifacts=(artifact("one"),)), link=first.link, place=here(artifacts=(artifact("one"),))
    )
    assert states(first) == [S.WORKING]
    assert again.bodies == ()


@pytest.mark.parametrize("ended", [S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED])
def test_nothing_changes_a_task_that_has_ended(ended: TaskState) -> None:
    for body in (update(S.WORKING, 99), task(S.FAILED, 99, artifacts=(artifact("late"),))):
        assert heard(body, place=here(ended)).bodies == ()


def test_a_date_in_the_future_does_not_make_later_reports_old() -> None:
    hour = 3_600_000
    first = heard(update(S.INPUT_REQUIRED, 24 * hour, "?"))
    assert (states(first), first.link.stamp) == ([S.INPUT_REQUIRED], NOW)
    later = report_effect(Report(body=update(S.WORKING, 5_000)), first.link, here(S.INPUT_REQUIRED), NOW + 5_000)
    assert states(later) == [S.WORKING]
    ahead = heard(update(S.WORKING, 30_000))  # as clocks are
    assert ahead.link.stamp == NOW + 30_000


def test_a_status_that_was_overtaken_is_not_news() -> None:
    link = replace(LINK, stamp=NOW + 10, state=S.INPUT_REQUIRED)
    assert heard(update(S.WORKING, 5), link=link, place=here(S.INPUT_REQUIRED)).bodies == ()
    assert states(heard(update(S.WORKING, 15), link=link, place=here(S.INPUT_REQUIRED))) == [S.WORKING]


def test_an_end_is_never_too_late() -> None:
    link = replace(LINK, stamp=NOW + 10)
    assert states(heard(task(S.COMPLETED, 5), link=link)) == [S.COMPLETED]


def test_numbers_count_more_than_times() -> None:
    link = replace(LINK, seq=7)
    chunk = ArtifactUpdate(task_id="r-1", context_id="c", artifact=artifact("x"), append=True)
    assert heard(chunk, link=link, seq=7).bodies == ()
    assert heard(chunk, link=link, seq=6).bodies == ()
    (made,) = heard(chunk, link=link, seq=8).bodies
    assert isinstance(made, ArtifactUpdate)
    assert made.append


def test_ends_without_artifacts_are_fetched() -> None:
    found = heard(update(S.COMPLETED, 1, "done"))
    assert (found.bodies, found.asks, found.link.asks) == ((), True, 1)
    assert states(heard(update(S.COMPLETED, 1, "done"), is_last=True)) == [S.COMPLETED]


def test_unordered_reports_after_a_question_are_fetched() -> None:
    found = heard(update(S.WORKING), place=here(S.INPUT_REQUIRED))
    assert (found.bodies, found.asks) == ((), True)


@pytest.mark.proves("0-33")
def test_a_report_on_another_task_is_refused() -> None:
    with pytest.raises(ForeignReport):
        heard(replace(task(S.COMPLETED), id="r-2"))


@pytest.mark.proves("C-06")
def test_the_first_report_names_a_task_that_has_no_name_yet() -> None:
    found = heard(task(S.COMPLETED), link=replace(LINK, remote_id=None))
    assert found.link.remote_id == "r-1"
    assert states(found) == [S.COMPLETED]


def test_answers_may_continue_in_another_remote_task() -> None:
    found = heard(replace(task(S.WORKING), id="r-2"), link=replace(LINK, seq=9, stamp=NOW + 99), sent=2)
    assert (found.link.remote_id, found.link.seq, found.link.sent) == ("r-2", None, 2)


@pytest.mark.proves("0-31")
@pytest.mark.parametrize("state", [S.SUBMITTED, S.WORKING])
def test_submitted_and_working_both_acknowledge(state: TaskState) -> None:
    found = heard(task(state), link=replace(LINK, remote_id=None, sent=0), place=here(S.SUBMITTED), sent=1)
    (acknowledged,) = found.bodies
    assert isinstance(acknowledged, StatusUpdate)
    assert acknowledged.status.state is state
    assert acknowledged.metadata is not None
    assert acknowledged.metadata[REMOTE_TASK] == "r-1"
    assert found.link.sent == 1


def test_working_tasks_ignore_a_late_submitted() -> None:
    assert states(heard(task(S.SUBMITTED))) == [S.WORKING]


@pytest.mark.proves("0-74")
def test_changed_remote_contexts_are_flagged_once() -> None:
    other = replace(task(S.WORKING), context_id="c-own")
    found = heard(other, link=replace(LINK, sent=0), sent=1)
    (acknowledged,) = found.bodies
    assert isinstance(acknowledged, StatusUpdate)
    assert acknowledged.metadata is not None
    assert acknowledged.metadata[OTHER_CONTEXT] == "c-there"
    assert (found.has_other_context, found.link.context_id) == (True, "c-own")
    assert not heard(replace(other, status=status(S.WORKING, 1, "on it")), link=found.link).has_other_context


def test_remote_questions_are_forwarded_in_turn() -> None:
    asked = heard(update(S.INPUT_REQUIRED, 1, "Which size?"))
    assert states(asked) == [S.INPUT_REQUIRED]
    wants = heard(update(S.AUTH_REQUIRED, 2, "Log in"), link=asked.link, place=here(S.INPUT_REQUIRED))
    assert states(wants) == [S.WORKING, S.AUTH_REQUIRED]


def test_repeated_questions_are_forwarded_only_on_insistence() -> None:
    asked = heard(task(S.INPUT_REQUIRED))
    answered = heard(task(S.INPUT_REQUIRED), link=asked.link, sent=2)
    assert answered.bodies == ()
    assert heard(task(S.INPUT_REQUIRED), link=answered.link).bodies == ()
    assert states(heard(task(S.INPUT_REQUIRED), link=answered.link, insists=True)) == [S.INPUT_REQUIRED]


def test_intermediate_messages_join_the_history_once() -> None:
    known = said("looking")
    told = task(S.WORKING, history=(replace(known, role=Role.USER), known, said("found it", "m-2")))
    found = heard(told, place=here(history=(known,)))
    (new,) = [body for body in found.bodies if isinstance(body, MessageUpdate)]
    assert new.message.parts == (Part(text="found it"),)
    assert (new.message.task_id, new.message.context_id) == ("t-1", "c-1")


def test_a_message_without_a_name_gets_one() -> None:
    wire = Message(message_id="", role=Role.USER, parts=(Part(text="hm"),))
    found = heard(StatusUpdate(task_id="r-1", context_id="", status=TaskStatus(state=S.WORKING, message=wire)))
    (made,) = found.bodies
    assert isinstance(made, StatusUpdate)
    assert made.status.message is not None
    assert made.status.message.message_id
    assert made.status.message.role is Role.AGENT


def test_a_message_alone_completes_the_task() -> None:
    found = heard(said("42"), link=replace(LINK, remote_id=None, sent=0), sent=1)
    (made,) = found.bodies
    assert isinstance(made, StatusUpdate)
    assert (made.status.state, made.status.message is not None) == (S.COMPLETED, True)


def test_a_task_that_was_given_up_is_left_only_by_its_end() -> None:
    assert heard(update(S.WORKING, 1, "hello?"), place=here(S.UNKNOWN)).bodies == ()
    assert states(heard(task(S.COMPLETED), place=here(S.UNKNOWN))) == [S.COMPLETED]


def test_unknown_reports_change_nothing() -> None:
    assert heard(task(S.UNKNOWN)).bodies == ()


# --- what agents leave out, and what they say at the same time ------------------------------------------------------


@pytest.mark.parametrize("at", [0, None], ids=["in the same moment", "undated"])
def test_late_acknowledgements_do_not_undo_a_question(at: int | None) -> None:
    link = replace(LINK, sent=0, stamp=NOW if at == 0 else None, state=S.INPUT_REQUIRED)
    found = heard(task(S.WORKING, at), link, here(S.INPUT_REQUIRED), sent=1)
    assert (states(found), found.asks, found.link.sent) == ([], True, 1)
    later = heard(task(S.WORKING, 1), replace(link, stamp=NOW), here(S.INPUT_REQUIRED), sent=1)
    assert (states(later), later.asks) == ([S.WORKING], False)


def test_polled_answers_are_not_fetched_again() -> None:
    found = heard(task(S.WORKING), replace(LINK, asks=1), here(S.INPUT_REQUIRED), looked=1)
    assert (states(found), found.asks, found.link.looked) == ([S.WORKING], False, 1)


def test_a_question_without_words_has_them_fetched() -> None:
    assert heard(update(S.INPUT_REQUIRED)).asks
    assert states(heard(update(S.INPUT_REQUIRED, text="Which?"))) == [S.INPUT_REQUIRED]
    assert states(heard(update(S.INPUT_REQUIRED), is_last=True)) == [S.INPUT_REQUIRED]
    mine = Message(message_id="m-0", role=Role.USER, parts=(Part(text="hello"),))
    (asked,) = heard(task(S.INPUT_REQUIRED, history=(mine, said("Which?")))).bodies
    assert isinstance(asked, StatusUpdate)
    assert asked.status.message is not None
    assert asked.status.message.parts == (Part(text="Which?"),)
    (bare,) = heard(task(S.INPUT_REQUIRED, history=(said("Hm"), mine))).bodies[-1:]
    assert isinstance(bare, StatusUpdate)
    assert bare.status.message is None


def test_an_answer_equal_to_the_callers_message_is_kept() -> None:
    mine = Message(message_id="m-0", role=Role.USER, parts=(Part(text="hello"),))
    report = task(S.WORKING, history=(mine, said("hello", ""), said("hello", "")))
    new = [
        body.message.parts
        for body in heard(report, place=here(history=(mine,))).bodies
        if isinstance(body, MessageUpdate)
    ]
    assert new == [mine.parts, mine.parts]
    again = heard(report, place=here(history=(mine, said("hello"), said("hello"))))
    assert not any(isinstance(body, MessageUpdate) for body in again.bodies)


def test_the_last_message_of_a_task_without_artifacts_is_its_answer() -> None:
    (ended,) = heard(task(S.COMPLETED, history=(said("hello"),))).bodies
    assert isinstance(ended, StatusUpdate)
    assert ended.status.message is not None
    assert ended.status.message.parts == (Part(text="hello"),)
    *_, ended = heard(task(S.COMPLETED, history=(said("on the way"),), artifacts=(artifact("hello"),))).bodies
    assert isinstance(ended, StatusUpdate)
    assert ended.status.message is None


def test_repeated_questions_without_an_id_are_new() -> None:
    asks = task(S.INPUT_REQUIRED, history=(said("Which?", ""),))
    asked = [heard(asks, replace(LINK, sent=sent)).bodies[-1] for sent in (1, 2)]
    ids = {body.status.message.message_id for body in asked if isinstance(body, StatusUpdate) and body.status.message}
    assert len(ids) == 2


@pytest.mark.parametrize(("append", "last"), [(False, False), (True, False), (True, True), (False, True)])
def test_pieces_are_passed_on_as_they_are(append: bool, last: bool) -> None:
    piece = ArtifactUpdate(task_id="r-1", context_id="c-there", artifact=artifact("x"), append=append, last_chunk=last)
    (found,) = heard(piece).bodies
    assert found == replace(piece, task_id="t-1", context_id="c-1")
