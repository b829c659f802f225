"""What tests put in the place of something real, and ways to wait for what happens."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from accord.a2a import Caller
from accord.engine.hooks import Detail
from accord.model import GetRequest, Message, SendRequest, Task, TaskState
from accord.service.service import Service
from accord.storage.commands import jobs
from accord.storage.store import Command, Row, Store, StoreUnavailable, Tx

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D", bound=Detail)

BETWEEN_SECONDS = 0.005
"""Between two questions to a store: whoever asks without a pause leaves the writer of SQLite no turn."""

Says = Callable[[str], bool]
"""Whether something is to happen to a command, by its name: module and function."""


class Meddler:
    """A store that counts its commands, and fails them before or after they are done."""

    def __init__(self, store: Store) -> None:
        self.real = store
        self.begun: list[str] = []
        self.done: list[str] = []
        self.early: list[str] = []
        self.given: list[tuple[str, tuple[Any, ...]]] = []
        self.refuses: Says = lambda _: False
        self.loses: Says = lambda _: False
        self.refusal: StoreUnavailable = StoreUnavailable("The test wants it so")
        self.waits: dict[str, asyncio.Event] = {}

    async def do(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = await self._run(self.real.do, command, *args, **kwargs)
        return found

    async def do_early(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = await self._run(self.real.do_early, command, *args, **kwargs)
        self.early.append(self.done[-1])
        return found

    async def read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = await self._run(self.real.read, command, *args, **kwargs)
        return found

    async def close(self) -> None:
        await self.real.close()

    async def _run(self, how: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        name = f"{command.__module__.rpartition('.')[2]}.{command.__name__}"
        self.begun.append(name)
        if name in self.waits:
            await self.waits[name].wait()
        if self.refuses(name):
            raise self.refusal
        found = await how(command, *args, **kwargs)
        self.done.append(name)
        self.given.append((name, args))
        if self.loses(name):
            raise StoreUnavailable("The test wants it so, after the commit")
        return found


def times(name: str, count: int) -> Says:
    """True for the first `count` commands of a name, or of every name if it is empty."""
    left = [count]

    def says(given: str) -> bool:
        if left[0] == 0 or name not in ("", given):
            return False
        left[0] -= 1
        return True

    return says


class Watch:
    """A hook that keeps everything it is told, and lets a test wait for more."""

    def __init__(self) -> None:
        self.details: list[Detail] = []
        self._more = asyncio.Event()

    def __call__(self, detail: Detail) -> None:
        self.details.append(detail)
        self._more.set()

    def of(self, kind: type[D]) -> list[D]:
        return [detail for detail in self.details if isinstance(detail, kind)]

    async def until(self, kind: type[D], count: int = 1) -> list[D]:
        """Wait until so many details of a kind were told."""
        while len(self.of(kind)) < count:
            self._more.clear()
            await self._more.wait()
        return self.of(kind)


async def until(check: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Ask until the answer is yes; the test's bound ends this."""
    while not await check():  # noqa: ASYNC110  # what is asked may be in a database
        await asyncio.sleep(BETWEEN_SECONDS)


async def reaches(service: Service, task_id: str, state: TaskState, caller: Caller) -> Task:
    """Wait until a task is in a state."""
    found: list[Task] = []

    async def is_there() -> bool:
        found.append(await service.get(GetRequest(id=task_id), caller))
        return found[-1].status.state is state

    await until(is_there)
    return found[-1]


async def sent(service: Service, request: SendRequest, caller: Caller) -> Task:
    """Send, to an agent that answers with tasks."""
    task = await service.send(request, caller)
    assert isinstance(task, Task)
    return task


async def rows(store: Store, table: str, columns: str) -> list[Row]:
    """What a table holds."""

    async def command(tx: Tx) -> list[Row]:
        return await tx.all(f"SELECT {columns} FROM {table} ORDER BY 1")

    return await store.read(command)


async def change(store: Store, sql: str) -> None:
    """Change something that no command changes."""

    async def command(tx: Tx) -> None:
        await tx.run(sql)

    await store.do(command)


async def is_parked(store: Store, task_id: str) -> bool:
    """Whether nobody works on a task that has not ended."""
    found = await rows(store, "job", "key, kind, node")
    return (task_id, jobs.EXECUTE_TASK, None) in found


def words(message: Message) -> str:
    """What a message says."""
    return "".join(part.text or "" for part in message.parts)
