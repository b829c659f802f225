"""How long somebody waits who imports accord or asks the command what it can do: fresh processes, from start to end.

An empty interpreter runs in turn with them, because most of what moves on a busy machine moves for it as well.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from time import perf_counter

import uvloop

from bench.report import Table, Target
from bench.setting import Setting
from bench.timing import Measured, interleaved

EMPTY, IMPORT, HELP = "an empty interpreter", "import accord", "accord --help"
TIME, CPU, TIMES = "ms", "CPU ms", "times the empty one"

COMMANDS = {
    EMPTY: ("-c", "pass"),
    IMPORT: ("-c", "import accord"),
    HELP: ("-m", "accord", "--help"),
}

NOTES = (
    "From the start of a process to its end, its files cached, and the processor's time in it, which a busy machine"
    " disturbs less. The interpreter itself, and what the environment loads into every one, is in all three.",
)


async def taken(arguments: Sequence[str]) -> Measured:
    return _ran(arguments)  # blocking: nothing else is to run meanwhile


def _ran(arguments: Sequence[str]) -> Measured:
    start = perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}")
    return {TIME: (perf_counter() - start) * 1e3, CPU: (used.ru_utime + used.ru_stime) * 1e3}


async def measured(setting: Setting) -> dict[str, Measured]:
    contenders = {name: partial(taken, arguments) for name, arguments in COMMANDS.items()}
    rows = await interleaved(setting.rounds(15), contenders)
    return {name: found | {TIMES: found[TIME] / rows[EMPTY][TIME]} for name, found in rows.items()}


def run(setting: Setting) -> list[Table]:
    targets = (Target(IMPORT, TIME, at_most=150), Target(HELP, TIME, at_most=300))
    return [Table("Imports", "a fresh process", (TIME, CPU, TIMES), uvloop.run(measured(setting)), targets, NOTES)]
