"""How an agent elsewhere is waited for: by webhook, stream or question, and how long."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from accord.agents.remote import CardOffer, RemoteTerms, ReportMode
from accord.errors import InternalError, MethodNotFound, TaskNotFound
from accord.model import (
    Artifact,
    ArtifactUpdate,
    CancelRequest,
    Event,
    Message,
    Part,
    Role,
    SendRequest,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.outbound import Unreachable
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName
from accord.remote.tasks import ReportCredentials
from tests.cases import each
from tests.engine.conftest import ALICE, AT_ONCE, said, saying, text
from tests.engine.doubles import is_parked, reaches, rows, sent, until
from tests.remote.conftest import PUSH, WEBHOOK, Joined, Joining, Scripted, there

S = TaskState
SOON = RemoteTerms(webhook=WEBHOOK, sla_seconds=1, first_poll=0.01, most_poll=0.05)
POLL = RemoteTerms(mode=ReportMode.POLL, first_poll=0.01, most_poll=0.05)
FOLLOW = RemoteTerms(mode=ReportMode.SUBSCRIBE, first_poll=0.01, most_poll=0.05)
MADE = Artifact(artifact_id="a", parts=(Part(text="well"),))
V1 = DIALECTS[DialectName.V1]


async def begun(here: Joined, words: str = "hello") -> Task:
    return await sent(here.service, saying(words, configuration=AT_ONCE), ALICE)


async def webhook(here: Joined, task: Task) -> None:
    await here.remotes.accept_webhook(ReportCredentials(token=here.peer.token), V1.push_task(task))


def ended(state: TaskState = S.COMPLETED) -> StatusUpdate:
    return StatusUpdate(task_id="r-1", context_id="c", status=TaskStatus(state=state))


async def ended_webhook(here: Joined, state: TaskState = S.COMPLETED) -> None:
    frame = V1.encode_event(Event(seq=0, body=ended(state)))
    assert frame is not None
    await here.remotes.accept_webhook(ReportCredentials(token=here.peer.token), frame.data)


def chunk(words: str) -> ArtifactUpdate:
    artifact = Artifact(artifact_id="a", parts=(Part(text=words),))
    return ArtifactUpdate(task_id="r-1", context_id="c", artifact=artifact, append=True)


# --- which way ------------------------------------------------------------------------------------------------------


@each(
    ("pushes", "streams", "terms", "may_push", "mode"),
    [
        (True, True, PUSH, True, ReportMode.PUSH),
        (True, True, PUSH, False, ReportMode.SUBSCRIBE),
        (True, True, RemoteTerms(), True, ReportMode.SUBSCRIBE),
        (False, True, PUSH, True, ReportMode.SUBSCRIBE),
        (False, False, PUSH, True, ReportMode.POLL),
        (False, False, replace(PUSH, mode=ReportMode.PUSH), True, ReportMode.PUSH),
        (False, False, replace(PUSH, mode=ReportMode.PUSH), False, ReportMode.POLL),
        (True, True, replace(PUSH, mode=ReportMode.SUBSCRIBE), True, ReportMode.SUBSCRIBE),
        (True, True, replace(PUSH, mode=ReportMode.POLL), True, ReportMode.POLL),
    ],
)
def test_the_best_way_that_both_sides_have_is_taken(
    pushes: bool, streams: bool, terms: RemoteTerms, may_push: bool, mode: ReportMode
) -> None:
    offer = CardOffer.of(Scripted(push=pushes, streaming=streams).card)
    assert offer.mode(terms, may_push=may_push) is mode


# --- webhooks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED])
async def test_an_end_that_comes_alone_has_the_rest_fetched(joining: Joining, state: TaskState) -> None:
    here = await joining()
    task = await begun(here)
    await until(lambda: is_parked(here.store, task.id))
    here.peer.tasks["r-1"] = there(state, artifacts=(MADE,))
    await ended_webhook(here, state)
    assert text(await reaches(here.service, task.id, state, ALICE)) == "well"
    assert here.peer.asked == ["r-1"]


@pytest.mark.parametrize("error", [MethodNotFound(), TaskNotFound(), InternalError(), Unreachable("x", was_sent=True)])
async def test_bare_ends_count_if_the_task_cannot_be_read(joining: Joining, error: Exception) -> None:
    here = await joining(terms=replace(PUSH, first_poll=0.01, most_poll=0.02))
    task = await begun(here)
    await until(lambda: is_parked(here.store, task.id))
    here.peer.refuses_get = error
    await ended_webhook(here)
    await reaches(here.service, task.id, S.COMPLETED, ALICE)


async def test_agents_behind_their_webhook_are_polled_again(joining: Joining) -> None:
    here = await joining(terms=replace(PUSH, first_poll=0.01, most_poll=0.02))
    task = await begun(here)
    await until(lambda: is_parked(here.store, task.id))
    await ended_webhook(here)  # while it still says that it works
    await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert len(here.peer.asked) > 1


# --- the limit ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("0-62")
def test_silence_times_out_after_half_an_hour() -> None:
    assert RemoteTerms().sla_seconds == 30 * 60


@pytest.mark.proves("0-62")
async def test_silent_agents_are_polled_once_and_given_up(joining: Joining) -> None:
    here = await joining(terms=SOON)
    task = await begun(here)
    lost = await reaches(here.service, task.id, S.UNKNOWN, ALICE)
    assert "reported nothing for" in said(lost)
    assert "WORKING" in said(lost)
    assert here.peer.asked == ["r-1"]


async def test_the_last_question_may_find_the_end(joining: Joining) -> None:
    here = await joining(terms=SOON)
    task = await begun(here)
    here.peer.tasks["r-1"] = there(S.COMPLETED, artifacts=(MADE,))
    assert text(await reaches(here.service, task.id, S.COMPLETED, ALICE)) == "well"


async def test_unqueryable_agents_are_given_up(joining: Joining) -> None:
    here = await joining(terms=SOON)
    here.peer.refuses_get = Unreachable("Connection refused", was_sent=False)
    task = await begun(here)
    assert "Connection refused" in said(await reaches(here.service, task.id, S.UNKNOWN, ALICE))


@pytest.mark.proves("0-62", "C-04")
async def test_late_webhooks_end_unknown_tasks(joining: Joining) -> None:
    here = await joining(terms=replace(SOON, late_looks=0))
    task = await begun(here)
    await reaches(here.service, task.id, S.UNKNOWN, ALICE)
    await webhook(here, there(S.COMPLETED, artifacts=(MADE,)))
    assert text(await reaches(here.service, task.id, S.COMPLETED, ALICE)) == "well"


async def test_a_late_end_that_comes_alone_has_the_rest_fetched(joining: Joining) -> None:
    here = await joining(terms=replace(SOON, late_looks=0))
    task = await begun(here)
    await reaches(here.service, task.id, S.UNKNOWN, ALICE)
    here.peer.tasks["r-1"] = there(S.COMPLETED, artifacts=(MADE,))
    await ended_webhook(here)
    assert text(await reaches(here.service, task.id, S.COMPLETED, ALICE)) == "well"


async def test_unknown_tasks_are_polled_occasionally(joining: Joining) -> None:
    here = await joining(terms=SOON)
    task = await begun(here)
    await reaches(here.service, task.id, S.UNKNOWN, ALICE)
    here.peer.tasks["r-1"] = there(S.COMPLETED, artifacts=(MADE,))
    assert text(await reaches(here.service, task.id, S.COMPLETED, ALICE)) == "well"


@pytest.mark.proves("0-63")
async def test_a_task_that_was_given_up_can_be_tried_again_by_hand(joining: Joining) -> None:
    here = await joining(terms=replace(SOON, late_looks=-1))
    task = await begun(here)
    await reaches(here.service, task.id, S.UNKNOWN, ALICE)
    here.peer.tasks["r-1"] = there(S.COMPLETED, artifacts=(MADE,))
    assert await here.remotes.retry("acme", task.id)
    await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert not await here.remotes.retry("acme", task.id)
    assert not await here.remotes.retry("acme", "no-such-task")
    assert len(here.peer.sent) == 1


@pytest.mark.proves("0-63")
async def test_retries_resend_unknown_messages(joining: Joining) -> None:
    here = await joining(terms=replace(SOON, late_looks=-1))
    task = await begun(here)
    await reaches(here.service, task.id, S.UNKNOWN, ALICE)
    here.peer.tasks.clear()
    here.peer.answer = lambda _: there(S.COMPLETED, id="r-2")
    assert await here.remotes.retry("acme", task.id)
    await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert len(here.peer.sent) == 2


@pytest.mark.proves("0-63")
async def test_retries_send_unconfirmed_messages(joining: Joining) -> None:
    here = await joining(Scripted(push=False, lists=False), terms=POLL)
    here.peer.answer = lambda _: Unreachable("broke off", was_sent=True)
    task = await sent(here.service, saying("hello"), ALICE)
    assert task.status.state is S.UNKNOWN
    here.peer.answer = lambda _: there(S.COMPLETED)
    assert await here.remotes.retry("acme", task.id)
    await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert len(here.peer.sent) == 2


@pytest.mark.proves("0-63")
async def test_a_task_that_was_given_up_can_be_cancelled(joining: Joining) -> None:
    here = await joining(terms=replace(SOON, late_looks=-1))
    task = await begun(here)
    await reaches(here.service, task.id, S.UNKNOWN, ALICE)
    done = await here.service.cancel(CancelRequest(id=task.id), ALICE)
    assert done.status.state is S.CANCELED

    async def is_told() -> bool:
        return here.peer.cancelled == ["r-1"]

    await until(is_told)


async def test_the_caller_has_all_the_time_there_is(joining: Joining) -> None:
    here = await joining(terms=SOON)
    here.peer.answer = lambda _: there(S.INPUT_REQUIRED)
    asked = await sent(here.service, saying("a shirt"), ALICE)
    link = await here.remotes.find("acme", asked.id)
    assert link is not None
    due = [row for row in await rows(here.store, "job", "key, parked") if row[0] == asked.id]
    assert due == [(asked.id, 1)]  # no time will wake it


# --- polling --------------------------------------------------------------------------------------------------------


async def test_agents_without_webhooks_and_streams_are_polled(joining: Joining) -> None:
    here = await joining(Scripted(push=False), terms=POLL)
    task = await begun(here)

    async def was_asked() -> bool:
        return len(here.peer.asked) >= 2

    await until(was_asked)
    question = Message(message_id="q", role=Role.AGENT, parts=(Part(text="Which size?"),))
    here.peer.tasks["r-1"] = there(S.INPUT_REQUIRED, message=question)
    asked = await reaches(here.service, task.id, S.INPUT_REQUIRED, ALICE)
    assert said(asked) == "Which size?"
    here.peer.answer = lambda _: there()
    here.peer.tasks["r-1"] = there()
    await sent(here.service, saying("L", task_id=task.id, configuration=AT_ONCE), ALICE)
    here.peer.tasks["r-1"] = there(S.COMPLETED, artifacts=(MADE,))
    assert text(await reaches(here.service, task.id, S.COMPLETED, ALICE)) == "well"


async def test_repeated_remote_questions_are_noticed(joining: Joining) -> None:
    here = await joining(Scripted(push=False), terms=POLL)
    here.peer.answer = lambda _: there(S.INPUT_REQUIRED)
    asked = await sent(here.service, saying("a shirt"), ALICE)
    await sent(here.service, saying("L", task_id=asked.id, configuration=AT_ONCE), ALICE)
    await reaches(here.service, asked.id, S.INPUT_REQUIRED, ALICE)
    assert len(here.peer.sent) == 2


async def test_another_node_continues_polling(joining: Joining) -> None:
    here = await joining(Scripted(push=False), terms=POLL)
    task = await begun(here)
    await until(lambda: _was_asked(here.peer, 1))
    await here.host.stop(0)
    other = await joining(here.peer, terms=POLL)
    here.peer.tasks["r-1"] = there(S.COMPLETED, artifacts=(MADE,))
    assert text(await reaches(other.service, task.id, S.COMPLETED, ALICE)) == "well"
    assert len(here.peer.sent) == 1


# --- streams --------------------------------------------------------------------------------------------------------


async def test_remote_streams_are_relayed_and_gaps_fetched(joining: Joining) -> None:
    here = await joining(Scripted(push=False, streaming=True), terms=FOLLOW)
    here.peer.streams = [[Event(seq=0, body=there()), Event(seq=1, body=chunk("one ")), Event(seq=2, body=ended())]]
    here.peer.answer = lambda _: there()
    whole = Artifact(artifact_id="a", parts=(Part(text="one "), Part(text="two")))

    async def end(_: Any) -> None:
        here.peer.tasks["r-1"] = there(S.COMPLETED, artifacts=(whole,))

    here.peer.before = end
    done = await sent(here.service, saying("hello"), ALICE)
    assert (done.status.state, text(done)) == (S.COMPLETED, "one two")


async def test_a_stream_that_breaks_is_taken_up_again(joining: Joining) -> None:
    here = await joining(Scripted(push=False, streaming=True), terms=FOLLOW)
    cut = Unreachable("The connection broke off", was_sent=True)
    here.peer.streams = [
        [Event(seq=0, body=there()), cut],
        [cut],
        [Event(seq=0, body=there(S.COMPLETED, artifacts=(MADE,)))],
    ]
    done = await sent(here.service, saying("hello"), ALICE)
    assert (done.status.state, text(done)) == (S.COMPLETED, "well")
    assert len(here.peer.sent) == 1


class Holding(Scripted):
    """An agent whose streams begin with an answer, once it may be given, and never end."""

    def __init__(self) -> None:
        super().__init__(push=False, streaming=True)
        self.may_answer = asyncio.Event()

    async def stream(self, request: SendRequest) -> AsyncIterator[Event]:
        self.following += 1
        try:
            answer = await self.send(request)
            await self.may_answer.wait()
            yield Event(seq=0, body=answer)
            yield Event(seq=1, body=chunk("one "))
            await asyncio.Event().wait()
        finally:
            self.following -= 1


async def _follows(peer: Scripted, count: int) -> bool:
    return peer.following == count


async def test_a_stream_is_let_go_with_its_task(joining: Joining) -> None:
    peer = Holding()
    peer.may_answer.set()
    here = await joining(peer, terms=FOLLOW)
    task = await begun(here)
    await until(lambda: _follows(peer, 1))
    await here.service.cancel(CancelRequest(id=task.id), ALICE)
    await until(lambda: _follows(peer, 0))
    await until(lambda: _was_cancelled(peer))
    assert len(peer.sent) == 1


async def _was_cancelled(peer: Scripted) -> bool:
    return peer.cancelled == ["r-1"]


@pytest.mark.parametrize("is_answered", [True, False])
async def test_draining_nodes_keep_relayed_events(joining: Joining, is_answered: bool) -> None:
    """The answer to a message is waited for although the run is over: another node must know what it was."""
    peer = Holding()
    here = await joining(peer, terms=FOLLOW)
    if is_answered:
        peer.may_answer.set()
    task = await begun(here)
    await until(lambda: _follows(peer, 1))
    await here.host.stop(0)
    peer.may_answer.set()
    await until(lambda: _follows(peer, 0))
    other = await joining(peer, terms=FOLLOW)
    peer.tasks["r-1"] = there(S.COMPLETED, artifacts=(MADE,))
    assert text(await reaches(other.service, task.id, S.COMPLETED, ALICE)) == "well"
    assert len(peer.sent) == 1


async def test_streams_are_limited_and_others_polled(joining: Joining) -> None:
    here = await joining(Scripted(push=False, streaming=True), terms=replace(FOLLOW, streams=0))
    task = await begun(here)
    await until(lambda: _was_asked(here.peer, 1))
    here.peer.tasks["r-1"] = there(S.COMPLETED, artifacts=(MADE,))
    assert text(await reaches(here.service, task.id, S.COMPLETED, ALICE)) == "well"


async def _was_asked(peer: Scripted, count: int) -> bool:
    return len(peer.asked) >= count
