"""What the contract's workflows do, and a process that does it: `python -m ... ADDRESS QUEUE SCRATCH`.

It lives on when a node of ours is killed, as workers of Temporal do.
"""

import asyncio
import base64
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from tests.agents.contract import scratch as marks

LONG = timedelta(minutes=5)

WORKS = "works"
"""What the process says when it does."""


class Doing:
    """The activities of one worker, with its scratch folder."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    @activity.defn
    async def work(self) -> None:
        while True:
            marks.beat(self._scratch)
            activity.heartbeat()
            await asyncio.sleep(marks.BEAT_SECONDS)

    @activity.defn
    async def take(self, number: int) -> None:
        marks.step(self._scratch, number)
        if number == 2:
            await marks.held(self._scratch)

    @activity.defn
    async def wait(self) -> None:
        await marks.held(self._scratch)


@workflow.defn(name="echo")
class Echo:
    @workflow.run
    async def run(self, text: str) -> str:
        return f"you said {text}"


@workflow.defn(name="slow")
class Slow:
    @workflow.run
    async def run(self, text: str) -> None:
        await workflow.execute_activity("work", start_to_close_timeout=LONG, heartbeat_timeout=timedelta(seconds=10))


@workflow.defn(name="fail")
class Fail:
    @workflow.run
    async def run(self, text: str) -> None:
        raise ApplicationError("no such city")


@workflow.defn(name="ask")
class Ask:
    def __init__(self) -> None:
        self._city: str | None = None

    @workflow.run
    async def run(self, text: str) -> str:
        await workflow.wait_condition(lambda: self._city is not None)
        return f"to {self._city}"

    @workflow.signal
    def message(self, text: str) -> None:
        self._city = text

    @workflow.query
    def status(self) -> dict[str, Any]:
        return {"question": "Which city?"}


@workflow.defn(name="file")
class File:
    @workflow.run
    async def run(self, message: dict[str, Any]) -> dict[str, Any]:
        given = next(part for part in message["parts"] if "raw" in part)
        content = base64.b64decode(given["raw"]) + b"!"
        return {"parts": [{**given, "raw": base64.b64encode(content).decode()}]}


@workflow.defn(name="usage")
class Usage:
    @workflow.run
    async def run(self, text: str) -> dict[str, Any]:
        return {"parts": [{"text": "done"}], "usage": {"inputTokens": 7, "outputTokens": 5}}


@workflow.defn(name="steps")
class Steps:
    @workflow.run
    async def run(self, text: str) -> str:
        for number in (1, 2, 3):
            await workflow.execute_activity("take", number, start_to_close_timeout=LONG)
        return "done"


class Written:
    """Says what there is of its answer."""

    def __init__(self) -> None:
        self._said: list[str] = []

    @workflow.query
    def progress(self) -> list[str]:
        return self._said


@workflow.defn(name="stream")
class Stream(Written):
    @workflow.run
    async def run(self, text: str) -> str:
        self._said += ["one ", "two ", "three "]
        return "".join(self._said)


@workflow.defn(name="held")
class Held(Written):
    @workflow.run
    async def run(self, text: str) -> str:
        self._said.append("one ")
        await workflow.execute_activity("wait", start_to_close_timeout=LONG)
        return "one two "


@workflow.defn(name="remember")
class Remember:
    @workflow.run
    async def run(self, given: dict[str, Any]) -> str:
        return " ".join(said["text"] for said in given["history"])


WORKFLOWS = {
    "echo": Echo,
    "slow": Slow,
    "fail": Fail,
    "ask": Ask,
    "file": File,
    "usage": Usage,
    "steps": Steps,
    "stream": Stream,
    "held": Held,
    "remember": Remember,
}


async def main(address: str, queue: str, scratch: str) -> None:
    """Work until the process is ended."""
    doing = Doing(Path(scratch))
    worker = Worker(
        await Client.connect(address),
        task_queue=queue,
        workflows=list(WORKFLOWS.values()),
        activities=[doing.work, doing.take, doing.wait],
        max_heartbeat_throttle_interval=timedelta(milliseconds=100),
    )
    async with worker:
        print(WORKS, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
