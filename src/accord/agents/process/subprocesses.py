"""Subprocesses with pipes or a pseudo-terminal, ended with all their descendants.

A command is started through `command_supervisor`, which stays with it.
"""

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import re
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
from accord.engine import tracing
from accord.protocol.http_headers import trace_variables

COLUMNS, ROWS = 200, 50
"""Wide, so that few lines are broken where their author did not break them."""

MAX_LINE = 4000
"""Bytes of one line: a terminal that edits lines for its command keeps no more of one."""

PASTE = "\x1b[200~", "\x1b[201~"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Terminal:
    """The near side of a terminal; `far` is for the command, and is closed once the command has it."""

    def __init__(self) -> None:
        """Open a terminal that does not repeat what is typed."""
        self._near, self.far = os.openpty()
        os.set_blocking(self._near, False)
        attributes = termios.tcgetattr(self.far)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.far, termios.TCSANOW, attributes)
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def hand_over(self) -> None:
        """Let go of the far side."""
        os.close(self.far)

    @property
    def edits_lines(self) -> bool:
        """Whether the terminal gives its command whole lines, of `MAX_LINE` at most."""
        return bool(termios.tcgetattr(self._near)[3] & termios.ICANON)

    async def read(self, size: int) -> bytes:
        """Return what the command shows next; nothing if it has let go of the terminal."""
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
        """Type something."""
        while data:
            try:
                data = data[os.write(self._near, data) :]
            except BlockingIOError:
                await self._ready(writes=True)

    def close(self) -> None:
        """Let go of the near side."""
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


def keystrokes(text: str, *, pastes: bool) -> bytes:
    """Return what to type for a text and the key that sends it off.

    Control characters are left out: whoever asks must not press Ctrl-C. A text of several lines is pasted, if the
    command takes that as one piece (`pastes`), or made one line: the second would answer what the first one led to.
    """
    clean = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    if pastes and "\n" in clean:
        return (PASTE[0] + clean + PASTE[1] + "\r").encode()
    return (" ".join(clean.split("\n")) + "\r").encode()


READ_BYTES = 64 * 1024

TAIL_BYTES = 8 * 1024
"""How much of what a command says on its standard error is kept: its last words are what says why it failed."""

START_SECONDS = 60.0
"""How long a process may take to start, on the busiest of machines."""

LATE_SECONDS = 3.0
"""How much longer than its grace a process may take to be gone; then its keeper is killed, and it with it."""

log = logging.getLogger("accord.process")


class SubprocessNotStarted(Exception):
    """The operating system does not start this command."""


class SubprocessCommand(Struct, frozen=True, kw_only=True):
    """What to start, where, and with which environment; `grace` is how long it has to end when it is told to."""

    argv: Sequence[str]
    directory: Path
    env: Mapping[str, str]
    grace: float
    has_terminal: bool = False


class Subprocess:
    """A command that runs."""

    def __init__(self, command: SubprocessCommand, keeps: asyncio.subprocess.Process, near: socket.socket) -> None:
        """Hold a keeper that answers at `near`; `begin` waits until the command runs."""
        self.pid = 0
        self.terminal: Terminal | None = None
        self._command = command
        self._keeper = keeps
        self._near = near
        self._tail = b""
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._work: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Wait until the command runs."""
        reader, self._control = await asyncio.open_unix_connection(sock=self._near)
        try:
            async with asyncio.timeout(START_SECONDS):
                word, _, value = (await reader.readline()).decode().strip().partition(" ")
        except TimeoutError:
            self._keeper.kill()
            word = value = ""
        if word != "started":
            await self._leave()
            raise SubprocessNotStarted(os.strerror(int(value)) if value else "Its keeper could not be started")
        self.pid = int(value)
        self._do(self._follow(reader))
        if self._keeper.stderr is not None:
            self._do(self._collect(self._keeper.stderr))

    # --- while it runs --------------------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """Return what it says next; nothing if it will say no more."""
        if self.terminal is not None:
            return await self.terminal.read(READ_BYTES)
        assert self._keeper.stdout is not None
        return await self._keeper.stdout.read(READ_BYTES)

    async def type(self, data: bytes) -> None:
        """Type something into its terminal."""
        assert self.terminal is not None
        with contextlib.suppress(OSError):  # it is gone, as its output will show
            await self.terminal.write(data)

    def feed(self, data: bytes) -> None:
        """Give it all of its standard input, while it is read."""
        self._do(self._feed(data))

    @property
    def tail(self) -> str:
        """The last that it said on its standard error."""
        return self._tail.decode(errors="replace")

    async def ended(self) -> int:
        """Wait until the command has ended and return how: its exit code, or a signal as a negative number."""
        return await asyncio.shield(self._exit)

    # --- its end --------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End it with everything that it has started, and wait until nothing of it is left.

        Whoever is cancelled while waiting does not keep it from ending.
        """
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name=f"stop {self.pid}")
            _stopping.add(self._stopping)
            self._stopping.add_done_callback(_stopping.discard)
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        with contextlib.suppress(OSError):  # it may be gone already
            self._near.shutdown(socket.SHUT_WR)
        if self._keeper.stdout is not None:
            self._do(_drain(self._keeper.stdout))  # asyncio takes a process for ended when its output is read
        try:
            async with asyncio.timeout(self._command.grace + LATE_SECONDS):
                await self._keeper.wait()
        except TimeoutError:
            log.error("process did not end and is killed with its keeper", extra={"pid": self.pid})
            self._keeper.kill()
            await self._keeper.wait()
        await self._leave()

    async def _leave(self) -> None:
        await self._keeper.wait()
        for work in self._work:
            work.cancel()
        try:
            await asyncio.gather(*self._work, return_exceptions=True)
        finally:
            self._control.close()
            if self.terminal is not None:
                self.terminal.close()
            if self._keeper.stdin is not None:
                self._keeper.stdin.close()
            self._keeper._transport.close()  # type: ignore[attr-defined]  # asyncio lets go of its pipes only so

    # --- at the same time -----------------------------------------------------------------------------------------

    async def _follow(self, control: asyncio.StreamReader) -> None:
        """Take note of the end; a keeper that is gone without a word was killed, and the command goes with it."""
        status = -signal.SIGKILL
        with contextlib.suppress(OSError):
            while line := await control.readline():
                word, _, value = line.decode().strip().partition(" ")
                if word == "exited":
                    status = int(value)
                    break
            else:
                log.error("keeper of a process is gone", extra={"pid": self.pid})
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
        if not self._exit.done():
            self._exit.set_result(status)

    async def _collect(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(READ_BYTES):
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    async def _feed(self, data: bytes) -> None:
        stdin = self._keeper.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it does not read it, which is its choice
            stdin.write(data)
            await stdin.drain()
            stdin.close()
            await stdin.wait_closed()

    def _do(self, work: "asyncio._CoroutineLike[None]") -> None:
        self._work.append(asyncio.create_task(work, name=f"process {self.pid}"))


_stopping: set[asyncio.Task[None]] = set()


async def wait_until_stopped() -> None:
    """Wait until everything is gone that was told to end, also what nobody waits for any more, before a node leaves."""
    here = asyncio.get_running_loop()
    await asyncio.gather(*(task for task in _stopping if task.get_loop() is here), return_exceptions=True)


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(READ_BYTES):
        pass


async def start(command: SubprocessCommand) -> Subprocess:
    """Start a command; whoever is cancelled meanwhile leaves nothing behind."""
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
                keeps = await _keep(command, far, terminal)
        except (OSError, ValueError) as error:  # no such directory, too many arguments, a NUL in one of them
            raise SubprocessNotStarted(getattr(error, "strerror", None) or str(error)) from error
        undo.pop_all()
    near.setblocking(False)
    process = Subprocess(command, keeps, near)
    process.terminal = terminal
    await process.begin()
    return process


async def _keep(
    command: SubprocessCommand, far: socket.socket, terminal: Terminal | None
) -> asyncio.subprocess.Process:
    """Start the keeper of a command."""
    stream = asyncio.subprocess.PIPE if terminal is None else terminal.far
    options = (str(far.fileno()), str(command.grace), "0" if terminal is None else "1")
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", command_supervisor.__file__, *options, *command.argv),
            stdin=stream,
            stdout=stream,
            stderr=stream,
            cwd=command.directory,
            env={**command.env, **trace_variables(tracing.current())},
            pass_fds=(far.fileno(),),
            start_new_session=True,  # Ctrl-C at the server's terminal is for the server
        )
    finally:
        if terminal is not None:
            terminal.hand_over()
