"""Where the agents of subjects are; what they are in, and what is beside them, is started once for all tests."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from accord.model import Task
from tests.agents.contract.subjects import Subject
from tests.agents.contract.talking import HURRIED, Talk, beats, did, goes_on, in_process, over_http, serve, silence
from tests.serve.running import Server

KILLED = frozenset({"slow", "steps"})
"""What is going on when a node is killed."""


class Killed(NamedTuple):
    """What a subject's agents were doing when their node was killed, and how often they had beaten then."""

    tasks: Mapping[str, Task]
    beats: int


class Homes:
    """For each subject a folder and what it needs beside it, and one server for all that share an environment."""

    def __init__(self, subjects: Mapping[str, Subject], make_folder: Callable[[str], Path]) -> None:
        self._subjects = subjects
        self._make_folder = make_folder
        self._folders: dict[str, Path] = {}
        self._beside: set[str] = set()
        self._servers: dict[str | None, Server] = {}
        self._tasks: dict[str, dict[str, Task]] = {}
        self._killed: dict[str, Killed] = {}
        self._trouble: dict[str, BaseException] = {}
        self._stack = ExitStack()

    def close(self) -> None:
        """End everything that was started."""
        for server in self._servers.values():
            server.kill()
        self._stack.close()

    def scratch(self, name: str) -> Path:
        """Return the folder of what a subject's agents leave; from now on there is what they need beside them."""
        subject = self._subjects[name]
        folder = self._folder(subject.serve) / (subject.within if subject.serve else name)
        folder.mkdir(exist_ok=True)
        if subject.beside is not None and name not in self._beside:
            self._beside.add(name)
            self._stack.enter_context(subject.beside(folder))
        return folder

    def talking(self, name: str, behaviour: str) -> AbstractAsyncContextManager[Talk]:
        """Let a test talk to an agent: in this process if it can be here."""
        subject, scratch = self._subjects[name], self.scratch(name)
        if subject.make is not None:
            return in_process(subject, behaviour, scratch)
        return self.over_http(name, behaviour)

    def over_http(self, name: str, behaviour: str) -> AbstractAsyncContextManager[Talk]:
        """Let a test talk to an agent that is served."""
        return over_http(self._server(self._subjects[name].serve), name, behaviour, self.scratch(name))

    # --- when it is killed --------------------------------------------------------------------------------------------

    async def killed(self, name: str) -> Killed:
        """Kill a subject's node, once, in the midst of what it does; there is another one in its place.

        All who share it are killed with it. What goes wrong with one of them is raised for that one.
        """
        if name not in self._killed and name not in self._trouble:
            await self._kill(self._subjects[name].serve)
        if name in self._trouble:
            raise self._trouble[name]
        return self._killed[name]

    async def _kill(self, environment: str | None) -> None:
        first = await asyncio.to_thread(self._server, environment)
        await self._each(self._begin, self._in(environment))
        await asyncio.to_thread(first.kill)
        await self._each(self._look, self._in(environment))
        del self._servers[environment]
        await asyncio.to_thread(self._server, environment)
        await self._each(self._go_on, self._in(environment))

    async def _each(self, do: Callable[[str], Coroutine[Any, Any, None]], names: Iterable[str]) -> None:
        """Do it for all at the same time, but for those with which something went wrong."""
        well = [name for name in names if name not in self._trouble]
        ends = await asyncio.gather(*map(do, well), return_exceptions=True)
        self._trouble |= {name: end for name, end in zip(well, ends, strict=True) if end is not None}

    async def _begin(self, name: str) -> None:
        self._tasks[name] = {}
        for behaviour in KILLED & self._subjects[name].has:
            async with self.over_http(name, behaviour) as talk:
                self._tasks[name][behaviour] = await talk.send("go", at_once=True)
        await goes_on(self.scratch(name))
        if "steps" in self._tasks[name]:
            await did(self.scratch(name), "1", "2")

    async def _look(self, name: str) -> None:
        """Find out how much was done, when nothing is done any more."""
        if not self._subjects[name].lives_on:
            await silence(self.scratch(name))
        self._killed[name] = Killed(self._tasks[name], beats(self.scratch(name)))

    async def _go_on(self, name: str) -> None:
        """Let the second step end, when the second node has begun it again: else it might be the first that goes on."""
        if "steps" in self._tasks[name]:
            again = [] if self._subjects[name].lives_on else ["2"]
            await did(self.scratch(name), "1", "2", *again)
            (self.scratch(name) / "go").touch()

    # --- one for all that share an environment ------------------------------------------------------------------------

    def _in(self, environment: str | None) -> list[str]:
        return [name for name, subject in self._subjects.items() if subject.serve == environment]

    def _folder(self, environment: str | None) -> Path:
        home = environment or "here"
        if home not in self._folders:
            self._folders[home] = self._make_folder(home)
        return self._folders[home]

    def _server(self, environment: str | None) -> Server:
        """What is made here is served only to be killed."""
        if environment not in self._servers:
            found = {name: self._subjects[name] for name in self._in(environment)}
            for name in found:
                self.scratch(name)
            behaviours = {
                name: subject.has & KILLED if environment is None else subject.has | {HURRIED}
                for name, subject in found.items()
            }
            self._servers[environment] = serve(environment, self._folder(environment), behaviours)
        return self._servers[environment]
