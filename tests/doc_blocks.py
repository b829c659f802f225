"""The code blocks of the documentation, and what holds each of them to the code.

A block says by `title="path"` which file it is an excerpt of, or its language says what it is checked against: the
tests and examples (Python), the settings, the schema of workflows, the command line. It runs nothing; `test_docs` goes
through all blocks, and pages' own tests run what they show.
"""

import json
import re
import shlex
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer
import yaml  # type: ignore[import-untyped]  # it ships no types
from typer.main import get_command

from accord.api.agent_types import AGENT_TYPES
from accord.cli import app
from accord.server.settings_loader import LoadedSettings, settings_of
from accord.workflows.findings import BadDocument
from accord.workflows.source import read_source
from accord.workflows.validation import check_source
from docs import check_links

ROOT = check_links.ROOT
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)$", re.M | re.S
)
TITLE = re.compile(r'title="([^"]+)"')
REASON = re.compile(r"<!-- untested: (.+?) -->\s*\Z", re.S)
# Stands in an excerpt for lines that were left out.
LEFT_OUT = re.compile(r"^\s*(#|//) \.\.\.$", re.M)


class Block(NamedTuple):
    """A piece of code in a page."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    untested: str | None = None

    def __str__(self) -> str:
        """Say where it is, as editors take it."""
        return f"{self.page}:{self.line}"


class Unbound(AssertionError):
    """What a block shows is not so."""


def pages() -> list[Path]:
    """Every page of the documentation, but the history of it."""
    return [path for path in check_links.documents(ROOT) if path.name != "CHANGELOG.md"]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        before = text[: found.start()]
        language, title, reason = found["info"].split(" ")[0], TITLE.search(found["info"]), REASON.search(before)
        yield Block(
            page=page.relative_to(ROOT).as_posix(),
            line=before.count("\n") + 1,
            language=language,
            title=title and title[1],
            text=textwrap.dedent(found["text"]),
            untested=reason and reason[1],
        )


def check(block: Block) -> None:
    """Raise `Unbound` if a block is not what the code says."""
    if block.title is not None:
        excerpt_of(ROOT / block.title, block)
    if block.language not in CHECKS:
        if block.title is None:
            raise Unbound(f"nothing checks {block.language!r}: give it a title with the file that it is from")
        return
    CHECKS[block.language](block)


# --- what each language is held to ------------------------------------------------------------------------------------


def python(block: Block) -> None:
    """Python is part of an example or a test."""
    if block.title is not None:
        if not block.title.startswith(("examples/", "tests/")):
            raise Unbound(f"{block.title} is neither an example nor a test")
        if not is_tested(ROOT / block.title):
            raise Unbound(f"no test runs {block.title}")
    elif not any(is_excerpt(block.text, source) for source in sources()):
        raise Unbound("no example and no test has these lines")


def toml(block: Block) -> None:
    """TOML is settings, also those in a project's file; whatever else is in one is an excerpt of it."""
    written = tomllib.loads(block.text)
    ours = written.get("tool", {}).get("accord")
    if ours is None and block.title is not None and Path(block.title).name != "accord.toml":
        return
    settings(written if ours is None else ours)


def settings(written: dict[str, Any]) -> None:
    """Settings are read as those of a server are, and those of agents by their kinds."""
    names = re.findall(r"env:(\w+)", json.dumps(written, default=str))
    read = settings_of(written, "the page", dict.fromkeys(names, "0123456789abcdef" * 2))
    for name, said in read.agents.items():
        if isinstance(said, dict) and "type" in said:
            LoadedSettings(read, {}).read(f"agents.{name}", AGENT_TYPES.load(said["type"]).options)


WORKFLOW = """
version: "1"
name: page
swarm: { pattern: pipeline }
vars: { title: "" }
workflows:
  - name: main
    steps:
"""
STEP = '      - { name: first, type: deterministic, command: "true" }\n'


def workflow(block: Block) -> None:
    """YAML is a workflow, its steps or what begins it; that of other tools can at least be read."""
    if re.search(r"^(workflows|swarm):", block.text, re.M):
        text = block.text
    elif block.text.startswith("on:"):
        text = WORKFLOW + STEP + block.text
    elif re.match(r"- (\{ *)?name: .*\b(type|agent|task):", block.text):
        agents = sorted(set(re.findall(r"\bagent: (\w+)", block.text)))
        text = WORKFLOW + textwrap.indent(block.text, " " * 6)
        text += "agents:\n" + "".join(f"  - {{ name: {name}, cli: claude }}\n" for name in agents)
    else:
        list(yaml.safe_load_all(block.text))
        return
    try:
        wrong = [
            str(found)
            for found in check_source(read_source(text, str(block)))
            if found.severity == "error" and found.code != "MISSING_ENV"
        ]
    except BadDocument as error:
        wrong = [str(found) for found in error.findings]
    if wrong:
        raise Unbound("; ".join(wrong))


# Pages whose requests a test makes, and the test.
REQUESTED = {"docs/reference/dialects.md": "tests/guides/test_dialects.py"}


def shell(block: Block) -> None:
    """Commands of ours are there with these flags, and so are the files that are run; requests are made by a test."""
    for words in commands(block.text):
        if words[0] == "curl" and block.page not in REQUESTED:
            raise Unbound("no test makes this request")
        program = PROGRAMS.get(re.sub(r"^python3?(\.\d+)?$", "python", Path(words[0]).name))
        if program is not None:
            program(words[1:])


def values(block: Block) -> None:
    """JSON is one value or several."""
    rest = block.text.lstrip()
    while rest:
        _, end = json.JSONDecoder().raw_decode(rest)
        rest = rest[end:].lstrip()


def nothing(block: Block) -> None:
    """What is to be read and is no code: drawings, and what programs print."""
    if block.page == "docs/reference/cli.md":  # usage lines, made of the commands themselves
        return
    if found := re.search(r"^\$? ?(accord|make|curl|pip) ", block.text, re.M):
        raise Unbound(f"{found[1]} is a command: say sh")


CHECKS: dict[str, Callable[[Block], None]] = {
    "python": python,
    "toml": toml,
    "yaml": workflow,
    "sh": shell,
    "console": shell,
    "json": values,
    "text": nothing,
    "mermaid": nothing,
}


# --- excerpts ---------------------------------------------------------------------------------------------------------


def excerpt_of(path: Path, block: Block) -> None:
    """A block with a title shows lines of that file, as they stand there."""
    if not path.is_file():
        raise Unbound(f"there is no {block.title}")
    if not is_excerpt(block.text, path.read_text(encoding="utf-8")):
        raise Unbound(f"{block.title} does not have these lines")


def is_excerpt(text: str, source: str) -> bool:
    """Whether every part of a text, between lines that say that others were left out, is there, one after the other."""
    lines, at = _lines(source), 0
    for part in LEFT_OUT.split(text)[:: LEFT_OUT.groups + 1]:
        wanted = _lines(part)
        places = range(at, len(lines) - len(wanted) + 1)
        found = next((start for start in places if lines[start : start + len(wanted)] == wanted), None)
        if found is None:
            return False
        at = found + len(wanted)
    return True


@cache
def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


@cache
def sources() -> list[str]:
    """Return the Python files that tests run, or that are tests."""
    tests = [path for path in ROOT.glob("tests/**/*.py") if path.name != Path(__file__).name]
    examples = [path for path in ROOT.glob("examples/**/*.py") if is_tested(path)]
    return [path.read_text(encoding="utf-8") for path in [*examples, *tests]]


# Folders whose every file is run by a test that finds them by itself: what a page serves is served.
WHOLE = {
    "examples/migrating": "tests/guides/test_migrating.py",
    "examples/quickstarts": "tests/guides/test_quickstarts.py",
    "examples/tutorial": "tests/test_tutorial.py",
}


@cache
def _tests() -> str:
    """Return the lines of all tests that may name an example."""
    every = (line for path in ROOT.glob("tests/**/*.py") for line in path.read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in every if "examples" in line or ".py" in line)


@cache
def is_tested(path: Path) -> bool:
    """Whether some test names a file or the module that it is, or a tested file beside it does."""
    folder = path.parent.relative_to(ROOT).as_posix()
    if folder.startswith("tests") or folder in WHOLE:
        return True
    beside = [one for one in path.parent.glob("*.py") if one != path and _is_named(one, _tests())]
    return any(_is_named(path, text) for text in [_tests(), *(one.read_text(encoding="utf-8") for one in beside)])


def _is_named(path: Path, text: str) -> bool:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    parent, _, name = module.rpartition(".")
    said = rf"\b({re.escape(module)}|{re.escape(path.name)})\b|from {re.escape(parent)} import .*\b{name}\b"
    return re.search(said, text) is not None


# --- the command line -------------------------------------------------------------------------------------------------


def commands(text: str) -> Iterator[list[str]]:
    """Yield the simple commands of a block, without what is printed, what is assigned and where it goes."""
    lines = text.splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith(("$ ", "> ", "  "))]
    waiting = ""
    for line in lines:
        waiting += line + "\n"
        try:
            words = _words(waiting)
        except ValueError:  # a quotation goes on in the next line
            continue
        if line.endswith("\\"):
            continue
        waiting = ""
        yield from _simple(words)
    if waiting:
        raise Unbound(f"a quotation does not end: {waiting!r}")


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def _simple(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    is_target = False
    for word in [*words, ";"]:
        if is_target:
            is_target = False
        elif set(word) <= set("<>&") and set(word) & set("<>"):
            is_target = True
            command = command[:-1] if command[-1:] == ["2"] else command
        elif word in {";", "|", "&", "&&", "||", "(", ")"}:
            yield from _bare(command)
            command = []
        else:
            command.append(word)


def _bare(command: list[str]) -> Iterator[list[str]]:
    """Yield a command without what is assigned before it, and without sudo."""
    while command and re.match(r"^[A-Z_]+=", command[0]):
        command = command[1:]
    if command[:1] == ["sudo"]:
        command = shlex.split(re.sub(r"^sudo(?: -u \S+| -\S+)* ", "", shlex.join(command)))
    if command:
        yield command


# Flags that do something while they are parsed.
EAGER = {"--help", "--version", "--install-completion", "--show-completion"}


def accord(words: list[str]) -> None:
    """A command of ours is parsed by itself, and not run."""
    if EAGER & set(words):
        return
    command, context, name, rest = get_command(app), None, "accord", words
    try:
        while True:
            context = command.make_context(name, rest, parent=context)
            if not hasattr(command, "resolve_command"):
                return
            name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    except typer.TyperException as error:
        raise Unbound(f"accord {shlex.join(words)}: {error}") from error


def mentioned(page: Path) -> Iterator[list[str]]:
    """Yield the words of every command of ours that the text of a page mentions."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in re.findall(r"`(?:\.venv/bin/)?accord ([a-z][^`]*)`", text):
        yield from commands(" ".join(found.split()))


def mention(words: list[str]) -> None:
    """A command that is mentioned is there with the flags that are; what it needs besides may be left out."""
    command, given = get_command(app), [word.partition("=")[0] for word in words]
    context = command.make_context("accord", ["serve"])
    while given and hasattr(command, "resolve_command") and not given[0].startswith("-"):
        try:
            _, command, given = command.resolve_command(context, given)
        except typer.TyperException as error:
            raise Unbound(f"accord {shlex.join(words)}: {error}") from error
    flags = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    if unknown := {word for word in given if re.match(r"--?[a-z]", word)} - flags - EAGER:
        raise Unbound(f"accord {shlex.join(words)}: there is no {', '.join(sorted(unknown))}")


def make(words: list[str]) -> None:
    """A target of ours is in the Makefile."""
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = {word for word in words if "=" not in word and not word.startswith("-")}
    if named - targets:
        raise Unbound(f"make has no {', '.join(sorted(named - targets))}")


def run_python(words: list[str]) -> None:
    """What Python is to run is there: a file or a module of ours."""
    if words[:1] == ["-m"]:
        ours = words[1].partition(".")[0] in {"bench", "docs", "examples", "interop"}
        at = ROOT.joinpath(*words[1].split("."))
        found = not ours or at.is_dir() or at.with_suffix(".py").is_file()
    else:
        found = not words or not words[0].endswith(".py") or (ROOT / words[0]).is_file()
    if not found:
        raise Unbound(f"there is nothing to run: python {shlex.join(words)}")


def pip(words: list[str]) -> None:
    """What is installed of us has these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {extra for word in words for found in re.findall(r"^accord\[(.+)\]", word) for extra in found.split(",")}
    if missing := named - set(project["optional-dependencies"]):
        raise Unbound(f"accord has no extra {', '.join(sorted(missing))}")


PROGRAMS: dict[str, Callable[[list[str]], None]] = {"accord": accord, "make": make, "python": run_python, "pip": pip}
