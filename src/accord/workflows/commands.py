"""Commands of steps and checks, with a time limit and an output limit.

A command is run by a shell, or by the program in its `#!` line. It gets values as variables, or as files when the
environment is too small. No process outlives its command.
"""

import asyncio
import os
import re
import shlex
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from accord.agents import subprocesses
from accord.agents.process.output import terminal_text, text_tail
from accord.workflows.document import Step, Verification
from accord.workflows.executors import Scene

KEPT_BYTES = 1024 * 1024
"""Maximum stored output of a command. Its end is kept, because it contains the outcome."""

VALUE_BYTES = 100 * 1024
"""Maximum size of a value in a variable; a larger one is a file. Linux limits one variable with its name to 128 KiB."""

VALUES_BYTES = 512 * 1024
"""Maximum size of all values together. Arguments and environment share 2 MiB on most machines."""

GRACE_SECONDS = 1.0
"""Grace period of a command that is stopped, in seconds; then it is killed."""

SHOWN = 1500
"""Characters of a command's output in an error."""

LINE_BYTES = 64 * 1024
"""Maximum length of a line; a longer one is passed on in pieces."""

BY_SIGNAL = 128
"""Base of the exit codes of commands that a signal ended."""

SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_CONTROLS = re.compile(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]")

Heard = Callable[[str], Awaitable[None]]


class CommandResult(Struct, frozen=True, kw_only=True):
    """The result of a command. Without an `exit_code` it did not end by itself, and `problem` has the reason."""

    output: str = ""
    errors: str = ""
    exit_code: int | None = None
    problem: str | None = None

    @property
    def error(self) -> str | None:
        """The error for people; None if the command succeeded."""
        if self.problem is None and self.exit_code == 0:
            return None
        what = self.problem or f"The command {_exit_text(self.exit_code or 0)}"
        excerpt = text_tail(self.errors or self.output, SHOWN)
        return f"{what}: {excerpt}" if excerpt else what


async def run_shell(
    command: str,
    *,
    directory: Path,
    env: Mapping[str, str],
    seconds: float | None = None,
    heard: Heard | None = None,
) -> CommandResult:
    """Run a shell command with `env` as its environment."""
    async with _prepared(command, env) as (argv, given):
        return await run_program(argv, directory=directory, env=given, seconds=seconds, heard=heard)


async def run_program(
    argv: tuple[str, ...],
    *,
    directory: Path,
    env: Mapping[str, str],
    seconds: float | None = None,
    heard: Heard | None = None,
) -> CommandResult:
    """Run a program to its end. After a timeout or cancellation, no process of it remains."""
    if not await asyncio.to_thread(directory.is_dir):
        return CommandResult(problem=f"{directory} is not a directory")
    command = subprocesses.SubprocessCommand(argv=argv, directory=directory, env=env, grace=GRACE_SECONDS)
    output, lines = _OutputTail(), LineSplitter()
    errors = ""
    problem: str | None = None
    exit_code: int | None = None
    try:
        async with asyncio.timeout(seconds):
            process = await subprocesses.start(command)
            try:
                process.feed(b"")  # close the input; a program that reads it would otherwise hang
                while data := await process.read():
                    output.add(data)
                    if heard is not None and (whole := lines.add(data)) is not None:
                        await heard(_terminal_text(whole))
                exit_code = _shell_exit_code(await process.ended())
            finally:
                await process.stop()
                errors = process.tail
                if heard is not None and (last := lines.rest()):
                    await heard(_terminal_text(last))
    except subprocesses.SubprocessNotStarted as error:
        return CommandResult(problem=f"{argv[0]} could not be started: {error}")
    except TimeoutError:
        problem = f"The command did not end within {seconds:g} seconds"
    return CommandResult(
        output=await asyncio.to_thread(output.text),
        errors=_terminal_text(errors.encode(errors="replace")),
        exit_code=exit_code,
        problem=problem,
    )


def _shell_exit_code(status: int) -> int:
    return status if status >= 0 else BY_SIGNAL - status


def _exit_text(code: int) -> str:
    try:
        name = signal.Signals(code - BY_SIGNAL).name if code > BY_SIGNAL else None
    except ValueError:
        name = None
    return f"ended with exit code {code}" + (f" ({name})" if name else "")


class _OutputTail:
    def __init__(self) -> None:
        self._kept = bytearray()
        self._all = 0

    def add(self, data: bytes) -> None:
        self._all += len(data)
        self._kept += data
        if len(self._kept) > 2 * KEPT_BYTES:
            del self._kept[:-KEPT_BYTES]

    def text(self) -> str:
        """Return it as text, with a note if something is missing."""
        kept = bytes(self._kept[-KEPT_BYTES:])
        text = _terminal_text(kept).rstrip()
        left = self._all - len(kept)
        return f"[{left} bytes left out]\n{text}" if left else text


class LineSplitter:
    """Splits an output into whole lines. A carriage return ends a line too, so that progress is visible."""

    def __init__(self) -> None:
        self._open = b""

    def add(self, data: bytes) -> bytes | None:
        """Add output; return the complete lines without the last line break, or None."""
        data = self._open + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1))  # a return at the very end may belong to a line break
        if end < 0:
            end = len(data) if len(data) > LINE_BYTES else -1
        self._open = data[end + 1 :]
        return None if end < 0 else data[:end].removesuffix(b"\r")

    def rest(self) -> bytes:
        """Return the incomplete last line."""
        return self._open.removesuffix(b"\r")


def _terminal_text(data: bytes) -> str:
    """Return the text that a terminal would show. Most lines only need their colors removed."""
    text = _COLOURS.sub("", data.decode(errors="replace").replace("\r\n", "\n"))
    if not _CONTROLS.search(text):
        return text
    return "\n".join(terminal_text(line) if _CONTROLS.search(line) else line for line in text.split("\n"))


# --- preparation ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _prepared(command: str, env: Mapping[str, str]) -> AsyncIterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Yield the program for a command, and its environment. Files that it needs exist until the end of the block."""
    given = {name: _environment_text(value) for name, value in env.items()}
    large = _oversized_values(given)
    is_script = command.startswith("#!") or len(command.encode(errors="replace")) > VALUE_BYTES
    if not large and not is_script:
        yield ("sh", "-c", command), given
        return
    with await asyncio.to_thread(TemporaryDirectory, prefix="accord-step-") as folder:
        yield await asyncio.to_thread(_write_script, command, given, large, Path(folder))


def _write_script(
    command: str, env: Mapping[str, str], large: frozenset[str], folder: Path
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Write a command, and values that are too large for an environment, into files."""
    given = {name: value for name, value in env.items() if name not in large}
    for name in large:
        file = folder / name
        file.write_text(env[name], errors="replace")
        given[f"{name}_FILE"] = str(file)
    words = shlex.split(command.partition("\n")[0].removeprefix("#!")) if command.startswith("#!") else ["sh"]
    if _is_shell(words):
        command = _value_readers(sorted(large)) + command
    script = folder / ".command"
    script.write_text(command, errors="replace")
    return (*words, str(script)), given


def _is_shell(words: list[str]) -> bool:
    program = words[1] if words[:1] == ["/usr/bin/env"] and len(words) > 1 else words[0] if words else ""
    return Path(program).name in SHELLS


def _value_readers(names: list[str]) -> str:
    """Return shell code that reads values from files into unexported variables.

    A shell drops line breaks at the end of its input. They belong to the value, hence the dot.
    """
    return "".join(f'{name}=$(cat "${{{name}_FILE}}"; printf .); {name}=${{{name}%.}}\n' for name in names)


def _environment_text(value: str) -> str:
    """Return a value as an environment can contain it: without NUL and lone surrogates."""
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        value = value.encode(errors="replace").decode()
    return value.replace("\0", "")


def _oversized_values(env: Mapping[str, str]) -> frozenset[str]:
    """Return the names of values without room in an environment. Small values get room first."""
    room = VALUES_BYTES
    found = set()
    for size, name in sorted((len(os.fsencode(value)), name) for name, value in env.items()):
        room -= size
        if (size > VALUE_BYTES or room < 0) and _NAME.fullmatch(name):
            found.add(name)
    return frozenset(found)


async def run_command(
    scene: Scene,
    given: Step | Verification,
    command: str,
    *,
    seconds: float | None,
    env: Mapping[str, str] | None = None,
    heard: Heard | None = None,
) -> CommandResult:
    """Run the `argv` of a step or verification with its values, or otherwise its shell command."""
    if given.argv is None:
        command, variables = scene.values.shell(command, options=given.allow_options)
        async with _prepared(command, scene.environment({**variables, **(env or {})})) as (words, given_env):
            return await run_program(words, directory=scene.place, env=given_env, seconds=seconds, heard=heard)
    argv = scene.values.argv(given.argv, options=given.allow_options, interpreter=given.allow_interpreter)
    return await run_program(
        argv, directory=scene.place, env=scene.environment(env or {}), seconds=seconds, heard=heard
    )
