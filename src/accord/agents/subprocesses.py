"""Subprocesses with pipes or a pseudo-terminal, ended with all their descendants.

Agents, workflow steps and git start their commands here. A command is started through `command_supervisor`, which runs
as long as the command.
"""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import signal
import socket
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct

from accord.agents import command_supervisor
from accord.api import tracing
from accord.protocol.http_headers import trace_variables

COLUMNS, ROWS = 200, 50
"""Wide, so that few lines are broken by the terminal."""

MAX_LINE = 4000
"""Maximum size of one line in bytes; a terminal that edits lines drops the rest."""


class Terminal:
    """The near side of a terminal. `far` is for the command, and is closed once the command has it."""

    def __init__(self) -> None:
        """Open a terminal that does not echo its input."""
        self._near, self.far = os.openpty()
        os.set_blocking(self._near, False)
        attributes = termios.tcgetattr(self.far)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.far, termios.TCSANOW, attributes)
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    @property
    def edits_lines(self) -> bool:
        """Whether the terminal passes its command whole lines, of `MAX_LINE` bytes at most."""
        return bool(termios.tcgetattr(self._near)[3] & termios.ICANON)

    async def read(self, size: int) -> bytes:
        """Return the command's next output, or nothing if it has closed the terminal."""
        while True:
            try:
                return os.read(self._near, size)
            except BlockingIOError:
                await self._ready(writes=False)
            except OSError as error:
                if error.errno == errno.EIO:
                    return b""
                raise

    async def write(self, data: bytes) -> None:
        """Write all of `data` as input."""
        while data:
            try:
                data = data[os.write(self._near, data) :]
            except BlockingIOError:
                await self._ready(writes=True)

    def close(self) -> None:
        """Close the near side."""
        os.close(self._near)

    async def _ready(self, *, writes: bool) -> None:
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        add, remove = (loop.add_writer, loop.remove_writer) if writes else (loop.add_reader, loop.remove_reader)
        add(self._near, _done, ready)
        try:
            await ready
        finally:
            remove(self._near)


def _done(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


READ_BYTES = 64 * 1024

TAIL_BYTES = 8 * 1024
"""Size of the stored end of standard error, in bytes; the reason of a failure is usually at the end."""

START_SECONDS = 60.0
"""Maximum time for a process to start, in seconds, on the busiest of machines."""

LATE_SECONDS = 3.0
"""Time that a process may take to end beyond its grace, in seconds.

Then its supervisor is killed, and the command with it.
"""

log = logging.getLogger("accord.process")


class SubprocessNotStarted(Exception):
    """The operating system cannot start a command."""


class SubprocessCommand(Struct, frozen=True, kw_only=True):
    """A command with its directory and environment."""

    argv: Sequence[str]
    directory: Path
    env: Mapping[str, str]
    grace: float
    """Time that the command has to end after SIGTERM, in seconds."""

    has_terminal: bool = False
    inherits_output: bool = False
    """Write to the server's own output, instead of a pipe."""


class Subprocess:
    """A running command."""

    def __init__(
        self,
        command: SubprocessCommand,
        supervisor: asyncio.subprocess.Process,
        near: socket.socket,
        terminal: Terminal | None,
    ) -> None:
        """Wrap a supervisor that reports at `near`; `begin` waits until the command runs."""
        self.pid = 0
        self.terminal = terminal
        self._command = command
        self._supervisor = supervisor
        self._near = near
        self._tail = b""
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._work: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Wait until the command runs; raises SubprocessNotStarted."""
        reader, self._control = await asyncio.open_unix_connection(sock=self._near)
        try:
            async with asyncio.timeout(START_SECONDS):
                word, _, value = (await reader.readline()).decode().strip().partition(" ")
        except TimeoutError:
            self._supervisor.kill()
            word = value = ""
        if word != "started":
            await self._leave()
            raise SubprocessNotStarted(os.strerror(int(value)) if value else "Its supervisor could not be started")
        self.pid = int(value)
        self._do(self._follow(reader))
        if self._supervisor.stderr is not None:
            self._do(self._collect(self._supervisor.stderr))

    # --- while it runs --------------------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """Return the next output, or nothing at its end."""
        if self.terminal is not None:
            return await self.terminal.read(READ_BYTES)
        assert self._supervisor.stdout is not None
        return await self._supervisor.stdout.read(READ_BYTES)

    async def type(self, data: bytes) -> None:
        """Type keys in the command's terminal."""
        assert self.terminal is not None
        with contextlib.suppress(OSError):  # the command is gone, as its output will show
            await self.terminal.write(data)

    def feed(self, data: bytes) -> None:
        """Write all of the standard input in the background."""
        self._do(self._feed(data))

    @property
    def tail(self) -> str:
        """The end of standard error."""
        return self._tail.decode(errors="replace")

    async def ended(self) -> int:
        """Wait until the command has ended, and return its exit code, or a signal as a negative number."""
        return await asyncio.shield(self._exit)

    # --- its end --------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End the command with all its descendants, and wait until none is left.

        Canceling the caller does not stop this.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name=f"stop {self.pid}")
            _stopping.add(self._stopping)
            self._stopping.add_done_callback(_stopping.discard)
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        with contextlib.suppress(OSError):  # it may be gone already
            self._near.shutdown(socket.SHUT_WR)
        if self._supervisor.stdout is not None:
            self._do(_drain(self._supervisor.stdout))  # asyncio treats a process as ended once its output is read
        try:
            async with asyncio.timeout(self._command.grace + LATE_SECONDS):
                await self._supervisor.wait()
        except TimeoutError:
            log.error("process.killed", extra={"pid": self.pid})
            self._supervisor.kill()
            await self._supervisor.wait()
        await self._leave()

    async def _leave(self) -> None:
        await self._supervisor.wait()
        for work in self._work:
            work.cancel()
        try:
            await asyncio.gather(*self._work, return_exceptions=True)
        finally:
            self._control.close()
            if self.terminal is not None:
                self.terminal.close()
            if self._supervisor.stdin is not None:
                self._supervisor.stdin.close()
            self._supervisor._transport.close()  # type: ignore[attr-defined]  # asyncio closes its pipes only this way

    # --- at the same time -----------------------------------------------------------------------------------------

    async def _follow(self, control: asyncio.StreamReader) -> None:
        """Record the exit status. A supervisor that ends without one was killed, and the command is killed with it."""
        status = -signal.SIGKILL
        with contextlib.suppress(OSError):
            while line := await control.readline():
                word, _, value = line.decode().strip().partition(" ")
                if word == "exited":
                    status = int(value)
                    break
            else:
                log.error("process.keeper_gone", extra={"pid": self.pid})
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
        if not self._exit.done():
            self._exit.set_result(status)

    async def _collect(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(READ_BYTES):
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    async def _feed(self, data: bytes) -> None:
        stdin = self._supervisor.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the command need not read it
            stdin.write(data)
            await stdin.drain()
            stdin.close()
            await stdin.wait_closed()

    def _do(self, work: "asyncio._CoroutineLike[None]") -> None:
        self._work.append(asyncio.create_task(work, name=f"process {self.pid}"))


_stopping: set[asyncio.Task[None]] = set()


async def wait_until_stopped() -> None:
    """Wait until all commands that are being stopped have ended, before a node leaves."""
    here = asyncio.get_running_loop()
    await asyncio.gather(*(task for task in _stopping if task.get_loop() is here), return_exceptions=True)


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(READ_BYTES):
        pass


async def start(command: SubprocessCommand) -> Subprocess:
    """Start a command; if the caller is canceled meanwhile, the command is stopped."""
    starting = asyncio.create_task(_start(command), name=f"start {command.argv[0]}")
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(SubprocessNotStarted):
            await (await starting).stop()
        raise


async def _start(command: SubprocessCommand) -> Subprocess:
    with ExitStack() as undo:
        try:
            near, far = socket.socketpair()
            undo.callback(near.close)
            with far:
                terminal = Terminal() if command.has_terminal else None
                if terminal is not None:
                    undo.callback(terminal.close)
                supervisor = await _start_supervisor(command, far, terminal)
        except (OSError, ValueError) as error:  # no such directory, too many arguments, or a NUL in one of them
            raise SubprocessNotStarted(getattr(error, "strerror", None) or str(error)) from error
        undo.pop_all()
    near.setblocking(False)
    process = Subprocess(command, supervisor, near, terminal)
    await process.begin()
    return process


async def _start_supervisor(
    command: SubprocessCommand, far: socket.socket, terminal: Terminal | None
) -> asyncio.subprocess.Process:
    stream = asyncio.subprocess.PIPE if terminal is None else terminal.far
    output = None if command.inherits_output else stream
    options = (str(far.fileno()), str(command.grace), "0" if terminal is None else "1")
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", command_supervisor.__file__, *options, *command.argv),
            stdin=stream,
            stdout=output,
            stderr=output,
            cwd=command.directory,
            env={**command.env, **trace_variables(tracing.current())},
            pass_fds=(far.fileno(),),
            start_new_session=True,  # Ctrl-C at the server's terminal is for the server
        )
    finally:
        if terminal is not None:
            os.close(terminal.far)
