"""What those are told who wait for a run: once, whoever they are and however many.

A future would be cancelled with the first of them who stops waiting, and a shield around it costs each as much again.
"""

import asyncio

from accord.model import Task


class Rest:
    """The task when nothing more happens to it by itself, or None if the run was lost."""

    __slots__ = ("_loop", "_task", "_waiting", "is_told")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with nobody who waits in `loop`."""
        self.is_told = False
        self._loop = loop
        self._task: Task | None = None
        self._waiting: list[asyncio.Future[Task | None]] = []

    def tell(self, task: Task | None) -> None:
        """Tell those who wait, and whoever comes later; what is told first counts."""
        if self.is_told:
            return
        self.is_told, self._task = True, task
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(task)
        self._waiting.clear()

    async def wait(self) -> Task | None:
        """Wait until it is told."""
        if self.is_told:
            return self._task
        waiting: asyncio.Future[Task | None] = self._loop.create_future()
        self._waiting.append(waiting)
        return await waiting
