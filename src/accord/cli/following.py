"""Waiting for what comes of a message or a task: events are shown as they come, and their sum is the answer.

That events are complete, whatever breaks on the way, is the client's business; how they look is `cli.streaming`.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import UNSET

from accord.cli import output
from accord.cli.asking import Seen
from accord.cli.exits import failed
from accord.cli.progress import Progress
from accord.cli.reaching import Reach
from accord.cli.streaming import Answer, JsonLines, LiveText, OnlyText, Shown, Waiting
from accord.model import Event, GetRequest, Message, StatusUpdate, Task, TaskState
from accord.protocol.lifecycle import INTERRUPTED, TERMINAL, fold
from accord.protocol.operations import Operation

if TYPE_CHECKING:
    from accord.client import Client


def shown_as(
    reach: Reach, progress: Progress, *, stream: bool, quiet: bool = False, operation: Operation = Operation.SEND
) -> Shown:
    """Return what prints an answer as the flags want it."""
    if quiet:
        return OnlyText(progress)
    if not stream:
        return Waiting(progress, is_json=reach.is_json, operation=operation)
    return JsonLines() if reach.is_json else LiveText(progress)


async def follow(
    client: "Client", events: AsyncGenerator[Event, None], shown: Shown, seen: Seen, *, is_reply: bool = False
) -> Answer:
    """Show events until there are no more or credentials are wanted, and return what came of them.

    What is followed after a reply begins with the task, which may be as it was before.
    """
    answer: Answer | None = None
    later: list[Event] = []
    try:
        async with aclosing(events):
            async for event in events:
                seen.event(event)
                shown.event(event)
                is_old = is_reply and answer is None
                if isinstance(event.body, Task | Message):
                    answer, later = event.body, []
                else:
                    later.append(event)
                if not is_old and _wants_credentials(event):
                    break
        answer = await _sum(client, answer, later, seen)
        shown.end(answer)
    finally:
        shown.pause()
    return answer


def _wants_credentials(event: Event) -> bool:
    """Whether the task waits for credentials: they may come some other way, but nobody stays for that."""
    body = event.body
    return isinstance(body, Task | StatusUpdate) and body.status.state is TaskState.AUTH_REQUIRED


async def _sum(client: "Client", answer: Answer | None, later: list[Event], seen: Seen) -> Answer:
    """Return the task after all events; it is read again if they do not add up, as not everybody's do."""
    if isinstance(answer, Message) or (answer is not None and not later):
        return answer
    try:
        if answer is not None:
            return fold(answer, later)
    except ValueError:
        pass
    if seen.task_id is None:
        raise failed("The agent answered nothing")
    return await client.get(GetRequest(id=seen.task_id))


def remark_files(reach: Reach, task: Task) -> None:
    """Tell people which files a task made, where only its text is printed."""
    files = [part for artifact in task.artifacts for part in artifact.parts if part.text is None and part.data is UNSET]
    for part in files:
        output.tell(output.field("File", output.of_file(part)))
    if files:
        output.tell(f"To save them: {reach.again('task download', task.id)}")


def remark(reach: Reach, answer: Answer) -> None:
    """Tell people what is left to do, or that it did not go well; the exit code does not say it."""
    if isinstance(answer, Message):
        return
    state = answer.status.state
    if state in INTERRUPTED:
        what = "an answer" if state is TaskState.INPUT_REQUIRED else "credentials"
        output.tell(f"The task waits for {what}: {reach.again('send', '--task-id', answer.id, 'TEXT')}")
    elif state not in TERMINAL and state is not TaskState.UNKNOWN:
        output.tell(f"The task goes on: {reach.again('task subscribe', answer.id)}")
    elif state is not TaskState.COMPLETED:
        output.tell(f"The task is {output.state_of(answer)}")
