"""Questions of a run that are answered where it is watched: lines that somebody types, while the run goes on.

A question may be answered from elsewhere meanwhile, so lines are read without waiting for them. What is typed before a
question is shown is no answer to it.
"""

import asyncio
import os
import sys

from accord.cli import output
from accord.engine.messages import YES
from accord.model import Message

NO = frozenset({"no", "n", "reject", "rejected", "false", "0"})


class Keyboard:
    """The lines of a terminal."""

    def __init__(self) -> None:
        """Read from now on."""
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._rest = b""
        self._is_over = False
        self._file = sys.stdin.fileno()
        asyncio.get_running_loop().add_reader(self._file, self._read)

    def close(self) -> None:
        """Read no more."""
        asyncio.get_running_loop().remove_reader(self._file)

    def _read(self) -> None:
        piece = os.read(self._file, 4096)
        if not piece:
            self._is_over = True
            self.close()
            self._lines.put_nowait(None)
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._lines.put_nowait(line.decode(errors="replace").strip())

    async def decision(self, step: str, question: Message) -> tuple[bool, str] | None:
        """Ask for a yes or a no and a comment; None if nobody types any more."""
        self._ask(step, question)
        while (line := await self._line("y or n, and a comment if you like: ")) is not None:
            word, _, comment = line.partition(" ")
            said = word.strip(".,!").lower()
            if said in YES | NO:
                return said in YES, comment.strip()
        return None

    async def answer(self, step: str, question: Message) -> str | None:
        """Ask for an answer that says something; None if nobody types any more."""
        self._ask(step, question)
        while (line := await self._line("answer: ")) is not None:
            if line:
                return line
        return None

    def _ask(self, step: str, question: Message) -> None:
        while not self._lines.empty():
            self._lines.get_nowait()
        output.tell(f"\n? {output.line(step)}: {output.safe(output.text_of(question.parts))}")

    async def _line(self, prompt: str) -> str | None:
        print(f"  {prompt}", end="", file=sys.stderr, flush=True)
        line = None if self._is_over and self._lines.empty() else await self._lines.get()
        if line is None:
            output.tell("")
        return line
