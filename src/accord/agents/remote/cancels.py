"""Telling agents elsewhere that a task was cancelled here.

A task that is cancelled has ended at once; that its agent is told is noted in the same transaction and done from here,
by whichever node comes first, until it is done or has been tried often enough. It decides nothing about the task here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from accord.agents.remote.means import NO_ANSWER, Peer
from accord.errors import AuthenticationFailed, MethodNotFound, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from accord.model import CancelRequest
from accord.remote.tasks import RemoteTasks
from accord.storage.commands.remotes import Cancel
from accord.storage.store import StoreUnavailable

POLL_SECONDS = 1.0
"""How late a cancel may be passed on: nobody waits for it, and one look for all tasks is cheap."""

AGAIN_SECONDS = 5.0
"""When a cancel is tried again, doubled each time."""

MOST = 8
"""How often it is tried: for about twenty minutes."""

AT_ONCE = 16

LAST_SECONDS = 3.0
"""How long a node that leaves still tells of cancels: it may have been started for one task, and nobody comes after."""

IN_VAIN = (TaskNotFound, TaskNotCancelable, UnsupportedOperation, MethodNotFound, AuthenticationFailed)
"""Answers that will not be others later: the task has ended there as well, or cannot be cancelled."""

log = logging.getLogger("accord.remote")


class Cancels:
    """Passes the cancels of one agent's tasks on."""

    def __init__(self, agent: str, remotes: RemoteTasks, peer: Callable[[], Awaitable[Peer]]) -> None:
        """Tell `peer`, which is called `agent` here."""
        self._agent = agent
        self._remotes = remotes
        self._peer = peer
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._loop = asyncio.create_task(self._keep(), name=f"cancels of {self._agent}")

    async def stop(self) -> None:
        """Stop, once what is due was tried; what is left is due again later, on any node."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._look()

    async def _keep(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(POLL_SECONDS)

    async def _look(self) -> None:
        try:
            while found := await self._remotes.cancels(self._agent, AT_ONCE, AGAIN_SECONDS):
                await asyncio.gather(*(self._pass_on(cancel) for cancel in found))
        except StoreUnavailable as error:
            log.warning("store unavailable", extra={"reason": str(error)})
        except Exception:  # the node must go on; what went wrong is in the log
            log.exception("cancels were not passed on", extra={"agent": self._agent})

    async def _pass_on(self, cancel: Cancel) -> None:
        link = cancel.link
        about = {"task_id": link.task_id, "agent": self._agent, "remote_task_id": link.remote_id}
        try:
            if link.remote_id is not None:  # otherwise it was never accepted, or will yet say what it is called
                await (await self._peer()).cancel(CancelRequest(id=link.remote_id))
                log.info("remote task cancelled", extra=about)
        except IN_VAIN as error:
            log.info("remote task cannot be cancelled", extra=about | {"reason": str(error)})
        except NO_ANSWER as error:
            log.warning("cancel was not passed on", extra=about | {"reason": str(error)})
            if cancel.cancels + 1 < MOST:
                return
        else:
            if link.remote_id is None and cancel.cancels + 1 < MOST:
                return
        await self._remotes.told(cancel)
