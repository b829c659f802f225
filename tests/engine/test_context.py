"""What an agent sees, says and asks while it runs."""

import asyncio
from typing import Any

import pytest

from accord import Context, agent
from accord.agents.function import FunctionAgent
from accord.engine.execution import StatusEntry
from accord.engine.hooks import ExecutionEnded, ExecutionStarted, Hooks
from accord.errors import UnsupportedOperation
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    GetRequest,
    Message,
    Part,
    Role,
    SendConfiguration,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskState,
)
from accord.service.host import Host
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, said, saying, state, states, text
from tests.engine.doubles import Watch, reaches, sent, words

S = TaskState


def progress(events: list[Event]) -> list[str]:
    """What the statuses of a stream said."""
    updates = [event.body for event in events if isinstance(event.body, StatusUpdate)]
    return [words(update.status.message) for update in updates if update.status.message]


def chunks(events: list[Event]) -> list[ArtifactUpdate]:
    return [event.body for event in events if isinstance(event.body, ArtifactUpdate)]


async def answered(host: Host, task: Task, *words: str) -> Task:
    """Answer a task's questions."""
    for word in words:
        assert state(task) is S.INPUT_REQUIRED
        task = await sent(host.default, saying(word, task_id=task.id), ALICE)
    return task


# --- what is asked ------------------------------------------------------------------------------------------------


@agent(timeout=60, input_modes=["*/*"])
async def looks(ctx: Context) -> dict[str, Any]:
    return {
        "text": ctx.text,
        "data": ctx.data,
        "files": [part.filename for part in ctx.files],
        "message": ctx.message.message_id,
        "history": [message.message_id for message in ctx.history],
        "task": [ctx.task.id == ctx.task_id, ctx.task.status.state.name],
        "context": ctx.context_id,
        "tenant": ctx.tenant,
        "owner": ctx.caller.owner,
        "attempt": ctx.attempt,
        "cancelled": ctx.cancelled,
        "seconds": ctx.deadline and ctx.deadline > 1_700_000_000,
    }


async def test_agents_see_their_message(hosting: Hosting) -> None:
    host = await hosting(looks)
    parts = (
        Part(text="one "),
        Part(data={"a": 1}),
        Part(data={"b": 2}),
        Part(raw=b"x", filename="raw"),
        Part(url="https://example.com/x", filename="link"),
        Part(text="two"),
    )
    task = await sent(host.default, saying("", "m", parts=parts, context_id="c"), ALICE)
    assert task.artifacts[0].parts[0].data == {
        "text": "one two",
        "data": {"a": 1},
        "files": ["raw", "link"],
        "message": "m",
        "history": ["m"],
        "task": [True, "WORKING"],
        "context": "c",
        "tenant": "acme",
        "owner": "alice",
        "attempt": 1,
        "cancelled": False,
        "seconds": True,
    }


@agent
async def sees_little(ctx: Context) -> str:
    assert (ctx.data, ctx.files, ctx.deadline) == (None, (), None)
    return "nothing"


async def test_absent_inputs_are_empty(hosting: Hosting) -> None:
    host = await hosting(sees_little)
    assert text(await sent(host.default, saying("x"), ALICE)) == "nothing"


# --- what is said -------------------------------------------------------------------------------------------------


@agent
async def reports(ctx: Context) -> str:
    await ctx.status("one")
    await ctx.status("two", metadata={"percent": 50})
    await ctx.status()
    await ctx.status(Message(message_id="mine", role=Role.AGENT, parts=(Part(text="three"),)))
    return "done"


async def test_progress_is_shown_and_remembered(hosting: Hosting) -> None:
    host = await hosting(reports)
    events = await all_of(host.default.stream(saying("go"), ALICE))
    assert states(events) == [S.SUBMITTED, S.WORKING, S.WORKING, S.WORKING, S.WORKING, S.WORKING, S.COMPLETED]
    assert progress(events) == ["one", "two", "three"]
    assert [body.metadata for body in (event.body for event in events) if isinstance(body, StatusUpdate)][2] == {
        "percent": 50
    }
    assert isinstance(events[0].body, Task)
    kept = await host.default.get(GetRequest(id=events[0].body.id), ALICE)
    assert [words(message) for message in kept.history] == ["go", "one", "two", "three"]
    assert [message.role for message in kept.history] == [Role.USER, Role.AGENT, Role.AGENT, Role.AGENT]


@agent
async def makes(ctx: Context) -> None:
    await ctx.artifact("a", name="log", description="what happened", metadata={"k": 1}, last_chunk=False)
    await ctx.artifact("b", name="log", append=True)
    await ctx.artifact(None, name="log", append=True)
    await ctx.artifact("old", id="report", name="Report")
    await ctx.artifact("new", id="report", name="Report")
    await ctx.artifact({"n": 1})
    await ctx.artifact("begun", id="late", append=True, last_chunk=False)
    await ctx.artifact(Artifact(artifact_id="log", parts=(Part(text="c"),)), append=True)


async def test_artifacts_are_made_replaced_and_extended(hosting: Hosting) -> None:
    host = await hosting(makes)
    events = await all_of(host.default.stream(saying("go"), ALICE))
    made = [(chunk.artifact.artifact_id, chunk.append, chunk.last_chunk) for chunk in chunks(events)]
    assert made == [
        ("log", False, False),
        ("log", True, True),
        ("report", False, True),
        ("report", False, True),
        ("result", False, True),
        ("late", False, False),
        ("log", True, True),
    ]
    assert isinstance(events[0].body, Task)
    kept = await host.default.get(GetRequest(id=events[0].body.id), ALICE)
    log, report, result, late = kept.artifacts
    assert (log.name, log.description, log.metadata) == ("log", "what happened", {"k": 1})
    assert [part.text for part in log.parts] == ["a", "b", "c"]
    assert [part.text for part in (*report.parts, *late.parts)] == ["new", "begun"]
    assert result.parts[0].data == {"n": 1}


@agent
async def nameless(ctx: Context) -> None:
    await ctx.artifact("one")
    await ctx.artifact("two")
    await ctx.artifact(" and more", append=True)
    await ctx.artifact("mine", id="result-3")
    await ctx.artifact("three")
    await ctx.artifact("first", name="log")
    await ctx.artifact("second", name="log")
    if ctx.text == "ask":
        await ctx.ask("more?")


@pytest.mark.parametrize("word", ["go", "ask"])
async def test_artifacts_without_an_id_are_all_kept(hosting: Hosting, word: str) -> None:
    host = await hosting(nameless)
    task = await sent(host.default, saying(word), ALICE)
    if word == "ask":  # it runs again from its first line, and creates each of them once
        task = await sent(host.default, saying("yes", task_id=task.id), ALICE)
    assert task.status.state is TaskState.COMPLETED
    found = {one.artifact_id: "".join(part.text or "" for part in one.parts) for one in task.artifacts}
    assert found == {
        "result": "one",
        "result-2": "two and more",
        "result-3": "mine",
        "result-4": "three",
        "log": "first",
        "log-2": "second",
    }


@agent
async def completes(ctx: Context) -> str:
    await ctx.artifact("kept")
    await ctx.complete("bye")
    if ctx.text == "ask":
        await ctx.ask("more?")
    if ctx.text == "report":
        await ctx.status("more")
    return "more"


@pytest.mark.parametrize("word", ["return", "ask", "report"])
async def test_nothing_comes_after_the_end(hosting: Hosting, word: str) -> None:
    host = await hosting(completes)
    task = await sent(host.default, saying(word), ALICE)
    assert (state(task), said(task), text(task)) == (S.COMPLETED, "bye", "kept")
    assert await host.default.get(GetRequest(id=task.id), ALICE) == task
    with pytest.raises(UnsupportedOperation):
        await host.default.send(saying("again", task_id=task.id), ALICE)


# --- questions ----------------------------------------------------------------------------------------------------


@agent
async def asks_twice(ctx: Context) -> str:
    first = await ctx.ask("First name?")
    last = await ctx.ask("Last name?", metadata={"hint": "family"})
    return f"{first} {last.text}"


async def test_several_questions_are_several_turns(hosting: Hosting) -> None:
    watch = Watch()
    host = await hosting(asks_twice, hooks=Hooks((watch,)))
    task = await sent(host.default, saying("hi"), ALICE)
    assert said(task) == "First name?"
    task = await answered(host, task, "Ada")
    assert said(task) == "Last name?"
    assert task.status.message is not None
    assert task.status.message.metadata == {"hint": "family"}
    task = await answered(host, task, "Lovelace")
    assert (state(task), text(task)) == (S.COMPLETED, "Ada Lovelace")
    ended = await watch.until(ExecutionEnded, 3)
    assert [detail.state for detail in ended] == [S.INPUT_REQUIRED, S.INPUT_REQUIRED, S.COMPLETED]
    assert [detail.attempt for detail in watch.of(ExecutionStarted)] == [1, 1, 1]


@agent
async def asks_by_key(ctx: Context) -> str:
    colour = await ctx.ask("Colour?", key="colour")
    again = await ctx.ask("Colour once more?", key="colour")
    size = await ctx.ask("Size?", key="size")
    return f"{colour} {again} {size}"


@agent
async def asks_until_it_fits(ctx: Context) -> str:
    tries = 1
    while not (number := (await ctx.ask("A number?")).text).isdigit():
        tries += 1
    return f"{number} after {tries}"


async def test_questions_are_identified_by_key_or_order(hosting: Hosting) -> None:
    host = await hosting(asks_by_key)
    task = await answered(host, await sent(host.default, saying("hi"), ALICE), "red", "large")
    assert text(task) == "red red large"
    host = await hosting(asks_until_it_fits)
    task = await answered(host, await sent(host.default, saying("hi"), ALICE), "one", "two", "3")
    assert text(task) == "3 after 3"


async def test_a_question_survives_agents_that_catch_and_clean_up(hosting: Hosting) -> None:
    cleaned: list[str] = []

    @agent
    async def careful(ctx: Context) -> str:
        try:
            try:
                answer = await ctx.ask("Well?")
            except Exception:
                return "caught"
        finally:
            cleaned.append(ctx.text)
            await ctx.status("cleaning up")
        return f"{answer}"

    host = await hosting(careful)
    task = await sent(host.default, saying("hi"), ALICE)
    assert (state(task), said(task)) == (S.INPUT_REQUIRED, "Well?")
    task = await answered(host, task, "good")
    assert (state(task), text(task)) == (S.COMPLETED, "good")
    assert cleaned == ["hi", "hi"]


@agent
async def catches_all(ctx: Context) -> str:
    try:
        return (await ctx.ask("Well?")).text
    except BaseException as error:
        raise ValueError("caught") from error


async def test_a_question_survives_agents_that_catch_too_much(hosting: Hosting) -> None:
    host = await hosting(catches_all)
    task = await sent(host.default, saying("hi"), ALICE)
    assert (state(task), said(task)) == (S.INPUT_REQUIRED, "Well?")
    assert text(await answered(host, task, "good")) == "good"


async def test_concurrent_branches_can_ask_at_once(hosting: Hosting) -> None:
    @agent
    async def torn(ctx: Context) -> str:
        await asyncio.gather(ctx.enter(S.INPUT_REQUIRED, "this?"), ctx.enter(S.INPUT_REQUIRED, "or that?"))
        asks = [
            ctx.journal.write({word: "1"}, (), [StatusEntry(S.INPUT_REQUIRED, word)]) for word in ("these?", "those?")
        ]
        await asyncio.gather(*asks)
        return "both"

    host = await hosting(torn)
    events = await all_of(host.default.stream(saying("hi"), ALICE))
    first = events[0].body
    assert isinstance(first, Task)
    await reaches(host.default, first.id, S.COMPLETED, ALICE)
    kept = await host.default.get(GetRequest(id=first.id), ALICE)
    assert text(kept) == "both"
    assert [words(message) for message in kept.history[1:]] == ["this?", "or that?", "these?", "those?"]


async def test_early_messages_answer_the_next_question(hosting: Hosting) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @agent
    async def busy(ctx: Context) -> str:
        started.set()
        await gate.wait()
        return f"{await ctx.ask('One?')} {await ctx.ask('Two?')}"

    host = await hosting(busy)
    stream = host.default.stream(saying("hi"), ALICE)
    first = (await anext(stream)).body
    assert isinstance(first, Task)
    await started.wait()
    for word in ("early", "bird"):
        await host.default.send(saying(word, task_id=first.id, configuration=AT_ONCE), ALICE)
    gate.set()
    events = await all_of(stream)
    assert states(events) == [S.WORKING, S.COMPLETED]
    kept = await host.default.get(GetRequest(id=first.id), ALICE)
    assert text(kept) == "early bird"
    assert [words(message) for message in kept.history] == ["hi", "early", "bird"]


async def test_answers_may_all_have_the_same_id(hosting: Hosting) -> None:
    host = await hosting(asks_twice)
    task = await sent(host.default, saying("hi", "1"), ALICE)
    task = await sent(host.default, saying("Ada", "1", task_id=task.id), ALICE)
    task = await sent(host.default, saying("Lovelace", "1", task_id=task.id), ALICE)
    assert text(task) == "Ada Lovelace"


# --- credentials --------------------------------------------------------------------------------------------------


@agent
async def needs_login(ctx: Context) -> str:
    token = await ctx.require_auth("Log in at https://example.com/login", key="login", metadata={"scheme": "oauth2"})
    return f"logged in with {token.text or token.data}"


@pytest.mark.proves("AUTH-INTASK-001", "AUTH-INTASK-002", "AUTH-INTASK-003", "AUTH-INTASK-006")
async def test_a_task_asks_for_credentials_and_takes_messages(hosting: Hosting) -> None:
    host = await hosting(needs_login)
    task = await sent(host.default, saying("hi"), ALICE)
    assert (state(task), said(task)) == (S.AUTH_REQUIRED, "Log in at https://example.com/login")
    assert task.status.message is not None
    assert task.status.message.metadata == {"scheme": "oauth2"}
    answered = await sent(host.default, saying("token-1", task_id=task.id), ALICE)
    assert (state(answered), text(answered)) == (S.COMPLETED, "logged in with token-1")


@pytest.mark.proves("AUTH-INTASK-004", "AUTH-INTASK-005")
async def test_streams_stay_open_until_credentials_arrive_out_of_band(hosting: Hosting) -> None:
    host = await hosting(needs_login)
    stream = host.default.stream(saying("hi"), ALICE)
    first = (await anext(stream)).body
    assert isinstance(first, Task)
    await reaches(host.default, first.id, S.AUTH_REQUIRED, ALICE)
    subscription = host.default.subscribe(SubscribeRequest(id=first.id), ALICE)
    assert states([await anext(subscription)]) == [S.AUTH_REQUIRED]
    assert await host.default.wake("acme", first.id, "login", {"token": 2})
    assert states(await all_of(stream)) == [S.WORKING, S.AUTH_REQUIRED, S.WORKING, S.COMPLETED]
    assert states(await all_of(subscription)) == [S.WORKING, S.COMPLETED]
    kept = await host.default.get(GetRequest(id=first.id), ALICE)
    assert text(kept) == "logged in with {'token': 2}"


async def test_a_blocking_send_does_not_wait_for_credentials(hosting: Hosting) -> None:
    host = await hosting(needs_login)
    task = await sent(host.default, saying("hi", configuration=SendConfiguration(history_length=0)), ALICE)
    assert (state(task), task.history) == (S.AUTH_REQUIRED, ())


# --- approvals ----------------------------------------------------------------------------------------------------


@agent
async def approval(ctx: Context) -> dict[str, Any]:
    decision = await ctx.approve("Delete everything?", key="delete")
    return {"yes": bool(decision), "comment": decision.comment}


DECISIONS: list[tuple[Part, bool, str]] = [
    (Part(data={"approved": True, "comment": "fine"}), True, "fine"),
    (Part(data={"approved": False}), False, ""),
    (Part(data={"approved": "yes"}), False, ""),
    (Part(text="yes"), True, ""),
    (Part(text=" Okay, go ahead"), True, "go ahead"),
    (Part(text="APPROVED!"), True, ""),
    (Part(text="no"), False, ""),
    (Part(text="yesterday"), False, "yesterday"),
    (Part(text="no, not yet"), False, "not yet"),
    (Part(text=""), False, ""),
]


async def test_approvals_are_data_or_words(hosting: Hosting) -> None:
    host = await hosting(approval)
    for part, is_approved, comment in DECISIONS:
        task = await sent(host.default, saying("go"), ALICE)
        assert (state(task), said(task)) == (S.INPUT_REQUIRED, "Delete everything?")
        assert task.status.message is not None
        assert task.status.message.metadata == {"approval": True}
        task = await sent(host.default, saying("", parts=(part,), task_id=task.id), ALICE)
        assert task.artifacts[0].parts[0].data == {"yes": is_approved, "comment": comment}, part


# --- many words ---------------------------------------------------------------------------------------------------


def talkative(count: int) -> FunctionAgent:
    @agent
    async def talks(ctx: Context) -> None:
        for at in range(count):
            await ctx.artifact(f"{at} ", id="talk", append=True)

    return talks


async def test_an_agent_that_never_waits_lets_others_work(hosting: Hosting) -> None:
    host = await hosting(talkative(3000), reports)
    long = asyncio.create_task(sent(host.default, saying("go"), ALICE))
    short = await sent(host.services["reports"], saying("go"), ALICE)
    assert text(short) == "done"
    assert text(await long) == "".join(f"{at} " for at in range(3000))
