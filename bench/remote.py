"""Tasks that agents elsewhere do: what is held while they wait, and how fast their webhooks are taken in.

The server is a process of its own (`remote_process`); the webhooks come from here, over real sockets and each of them
twice, and who is turned away comes again.
"""

import asyncio
import json
import subprocess
import sys
from time import perf_counter
from typing import Any

import aiohttp

from bench.memory import ROOT
from bench.report import Table, Target
from bench.setting import POSTGRES, SQLITE, Setting

TASKS, QUICK = 10_000, 500
OFFERED = 2000
"""Webhooks a second that come, whether or not those before them were answered."""

SENDERS = 2048
AT_ONCE = 32
TWICE = 2
AGAIN_SECONDS = 0.05
ADDRESS_RATE = 2000
"""Webhooks a second that a server takes from one address, unless it is told otherwise."""

ARRIVED = "offered per second"
HELD, SOCKETS, MEMORY, LOST = "asyncio tasks", "connections", "KB per task", "lost"
PARKED, RATE, REFUSED, WRONG = "parked per second", "webhooks per second", "answered 429", "answered otherwise"
A_FEW_DOZEN = 36

NOTES = (
    "Tasks of an agent that acknowledges at once and calls back: held is what one process has more while all of them"
    " wait than while there are none, memory included.",
    f"{OFFERED:,} webhooks come a second, each twice, over as many as {SENDERS:,} connections: one that is turned away"
    " comes again. Lost are tasks that have not completed in the end.",
)


def run(setting: Setting) -> list[Table]:
    rows = {kind: measured(setting, kind) for kind in (SQLITE, POSTGRES)}
    targets = [
        Target(kind, column, at_most=most)
        for kind in rows
        for column, most in ((HELD, A_FEW_DOZEN), (LOST, 0), (WRONG, 0))
    ]
    columns = (PARKED, HELD, SOCKETS, MEMORY, ARRIVED, RATE, REFUSED, WRONG, LOST)
    title = f"{setting.size(TASKS, QUICK):,} tasks of a remote agent"
    return [Table(title, "one process", columns, rows, tuple(targets), NOTES)]


def measured(setting: Setting, kind: str) -> dict[str, float]:
    """Park tasks in a server with one kind of store, and let webhooks end them."""
    count = setting.size(TASKS, QUICK)
    asked = {"address": setting.database(kind), "count": count, "at_once": AT_ONCE, "rate": ADDRESS_RATE}
    script = [sys.executable, "-m", "bench.remote_process", json.dumps(asked)]
    with subprocess.Popen(script, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        answers, coming, seconds = asyncio.run(flood(found))
        process.stdin.write("\n")
        process.stdin.flush()
        states = json.loads(process.stdout.readline())
        process.stdin.close()
        process.wait(timeout=60)
    print(".", end="", file=sys.stderr, flush=True)
    taken = answers.pop(204, 0)
    return {
        PARKED: count / found["seconds"],
        HELD: found["tasks"],
        SOCKETS: found["sockets"],
        MEMORY: found["rss"] * 1e3 / count,
        ARRIVED: TWICE * count / coming,
        RATE: taken / seconds,
        REFUSED: answers.pop(429, 0),
        WRONG: sum(answers.values()) + TWICE * count - taken,
        LOST: count - states.get("completed", 0),
    }


async def flood(found: dict[str, Any]) -> tuple[dict[int, int], float, float]:
    """Bring every task's webhook as often as it takes.

    Returns how many answers there were of each status, and how long it took until all had come and until all were in.
    """
    url = f"http://127.0.0.1:{found['port']}{found['path']}"
    due = enumerate(one for one in enumerate(found["tokens"]) for _ in range(TWICE))
    statuses: dict[int, int] = {}
    begun = last = perf_counter()

    async def sender(http: aiohttp.ClientSession) -> None:
        nonlocal last
        for place, (number, token) in due:
            await asyncio.sleep(begun + place / OFFERED - perf_counter())
            last = perf_counter()
            body: dict[str, Any] = {"id": f"r-{number}", "kind": "task", "status": {"state": "completed"}}
            body["artifacts"] = [{"artifactId": "a", "parts": [{"kind": "text", "text": f"done {number}"}]}]
            status = 429
            while status == 429:
                async with http.post(url, json=body, headers={"Authorization": f"Bearer {token}"}) as answer:
                    status = answer.status
                statuses[status] = statuses.get(status, 0) + 1
                if status == 429:
                    await asyncio.sleep(AGAIN_SECONDS)

    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:
        await asyncio.gather(*(sender(http) for _ in range(SENDERS)))
    return statuses, last - begun, perf_counter() - begun
