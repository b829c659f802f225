"""A client for code without async: each method blocks, a stream is an iterator."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from types import TracebackType
from typing import Any, Self, TypeVar

from accord.client.client import Client
from accord.client.remote_task import RemoteTask
from accord.client.text import Said
from accord.model import (
    AgentCard,
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    Message,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
)

T = TypeVar("T")


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="accord-client", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether the loop has ended."""
        return self._loop.is_closed()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Interrupting the wait cancels the coroutine."""
        if self.is_closed:
            work.close()
            raise RuntimeError("The client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def each(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield the items of an async generator, and close it at the end."""
        try:
            while (item := self.run(_next(items))) is not None:
                yield item
        finally:
            if not self.is_closed:
                self.run(_close(items))

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _close(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


async def _next(items: AsyncGenerator[T, None]) -> T | None:
    return await anext(items, None)


class BlockingTask:
    """One task at an agent; see `RemoteTask`."""

    def __init__(self, loop: _Loop, task: RemoteTask) -> None:
        """Wrap a handle."""
        self._loop = loop
        self._task = task

    @property
    def id(self) -> str:
        """The task's id, by which another process can find it."""
        return self._task.id

    def result(self) -> Said:
        """Wait until the task ends or waits for its caller."""
        return self._loop.run(self._task.settled())

    def __iter__(self) -> Generator[Event, None, None]:
        """Yield events until the task ends or waits for its caller."""
        return self._loop.each(self._task.__aiter__())

    def refresh(self) -> Task:
        """Read the task's current state."""
        return self._loop.run(self._task.refresh())

    def cancel(self, reason: str | None = None) -> Task:
        """Cancel the task."""
        return self._loop.run(self._task.cancel(reason))

    def reply(self, content: Any) -> "BlockingTask":
        """Send a message to the task and return its handle."""
        return BlockingTask(self._loop, self._loop.run(self._task.reply(content)))


class BlockingClient:
    """A blocking client of one agent, with the arguments of `Client.connect`.

    Closing it closes its connections.
    """

    def __init__(self, target: str | AgentCard, **wishes: Any) -> None:
        """Connect to the agent."""
        self._loop = _Loop()
        try:
            self._client = self._loop.run(_made(target, wishes))
        except BaseException:
            self._loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Started tasks continue at the agent."""
        if not self._loop.is_closed:
            self._loop.run(self._client.close())
            self._loop.stop()

    @property
    def card(self) -> AgentCard:
        """The agent's card."""
        return self._client.card

    def send_text(self, text: str, **more: Any) -> Said:
        """Send a text and wait for the answer."""
        return self._loop.run(self._client.send_text(text, **more))

    def stream_text(self, text: str, **more: Any) -> Generator[str, None, None]:
        """Send a text and yield the answer as it arrives."""
        return self._loop.each(self._client.stream_text(text, **more).__aiter__())

    def start(self, content: Any, **more: Any) -> BlockingTask:
        """Send content without waiting, and return a handle of the task."""
        return BlockingTask(self._loop, self._loop.run(self._client.start(content, **more)))

    def task(self, task_id: str, **more: Any) -> BlockingTask:
        """Return a handle for a task by its id."""
        return BlockingTask(self._loop, self._client.task(task_id, **more))

    # --- the interface --------------------------------------------------------------------------------------------

    def send(self, request: SendRequest, *, seconds: float | None = None) -> Task | Message:
        """Send a message and return the task or the message that answers it.

        Waits until the task ends or waits for its caller, unless the request asks to return immediately.
        """
        return self._loop.run(self._client.send(request, seconds=seconds))

    def stream(self, request: SendRequest, after: int | None = None) -> Generator[Event, None, None]:
        """Send a message and yield the task's events, reconnecting as needed. The first event is the task."""
        return self._loop.each(self._client.stream(request, after=after))

    def get(self, request: GetRequest) -> Task:
        """Read one task."""
        return self._loop.run(self._client.get(request))

    def list(self, request: TaskFilter) -> TaskPage:
        """List tasks, newest status first."""
        return self._loop.run(self._client.list(request))

    def cancel(self, request: CancelRequest) -> Task:
        """Cancel one task."""
        return self._loop.run(self._client.cancel(request))

    def subscribe(self, request: SubscribeRequest, after: int | None = None) -> Generator[Event, None, None]:
        """Yield a task's events until it ends, reconnecting as needed."""
        return self._loop.each(self._client.subscribe(request, after=after))

    def push_set(self, request: PushConfig) -> PushConfig:
        """Create or replace a webhook."""
        return self._loop.run(self._client.push_set(request))

    def push_get(self, request: PushGetRequest) -> PushConfig:
        """Read a webhook."""
        return self._loop.run(self._client.push_get(request))

    def push_list(self, request: PushListRequest) -> PushPage:
        """List a task's webhooks."""
        return self._loop.run(self._client.push_list(request))

    def push_delete(self, request: PushDeleteRequest) -> int:
        """Remove webhooks and return their number."""
        return self._loop.run(self._client.push_delete(request))

    def extended_card(self, request: CardRequest) -> AgentCard:
        """Read the card for authenticated callers."""
        return self._loop.run(self._client.extended_card(request))


async def _made(target: str | AgentCard, wishes: dict[str, Any]) -> Client:
    return await Client.connect(target, **wishes)
