"""The executors of the subject `a2a_sdk_03`, written for the official SDK 0.3: served with its environment's Python."""

# The checker sees the 1.x SDK, which shares the name of the one that this runs with.
# mypy: ignore-errors

import base64
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import FilePart, FileWithBytes, InternalError, Part, TextPart
from a2a.utils import new_task
from a2a.utils.errors import ServerError

from tests.agents.contract import scratch as marks

SCRATCH = Path(os.environ["SCRATCH"])
KNOWN: dict[str, list[str]] = {}


def text(words: str) -> list[Part]:
    return [Part(root=TextPart(text=words))]


class Executor(AgentExecutor):
    """Does one thing."""

    def __init__(self, do: Callable[[RequestContext, TaskUpdater], Awaitable[None]]) -> None:
        self._do = do

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        if context.current_task is None:
            await event_queue.enqueue_event(new_task(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        await self._do(context, updater)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


@Executor
async def echo(context: RequestContext, updater: TaskUpdater) -> None:
    await updater.add_artifact(text(f"you said {context.get_user_input()}"))
    await updater.complete()


@Executor
async def stream(context: RequestContext, updater: TaskUpdater) -> None:
    for at, word in enumerate(("one ", "two ", "three ")):
        await updater.add_artifact(text(word), artifact_id="words", append=at > 0, last_chunk=at == 2)
    await updater.complete()


@Executor
async def held(context: RequestContext, updater: TaskUpdater) -> None:
    await updater.add_artifact(text("one "), artifact_id="words")
    await marks.held(SCRATCH)
    await updater.add_artifact(text("two "), artifact_id="words", append=True)


@Executor
async def remember(context: RequestContext, updater: TaskUpdater) -> None:
    said = KNOWN.setdefault(context.context_id, [])
    said.append(context.get_user_input())
    await updater.add_artifact(text(" ".join(said)))
    await updater.complete()


@Executor
async def slow(context: RequestContext, updater: TaskUpdater) -> None:
    await marks.work(SCRATCH)


@Executor
async def fail(context: RequestContext, updater: TaskUpdater) -> None:
    raise ServerError(InternalError(message="no such city"))


@Executor
async def ask(context: RequestContext, updater: TaskUpdater) -> None:
    if context.current_task is None:
        await updater.requires_input(updater.new_agent_message(text("Which city?")), final=True)
        return
    assert [message.parts[0].root.text for message in context.current_task.history] == [
        "book a trip",
        "Which city?",
        "Rome",
    ]
    await updater.add_artifact(text(f"to {context.get_user_input()}"))
    await updater.complete()


@Executor
async def file(context: RequestContext, updater: TaskUpdater) -> None:
    given = next(part.root.file for part in context.message.parts if isinstance(part.root, FilePart))
    content = base64.b64encode(base64.b64decode(given.bytes) + b"!").decode()
    made = FileWithBytes(bytes=content, name=given.name, mime_type=given.mime_type)
    await updater.add_artifact([Part(root=FilePart(file=made))])
    await updater.complete()
