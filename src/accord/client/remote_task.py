"""A handle of a task at an agent, and the text stream of an answer.

speech = client.stream_text("tell me a story")
async for chunk in speech:
    print(chunk, end="")
assert not speech.has_failed
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from accord.client.peer import AgentPeer, send_once
from accord.client.subscription import AT_ANSWER, AT_REST, TaskSubscription
from accord.client.text import FAILED_STATES, Reply, StreamedText
from accord.engine.ids import new_id
from accord.engine.messages import parts_of
from accord.model import (
    CancelRequest,
    Event,
    GetRequest,
    Message,
    Role,
    SendConfiguration,
    SendRequest,
    Task,
    TaskState,
)
from accord.model.metadata_keys import REASON
from accord.protocol.lifecycle import INTERRUPTED
from accord.protocol.operations import Operation


class TextStream:
    """The text of an answer as it arrives.

    The ids are available after the first chunk, the status at the end.
    """

    def __init__(self, peer: AgentPeer, request: SendRequest) -> None:
        """Prepare the request, which is sent when the first chunk is read."""
        self._peer = peer
        self._request = request
        self._follower = TaskSubscription(peer, stops=AT_ANSWER)
        self._pieces = self._run()

    @property
    def task_id(self) -> str | None:
        """The task's id, if the agent has created a task."""
        return self._follower.task_id

    @property
    def context_id(self) -> str | None:
        """The context id of the conversation."""
        return self._follower.context_id

    @property
    def status(self) -> TaskState | None:
        """The task's last known state."""
        return self._follower.state

    @property
    def has_failed(self) -> bool:
        """Whether the task failed or was rejected. The text ends with the reason."""
        return self.status in FAILED_STATES

    @property
    def is_question(self) -> bool:
        """Whether the task waits for its caller. The text ends with the question."""
        return self.status in INTERRUPTED

    def __aiter__(self) -> AsyncGenerator[str, None]:
        return self._pieces

    async def aclose(self) -> None:
        """Unsubscribe. The task continues."""
        await self._pieces.aclose()

    async def _run(self) -> AsyncGenerator[str, None]:
        growing = StreamedText()
        async with aclosing(self._follower.send(self._request)) as events:
            async for event in events:
                for piece in growing.add(event.body):
                    yield piece
        if growing.is_silent and self.task_id is not None:
            task: Task = await self._peer.ask(Operation.GET, GetRequest(id=self.task_id))
            for piece in growing.end(task):
                yield piece


def message_of(content: Any, *, context_id: str | None = None, task_id: str | None = None) -> Message:
    """Return a user message with text, parts or data. A whole message is returned unchanged."""
    if isinstance(content, Message):
        return content
    return Message(message_id=new_id(), role=Role.USER, parts=parts_of(content), context_id=context_id, task_id=task_id)


class RemoteTask:
    """A handle of one task at an agent.

    `task` is its last read state, `cursor` the sequence number of the last seen event if the agent numbers events,
    and `is_pushed` whether the agent has accepted a webhook. If the agent answers with a message and no task,
    `answer` holds it and `id` is empty.
    """

    def __init__(
        self,
        peer: AgentPeer,
        known: Task | Message | str,
        *,
        context_id: str | None = None,
        after: int | None = None,
        is_pushed: bool = False,
    ) -> None:
        """Create a handle of a task, of a task id, or of a message that answers without a task."""
        self.task = known if isinstance(known, Task) else None
        self.answer = known if isinstance(known, Message) else None
        self.id: str = known if isinstance(known, str) else known.id if isinstance(known, Task) else ""
        self.context_id = context_id if isinstance(known, str) else known.context_id
        self.cursor = after
        self.is_pushed = is_pushed
        self._peer = peer

    def __repr__(self) -> str:
        return f"RemoteTask({self.id!r}, context_id={self.context_id!r}, cursor={self.cursor!r})"

    def __await__(self) -> Generator[Any, None, Reply]:
        """Wait until the task ends or waits for its caller."""
        return self.settled().__await__()

    async def settled(self) -> Reply:
        """Wait until the task ends or waits for its caller, and return its answer."""
        if self.answer is not None:
            return Reply.of(self.answer)
        task = await self.refresh()
        if task.status.state not in AT_REST:
            async with aclosing(TaskSubscription(self._peer, task_id=self.id, stops=AT_REST).go_on()) as events:
                async for _ in events:
                    pass
            task = await self.refresh()
        return Reply.of(task)

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        """Yield events until the task ends or waits for its caller, reconnecting as needed.

        Without a cursor the first event is the task as it is now. If the agent numbers its events, a second loop
        over the same handle does not repeat events.
        """
        if self.answer is not None:
            yield Event(seq=0, body=self.answer)
            return
        task = await self.refresh()
        is_at_rest, is_new = task.status.state in AT_REST, self.cursor is None
        if is_new:
            yield Event(seq=0, body=task)
            if is_at_rest:
                return
        follower = TaskSubscription(
            self._peer,
            task_id=self.id,
            after=self.cursor,
            stops=AT_REST,
            until=task.status if is_at_rest else None,
            known=task if is_new else None,
        )
        async with aclosing(follower.go_on()) as events:
            async for event in events:
                self.cursor = follower.seen
                yield event

    async def refresh(self) -> Task:
        """Read the task's current state."""
        task: Task = await self._peer.ask(Operation.GET, GetRequest(id=self.id))
        return self._noted(task)

    async def cancel(self, reason: str | None = None) -> Task:
        """Cancel the task."""
        metadata = {REASON: reason} if reason else None
        task: Task = await self._peer.ask(Operation.CANCEL, CancelRequest(id=self.id, metadata=metadata))
        return self._noted(task)

    async def reply(self, content: Any) -> "RemoteTask":
        """Send a message to the task and return its handle.

        Some agents create another task for it, whose handle is then returned.
        """
        message = message_of(content, context_id=self.context_id, task_id=self.id)
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        answer = await send_once(self._peer, request)
        if isinstance(answer, Message) or answer.id != self.id:
            return RemoteTask(self._peer, answer)
        self._noted(answer)
        return self

    def _noted(self, task: Task) -> Task:
        self.task = replace(task, context_id=task.context_id or self.context_id)
        self.context_id = self.task.context_id
        return task
