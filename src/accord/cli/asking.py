"""Running a command's work with a client, and ending the process: with its result, or with what went wrong and a hint.

It knows no operation. Errors are explained by `exits`; whoever waits for a task leaves its id in `Seen`, so that a wait
that ends early, by Ctrl+C or by its time, says how to go on.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from accord.cli.exits import Exit, Failure, explained
from accord.cli.reaching import Reach

if TYPE_CHECKING:
    from accord.cli.progress import Progress
    from accord.client import Client
    from accord.model import Event

Work = Callable[["Client", "Progress"], Awaitable[None]]
"""What a command does; as long as nothing is printed, people see that something goes on."""


class Seen:
    """What is known of a task that is waited for."""

    def __init__(self, task_id: str | None = None) -> None:
        """Begin with what the user said."""
        self.task_id = task_id

    def event(self, event: "Event") -> None:
        """Keep the task's id."""
        from accord.model import Message, Task

        body = event.body
        self.task_id = (
            body.id if isinstance(body, Task) else self.task_id if isinstance(body, Message) else body.task_id
        )


def ask(reach: Reach, work: Work, seen: Seen | None = None, *, is_anonymous: bool = False) -> None:
    """Do the work with a client and exit; `seen` is for work that waits for a task."""
    import asyncio

    warn(reach)
    try:
        asyncio.run(_asked(reach, work, is_anonymous=is_anonymous))
    except KeyboardInterrupt:
        _interrupted(reach, seen)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        raise  # nobody reads any more; typer ends it quietly
    except Exception as error:
        failure = explained(error)
        if failure is None:
            raise
        lost = getattr(error, "task_id", None)  # of a message of which only the answer was lost
        report(reach, _with_way_on(reach, lost or (None if seen is None else seen.task_id), failure))
        raise typer.Exit(failure.exit) from None


async def _asked(reach: Reach, work: Work, *, is_anonymous: bool) -> None:
    from asyncio import timeout

    from accord.cli.connecting import connected
    from accord.cli.progress import Progress

    try:
        with Progress("connecting") as progress:
            async with timeout(reach.seconds), connected(reach, is_anonymous=is_anonymous) as client:
                progress.say("waiting")
                await work(client, progress)
    except TimeoutError:
        if reach.seconds is None:
            raise
        raise TimeoutError(f"It took longer than {reach.seconds:g} seconds") from None


def warn(reach: Reach) -> None:
    """Say what is dangerous, before anything is drawn or sent."""
    from accord.cli import output

    if reach.insecure:
        output.tell("accord: certificates are not verified: whoever is in between reads all, credentials too")


def report(reach: Reach, failure: Failure) -> None:
    """Say what went wrong: to programs on standard output, where they look for the answer, and to people."""
    from accord.cli import output

    if reach.is_json:
        output.write(output.compact(failure.document()) + "\n")
    output.tell(f"accord: {output.line(failure.message)}")
    if failure.hint:
        output.tell(failure.hint)


def _with_way_on(reach: Reach, task_id: str | None, failure: Failure) -> Failure:
    """Add how to find the task again, if it is not the agent that failed."""
    if task_id is None or failure.exit not in (Exit.TIMED_OUT, Exit.UNREACHABLE):
        return failure
    return failure._replace(hint=f"To wait for it again: {reach.again('task get --wait', task_id)}")


def _interrupted(reach: Reach, seen: Seen | None) -> None:
    from accord.cli import output

    if seen is None or seen.task_id is None:
        output.tell("\naccord: interrupted" + (" before the agent said which task it is" if seen else ""))
        return
    output.tell(f"\nTask {output.line(seen.task_id)} goes on without you.")
    output.tell(f"  follow it  {reach.again('task subscribe', seen.task_id)}")
    output.tell(f"  cancel it  {reach.again('task cancel', seen.task_id)}")
