"""Executors of the official SDK, 1.x."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Part

from accord.agents.a2a_sdk import AGENT_TYPE
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject

Do = Callable[[RequestContext, TaskUpdater], Awaitable[None]]


class Executor(AgentExecutor):
    """Does one thing."""

    def __init__(self, do: Do) -> None:
        self._do = do

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        await self._do(context, updater)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def behaviours(scratch: Path) -> dict[str, Do]:
    """Return what an executor may do."""
    known: dict[str, list[str]] = {}

    async def echo(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.add_artifact([Part(text=f"you said {context.get_user_input()}")])
        await updater.complete()

    async def stream(context: RequestContext, updater: TaskUpdater) -> None:
        for at, word in enumerate(("one ", "two ", "three ")):
            await updater.add_artifact([Part(text=word)], artifact_id="words", append=at > 0, last_chunk=at == 2)
        await updater.complete()

    async def held(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.add_artifact([Part(text="one ")], artifact_id="words")
        await marks.held(scratch)
        await updater.add_artifact([Part(text="two ")], artifact_id="words", append=True)

    async def remember(context: RequestContext, updater: TaskUpdater) -> None:
        said = known.setdefault(context.context_id or "", [])
        said.append(context.get_user_input())
        await updater.add_artifact([Part(text=" ".join(said))])
        await updater.complete()

    async def slow(context: RequestContext, updater: TaskUpdater) -> None:
        await marks.work(scratch)

    async def fail(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.failed(updater.new_agent_message([Part(text="no such city")]))

    async def ask(context: RequestContext, updater: TaskUpdater) -> None:
        if context.current_task is None:
            await updater.requires_input(updater.new_agent_message([Part(text="Which city?")]))
        else:
            await updater.add_artifact([Part(text=f"to {context.get_user_input()}")])
            await updater.complete()

    async def file(context: RequestContext, updater: TaskUpdater) -> None:
        assert context.message is not None
        given = next(part for part in context.message.parts if part.raw)
        made = Part(raw=given.raw + b"!", filename=given.filename, media_type=given.media_type)
        await updater.add_artifact([made])
        await updater.complete()

    return {do.__name__: do for do in (echo, stream, held, remember, slow, fail, ask, file)}


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    executor = Executor(behaviours(scratch)[behaviour])
    return AGENT_TYPE.make(AgentArguments(name="subject", target=executor, options=AGENT_TYPE.options()))


SUBJECT = Subject(kind="a2a_sdk", make=make, has=frozenset(behaviours(Path())), crash=Crash.RESTART)
