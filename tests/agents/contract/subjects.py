"""What the suite is about: one subject for each agent type, in a file of its own beside this one.

A file has a `SUBJECT`, whose agents behave in ways that have names:

    echo        says back `you said TEXT`
    stream      says "one ", "two ", "three ", each as a chunk of its own
    held        says "one " and then, once `scratch.held` lets it, "two "
    remember    answers with everything that was said in the same context before
    slow        works (`scratch.work`) until it is stopped
    fail        fails, with the reason "no such city"
    ask         asks "Which city?", then says `to CITY`
    file        takes a file and gives back one with its bytes and a `!`
    usage       has used 7 tokens of input and 5 of output
    steps       does steps 1, 2 and 3 (`scratch.step`), is held within the second, and says "done"

Which of them a kind has is its own to say; `echo`, `slow` and `fail` every kind has, and one that resumes has `steps`.
A framework that cannot share our environment is in one of `.peers`: there the subject has `serve`, the name of that
environment, in place of `make`, and `peers/<kind>.py` has the thing of each behaviour under its name, with the scratch
folder in the variable `SCRATCH`. Those of one environment are served by one process; where there are two that would
write in the same folder, one of them says in which it is `within` that.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from accord.engine.agent import Agent, Crash

HERE = Path(__file__).parent
PACKAGE = "tests.agents.contract"
OTHERS = frozenset({"conftest", "homes", "hosted", "scratch", "subjects", "talking"})
"""Files here that are no subjects."""

ALWAYS = frozenset({"echo", "slow", "fail"})
SOMETIMES = frozenset({"stream", "held", "remember", "ask", "file", "usage", "steps"})


class Subject(NamedTuple):
    """An agent type; `lives_on` if what it does goes on elsewhere when its process is killed.

    What its agents need around them, with their scratch folder, is there within `beside`.
    """

    kind: str
    make: Callable[[str, Path], Agent] | None
    has: frozenset[str]
    crash: Crash
    serve: str | None = None
    within: str = ""
    lives_on: bool = False
    beside: Callable[[Path], AbstractContextManager[None]] | None = None


def called(name: str, behaviour: str) -> str:
    """Return what the agent of a subject with a behaviour is called where it is served with others."""
    return f"{name}-{behaviour}".replace("_", "-")


def names() -> list[str]:
    """Return what the subjects' files are called."""
    found = (file.stem for file in HERE.glob("*.py"))
    return sorted(name for name in found if not name.startswith("test_") and name not in OTHERS)


def subject(name: str) -> Subject:
    """Return the subject of a file."""
    found: Subject = import_module(f"{PACKAGE}.{name}").SUBJECT
    return found
