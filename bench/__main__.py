"""`make bench`: runs every benchmark, prints the tables, keeps them and writes docs/performance.md."""

import argparse
import os
import platform
import sys
from time import perf_counter

from bench import (
    agents_overhead,
    append,
    calls,
    chunks,
    claims,
    client,
    codec,
    console,
    feed,
    imports,
    latency,
    memory,
    remote,
    resume,
    scale,
    send,
    server,
    streams,
    workflows,
)
from bench.page import Run, keep
from bench.report import Table, markdown
from bench.setting import Setting

BENCHMARKS = {
    "imports": imports.run,
    "calls": calls.run,
    "codec": codec.run,
    "append": append.run,
    "streams": streams.run,
    "send": send.run,
    "chunks": chunks.run,
    "claims": claims.run,
    "latency": latency.run,
    "memory": memory.run,
    "server": server.run,
    "client": client.run,
    "remote": remote.run,
    "agents": agents_overhead.run,
    "workflows": workflows.run,
    "feed": feed.run,
    "console": console.run,
    "resume": resume.run,
    "scale": scale.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which to run: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--rounds", type=int, help="interleaved rounds, of which medians are taken (default: 3 to 7)")
    parser.add_argument("--quick", action="store_true", help="only see that everything works: too short to judge")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    runs: dict[str, Run] = {}
    with Setting(asked.rounds, is_quick=asked.quick) as setting:
        for name in asked.names or BENCHMARKS:
            runs[name] = _run(name, setting)
            if not asked.quick:
                keep({name: runs[name]}, tuple(BENCHMARKS))  # now: a later one may fail
    missed = [line for run in runs.values() for table in run.tables for line in table.missed()]
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed and not asked.quick else 0


def _run(name: str, setting: Setting) -> Run:
    """Run one benchmark, and say how it went as soon as it is known."""
    start, before = perf_counter(), os.getloadavg()[0]
    print(f"{name} ", end="", file=sys.stderr, flush=True)
    tables: list[Table] = BENCHMARKS[name](setting)
    print(f"{name} took {perf_counter() - start:.0f} s", file=sys.stderr)
    for table in tables:
        print(markdown(table))
    return Run(_said(setting, before), tuple(tables))


def _said(setting: Setting, before: float) -> str:
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    load = f"load {before:.1f} at the start and {os.getloadavg()[0]:.1f} at the end"
    return f"{machine}, files on {setting.disk}, {load}, medians of interleaved rounds"


sys.exit(main())
