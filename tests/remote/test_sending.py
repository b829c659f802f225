"""What an agent elsewhere is told: once, whatever happens to the answer, to this node, or to the agent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from accord.agents.remote import RemoteTerms, ReportMode
from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    InternalError,
    InvalidParams,
    PermissionDenied,
    PushNotSupported,
    RateLimited,
    TaskTimeout,
    UnsupportedOperation,
)
from accord.model import CancelRequest, GetRequest, Message, Part, Role, SendRequest, Task, TaskState
from accord.outbound import TimedOut, Unreachable
from accord.remote.reports import Report
from accord.storage.commands import task_lists
from tests.engine.conftest import ALICE, AT_ONCE, BOB, said, saying, text
from tests.engine.doubles import Meddler, is_parked, reaches, rows, sent, until
from tests.remote.conftest import WEBHOOK, Joined, Joining, Scripted, there

S = TaskState
QUICK = RemoteTerms(webhook=WEBHOOK, most_poll=0.02, first_poll=0.01)
LOST = Unreachable("The connection broke off", was_sent=True)
REFUSED = Unreachable("Connection refused", was_sent=False)


async def begun(here: Joined, words: str = "hello", **fields: Any) -> Task:
    return await sent(here.service, saying(words, configuration=AT_ONCE, **fields), ALICE)


def in_turn(*answers: Any) -> Any:
    """Answers one after the other, the last one for ever."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def failing(times: int, peer: Scripted) -> Any:
    """A way to an agent that is not there so many times."""
    left = [times]

    @asynccontextmanager
    async def connect() -> AsyncIterator[Scripted]:
        left[0] -= 1
        if left[0] >= 0:
            raise REFUSED
        yield peer

    return connect


def accepted_but(peer: Scripted, error: Exception, *, times: int = 1) -> Any:
    """Accepts a message, as its list of tasks shows, but the answer is lost."""
    left = [times]

    def answer(request: SendRequest) -> Task | Exception:
        task = there(context_id=request.message.context_id, history=(request.message,))
        peer.tasks.setdefault(task.id, task)
        left[0] -= 1
        return error if left[0] >= 0 else task

    return answer


@pytest.mark.proves("0-18", "0-19", "0-20", "0-24")
async def test_first_messages_are_non_blocking_with_a_webhook(joining: Joining) -> None:
    here = await joining()
    task = await begun(here)
    await until(lambda: is_parked(here.store, task.id))
    (request,) = here.peer.sent
    assert request.configuration is not None
    assert request.configuration.return_immediately
    assert request.configuration.accepted_output_modes == ("text/plain", "application/json")
    push = request.configuration.task_push_notification_config
    assert push is not None
    assert (push.url, push.token) == (WEBHOOK, here.peer.token)
    assert request.message.parts == (Part(text="hello"),)
    assert request.message.task_id is None
    assert {UUID(request.message.message_id).version, UUID(request.message.context_id or "").version} == {5}


@pytest.mark.proves("0-57")
@pytest.mark.parametrize("url", ["http://accord.example/hook", "ftp://accord.example", "accord.example"])
def test_a_webhook_outside_this_machine_must_be_https(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        RemoteTerms(webhook=url)
    assert RemoteTerms(webhook="http://localhost:8000/hook").webhook


@pytest.mark.proves("0-31")
async def test_submitted_acknowledgement_is_stored_as_submitted(joining: Joining) -> None:
    here = await joining()
    here.peer.answer = lambda _: there(S.SUBMITTED)
    task = await begun(here)
    await until(lambda: is_parked(here.store, task.id))
    assert await rows(here.store, "remote", "remote_id") == [("r-1",)]
    stored = await here.service.get(GetRequest(id=task.id), ALICE)
    assert stored.status.state is S.SUBMITTED
    (row,) = await here.store.read(task_lists.rows, ALICE.tenant, [task.id])
    assert not row.is_held  # it waits for the remote agent, not for a person who starts it
    with pytest.raises(UnsupportedOperation, match="already started"):
        await here.service.conclude(task.id, S.COMPLETED, None, ALICE)


async def test_an_agent_that_answers_with_a_message_has_completed(joining: Joining) -> None:
    here = await joining()
    here.peer.answer = lambda _: Message(message_id="m", role=Role.AGENT, parts=(Part(text="42"),))
    done = await sent(here.service, saying("hello"), ALICE)
    assert (done.status.state, said(done)) == (S.COMPLETED, "42")


async def test_an_agent_that_is_done_at_once_needs_no_webhook(joining: Joining) -> None:
    here = await joining()
    here.peer.answer = lambda _: there(S.REJECTED)
    assert (await sent(here.service, saying("hello"), ALICE)).status.state is S.REJECTED


@pytest.mark.proves("0-61")
@pytest.mark.parametrize("error", [REFUSED, AgentUnavailable(retry_after=0), RateLimited(retry_after=0)])
async def test_undelivered_messages_are_resent(joining: Joining, error: Exception) -> None:
    here = await joining(terms=QUICK)
    here.peer.answer = in_turn(error, error, there(S.COMPLETED))
    done = await sent(here.service, saying("hello"), ALICE)
    assert done.status.state is S.COMPLETED
    assert len({request.message.message_id for request in here.peer.sent}) == 1
    assert len(here.peer.sent) == 3


@pytest.mark.proves("0-61")
async def test_an_agent_that_is_never_there_fails_the_task_with_the_reason(joining: Joining) -> None:
    here = await joining(terms=replace(QUICK, sends=3))
    here.peer.answer = lambda _: REFUSED
    failed = await sent(here.service, saying("hello"), ALICE)
    assert failed.status.state is S.FAILED
    assert "Connection refused" in said(failed)
    assert len(here.peer.sent) == 3


@pytest.mark.parametrize("error", [InvalidParams("No such skill"), AuthenticationFailed()])
async def test_a_refusal_fails_the_task_at_once(joining: Joining, error: Exception) -> None:
    here = await joining(terms=QUICK)
    here.peer.answer = lambda _: error
    failed = await sent(here.service, saying("hello"), ALICE)
    assert failed.status.state is S.FAILED
    assert str(error) in said(failed)
    assert len(here.peer.sent) == 1


async def test_agents_refusing_webhooks_are_polled(joining: Joining) -> None:
    here = await joining(terms=QUICK)
    here.peer.answer = in_turn(PushNotSupported(), there())
    task = await begun(here)
    await until(lambda: _has_sent(here, 2))
    here.peer.tasks["r-1"] = there(S.COMPLETED)
    await reaches(here.service, task.id, S.COMPLETED, ALICE)
    last = here.peer.sent[-1].configuration
    assert last is not None
    assert last.task_push_notification_config is None


# --- the answer is lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [LOST, TimedOut("No answer in time", was_sent=True), InternalError()])
async def test_a_lost_answer_is_looked_for_and_never_sent_for_again(joining: Joining, error: Exception) -> None:
    here = await joining(terms=QUICK)
    here.peer.answer = accepted_but(here.peer, error)
    task = await begun(here)
    await until(lambda: is_parked(here.store, task.id))
    assert len(here.peer.sent) == 1
    link = await here.remotes.find("acme", task.id)
    assert link is not None
    assert (link.remote_id, link.sent) == ("r-1", 1)


@pytest.mark.parametrize("error", [LOST, InternalError(), RateLimited(), AgentUnavailable(), TaskTimeout()])
async def test_unlisted_messages_are_resent_only_by_a_person(joining: Joining, error: Exception) -> None:
    here = await joining(Scripted(push=False), terms=replace(QUICK, mode=ReportMode.POLL))
    here.peer.answer = in_turn(error, there(S.COMPLETED))
    task = await sent(here.service, saying("hello"), ALICE)
    assert task.status.state is S.UNKNOWN
    assert "not known whether" in said(task)
    assert len(here.peer.sent) == 1
    assert await here.remotes.retry("acme", task.id)
    await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert len(here.peer.sent) == 2


async def test_unqueryable_agents_get_no_resend(joining: Joining) -> None:
    """A message was sent, the node died, and the next one does not get to the agent at first."""
    peer = Scripted(push=False)
    first = await joining(peer, terms=replace(QUICK, mode=ReportMode.POLL))
    going = asyncio.Event()

    async def wait(_: Any) -> None:
        await going.wait()

    peer.before = wait
    task = await begun(first)
    await until(lambda: _has_sent(first, 1))
    await first.host.stop(0)
    second = await joining(peer, terms=replace(QUICK, mode=ReportMode.POLL), connect=failing(3, peer))
    await reaches(second.service, task.id, S.UNKNOWN, ALICE)
    assert len(peer.sent) == 1
    going.set()


@pytest.mark.parametrize("was_accepted", [True, False])
async def test_replies_with_lost_answers_are_searched(joining: Joining, was_accepted: bool) -> None:
    here = await joining(Scripted(push=False), terms=replace(QUICK, mode=ReportMode.POLL))
    here.peer.answer = lambda _: there(S.INPUT_REQUIRED)
    asked = await sent(here.service, saying("a shirt"), ALICE)

    def lose(request: SendRequest) -> Exception:
        if was_accepted:
            here.peer.tasks["r-1"] = there(S.COMPLETED, history=(request.message,))
        return LOST

    here.peer.answer = lose
    after = await sent(here.service, saying("L", task_id=asked.id), ALICE)
    assert after.status.state is (S.COMPLETED if was_accepted else S.UNKNOWN)
    assert len(here.peer.sent) == 2


async def test_new_caller_messages_resend_nothing(joining: Joining) -> None:
    here = await joining(Scripted(lists=False), terms=QUICK)
    here.peer.answer = lambda _: LOST
    task = await begun(here)
    await until(lambda: is_parked(here.store, task.id))
    with suppress(AccordError):  # it may be refused while the task works; then nothing is added
        await begun(here, "more", task_id=task.id)
    await here.remotes.report("acme", task.id, Report(body=there(S.COMPLETED)))
    await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert [request.message.parts for request in here.peer.sent] == [(Part(text="hello"),)]


@pytest.mark.parametrize(
    "refusal",
    [
        InvalidParams("`url`: Only https is allowed"),
        PermissionDenied("Your roles do not include CreateTaskPushNotificationConfig: send it without a webhook"),
    ],
)
async def test_a_webhook_that_is_refused_is_done_without(refusal: AccordError, joining: Joining) -> None:
    here = await joining(terms=QUICK)
    here.peer.answer = in_turn(refusal, there(S.COMPLETED))
    assert (await sent(here.service, saying("hello"), ALICE)).status.state is S.COMPLETED
    pushes = [
        request.configuration and request.configuration.task_push_notification_config for request in here.peer.sent
    ]
    assert [push is not None for push in pushes] == [True, False]


async def test_unconfirmable_sends_are_unknown(joining: Joining) -> None:
    here = await joining(Scripted(push=False, lists=False), terms=RemoteTerms(mode=ReportMode.POLL))
    here.peer.answer = lambda _: LOST
    task = await sent(here.service, saying("hello"), ALICE)
    assert task.status.state is S.UNKNOWN
    assert "not known whether" in said(task)
    assert len(here.peer.sent) == 1


async def test_webhooks_replace_a_lost_answer(joining: Joining) -> None:
    here = await joining(Scripted(lists=False))
    here.peer.answer = lambda _: LOST
    task = await begun(here)
    await until(lambda: is_parked(here.store, task.id))
    assert (await here.service.get(_get(task), ALICE)).status.state is S.SUBMITTED
    from tests.remote.test_receiver import done, posted

    assert (await posted(here, done(), bearer=here.peer.token)).status == 204
    await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert len(here.peer.sent) == 1


@pytest.mark.parametrize("knows_messages", [True, False])
async def test_a_run_that_died_after_sending_does_not_send_twice(joining: Joining, knows_messages: bool) -> None:
    meddlers: list[Meddler] = []

    def wrap(store: Any) -> Meddler:
        meddlers.append(Meddler(store))
        return meddlers[-1]

    peer = Scripted(knows_messages=knows_messages)
    here = await joining(peer, wrap=wrap)
    peer.answer = accepted_but(peer, LOST, times=0)
    # the process dies before the answer is stored
    held = meddlers[0].waits["remote_tasks.write_report"] = asyncio.Event()
    task = await begun(here)
    await until(lambda: _has_sent(here, 1))
    await here.host.stop(0)
    other = await joining(peer)
    await until(lambda: _is_acknowledged(other, task.id))
    assert len({request.message.message_id for request in peer.sent}) == 1
    assert len(peer.sent) == (2 if knows_messages else 1)
    held.set()


async def test_an_answer_is_kept_although_the_task_was_cancelled_meanwhile(joining: Joining) -> None:
    here = await joining()
    going = asyncio.Event()

    async def wait(_: Any) -> None:
        await going.wait()

    here.peer.before = wait
    task = await begun(here)
    await until(lambda: _has_sent(here, 1))
    await here.service.cancel(CancelRequest(id=task.id), ALICE)
    going.set()
    await until(lambda: _was_cancelled(here, "r-1"))


@pytest.mark.proves("0-63")
async def test_a_cancel_is_passed_on(joining: Joining) -> None:
    here = await joining()
    task = await begun(here)
    await until(lambda: is_parked(here.store, task.id))
    cancelled = await here.service.cancel(CancelRequest(id=task.id), ALICE)
    assert cancelled.status.state is S.CANCELED
    await until(lambda: _was_cancelled(here, "r-1"))

    async def is_noted() -> bool:
        return await rows(here.store, "remote", "cancels, cancel_at") == [(1, None)]

    await until(is_noted)


# --- conversations --------------------------------------------------------------------------------------------------


async def test_remote_conversations_are_private_per_owner(joining: Joining) -> None:
    here = await joining()
    here.peer.answer = lambda _: there(S.COMPLETED, id=f"r-{len(here.peer.sent)}")
    for caller in (ALICE, ALICE, BOB):
        await here.service.send(saying("hello", context_id="chat"), caller)
    first, second, third = (request.message.context_id for request in here.peer.sent)
    assert first == second
    assert third not in (first, None)


@pytest.mark.proves("0-74")
async def test_remote_context_ids_are_reused(joining: Joining, caplog: pytest.LogCaptureFixture) -> None:
    here = await joining()
    here.peer.answer = lambda _: there(S.COMPLETED, id=f"r-{len(here.peer.sent)}", context_id="own")
    done = await sent(here.service, saying("hello", context_id="chat"), ALICE)
    assert done.context_id == "chat"
    await here.service.send(saying("again", context_id="chat"), ALICE)
    assert here.peer.sent[0].message.context_id != "own"
    assert here.peer.sent[1].message.context_id == "own"
    assert [record.msg for record in caplog.records].count("remote.other_context") == 1
    assert "contextIdMismatch" in str(await rows(here.store, "event", "data"))


@pytest.mark.proves("0-60")
async def test_acknowledgement_and_end_are_logged(joining: Joining, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "accord.remote")
    here = await joining()
    here.peer.answer = lambda _: there(S.COMPLETED)
    done = await sent(here.service, saying("hello"), ALICE)
    lines = {record.msg: vars(record) for record in caplog.records if record.name == "accord.remote"}
    assert lines["remote.acknowledged"]["task_id"] == done.id
    assert (lines["remote.ended"]["remote_task_id"], lines["remote.ended"]["state"]) == ("r-1", "COMPLETED")


@pytest.mark.parametrize("asks", [S.INPUT_REQUIRED, S.AUTH_REQUIRED])
async def test_questions_pass_through_both_ways(joining: Joining, asks: TaskState) -> None:
    here = await joining()
    question = Message(message_id="q", role=Role.AGENT, parts=(Part(text="Which size?"),))
    here.peer.answer = in_turn(there(asks, message=question), there(S.COMPLETED))
    asked = await sent(here.service, saying("a shirt"), ALICE)
    assert (asked.status.state, said(asked)) == (asks, "Which size?")
    done = await sent(here.service, saying("L", task_id=asked.id), ALICE)
    assert done.status.state is S.COMPLETED
    first, second = here.peer.sent
    assert (second.message.task_id, second.message.parts) == ("r-1", (Part(text="L"),))
    assert second.message.context_id == first.message.context_id
    assert second.message.message_id != first.message.message_id


async def test_refused_answers_are_reported_and_the_task_continues(joining: Joining) -> None:
    here = await joining()
    here.peer.answer = in_turn(there(S.INPUT_REQUIRED), InvalidParams("Not a size"), there(S.COMPLETED))
    asked = await sent(here.service, saying("a shirt"), ALICE)
    await begun(here, "??", task_id=asked.id)
    again = await reaches(here.service, asked.id, S.INPUT_REQUIRED, ALICE)
    assert any("Not a size" in text(message) for message in again.history)
    done = await sent(here.service, saying("L", task_id=asked.id), ALICE)
    assert done.status.state is S.COMPLETED


def _get(task: Task) -> Any:
    from accord.model import GetRequest

    return GetRequest(id=task.id)


async def _has_sent(here: Joined, count: int) -> bool:
    return len(here.peer.sent) >= count


async def _was_cancelled(here: Joined, remote_id: str) -> bool:
    return remote_id in here.peer.cancelled


async def _is_acknowledged(here: Joined, task_id: str) -> bool:
    link = await here.remotes.find("acme", task_id)
    return link is not None and (link.remote_id, link.sent) == ("r-1", 1)
