"""What was said before in the same conversation: whose it is, in which order, and what does not belong to it."""

from typing import Any

from accord import Context, agent
from accord.a2a import Caller
from accord.agents.messages import conversation_history
from accord.engine.outcome import Failed, Rejected
from accord.model import Message, Part, Task, TaskState
from accord.service.host import Host
from tests.engine.conftest import ALICE, AT_ONCE, BOB, Hosting, saying, state, text
from tests.engine.doubles import reaches, sent, words

GLOBEX = Caller(tenant="globex", owner="alice", origin="v1")


@agent(name="talks", input_modes=["*/*"])
async def talks(ctx: Context) -> Any:
    """Say what was said."""
    match ctx.text:
        case "refuse":
            raise Rejected("no")
        case "fail":
            await ctx.artifact("half", id="answer-1", append=True, last_chunk=False)
            raise Failed("it broke")
        case "ask":
            await ctx.status("thinking")
            return f"so {await ctx.ask('Which one?')}"
        case "hang":
            await ctx.wait("never")
    await ctx.status("looking")
    return " | ".join(f"{said.role.name[0]}:{words(said)}" for said in await conversation_history(ctx))


@agent(name="other")
async def other(ctx: Context) -> str:
    return " | ".join(words(said) for said in await conversation_history(ctx))


async def say(host: Host, words: str, context: str, caller: Caller = ALICE, agent: str = "talks") -> Task:
    return await sent(host.services[agent], saying(words, context_id=context), caller)


async def test_agents_get_the_history_oldest_first(hosting: Hosting) -> None:
    host = await hosting(talks, other)
    first = text(await say(host, "one", "c"))
    assert first == "U:one"
    second = text(await say(host, "two", "c"))
    assert second == f"U:one | A:{first} | U:two"
    assert text(await say(host, "three", "c")) == f"U:one | A:{first} | U:two | A:{second} | U:three"


async def test_a_conversation_belongs_to_its_owner_tenant_context_and_agent(hosting: Hosting) -> None:
    host = await hosting(talks, other)
    await say(host, "secret", "c")
    assert text(await say(host, "hi", "c", BOB)) == "U:hi"
    assert text(await say(host, "hi", "c", GLOBEX)) == "U:hi"
    assert text(await say(host, "hi", "d")) == "U:hi"
    assert text(await say(host, "hi", "c", agent="other")) == "hi"


async def test_questions_belong_to_it_and_progress_does_not(hosting: Hosting) -> None:
    host = await hosting(talks)
    task = await say(host, "ask", "c")
    done = await sent(host.default, saying("blue", task_id=task.id), ALICE)
    assert text(done) == "so blue"
    assert text(await say(host, "hi", "c")) == "U:ask | A:Which one? | U:blue | A:so blue | U:hi"


async def test_failed_turns_are_in_the_history_and_rejected_are_not(hosting: Hosting) -> None:
    host = await hosting(talks)
    assert state(await say(host, "refuse", "c")) is TaskState.REJECTED
    assert state(await say(host, "fail", "c")) is TaskState.FAILED
    assert text(await say(host, "hi", "c")) == "U:fail | A:half | U:hi"


async def test_running_tasks_are_not_in_the_history(hosting: Hosting) -> None:
    host = await hosting(talks)
    begun = await sent(host.default, saying("hang", context_id="c", configuration=AT_ONCE), ALICE)
    await reaches(host.default, begun.id, TaskState.WORKING, ALICE)
    assert text(await say(host, "hi", "c")) == "U:hi"


async def test_the_latest_count_if_there_are_many(hosting: Hosting) -> None:
    said: list[list[str]] = []

    @agent
    async def short(ctx: Context) -> str:
        said.append([words(message) for message in await conversation_history(ctx, 3)])
        return f"{ctx.text}!"

    host = await hosting(short)
    for word in ("one", "two", "three"):
        await say(host, word, "c", agent="short")
    assert said[-1] == ["two", "two!", "three"]


async def test_large_parts_are_there(hosting: Hosting) -> None:
    found: list[Message] = []

    @agent(name="talks")
    async def looks(ctx: Context) -> Part | str:
        found.extend(await conversation_history(ctx))
        return "seen" if ctx.text == "look" else Part(raw=b"x" * 100_000)

    host = await hosting(looks)
    await say(host, "big", "c")
    await say(host, "look", "c")
    (answer,) = [said for said in found if said.message_id.endswith("/answer")]
    assert answer.parts[0].raw == b"x" * 100_000
