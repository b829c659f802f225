"""Runner: a command that answers requests in a relay channel.

    python -m accord.agents.relay.runner -- claude -p
    python -m accord.agents.relay.runner --native -- my-relay-agent

It runs as a separate process that is reachable only through the channel. It ends with all its descendants when the
process that started it ends, because its standard input is closed then. With `--native` the command reads the channel
itself, with the `RELAY_*` variables of its environment.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence

from accord.agents import command_supervisor
from accord.agents.command_environment import close_process
from accord.agents.relay.channel import (
    CANCEL,
    DONE,
    FAILED,
    ChannelMessage,
    RelayChannel,
    RelayUnavailable,
    request_text,
)

GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL, in seconds."""

LATE_SECONDS = 3.0
"""Time that a supervisor may take beyond that, in seconds; then it is killed, and the command with it."""


class CommandNotStarted(Exception):
    """The operating system cannot start a command."""


class SupervisedCommand:
    """A running command; `process` has its streams."""

    def __init__(self, process: Process, near: socket.socket) -> None:
        """Wrap a supervisor that reports at `near`."""
        self.process = process
        self._near = near
        self._says = asyncio.StreamReader()
        self._control: asyncio.StreamWriter | None = None

    async def begin(self) -> None:
        """Wait until the command runs; raises CommandNotStarted."""
        self._says, self._control = await asyncio.open_unix_connection(sock=self._near)
        word, value = await self._heard()
        if word != "started":
            raise CommandNotStarted(os.strerror(int(value)) if value else "its keeper could not be started")

    async def ended(self) -> int:
        """Wait until the command has ended, and return its exit status, or a signal as a negative number."""
        word, value = await self._heard()
        return int(value) if word == "exited" else -signal.SIGKILL  # a supervisor that ends without a report was killed

    async def end(self) -> None:
        """End the command with all its descendants, even if the caller is canceled meanwhile."""
        with contextlib.suppress(OSError):  # it may be gone already
            self._near.shutdown(socket.SHUT_WR)  # which is the signal to the supervisor
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
    """Read to the end, because asyncio treats a process as ended once its output is read."""
    while await stream.read(65536):
        pass


async def start_command(
    command: Sequence[str], env: Mapping[str, str], *, stdin: int, output: int | None
) -> SupervisedCommand:
    """Start a command; `output` is for both of its streams, or None if it inherits ours."""
    near, far = socket.socketpair()
    near.setblocking(False)
    options = (str(far.fileno()), str(GRACE_SECONDS), "0")
    try:
        with far:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", command_supervisor.__file__, *options, *command),
                stdin=stdin,
                stdout=output,
                stderr=output,
                env=dict(env),
                pass_fds=(far.fileno(),),
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        near.close()
        raise CommandNotStarted(getattr(error, "strerror", None) or str(error)) from error
    kept = SupervisedCommand(process, near)
    try:
        await kept.begin()
    except BaseException:  # if canceled, leave no process behind
        await kept.end()
        raise
    return kept


BASE_URL, API_KEY, CHANNEL, AGENT = "RELAY_BASE_URL", "RELAY_API_KEY", "RELAY_CHANNEL", "RELAY_AGENT_NAME"
"""Names of the environment variables for an agent."""

AT_ONCE = 4
"""Maximum number of concurrent requests."""

WAIT_SECONDS = 20.0
POLL_SECONDS = 2.0
"""Interval of reads from a relay that does not support `wait`, in seconds."""

PAGE = 100
MAX_KNOWN = 1000
"""Number of message keys for detecting duplicates, from a relay that repeats the same messages."""

MAX_OUTPUT = 1024 * 1024
"""Maximum size of a command's output in bytes; the rest is left out with a note."""

MAX_REASON = 2000
"""Maximum size of a failed command's last error output, in bytes."""

PLACEHOLDER, CONVERSATION = "{prompt}", "{context}"
"""Placeholders in arguments for the request and for the name of its conversation."""

TASK_ID, CONTEXT_ID = "RELAY_TASK_ID", "RELAY_CONTEXT_ID"
"""Environment variables of a command for the ids of its request."""


class ChannelWorker:
    """Answers the requests in a channel with a command."""

    def __init__(self, channel: RelayChannel, name: str, command: Sequence[str]) -> None:
        """Answer as `name`."""
        self._channel = channel
        self._name = name
        self._command = command
        self._known = deque[str](maxlen=MAX_KNOWN)
        self._working: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Answer requests until canceled."""
        last: str | None = None
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                page = await self._page(last)
                new = [entry for entry in page if entry.key not in self._known]
                self._known.extend(entry.key for entry in new)
                for entry in self._open(new):
                    self._begin(entry)
                last = page[-1].id if page else last
                if not new and loop.time() - began < POLL_SECONDS:
                    await asyncio.sleep(POLL_SECONDS)  # the relay does not support `wait`
        finally:
            for work in self._working.values():
                work.cancel()
            await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def _page(self, last: str | None) -> list[ChannelMessage]:
        more = {"wait": WAIT_SECONDS} | ({} if last is None else {"after": last})
        try:
            return await self._channel.latest(PAGE, **more)
        except RelayUnavailable as error:
            print(f"relay: {error}", file=sys.stderr, flush=True)
            return []

    def _open(self, new: list[ChannelMessage]) -> list[ChannelMessage]:
        """Return the requests without an answer, and stop those that were canceled."""
        over = {entry.tag for entry in new if entry.word}
        for entry in new:
            if entry.word == CANCEL and entry.tag in self._working:
                self._working[entry.tag].cancel()
        return [entry for entry in new if entry.is_request and entry.tag not in over and entry.sender != self._name]

    def _begin(self, entry: ChannelMessage) -> None:
        tag = entry.tag or ""
        if tag in self._working:
            return
        work = asyncio.create_task(self._work(tag, entry.context or tag, request_text(entry)), name=f"relay {tag}")
        self._working[tag] = work
        work.add_done_callback(lambda _: self._working.pop(tag, None))

    async def _work(self, tag: str, context: str, text: str) -> None:
        command = [one.replace(CONVERSATION, context) for one in self._command]
        async with self._places:
            try:
                said = f"{DONE} [a2a:{tag}] {await _run(command, text, {TASK_ID: tag, CONTEXT_ID: context})}"
            except CommandFailed as error:
                said = f"{FAILED} [a2a:{tag}] {error}"
        await self._say(said)

    async def _say(self, text: str) -> None:
        while True:
            try:
                await self._channel.post(text)
            except RelayUnavailable as error:
                print(f"relay: {error}", file=sys.stderr, flush=True)
                if not error.may_pass:
                    return
                await asyncio.sleep(POLL_SECONDS)
            else:
                return


class CommandFailed(Exception):
    """A command could not be run, or exited with an error."""


async def _run(command: Sequence[str], text: str, about: Mapping[str, str]) -> str:
    """Run a command once. The text is its input, or replaces the placeholder in its arguments."""
    arguments = _filled(command, text)
    takes_input = arguments == list(command)
    env = {**_without_secrets(os.environ), **about}
    try:
        kept = await start_command(arguments, env, stdin=PIPE if takes_input else DEVNULL, output=PIPE)
    except CommandNotStarted as error:
        raise CommandFailed(f"{command[0]} cannot be started: {error}") from None
    try:
        return await _talk(kept, text.encode() if takes_input else None)
    finally:
        await kept.end()


def _filled(command: Sequence[str], text: str) -> list[str]:
    """Return a command with the text in its placeholder, protected from being parsed as a flag."""
    before = ("", *command)
    return [
        one.replace(PLACEHOLDER, f" {text}" if one == PLACEHOLDER and last != "--" and text.startswith("-") else text)
        for last, one in zip(before, command, strict=False)
    ]


async def _talk(kept: SupervisedCommand, given: bytes | None) -> str:
    process = kept.process
    assert process.stdout is not None
    assert process.stderr is not None

    async def tell() -> None:
        if process.stdin is not None and given is not None:
            with contextlib.suppress(ConnectionError):  # the command does not read its input
                process.stdin.write(given)
                await process.stdin.drain()
            process.stdin.close()

    _, (said, is_all), (complained, _) = await asyncio.gather(
        tell(), _read_limited(process.stdout, MAX_OUTPUT), _read_limited(process.stderr, MAX_REASON, keeps_end=True)
    )
    status = await kept.ended()
    if status:
        lines = complained.decode("utf-8", "replace").strip().splitlines()
        raise CommandFailed(f"exit status {status}{': ' + lines[-1] if lines else ''}")
    return said.decode("utf-8", "replace").strip() + ("" if is_all else "\n[the rest is left out]")


async def _read_limited(stream: asyncio.StreamReader, most: int, *, keeps_end: bool = False) -> tuple[bytes, bool]:
    """Read everything, and return its start or its end, and whether that is all of it."""
    found, is_all = b"", True
    while piece := await stream.read(65536):
        found += piece if keeps_end or len(found) <= most else b""
        is_all = is_all and len(found) <= most
        found = found[-most:] if keeps_end else found
    return found[:most], is_all


def _without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the channel's key and URL, which the command must not use."""
    return {name: value for name, value in env.items() if name not in (API_KEY, BASE_URL)}


# --- the process ----------------------------------------------------------------------------------------------------


async def _native(command: Sequence[str]) -> int:
    kept = await start_command(command, os.environ, stdin=DEVNULL, output=None)
    try:
        return await kept.ended()
    finally:
        await kept.end()


async def _bridged(command: Sequence[str], env: Mapping[str, str]) -> int:
    channel = RelayChannel(env[BASE_URL], env[API_KEY], env.get(CHANNEL, "general"))
    try:
        await ChannelWorker(channel, env.get(AGENT, ""), command).run()
    finally:
        await channel.close()
    return 0


async def _until_left() -> None:
    """Wait until the parent process has ended."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def _main(arguments: Sequence[str]) -> int:
    is_native = arguments[:1] == ["--native"]
    command = list(arguments[arguments.index("--") + 1 :]) if "--" in arguments else []
    if not command or not (os.environ.get(BASE_URL) and os.environ.get(API_KEY)):
        print(f"usage: {BASE_URL}=... {API_KEY}=... python -m {__spec__.name} [--native] -- COMMAND", file=sys.stderr)
        return 2
    close_process()  # otherwise the command could read the channel's key in /proc
    work = asyncio.create_task(_native(command) if is_native else _bridged(command, os.environ), name="work")
    left = asyncio.create_task(_until_left(), name="lifeline")
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, left.cancel)
    await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
    for task in (work, left):
        task.cancel()
    found = await asyncio.gather(work, left, return_exceptions=True)
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0] if isinstance(found[0], int) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(sys.argv[1:])))
