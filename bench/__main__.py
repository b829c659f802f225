"""`make bench`: runs every benchmark, prints the tables and keeps them in `bench/results/`."""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from time import perf_counter

from bench import (
    agents_overhead,
    append,
    chunks,
    claims,
    client,
    codec,
    console,
    feed,
    latency,
    memory,
    remote,
    send,
    server,
    streams,
    workflows,
)
from bench.report import Table, markdown
from bench.setting import Setting

RESULTS = Path(__file__).parent / "results"
BENCHMARKS = {
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
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which to run: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--rounds", type=int, help="interleaved rounds, of which medians are taken (default: 3 to 7)")
    parser.add_argument("--quick", action="store_true", help="only see that everything works: too short to judge")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    before = os.getloadavg()[0]
    tables: list[Table] = []
    with Setting(asked.rounds, is_quick=asked.quick) as setting:
        for name in asked.names or BENCHMARKS:
            start = perf_counter()
            print(f"{name} ", end="", file=sys.stderr, flush=True)
            tables += BENCHMARKS[name](setting)
            print(f"{name} took {perf_counter() - start:.0f} s", file=sys.stderr)
        text = markdown(tables, _subtitle(setting, before))
    print(text)
    missed = [line for table in tables for line in table.missed()]
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    if asked.quick:
        return 0
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.md").write_text(text, encoding="utf-8")
    (RESULTS / "latest.json").write_text(json.dumps([table.plain() for table in tables], indent=1), encoding="utf-8")
    return 1 if missed else 0


def _subtitle(setting: Setting, before: float) -> str:
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    load = f"load {before:.1f} at the start and {os.getloadavg()[0]:.1f} at the end"
    return f"{machine}, files on {setting.disk}, {load}, medians of interleaved rounds"


sys.exit(main())
