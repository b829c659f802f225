"""A command of the runner's, with a keeper beside it: when it is ended, nothing that it has started is left.

It starts, waits and ends; what is said to a command and what it says is `runner`, above. The keeper, below, is a
process that becomes the parent of whatever leaves the command's own group.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence

from accord.agents import keeper

GRACE_SECONDS = 2.0
"""How long what is asked to stop may take before it is killed."""

LATE_SECONDS = 3.0
"""How much longer a keeper may take; one that does not end is killed, and the command with it."""


class NotStarted(Exception):
    """The operating system does not start this command."""


class Kept:
    """A command that runs; `process` has its streams."""

    def __init__(self, process: Process, near: socket.socket) -> None:
        """Hold a keeper that answers at `near`."""
        self.process = process
        self._near = near
        self._says = asyncio.StreamReader()
        self._control: asyncio.StreamWriter | None = None

    async def begin(self) -> None:
        """Wait until the command runs."""
        self._says, self._control = await asyncio.open_unix_connection(sock=self._near)
        word, value = await self._heard()
        if word != "started":
            raise NotStarted(os.strerror(int(value)) if value else "its keeper could not be started")

    async def ended(self) -> int:
        """Wait until the command has ended, and return its exit status, or a signal as a negative number."""
        word, value = await self._heard()
        return int(value) if word == "exited" else -signal.SIGKILL  # a keeper without last words was killed

    async def end(self) -> None:
        """See to it that nothing of it is left, even if whoever waits here is told to stop meanwhile."""
        with contextlib.suppress(OSError):  # it may be gone already
            self._near.shutdown(socket.SHUT_WR)  # which is how the keeper is told
        streams = (self.process.stdout, self.process.stderr)
        reading = [asyncio.create_task(_drain(stream)) for stream in streams if stream is not None]
        try:
            async with asyncio.timeout(GRACE_SECONDS + LATE_SECONDS):
                await self.process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        finally:
            for task in reading:
                task.cancel()
            (self._control or self._near).close()

    async def _heard(self) -> tuple[str, str]:
        with contextlib.suppress(ConnectionError):
            word, _, value = (await self._says.readline()).decode().strip().partition(" ")
            return word, value
        return "", ""


async def _drain(stream: asyncio.StreamReader) -> None:
    """Read on: asyncio takes a process for ended when its output is read."""
    while await stream.read(65536):
        pass


async def start(command: Sequence[str], env: Mapping[str, str], *, stdin: int, output: int | None) -> Kept:
    """Start a command; `output` is for both of its streams, or None where they are ours."""
    near, far = socket.socketpair()
    near.setblocking(False)
    options = (str(far.fileno()), str(GRACE_SECONDS), "0")
    try:
        with far:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", keeper.__file__, *options, *command),
                stdin=stdin,
                stdout=output,
                stderr=output,
                env=dict(env),
                pass_fds=(far.fileno(),),
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        near.close()
        raise NotStarted(getattr(error, "strerror", None) or str(error)) from error
    kept = Kept(process, near)
    try:
        await kept.begin()
    except BaseException:  # whoever is told to stop meanwhile leaves nothing behind
        await kept.end()
        raise
    return kept
