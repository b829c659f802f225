"""What a page shows, done: the server that it starts, and the commands with what they print.

A page's first `accord serve ...` is its server. In `console` blocks commands begin with `$ ` and go on with `> `, and
the other lines are their output. `TASK` is the task that the command before spoke of, `...` in an output is anything.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.doc_blocks import ROOT, blocks
from tests.serve.running import Server, accord

URL = "http://localhost:8000"
COMMAND = re.compile(r"^\$ (.*)\n((?:> .*\n)*)((?:(?!\$ ).*\n)*)", re.MULTILINE)
"""A command with the lines in which it goes on, and what it prints."""


class Step(NamedTuple):
    """A command, and what it prints."""

    line: str
    shown: str

    @property
    def words(self) -> list[str]:
        """The arguments of a command of ours."""
        program, *words = shlex.split(self.line)
        assert program == "accord"
        return words


class Surroundings(NamedTuple):
    """What a page takes for granted: addresses that are others here, and variables of the server."""

    addresses: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    python: str | None = None


def serve_words(page: Path) -> list[str]:
    """Return the arguments of a page's first `accord serve`."""
    lines = (line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines())
    line = next(line for line in lines if line.startswith("accord serve "))
    return shlex.split(line, comments=True)[2:]


def steps(page: Path) -> Iterator[Step]:
    """Yield the commands of a page's `console` blocks."""
    for block in blocks(page):
        if block.language == "console":
            for line, more, shown in COMMAND.findall(block.text):
                yield Step(f"{line}\n{more.replace('> ', '')}".strip(), shown.strip())


def started(page: Path, folder: Path, around: Surroundings) -> Server:
    """Start the server of a page in a folder of its own."""
    words = [_here(word, folder, around.addresses) for word in serve_words(page)]
    env: dict[str, Any] = dict(around.env)
    return Server(folder, *words, python=around.python, **env)


def _here(word: str, folder: Path, addresses: Mapping[str, str]) -> str:
    for shown, real in addresses.items():
        word = word.replace(shown, real)
    if not word.startswith("examples/"):
        return word
    if not addresses or not word.endswith(".toml"):
        return str(ROOT / word)
    settings = (ROOT / word).read_text(encoding="utf-8")
    for shown, real in addresses.items():
        assert shown in settings, f"{word} does not say {shown}"
        settings = settings.replace(shown, real)
    copy = folder / Path(word).name
    copy.write_text(settings, encoding="utf-8")
    return str(copy)


def play(page: Path, url: str, folder: Path) -> None:
    """Do what a page shows, one command after the other."""
    task = ""
    played = list(steps(page))
    assert played, f"{page.name} shows no command"
    for step in played:
        words = [task if word == "TASK" else word.replace(URL, url) for word in step.words]
        done = accord(folder, *words)
        assert done.returncode == 0, done.stderr
        pattern = ".*".join(map(re.escape, step.shown.split("...")))
        said = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
        assert re.fullmatch(pattern, said), f"{step.words}: {done.stdout}{done.stderr}"
        spoken_of = re.search(r"--task-id (\S+)", done.stderr)
        task = spoken_of[1] if spoken_of else task
