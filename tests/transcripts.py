"""A page's `console` blocks, run line by line as its reader would, against real processes.

Lines with `$ ` are commands, what follows is what they print; `...` stands for whatever there is. Ids in the page are
those of its author: the first time one is printed it is bound to the id that is there now. `accord serve` runs beside
the others, on a free port for the page's 8000, and `kill -9` kills it, whatever process the page names.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests import doc_blocks
from tests.serve.running import BOUND_SECONDS, ROOT, Server, environment

ID = re.compile(r"01[0-9a-f]{6}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Step(NamedTuple):
    """A command of a page, and what it prints there."""

    command: str
    shown: str


def steps(page: Path) -> Iterator[Step]:
    """Yield the commands of a page, in their order."""
    for block in doc_blocks.blocks(page):
        if block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
                command, _, shown = part.partition("\n")
                yield Step(command, shown)


class Reader:
    """Somebody who types what a page says, in a folder with the examples."""

    def __init__(self, folder: Path) -> None:
        """Have nothing running yet."""
        self.folder = folder
        self.server: Server | None = None
        self.ids: dict[str, str] = {}
        (folder / "examples").symlink_to(ROOT / "examples")

    def types(self, step: Step) -> None:
        """Do one step and hold what it prints to what the page says."""
        words = shlex.split(self._now(step.command), comments=True)
        match words:
            case ["accord", "serve", *targets]:
                self.stop()
                port = self.server.port if self.server else None
                self.server = Server(self.folder, *targets, port=port, ACCORD_ENGINE__LEASE_SECONDS="2")
            case ["kill", "-9", *_]:
                assert self.server is not None
                self.server.kill()
            case _:
                self._compare(step.shown, self._run(words))

    def stop(self) -> None:
        """Stop what is served, if it still is."""
        if self.server is not None and self.server.process.poll() is None:
            self.server.stop()

    def hears(self) -> None:
        """Wait until the agent has said something in the last task that was printed."""
        assert self.server is not None
        task, until = list(self.ids.values())[-1], time.monotonic() + BOUND_SECONDS
        while not self.server.get(task).get("artifacts"):
            assert time.monotonic() < until, f"{task} says nothing"
            time.sleep(0.05)

    def _run(self, words: list[str]) -> str:
        program = [sys.executable, "-m", words[0]] if words[0] in {"accord", "pytest"} else words[:1]
        done = subprocess.run(
            [*program, *words[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BOUND_SECONDS,
            check=False,
            cwd=self.folder,
            env=environment(self.folder, COLUMNS="100"),
        )
        return done.stdout

    def _now(self, text: str) -> str:
        """Put today's port and ids into what a page says."""
        port = self.server.port if self.server else 8000
        return ID.sub(lambda found: self.ids.get(found[0], found[0]), text.replace(":8000", f":{port}"))

    def _compare(self, shown: str, printed: str) -> None:
        wanted, there = self._now(shown).rstrip().splitlines(), printed.rstrip().splitlines()
        for ours, theirs in zip(ID.findall("\n".join(wanted)), ID.findall(printed), strict=False):
            self.ids.setdefault(ours, theirs)
        pattern = "\n".join(re.escape(self._now(line)).replace(r"\.\.\.", "(?s:.*)") for line in wanted)
        assert re.fullmatch(pattern, "\n".join(there)), f"{shown}\nis not\n{printed}"
