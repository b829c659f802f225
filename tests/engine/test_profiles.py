"""What an agent's profile says about single messages: which are answered alone, and whether a repetition is one."""

import pytest

from accord import Context, agent
from accord.model import Message, Part, Role, SendConfiguration, Task, TaskState
from accord.service.host import Host
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, saying, state, text


def is_question(message: Message) -> bool:
    return (message.parts[0].text or "").endswith("?")


@agent(answers_message=is_question)
async def answering(ctx: Context) -> str:
    """Answers questions with a message alone."""
    if ctx.text == "who?":
        await ctx.ask("Whom do you mean?")
    return f"{ctx.text} yes"


@agent(takes_repeats=True)
async def tireless(ctx: Context) -> str:
    """Does the same as often as it is told to."""
    await ctx.ask("Again?")
    return "again"


@pytest.fixture
async def host(hosting: Hosting) -> Host:
    return await hosting(answering, tireless)


@pytest.mark.proves("CORE-SEND-001", "CORE-STREAM-002")
async def test_an_agent_answers_some_messages_alone(host: Host) -> None:
    told, asked = [await host.default.send(saying(said), ALICE) for said in ("so", "so?")]
    assert (state(told), text(told)) == (TaskState.COMPLETED, "so yes")
    assert isinstance(asked, Message)
    assert (asked.role, asked.task_id, text(asked)) == (Role.AGENT, None, "so? yes")
    events = await all_of(host.default.stream(saying("so?"), ALICE))
    assert [type(event.body) for event in events] == [Message]


async def test_a_message_alone_is_waited_for_even_by_a_caller_in_a_hurry(host: Host) -> None:
    answer = await host.default.send(saying("so?", configuration=AT_ONCE), ALICE)
    assert isinstance(answer, Message)
    told = await host.default.send(saying("so", configuration=AT_ONCE), ALICE)
    assert state(told) in (TaskState.SUBMITTED, TaskState.WORKING)


async def test_incomplete_replies_are_tasks(host: Host) -> None:
    asked = await host.default.send(saying("who?", configuration=SendConfiguration(history_length=0)), ALICE)
    assert (state(asked), asked.history if isinstance(asked, Task) else None) == (TaskState.INPUT_REQUIRED, ())


async def test_an_agent_may_take_the_same_message_for_another(host: Host) -> None:
    service = host.services["tireless"]
    first, second = [await service.send(saying("go", "same"), ALICE) for _ in range(2)]
    assert isinstance(first, Task)
    assert isinstance(second, Task)
    assert first.id != second.id
    for task in (first, second):
        ended = await service.send(saying("go", "same", task_id=task.id), ALICE)
        assert (state(ended), text(ended)) == (TaskState.COMPLETED, "again")


async def test_other_agents_know_a_repetition(host: Host) -> None:
    first, second = [await host.default.send(saying("so", "same"), ALICE) for _ in range(2)]
    assert isinstance(first, Task)
    assert first == second
    assert first.artifacts[0].parts == (Part(text="so yes"),)
