"""Workflows to talk to, as users who have Temporal write them."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

QUEUE = "accord-tests"


@activity.defn
async def look_up(city: str) -> str:
    raise ApplicationError(f"no such city: {city}", non_retryable=True)


@workflow.defn
class Echo:
    """Says back what it was given."""

    @workflow.run
    async def run(self, given: Any) -> Any:
        return f"you said {given}" if isinstance(given, str) else given


@workflow.defn
class File:
    """Gives a file back, and says what that cost."""

    @workflow.run
    async def run(self, message: dict[str, Any]) -> dict[str, Any]:
        files = [part for part in message["parts"] if "raw" in part]
        return {"parts": files, "usage": {"inputTokens": 7, "outputTokens": 5, "cost": 0.5, "model": "m"}}


@workflow.defn
class Fail:
    """Fails in an activity."""

    @workflow.run
    async def run(self, city: str) -> str:
        once = RetryPolicy(maximum_attempts=1)
        return await workflow.execute_activity(
            look_up, city, start_to_close_timeout=timedelta(seconds=10), retry_policy=once
        )


@workflow.defn
class Slow:
    """Works until it is stopped, or told to stop; says how far it is."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.run
    async def run(self, given: str) -> str:
        await workflow.wait_condition(lambda: "stop" in self.heard)
        return f"{given}: {' '.join(self.heard)}"

    @workflow.signal
    def message(self, text: str) -> None:
        self.heard.append(text)

    @workflow.query
    def status(self) -> str:
        return f"heard {len(self.heard)}"


@workflow.defn
class Stubborn:
    """Works on when it is cancelled."""

    @workflow.run
    async def run(self, given: str) -> str:
        while True:
            try:
                await workflow.wait_condition(lambda: False)
            except asyncio.CancelledError:
                continue


@workflow.defn
class Ask:
    """Asks for what it needs to know."""

    def __init__(self) -> None:
        self.question: str | None = None
        self.answers: list[str] = []

    async def _ask(self, question: str) -> str:
        known = len(self.answers)
        self.question = question
        await workflow.wait_condition(lambda: len(self.answers) > known)
        self.question = None
        return self.answers[-1]

    @workflow.run
    async def run(self, given: str) -> str:
        city = await self._ask("Which city?")
        day = await self._ask(f"When to {city}?")
        return f"to {city} on {day}"

    @workflow.signal
    def message(self, text: str) -> None:
        self.answers.append(text)

    @workflow.query
    def status(self) -> Any:
        return {"question": self.question} if self.question else "booking"


@activity.defn
async def beat(text: str) -> str:
    """Says with its heartbeats how far it is, until somebody has heard it."""
    while not HEARD.is_set():
        activity.heartbeat(f"at {text}")
        await asyncio.sleep(0.05)
    return "done"


HEARD = asyncio.Event()
"""Whether the test has heard a heartbeat: its worker is in its own process."""


@workflow.defn
class Beats:
    """Works in an activity that says how far it is."""

    @workflow.run
    async def run(self, text: str) -> str:
        minute = timedelta(minutes=1)
        return await workflow.execute_activity(beat, text, start_to_close_timeout=minute, heartbeat_timeout=minute)


@workflow.defn
class Writes:
    """Writes an answer piece by piece, as it is told to, and gives it or nothing."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.told: list[str] = []

    @workflow.run
    async def run(self, given: str) -> Any:
        self.pieces.append(given)
        while True:
            await workflow.wait_condition(lambda: bool(self.told))
            match self.told.pop(0):
                case "whole":
                    return "".join(self.pieces) + "!"
                case "nothing":
                    return None
                case "other":
                    return "something else"
                case "data":
                    return {"n": 1}
                case word:
                    self.pieces.append(word)

    @workflow.signal
    def message(self, text: str) -> None:
        self.told.append(text)

    @workflow.query
    def progress(self) -> list[str]:
        return self.pieces

    @workflow.query
    def so_far(self) -> str:
        return "".join(self.pieces)

    @workflow.query
    def number(self) -> int:
        return len(self.pieces)


WORKFLOWS = [Echo, File, Fail, Slow, Stubborn, Ask, Beats, Writes]
