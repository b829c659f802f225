"""Crews that take and write files, for `test_files`; they run in CrewAI's environment."""

from collections.abc import Iterator

from crewai import Crew

from tests.agents.contract import scratch as marks
from tests.agents.contract.peers.crewai import SCRATCH, crew, request
from tests.agents.crewai.crews import City, city, told

BYTES = "AP8h"
"""What is in the file that is sent, in base64."""


def writing(*names: str, says: object = told, **options: object) -> Crew:
    """Make a crew of tasks that write files of these names."""
    made = crew(says, *("{request}" for _ in names))  # type: ignore[arg-type]
    for task, name in zip(made.tasks, names, strict=True):
        task.output_file = name
        task.create_directory = True
        for option, value in options.items():
            setattr(task, option, value)
    return made


def reading(words: str) -> Iterator[str]:
    """Read a file that was sent, then say what was in it."""
    if BYTES in words:
        yield f"Thought: I know now\nFinal Answer: {BYTES}"
    else:
        yield 'Thought: let me see\nAction: read_file\nAction Input: {"file_name": "dot.bin"}\n'


def waiting(words: str) -> Iterator[str]:
    """Be held, so that another run comes between; say what was asked for."""
    marks.step(SCRATCH, 1)
    if request(words) == "first":
        marks.held_in_thread(SCRATCH)
    yield request(words)


def long(words: str) -> Iterator[str]:
    yield "x" * 3_000_000


both = writing("out/one.md", "two.json")
structured = writing("city.json", says=city, output_json=City)
named = writing("out/{request}.txt")
shared = writing("shared.txt", says=waiting)
large = writing("large.txt", says=long)
reads = crew(reading)
