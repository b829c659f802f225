"""`make bench`: runs every benchmark, prints the tables and keeps them in `bench/results/`."""

import argparse
import json
import platform
import sys
from pathlib import Path

from bench import codec
from bench.report import Table, markdown

RESULTS = Path(__file__).parent / "results"
BENCHMARKS = {"codec": codec.run}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which to run: {', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds, of which medians are taken")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    tables: list[Table] = []
    for name in asked.names or BENCHMARKS:
        tables += BENCHMARKS[name](asked.rounds)
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    text = markdown(tables, f"{machine}, medians of {asked.rounds} interleaved rounds")
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.md").write_text(text, encoding="utf-8")
    (RESULTS / "latest.json").write_text(json.dumps([table.plain() for table in tables], indent=1), encoding="utf-8")
    missed = [line for table in tables for line in table.missed()]
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


sys.exit(main())
