"""Reads a Dockerfile as far as ours goes: stages, instructions, variables; what it does not know is an error."""

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

KNOWN = {
    "ARG", "FROM", "WORKDIR", "ENV", "COPY", "RUN", "LABEL", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK",
    "ENTRYPOINT", "CMD",
}  # fmt: skip


class Instruction(NamedTuple):
    """A word, and what comes after it."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """What it says, in exec form or as words."""
        return list(json.loads(self.text)) if self.text.startswith("[") else shlex.split(self.text)

    @property
    def is_exec(self) -> bool:
        return self.text.startswith("[")


class Stage(NamedTuple):
    """One FROM, and what follows."""

    base: str
    name: str | None
    instructions: list[Instruction]

    def all(self, name: str) -> list[Instruction]:
        return [one for one in self.instructions if one.name == name]

    def one(self, name: str) -> Instruction:
        (found,) = self.all(name)
        return found

    def pairs(self, name: str) -> dict[str, str]:
        """The names and values of ENV or LABEL."""
        words = [word for one in self.all(name) for word in one.words]
        return dict(word.split("=", 1) for word in words)


def stages(file: Path) -> list[Stage]:
    """Return the stages of a file, with the defaults of its arguments put in."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    arguments: dict[str, str] = {}
    found: list[Stage] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, text = line.partition(" ")
        assert name in KNOWN, f"{name} is new: say here what it means"
        text = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], text)
        if name == "ARG":
            variable, _, value = text.partition("=")
            arguments[variable] = value
        elif name == "FROM":
            base, _, alias = text.partition(" AS ")
            found.append(Stage(base, alias or None, []))
        else:
            found[-1].instructions.append(Instruction(name, text))
    return found


def is_sent(path: str, ignore: Path) -> bool:
    """Whether a file gets to the builder: the last line of .dockerignore that fits decides."""
    sent = True
    for line in ignore.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        if _fits(path, pattern):
            sent = line.startswith("!")
    return sent


def _fits(path: str, pattern: str) -> bool:
    """Whether a path or a folder above it is meant."""
    text = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*").replace(r"\[", "[")
    return re.fullmatch(f"{text.replace(chr(92) + ']', ']')}(/.*)?", path) is not None
