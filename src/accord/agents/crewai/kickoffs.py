"""Kickoffs of crews and flows: their thread, token usage, questions and files.

A thread cannot be stopped from outside. After its execution has ended, its next call of a model or tool raises, and its
reports are refused. Crews write below the server's working directory, where two executions may write the same file.
Each execution delivers its own version.
"""

import asyncio
import json
import logging
import mimetypes
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from msgspec import Struct

from accord.agents.messages import OCTETS, readable_text
from accord.api import Context, Failed, IncomingMessage, Rejected
from accord.model import Part

PACKAGE = "crewai_files"

NEEDED = "pip install 'crewai[file-processing]'"

log = logging.getLogger("accord.agents.crewai")

T = TypeVar("T")
Question = TypeVar("Question", bound=Struct)


# --- questions --------------------------------------------------------------------------------------------------------


class InputNeeded(BaseException):
    """A kickoff asks a question. It is not an `Exception`, because flows treat those as a missing answer."""

    def __init__(self, question: Struct) -> None:
        self.question = question


async def run_with_questions(
    ctx: Context, kickoff: Callable[[], Awaitable[None]], form: type[Question], text: Callable[[Question], str]
) -> AsyncIterator[tuple[Question, IncomingMessage]]:
    """Kick off until nothing is asked any more, and yield each question with its answer before the next kickoff."""
    number = 0
    while True:
        key = f"crewai/asked/{number}"
        stored = ctx.kept(key)
        if stored is None:
            try:
                await kickoff()
                return
            except InputNeeded as needed:
                stored = await ctx.keep(key, msgspec.json.encode(needed.question).decode())
        question = msgspec.json.decode(stored, type=form)
        yield question, await ctx.ask(text(question), key=key)
        number += 1


# --- threads ----------------------------------------------------------------------------------------------------------


class ExecutionOver(BaseException):
    """The execution has ended. It is not an `Exception`, because crews retry those."""


class LoopBridge:
    """A bridge from a thread to its execution's event loop; the thread waits for each call."""

    def __init__(self, ctx: Context, usage: Callable[[], Any]) -> None:
        """Bridge to the running event loop; `usage` returns CrewAI's token counts so far."""
        self.is_over = False
        self._ctx = ctx
        self._usage = usage
        self._counted = (0, 0)
        self._loop = asyncio.get_running_loop()

    async def run(self, kickoff: Callable[[], T]) -> T:
        """Run a kickoff in its thread, and report its usage."""
        try:
            result = await run_in_thread(kickoff)
        finally:
            self.is_over = True
        await self.count()
        return result

    async def count(self) -> None:
        """Report the tokens used since the last report."""
        usage = self._usage()
        now, before = (usage.prompt_tokens, usage.completion_tokens), self._counted
        self._counted = now
        if now != before:
            await self._ctx.usage(input_tokens=now[0] - before[0], output_tokens=now[1] - before[1])

    def check(self) -> None:
        """Raise `ExecutionOver` if the execution has ended."""
        if self.is_over or self._ctx.cancelled:
            raise ExecutionOver

    def do(self, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the execution's loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(self._checked(doing), self._loop).result()

    async def done(self, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the execution's loop, and await it in the thread's own loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._checked(doing), self._loop))

    async def _checked(self, doing: Coroutine[Any, Any, T]) -> T:
        try:
            self.check()
        except ExecutionOver:
            doing.close()
            raise
        return await doing

    def hooks(self) -> AbstractContextManager[Any]:
        """Return hooks that end calls of models and tools with the execution, and count their usage."""
        from crewai.hooks.dispatch import InterceptionPoint, scoped_hooks

        check = [lambda _context: self.check()]
        points = {
            InterceptionPoint.PRE_MODEL_CALL: check,
            InterceptionPoint.PRE_TOOL_CALL: check,
            InterceptionPoint.POST_MODEL_CALL: [lambda _context: self.do(self.count())],
        }
        scope: AbstractContextManager[Any] = scoped_hooks(points)
        return scope


async def run_in_thread(do: Callable[[], T]) -> T:
    """Run a function in its own daemon thread, which does not delay the program's exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.done():  # the coroutine no longer waits
            if error is not None and not isinstance(error, ExecutionOver | asyncio.CancelledError):
                log.info("crewai.late_end", exc_info=error)
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # it is there if there is no error

    def work() -> None:
        result, error = None, None
        try:
            result = do()
        except BaseException as raised:  # raised in the coroutine that waits
            error = raised
        with suppress(RuntimeError):  # the loop is gone, and so is the coroutine
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=copy_context().run, args=(work,), name="crew", daemon=True).start()
    return await done


# --- input ------------------------------------------------------------------------------------------------------------


def takes_files() -> bool:
    """Whether crews can receive files, which needs an optional package of CrewAI."""
    return find_spec(PACKAGE) is not None


def input_files(parts: Iterable[Part]) -> dict[str, Any]:
    """Return files as CrewAI takes them, by name, without text files, which are part of the prompt."""
    sent = [part for part in parts if part.raw is not None and readable_text(part) is None]
    if not sent:
        return {}
    if not takes_files():
        log.warning("crewai.no_files", extra={"reason": NEEDED})
        names = ", ".join(part.filename or part.media_type or "unnamed" for part in sent)
        raise Rejected(f"This agent takes text and data, and no other files: {names}")
    crewai_files: Any = import_module(PACKAGE)
    files: dict[str, Any] = {}
    for number, part in enumerate(sent, 1):
        name = part.filename or f"file-{number}"
        unique = name if name not in files else f"{number}-{name}"
        files[unique] = crewai_files.File(source=crewai_files.FileBytes(data=part.raw, filename=name))
    return files


# --- output -----------------------------------------------------------------------------------------------------------


class WrittenFiles:
    """The files of one kickoff, from the first write until `collect` is called."""

    _live: "set[WrittenFiles]" = set()  # noqa: RUF012  # shared on purpose
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self._shared: set[Path] = set()

    def __enter__(self) -> Self:
        with self._lock:
            self._live.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._live.discard(self)

    def expect(self, name: str) -> None:
        """Record a file that is about to be written. Callers may choose parts of its name, as values of variables."""
        path = _path_below(name)
        if path is None:
            raise Failed("The crew would write a file outside of its working directory")
        with self._lock:
            others = [kickoff for kickoff in self._live if kickoff is not self and path in kickoff._paths]
            self._paths.add(path)
            if others:
                for kickoff in (self, *others):
                    kickoff._shared.add(path)

    def collect(self, tasks: Iterable[Any], max_bytes: int) -> tuple[dict[str, Part], list[str]]:
        """Return files of finished crew tasks by path, and paths of files that are too large.

        A file that this execution did not write, or that another one wrote too, is replaced by the task's output, as
        CrewAI writes it.
        """
        files: dict[str, Part] = {}
        skipped: list[str] = []
        for task in tasks:
            path = _path_below(task.output_file) if task.output_file and task.output is not None else None
            if path is None:
                continue
            is_own = path in self._paths and path not in self._shared and path.is_file()
            name = path.relative_to(Path.cwd().resolve()).as_posix()
            if is_own and path.stat().st_size > max_bytes:
                skipped.append(name)
                continue
            content = path.read_bytes() if is_own else _content(task.output)
            if len(content) > max_bytes:
                skipped.append(name)
                continue
            files[name] = Part(raw=content, media_type=mimetypes.guess_type(name)[0] or OCTETS, filename=path.name)
        return files, skipped


def _path_below(name: str) -> Path | None:
    """Return a file's path with links resolved, or None if it is outside of the working directory."""
    path = Path(name).expanduser().resolve()
    return path if path.is_relative_to(Path.cwd().resolve()) else None


def _content(output: Any) -> bytes:
    if output.json_dict:
        return json.dumps(output.json_dict, ensure_ascii=False, indent=2).encode()
    if output.pydantic is not None:
        return str(output.pydantic.model_dump_json()).encode()
    return str(output.raw).encode()
