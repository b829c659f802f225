"""Saying something to an agent once: the answer, or the task that came of a message whose answer was lost.

A message that may have been accepted is sent again only where that is safe (`retries`). Elsewhere the agent's
tasks are searched for it, and what is not found there is reported as `Unconfirmed` and left to the caller. Following
what comes of a message is `resume`, above.
"""

from msgspec.structs import replace

from accord.client.peer import Peer
from accord.client.wire import TimedOut, Unreachable
from accord.errors import AccordError
from accord.model import GetRequest, Message, SendConfiguration, SendRequest, Task, TaskFilter, TaskPage
from accord.model.requests import MAX_PAGE_SIZE
from accord.protocol.operations import DialectName, Operation

SEARCH_HISTORY = 20
"""Messages of each task that are searched for one of ours; it is new, so it is among the last."""


class Unconfirmed(Unreachable):
    """A message was sent, but whether it was accepted is not known: it is not sent again.

    `task_id` is the task that came of it, where one was found: the message was accepted, and only its answer is
    missing. `because` is what happened.
    """

    def __init__(self, message_id: str, because: Unreachable, task_id: str | None = None) -> None:
        """Say what is known."""
        known = f"it became task {task_id}" if task_id else "it may have been accepted and is not sent again"
        super().__init__(f"No answer to message {message_id} ({because.reason}): {known}", was_sent=True)
        self.message_id = message_id
        self.task_id = task_id
        self.because = because


class Late(Unconfirmed, TimedOut):
    """The same, because the caller's time was up; a task that is known goes on."""


def unconfirmed(message_id: str, because: Unreachable, task_id: str | None = None) -> Unconfirmed:
    """Return what to raise of a message without an answer."""
    kind = Late if isinstance(because, TimedOut) else Unconfirmed
    return kind(message_id, because, task_id)


def at_once(request: SendRequest) -> SendRequest:
    """Return a request that is answered with the task as soon as there is one."""
    return replace(
        request, configuration=replace(request.configuration or SendConfiguration(), return_immediately=True)
    )


async def send(peer: Peer, request: SendRequest, *, seconds: float | None = None) -> Task | Message:
    """Send a message and return what the agent answers, which may be a task that goes on."""
    try:
        answer: Task | Message = await peer.ask(Operation.SEND, request, seconds=seconds)
    except Unreachable as error:
        if not error.was_sent:
            raise
        answer = await recovered(peer, request, error)
    return answer


async def recovered(peer: Peer, request: SendRequest, error: Unreachable) -> Task:
    """Return the task that came of a message whose answer was lost, or raise `Unconfirmed`."""
    message_id = request.message.message_id
    try:
        task = await _found(peer, request)
    except (Unreachable, AccordError) as failed:
        raise unconfirmed(message_id, error) from failed
    if task is None:
        raise unconfirmed(message_id, error) from error
    if isinstance(error, TimedOut):  # the caller's time is up; it is told what to come back for
        raise unconfirmed(message_id, error, task.id) from error
    return task


async def _found(peer: Peer, request: SendRequest) -> Task | None:
    """Return the task of a message: told again by an agent that knows the message, or as its list has it."""
    if peer.is_idempotent:
        again = await peer.ask(Operation.SEND, at_once(request))
        return again if isinstance(again, Task) else None
    if request.message.task_id is not None:
        task: Task = await peer.ask(Operation.GET, GetRequest(id=request.message.task_id))
        return task if _holds(task, request.message) else None
    if peer.way.dialect is not DialectName.V1:  # the only one in which listing tasks is not an invention
        return None
    wanted = TaskFilter(context_id=request.message.context_id, page_size=MAX_PAGE_SIZE, history_length=SEARCH_HISTORY)
    page: TaskPage = await peer.ask(Operation.LIST, wanted)
    ours = next((one for one in page.tasks if _holds(one, request.message)), None)
    if ours is None:
        return None
    found: Task = await peer.ask(Operation.GET, GetRequest(id=ours.id))  # a list leaves the artifacts out
    return found


def _holds(task: Task, message: Message) -> bool:
    return any(said.message_id == message.message_id for said in task.history)
