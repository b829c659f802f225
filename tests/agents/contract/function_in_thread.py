"""Plain functions, which run in threads: nobody can stop them, so they look themselves. These may not run twice."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from accord.agents.function import agent
from accord.engine.agent import Agent, Crash
from accord.engine.context import Context
from accord.engine.outcome import Failed
from accord.model import Part
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject


def behaviours(scratch: Path) -> dict[str, Callable[..., Any]]:
    """Return what an agent may do."""

    def echo(text: str) -> str:
        return f"you said {text}"

    def stream(text: str) -> Iterator[str]:
        yield from ("one ", "two ", "three ")

    def held(text: str) -> Iterator[str]:
        yield "one "
        marks.held_in_thread(scratch)
        yield "two "

    def slow(ctx: Context) -> None:
        marks.work_in_thread(scratch, lambda: ctx.cancelled)

    def fail(text: str) -> None:
        raise Failed("no such city")

    def file(ctx: Context) -> Part:
        given = ctx.files[0]
        return Part(raw=(given.raw or b"") + b"!", filename=given.filename, media_type=given.media_type)

    return {do.__name__: do for do in (echo, stream, held, slow, fail, file)}


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    return agent(name="subject", input_modes=["*/*"], on_crash=Crash.FAIL)(behaviours(scratch)[behaviour])


SUBJECT = Subject(kind="function", make=make, has=frozenset(behaviours(Path())), crash=Crash.FAIL)
