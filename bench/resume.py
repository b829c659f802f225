"""One of two servers is killed while both are busy: when the other goes on with its tasks, in leases.

Each task says a number every quarter of a second and none twice, so its log shows how long it was silent. The other
server has tasks of its own, which must not be silent at all.
"""

import asyncio
import json
import signal
import statistics
import time

import uvloop

from accord.storage.address import open_store
from accord.storage.store import Tx
from bench.cluster import Node, cluster
from bench.report import Table, Target
from bench.server import made, posted
from bench.setting import POSTGRES, Setting
from bench.timing import Measured, in_rounds, medians

LEASE_SECONDS = 3.0
LEASES = 3
"""How long is watched after the kill."""

PAUSE_SECONDS = 0.25
SETTLED_SECONDS = 2.0
TASKS = 400

ENV = {"ACCORD_ENGINE__LEASE_SECONDS": f"{LEASE_SECONDS:g}", "ACCORD_ENGINE__SLOTS": "1000"}
ROW = f"{TASKS} tasks on two servers"
SLOWEST, LOST = "slowest, leases", "numbers lost or doubled"

_BEGUN = (
    b'{"jsonrpc":"2.0","id":%d,"method":"SendMessage","params":{"message":{"messageId":"r-%d","role":"ROLE_USER",'
    b'"parts":[{"text":"%b"}]},"configuration":{"returnImmediately":true}}}'
)


async def killed(setting: Setting) -> Measured:
    """Kill one of two servers, and return when its tasks went on."""
    database, tasks = setting.database(POSTGRES), setting.size(TASKS, 40)
    watched = SETTLED_SECONDS + LEASES * LEASE_SECONDS
    said = b"%d %g" % (round(2 * watched / PAUSE_SECONDS), PAUSE_SECONDS)
    async with cluster(2, "bench.agents:pacer", database, ENV) as nodes:
        gone, left = [await _begin(node, place, tasks // 2, said) for place, node in enumerate(nodes)]
        await asyncio.sleep(SETTLED_SECONDS)
        await nodes[0].end(signal.SIGKILL)
        at = time.time() * 1000
        await asyncio.sleep(LEASES * LEASE_SECONDS)
        async with open_store(database, lambda _: None) as store:
            logs = await store.read(_logs)
    silent = {task: _after(logs.get(task, []), at) for task in gone + left}
    waited = sorted(silent[task] for task in gone)
    said_numbers = [[number for _, number in log] for log in logs.values()]
    return {
        "taken over": len(gone),
        "median, leases": statistics.median(waited),
        SLOWEST: waited[-1],
        "slowest of the other's, leases": max(silent[task] for task in left),
        LOST: sum(numbers != list(range(len(numbers))) for numbers in said_numbers),
    }


async def _begin(node: Node, place: int, count: int, said: bytes) -> list[str]:
    """Begin so many tasks on a server, which runs those that it takes, and return their ids."""
    return await made(node.port, (posted(_BEGUN % (number, place * count + number, said)) for number in range(count)))


async def _logs(tx: Tx) -> dict[str, list[tuple[int, int]]]:
    """Return what every task has said: when, and which numbers."""
    logs: dict[str, list[tuple[int, int]]] = {}
    rows = await tx.all("SELECT task_id, at, data FROM event WHERE kind = 'artifact' ORDER BY task_id, seq")
    for task_id, at, data in rows:
        texts = [part["text"] for part in json.loads(data)["artifact"]["parts"]]
        logs.setdefault(task_id, []).extend((at, int(text)) for text in texts)
    return logs


def _after(log: list[tuple[int, int]], at: float) -> float:
    """Return how many leases passed until a task said something again; more than were watched if it never did."""
    later = next((said for said, _ in log if said > at), None)
    return LEASES + 1.0 if later is None else (later - at) / (LEASE_SECONDS * 1000)


NOTES = (
    f"Two servers on one PostgreSQL, a lease of {LEASE_SECONDS:g} s, {TASKS} tasks that say a number every"
    f" {PAUSE_SECONDS:g} s. One server is killed (SIGKILL); it is not started again. A lease is what a node that says"
    " nothing keeps its tasks for, and the other looks three times in each.",
)


def run(setting: Setting) -> list[Table]:
    taken = uvloop.run(in_rounds(setting.rounds(3), {ROW: lambda: killed(setting)}))
    rows = medians(taken)
    targets = (Target(ROW, SLOWEST, at_most=2), Target(ROW, LOST, at_most=0))
    return [Table("A killed server's tasks", "", tuple(rows[ROW]), rows, targets, NOTES)]
