"""Questions of those who were called: they reach whoever called first, and the answer finds its way back."""

import asyncio
from typing import Any

import pytest

from accord import Context, agent
from accord.a2a import Caller
from accord.engine.context import APPROVAL
from accord.engine.hooks import ExecutionStarted, Hooks
from accord.engine.messages import CHILD_TASK
from accord.engine.outcome import CallFailed
from accord.errors import AgentUnavailable
from accord.model import (
    CancelRequest,
    GetRequest,
    Message,
    Part,
    Role,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskState,
)
from accord.service.host import Host
from accord.service.service import Service
from accord.storage.commands.task_lists import TaskListQuery, list_tasks
from accord.storage.store import Store
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, said, saying, state, states, text
from tests.engine.doubles import Meddler, Watch, change, is_parked, reaches, rows, sent, times, until

S = TaskState


@agent
async def asks(ctx: Context) -> str:
    return f"{ctx.text} is {await ctx.ask(f'What is {ctx.text}?')}"


@agent
async def calls(ctx: Context) -> str:
    return f"so {await ctx.call('asks', ctx.text)}"


async def answer(service: Service, task: Task, word: str) -> Task:
    return await sent(service, saying(word, task_id=task.id), ALICE)


async def child_of(host: Host, task: Task, agent: str = "asks") -> Task:
    """The task that a task has started."""
    found, _ = await host.node.store.read(list_tasks, "acme", TaskListQuery(parent_id=task.id, agents=(agent,)))
    return await host.services[agent].get(GetRequest(id=found[0].id), ALICE)


async def test_a_child_asks_through_its_parent(hosting: Hosting) -> None:
    host = await hosting(calls, asks)
    task = await sent(host.default, saying("it"), ALICE)
    child = await child_of(host, task)
    assert (state(task), said(task), state(child)) == (S.INPUT_REQUIRED, "What is it?", S.INPUT_REQUIRED)
    question = task.status.message
    assert question is not None
    assert (question.metadata, question.task_id, question.context_id) == (
        {CHILD_TASK: child.id},
        task.id,
        task.context_id,
    )
    assert host.node._executions == {}
    assert await is_parked(host.node.store, task.id)
    done = await answer(host.default, task, "blue")
    assert (state(done), text(done)) == (S.COMPLETED, "so it is blue")
    assert [said.parts[0].text for said in done.history] == ["it", "What is it?", "blue"]
    child = await child_of(host, task)
    assert [said.parts[0].text for said in child.history] == ["it", "What is it?", "blue"]
    assert {said.task_id for said in child.history} == {child.id}


async def test_nothing_of_it_needs_the_process_that_began(hosting: Hosting) -> None:
    watch = Watch()
    first = await hosting(calls, asks)
    task = await sent(first.default, saying("it"), ALICE)
    await first.stop(0)
    await change(first.node.store, "DELETE FROM idempotency")  # as if days had passed
    second = await hosting(calls, asks, hooks=Hooks((watch,)))
    done = await answer(second.default, task, "blue")
    assert text(done) == "so it is blue"
    assert {detail.agent for detail in watch.of(ExecutionStarted)} == {"calls", "asks"}
    assert await rows(second.node.store, "task", "count(*)") == [(2,)]


async def test_streams_show_the_question_and_continue_after_the_answer(hosting: Hosting) -> None:
    host = await hosting(calls, asks)
    events = await all_of(host.default.stream(saying("it"), ALICE))
    assert states(events) == [S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED]
    assert isinstance(events[0].body, Task)
    events = await all_of(host.default.stream(saying("blue", task_id=events[0].body.id), ALICE))
    assert states(events) == [S.WORKING, S.COMPLETED]


async def test_a_child_may_ask_as_often_as_it_likes(hosting: Hosting) -> None:
    @agent(name="asks")
    async def insists(ctx: Context) -> str:
        word = ""
        while word != "please":
            word = (await ctx.ask(Message(message_id="1", role=Role.AGENT, parts=(Part(text="Say please"),)))).text
        return "thanks"

    host = await hosting(calls, insists)
    task = await sent(host.default, saying("it"), ALICE)
    for _ in range(3):
        assert (state(task), said(task)) == (S.INPUT_REQUIRED, "Say please")
        task = await answer(host.default, task, "now")
    assert text(await answer(host.default, task, "please")) == "so thanks"


async def test_questions_come_through_as_many_as_called_each_other(hosting: Hosting) -> None:
    @agent
    async def director(ctx: Context) -> str:
        return f"well, {await ctx.call('calls', ctx.text)}"

    host = await hosting(director, calls, asks)
    task = await sent(host.default, saying("it"), ALICE)
    middle = await child_of(host, task, "calls")
    assert (state(task), said(task)) == (S.INPUT_REQUIRED, "What is it?")
    assert task.status.message is not None
    assert (task.status.message.metadata or {})[CHILD_TASK] == middle.id
    assert text(await answer(host.default, task, "blue")) == "well, so it is blue"


async def test_question_metadata_is_kept(hosting: Hosting) -> None:
    @agent(name="asks")
    async def wants_approval(ctx: Context) -> str:
        decision = await ctx.approve("Really?")
        return f"{decision.is_approved} {decision.comment}"

    host = await hosting(calls, wants_approval)
    task = await sent(host.default, saying("it"), ALICE)
    assert task.status.message is not None
    assert (task.status.message.metadata or {})[APPROVAL] is True
    parts = (Part(data={"approved": True, "comment": "go"}),)
    assert text(await sent(host.default, saying("", task_id=task.id, parts=parts), ALICE)) == "so True go"


async def test_credential_requests_suspend_the_task(hosting: Hosting) -> None:
    @agent(name="asks")
    async def locked(ctx: Context) -> str:
        return f"opened with {await ctx.require_auth(None)}"

    host = await hosting(calls, locked)
    task = await sent(host.default, saying("it"), ALICE)
    child = await child_of(host, task)
    assert (state(task), said(task)) == (S.AUTH_REQUIRED, f"Task {child.id} waits for credentials")
    assert text(await answer(host.default, task, "key")) == "so opened with key"


# --- several ----------------------------------------------------------------------------------------------------------


@agent
async def gathers(ctx: Context) -> str:
    both = await asyncio.gather(*(ctx.call("asks", word, key=word) for word in ("a", "b")))
    return ", ".join(said.text for said in both)


@agent
async def groups(ctx: Context) -> str:
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(ctx.call("asks", word, key=word)) for word in ("a", "b")]
    return ", ".join(one.result().text for one in both)


@pytest.mark.parametrize("parent", [gathers, groups], ids=["gather", "group"])
async def test_concurrent_questions_get_their_own_answers(hosting: Hosting, parent: Any) -> None:
    host = await hosting(parent, asks)
    task = await sent(host.default, saying("go"), ALICE)
    asked = []
    while state(task) is S.INPUT_REQUIRED:
        asked.append(said(task))
        task = await answer(host.default, task, f"what {said(task)[8]} is")
    assert (state(task), text(task)) == (S.COMPLETED, "a is what a is, b is what b is")
    assert sorted(asked) == ["What is a?", "What is b?"]
    assert not host.node.slots.waiting


async def test_one_agent_may_ask_several_things_at_the_same_time(hosting: Hosting) -> None:
    @agent
    async def both(ctx: Context) -> str:
        answers = await asyncio.gather(*(ctx.ask(f"What is {word}?", key=word) for word in ("a", "b")))
        return ", ".join(f"{one}" for one in answers)

    host = await hosting(both)
    task = await sent(host.default, saying("go"), ALICE)
    asked = []
    while state(task) is S.INPUT_REQUIRED:
        asked.append(said(task))
        task = await answer(host.default, task, said(task)[8])
    assert (text(task), asked) == ("a, b", ["What is a?", "What is b?"])


async def test_a_parent_may_have_questions_of_its_own(hosting: Hosting) -> None:
    @agent
    async def curious(ctx: Context) -> str:
        before = await ctx.ask("Before?")
        between = await ctx.call("asks", "it")
        after = await ctx.ask("After?")
        return f"{before}, {between}, {after}"

    host = await hosting(curious, asks)
    task = await sent(host.default, saying("go"), ALICE)
    for question, word in (("Before?", "one"), ("What is it?", "two"), ("After?", "three")):
        assert said(task) == question
        task = await answer(host.default, task, word)
    assert text(task) == "one, it is two, three"


async def test_earlier_messages_do_not_answer_a_child_s_question(hosting: Hosting) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @agent(name="asks")
    async def slow(ctx: Context) -> str:
        started.set()
        await gate.wait()
        return f"{await ctx.ask('Well?')}"

    host = await hosting(calls, slow)
    stream = host.default.stream(saying("it"), ALICE)
    task = (await anext(stream)).body
    assert isinstance(task, Task)
    await started.wait()
    asyncio.get_running_loop().call_soon(gate.set)
    task = await answer(host.default, task, "by the way")
    assert (state(task), said(task)) == (S.INPUT_REQUIRED, "Well?")
    assert text(await answer(host.default, task, "fine")) == "so fine"
    await stream.aclose()  # type: ignore[attr-defined]


# --- answered or ended elsewhere --------------------------------------------------------------------------------------


async def test_direct_answers_to_a_child_resume_its_parent(hosting: Hosting) -> None:
    host = await hosting(calls, asks)
    task = await sent(host.default, saying("it"), ALICE)
    assert text(await answer(host.services["asks"], await child_of(host, task), "blue")) == "it is blue"
    done = await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert text(done) == "so it is blue"
    assert [said.parts[0].text for said in done.history] == ["it", "What is it?"]


async def test_questions_answered_at_the_child_are_withdrawn(hosting: Hosting) -> None:
    gate = asyncio.Event()

    @agent(name="asks")
    async def slow(ctx: Context) -> str:
        found = await ctx.ask("Well?")
        await gate.wait()
        return f"{found} {await ctx.ask('And?')}"

    host = await hosting(calls, slow)
    task = await sent(host.default, saying("it"), ALICE)
    following = host.default.subscribe(SubscribeRequest(id=task.id), ALICE)
    await anext(following)
    child = await child_of(host, task)
    answering = asyncio.create_task(answer(host.services["asks"], child, "fine"))
    news = (await anext(following)).body
    assert isinstance(news, StatusUpdate)
    assert news.status.state is S.WORKING
    gate.set()
    await answering
    again = await reaches(host.default, task.id, S.INPUT_REQUIRED, ALICE)
    assert said(again) == "And?"
    assert text(await answer(host.default, again, "well")) == "so fine well"
    await following.aclose()  # type: ignore[attr-defined]


async def test_child_progress_resumes_the_parent(hosting: Hosting) -> None:
    @agent(name="asks")
    async def approved(ctx: Context) -> str:
        return f"{await ctx.ask('Well?', key='signature')}"

    host = await hosting(calls, approved)
    task = await sent(host.default, saying("it"), ALICE)
    child = await child_of(host, task)
    assert await host.services["asks"].wake("acme", child.id, "signature", "signed")
    assert text(await reaches(host.default, task.id, S.COMPLETED, ALICE)) == "so signed"


async def test_unrelated_signals_leave_the_question_open(hosting: Hosting) -> None:
    watch = Watch()
    host = await hosting(calls, asks, hooks=Hooks((watch,)))
    task = await sent(host.default, saying("it"), ALICE)
    assert await host.default.wake("acme", task.id, "other", 1)
    await watch.until(ExecutionStarted, 3)
    await until(lambda: is_parked(host.node.store, task.id))
    seen = await host.default.get(GetRequest(id=task.id), ALICE)
    assert seen.status == task.status
    assert text(await answer(host.default, task, "blue")) == "so it is blue"


@agent
async def forgives(ctx: Context) -> str:
    try:
        await ctx.call("asks", "it")
    except CallFailed as error:
        return f"{error.task.status.state.name}"
    return "?"


async def test_a_child_that_is_cancelled_while_it_asks_fails_the_call(hosting: Hosting) -> None:
    host = await hosting(forgives, asks)
    task = await sent(host.default, saying("go"), ALICE)
    child = await child_of(host, task)
    await host.services["asks"].cancel(CancelRequest(id=child.id), ALICE)
    done = await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert text(done) == "CANCELED"


async def test_an_answer_to_a_child_that_has_ended_meanwhile_fails_the_call(hosting: Hosting) -> None:
    held = asyncio.Event()

    @agent(name="forgives")
    async def waits_first(ctx: Context) -> str:
        if len(ctx.history) > 1:
            await held.wait()
        return await forgives_it(ctx)

    async def forgives_it(ctx: Context) -> str:
        try:
            await ctx.call("asks", "it")
        except CallFailed as error:
            return f"{error.task.status.state.name}"
        return "?"

    host = await hosting(waits_first, asks)
    task = await sent(host.default, saying("go"), ALICE)
    child = await child_of(host, task)
    answering = asyncio.create_task(answer(host.default, task, "blue"))
    await reaches(host.default, task.id, S.WORKING, ALICE)
    await host.services["asks"].cancel(CancelRequest(id=child.id), ALICE)
    held.set()
    assert text(await answering) == "CANCELED"


async def test_a_child_that_asks_ends_with_its_parent(hosting: Hosting) -> None:
    host = await hosting(calls, asks)
    task = await sent(host.default, saying("it"), ALICE)
    await host.default.cancel(CancelRequest(id=task.id), ALICE)
    assert state(await child_of(host, task)) is S.CANCELED
    assert await rows(host.node.store, "job", "kind") == []


async def test_a_deadline_of_a_child_that_asks_reaches_its_parent(hosting: Hosting) -> None:
    @agent(name="asks", timeout=0.5)
    async def hurried(ctx: Context) -> str:
        return f"{await ctx.ask('Well?')}"

    host = await hosting(forgives, hurried)
    task = await sent(host.default, saying("go"), ALICE)
    assert state(task) in (S.INPUT_REQUIRED, S.COMPLETED)
    assert text(await reaches(host.default, task.id, S.COMPLETED, ALICE)) == "FAILED"


# --- a database that fails --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["task_lifecycle.accept_task", "task_lifecycle.add_message", "task_lifecycle.settle_execution", "tasks.read_task"],
)
@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "done-but-lost"])
async def test_a_failing_database_delays_calls_only(hosting: Hosting, command: str, is_done: bool) -> None:
    meddlers: list[Meddler] = []

    def wrap(store: Store) -> Meddler:
        meddlers.append(Meddler(store))
        return meddlers[-1]

    @agent(takes_repeats=True)
    async def inquires(ctx: Context) -> str:
        return f"{await ctx.ask('One?')} {await ctx.ask('Two?')}"

    @agent
    async def unlucky(ctx: Context) -> str:
        if is_done:
            meddlers[0].loses = times(command, 2)
        else:
            meddlers[0].refuses = times(command, 2)
        return f"so {await ctx.call('inquires', 'x')}"

    host = await hosting(unlucky, inquires, wrap=wrap)
    task = await sent(host.default, saying("go", configuration=AT_ONCE), ALICE)
    for question, word in (("One?", "a"), ("Two?", "b")):
        task = await reaches(Patient(host.default), task.id, S.INPUT_REQUIRED, ALICE)
        assert said(task) == question
        meddlers[0].loses = meddlers[0].refuses = lambda _: False
        await host.default.send(saying(word, task_id=task.id, configuration=AT_ONCE), ALICE)
    task = await reaches(Patient(host.default), task.id, S.COMPLETED, ALICE)
    assert text(task) == "so a b"
    assert await rows(host.node.store, "task", "count(*)") == [(2,)]
    child = await child_of(host, task, "inquires")
    assert [said.parts[0].text for said in child.history] == ["x", "One?", "a", "Two?", "b"]


class Patient(Service):
    """A service that is asked again while its database fails."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def get(self, request: GetRequest, caller: Caller) -> Task:
        while True:
            try:
                return await self._service.get(request, caller)
            except AgentUnavailable:
                continue
