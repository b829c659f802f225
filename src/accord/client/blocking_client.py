"""A client for code without async: each method blocks, a stream is an iterator."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

from accord.client.client import Client
from accord.client.remote_task import RemoteTask
from accord.model import AgentCard, Event

T = TypeVar("T")
P = ParamSpec("P")
W = TypeVar("W")
"""The class that is wrapped."""


class _Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="accord-client", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
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

        async def next_item() -> T | None:
            return await anext(items, None)

        async def close() -> None:
            await items.aclose()

        try:
            while (item := self.run(next_item())) is not None:
                yield item
        finally:
            if not self.is_closed:
                self.run(close())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class _Facade(Generic[W]):
    """An object whose coroutines run in the thread of a loop."""

    def __init__(self, loop: _Loop, wrapped: W) -> None:
        self._loop = loop
        self._wrapped = wrapped


class _Blocking(Generic[W, P, T]):
    """A method that runs a coroutine method of the wrapped object, with the same arguments."""

    def __init__(self, method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, facade: _Facade[W] | None, owner: type | None = None) -> Callable[P, T]:
        if facade is None:  # the class is asked, for a signature or documentation
            return cast("Callable[P, T]", self._method)

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return facade._loop.run(self._method(facade._wrapped, *args, **kwargs))

        return call


class _Iterating(Generic[W, P, T]):
    """A method that yields the items of a method of the wrapped object, with the same arguments."""

    def __init__(self, method: Callable[Concatenate[W, P], AsyncIterable[T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, facade: _Facade[W] | None, owner: type | None = None) -> Callable[P, Generator[T, None, None]]:
        if facade is None:
            return cast("Callable[P, Generator[T, None, None]]", self._method)

        def iterate(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
            items: Any = self._method(facade._wrapped, *args, **kwargs).__aiter__()  # a generator in every method
            return facade._loop.each(items)

        return iterate


class BlockingTask(_Facade[RemoteTask]):
    """One task at an agent; see `RemoteTask`."""

    result = _Blocking(RemoteTask.settled)
    refresh = _Blocking(RemoteTask.refresh)
    cancel = _Blocking(RemoteTask.cancel)

    @property
    def id(self) -> str:
        """The task's id, by which another process can find it."""
        return self._wrapped.id

    def __iter__(self) -> Generator[Event, None, None]:
        """Yield events until the task ends or waits for its caller."""
        return self._loop.each(self._wrapped.__aiter__())

    def reply(self, content: Any) -> "BlockingTask":
        """Send a message to the task and return its handle."""
        return BlockingTask(self._loop, self._loop.run(self._wrapped.reply(content)))


class BlockingClient(_Facade[Client]):
    """A blocking client of one agent, with the arguments of `Client.connect`.

    Closing it closes its connections.
    """

    send_text = _Blocking(Client.send_text)
    stream_text = _Iterating(Client.stream_text)

    # The interface of A2A.
    send = _Blocking(Client.send)
    stream = _Iterating(Client.stream)
    get = _Blocking(Client.get)
    list = _Blocking(Client.list)
    cancel = _Blocking(Client.cancel)
    subscribe = _Iterating(Client.subscribe)
    push_set = _Blocking(Client.push_set)
    push_get = _Blocking(Client.push_get)
    push_list = _Blocking(Client.push_list)
    push_delete = _Blocking(Client.push_delete)
    extended_card = _Blocking(Client.extended_card)

    def __init__(self, target: str | AgentCard, **options: Any) -> None:
        """Connect to the agent."""

        async def connect() -> Client:
            return await Client.connect(target, **options)

        loop = _Loop()
        try:
            super().__init__(loop, loop.run(connect()))
        except BaseException:
            loop.stop()
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
            self._loop.run(self._wrapped.close())
            self._loop.stop()

    @property
    def card(self) -> AgentCard:
        """The agent's card."""
        return self._wrapped.card

    def start(self, content: Any, **options: Any) -> BlockingTask:
        """Send content without waiting, and return a handle of the task. The options are those of `Client.start`."""
        return BlockingTask(self._loop, self._loop.run(self._wrapped.start(content, **options)))

    def task(self, task_id: str, **options: Any) -> BlockingTask:
        """Return a handle for a task by its id. The options are those of `Client.task`."""
        return BlockingTask(self._loop, self._wrapped.task(task_id, **options))
