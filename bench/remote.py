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
SENDERS = 64
AT_ONCE = 32
TWICE = 2
AGAIN_SECONDS = 0.05
ADDRESS_RATE = 2000
"""Webhooks a second that a server takes from one address, unless it is told otherwise."""

HELD, SOCKETS, MEMORY, LOST = "asyncio tasks", "connections", "KB per task", "lost"
PARKED, RATE, REFUSED, WRONG = "parked per second", "webhooks per second", "answered 429", "answered otherwise"
A_FEW_DOZEN = 36

NOTES = (
    "Tasks of an agent that acknowledges at once and calls back: held is what one process has more while all of them"
    " wait than while there are none, memory included.",
    f"Every webhook comes twice, over {SENDERS} connections. Lost are tasks that have not completed in the end.",
)


def run(setting: Setting) -> list[Table]:
    rows = {kind: measured(setting, kind) for kind in (SQLITE, POSTGRES)}
    targets = [
        Target(kind, column, at_most=most)
        for kind in rows
        for column, most in ((HELD, A_FEW_DOZEN), (LOST, 0), (WRONG, 0))
    ]
    columns = (PARKED, HELD, SOCKETS, MEMORY, RATE, REFUSED, WRONG, LOST)
    title = f"{setting.size(TASKS, QUICK):,} tasks of an agent elsewhere"
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
        answers, seconds = asyncio.run(flood(found))
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
        RATE: taken / seconds,
        REFUSED: answers.pop(429, 0),
        WRONG: sum(answers.values()) + TWICE * count - taken,
        LOST: count - states.get("completed", 0),
    }


async def flood(found: dict[str, Any]) -> tuple[dict[int, int], float]:
    """Bring every task's webhook as often as it takes; return how many answers there were of each status."""
    url = f"http://127.0.0.1:{found['port']}{found['path']}"
    due = iter([one for one in enumerate(found["tokens"]) for _ in range(TWICE)])
    statuses: dict[int, int] = {}

    async def sender(http: aiohttp.ClientSession) -> None:
        for number, token in due:
            body: dict[str, Any] = {"id": f"r-{number}", "kind": "task", "status": {"state": "completed"}}
            body["artifacts"] = [{"artifactId": "a", "parts": [{"kind": "text", "text": f"done {number}"}]}]
            status = 429
            while status == 429:
                async with http.post(url, json=body, headers={"Authorization": f"Bearer {token}"}) as answer:
                    status = answer.status
                statuses[status] = statuses.get(status, 0) + 1
                if status == 429:
                    await asyncio.sleep(AGAIN_SECONDS)

    begun = perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=SENDERS)) as http:
        await asyncio.gather(*(sender(http) for _ in range(SENDERS)))
    return statuses, perf_counter() - begun
