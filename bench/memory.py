"""What a server remembers of tasks that have ended: nothing, so its memory must not grow with them.

The tasks are run in a process of their own (`memory_process`), so that nothing else is counted.
"""

import json
import subprocess
import sys
from pathlib import Path

from bench.report import Table, Target
from bench.setting import SQLITE, Setting

ROOT = Path(__file__).resolve().parent.parent
TASKS = 50_000
WARM_UP = 5_000
STEP = 5_000
AT_ONCE = 32
AT_MOST = 1.2

RSS, GROWTH, RATE, COST, LEFT = "RSS, MB", "of the first", "sends per second", "CPU us per send", "left in memory"
HIGHEST, END = "highest", "at the end"

NOTES = (
    f"Blocking sends to the echo agent, {AT_ONCE} at once, through one process on {SQLITE}; the resident memory after"
    " the warm-up and then at every step.",
    "What is left in memory at the end counts the engine's runs, the hub's channels, and asyncio tasks beyond those of"
    " the idle server.",
)


def run(setting: Setting) -> list[Table]:
    total, warm_up, step = setting.size((TASKS, WARM_UP, STEP), (TASKS // 10, WARM_UP // 10, STEP // 10))
    asked = {"address": setting.database(SQLITE), "total": total, "warm_up": warm_up, "step": step, "at_once": AT_ONCE}
    script = [sys.executable, "-m", "bench.memory_process", json.dumps(asked)]
    done = subprocess.run(script, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    print(file=sys.stderr)
    found = json.loads(done.stdout)
    first = found["samples"][0][1]
    rows: dict[str, dict[str, float]] = {
        f"after {tasks:,} tasks": {RSS: rss, GROWTH: rss / first, RATE: rate, COST: cost}
        for tasks, rss, rate, cost in found["samples"]
    }
    most = max(rss for _, rss, *_ in found["samples"])
    rows[HIGHEST] = {RSS: most, GROWTH: most / first}
    rows[END] = {LEFT: sum(found["left"].values())}
    targets = (Target(HIGHEST, GROWTH, at_most=AT_MOST), Target(END, LEFT, at_most=0))
    notes = (*NOTES, "Left: " + ", ".join(f"{name} {count}" for name, count in found["left"].items()) + ".")
    columns = (RSS, GROWTH, RATE, COST, LEFT)
    return [Table("Memory after many tasks", "one process", columns, rows, targets, notes)]
