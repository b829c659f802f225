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
from accord.client.text import FAILED_STATES, Said, StreamedText
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


class Speech:
    """The text of an answer as it comes. The ids are known after the first piece, the status at the end."""

    def __init__(self, peer: AgentPeer, request: SendRequest) -> None:
        """Send the request when the first piece is asked for."""
        self._peer = peer
        self._request = request
        self._follower = TaskSubscription(peer, stops=AT_ANSWER)
        self._pieces = self._run()

    @property
    def task_id(self) -> str | None:
        """The task, if the agent has made one."""
        return self._follower.task_id

    @property
    def context_id(self) -> str | None:
        """The conversation."""
        return self._follower.context_id

    @property
    def status(self) -> TaskState | None:
        """Where the task stands."""
        return self._follower.state

    @property
    def has_failed(self) -> bool:
        """Whether the agent could not, or would not, do it; the text ends with its reason."""
        return self.status in FAILED_STATES

    @property
    def is_question(self) -> bool:
        """Whether the task waits for its caller; the text ends with what it asks."""
        return self.status in INTERRUPTED

    def __aiter__(self) -> AsyncGenerator[str, None]:
        return self._pieces

    async def aclose(self) -> None:
        """Listen no longer; the task goes on."""
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
    """Return what the user says: text, parts or data, or a whole message, which is taken as it is."""
    if isinstance(content, Message):
        return content
    return Message(message_id=new_id(), role=Role.USER, parts=parts_of(content), context_id=context_id, task_id=task_id)


class RemoteTask:
    """One task at an agent.

    `task` is what was last read of it, `cursor` the number of the last event that was seen, if the agent numbers
    them, and `is_pushed` whether the agent has taken a webhook. An agent may answer with a message and no task: then
    `answer` is all there is, and `id` is empty.
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
        """Stand for a task that is known, or known by its id, or for a message that is all."""
        self.task = known if isinstance(known, Task) else None
        self.answer = known if isinstance(known, Message) else None
        self.id: str = known if isinstance(known, str) else known.id if isinstance(known, Task) else ""
        self.context_id = context_id if isinstance(known, str) else known.context_id
        self.cursor = after
        self.is_pushed = is_pushed
        self._peer = peer

    def __repr__(self) -> str:
        return f"RemoteTask({self.id!r}, context_id={self.context_id!r}, cursor={self.cursor!r})"

    def __await__(self) -> Generator[Any, None, Said]:
        """Wait until the task has ended, or waits for its caller."""
        return self.settled().__await__()

    async def settled(self) -> Said:
        """Wait until the task has ended, or waits for its caller, and return what it says."""
        if self.answer is not None:
            return Said.of(self.answer)
        task = await self.refresh()
        if task.status.state not in AT_REST:
            async with aclosing(TaskSubscription(self._peer, task_id=self.id, stops=AT_REST).go_on()) as events:
                async for _ in events:
                    pass
            task = await self.refresh()
        return Said.of(task)

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        """Yield what happens, through broken connections, until the task has ended or waits for its caller.

        Without a cursor the first event is the task as it is now. What was seen once is not yielded again by another
        loop over the same handle, if the agent numbers its events.
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
        """Read the task as it is now."""
        task: Task = await self._peer.ask(Operation.GET, GetRequest(id=self.id))
        return self._noted(task)

    async def cancel(self, reason: str | None = None) -> Task:
        """Cancel the task."""
        metadata = {REASON: reason} if reason else None
        task: Task = await self._peer.ask(Operation.CANCEL, CancelRequest(id=self.id, metadata=metadata))
        return self._noted(task)

    async def reply(self, content: Any) -> "RemoteTask":
        """Say something to the task, and return it; some agents begin another task, which is then returned."""
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
