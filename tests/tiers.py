"""The two tiers of tests: `make test` is what every change needs, `make test-full` also runs those marked `full`.

The first tier is everything in one process, SQLite, one pass over PostgreSQL, and the journeys of a browser.
"""

from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent

FULL = {
    "crash": "kills nodes hundreds of times",
    "deploy": "renders charts and starts what they start",
    "fuzz": "tries inputs for minutes",
    "guides": "follows every guide with the real programs",
    "peers": "talks to other implementations",
    "serve": "starts hundreds of servers",
    "supply": "asks about every dependency",
    "upgrade": "rolls between releases",
}
"""Folders of the second tier, with the reason."""

FULL_FILES = {
    "agents/contract/test_contract.py": "serves every framework in processes of its own",
    "bench/test_server.py": "measures for half a minute",
    "client/test_restarts.py": "kills servers below streams",
    "registry/test_served.py": "serves two registries",
    "remote/test_gateway.py": "kills gateways",
    "remote/test_real.py": "waits for other servers",
    "remote/test_route.py": "serves two servers",
}
"""Files of the second tier, with the reason."""

POSTGRES = "storage"
"""The folder whose pass over PostgreSQL is in the first tier. Tests of others on it are in the second."""

BUDGET_SECONDS = {
    "abuse": 120,
    "agents": 180,
    "cli": 180,
    "client": 120,
    "conformance": 60,
    "console": 90,
    "crash": 400,
    "deploy": 60,
    "e2e": 180,
    "engine": 120,
    "guides": 200,
    "peers": 200,
    "remote": 150,
    "serve": 400,
    "storage": 90,
    "upgrade": 150,
    "workflows": 180,
}
"""The sum of the durations of a folder's tests, on two idle cores. Others have the default."""

DEFAULT_SECONDS = 60
SHOWN = 10
"""Folders that a run reports, slowest first."""


def folder_of(path: Path) -> str:
    """Return the folder of a test below `tests`, or its file."""
    return path.relative_to(TESTS).parts[0]


def is_full(item: pytest.Function) -> bool:
    """Whether a test belongs to the second tier."""
    folder = folder_of(item.path)
    if folder in FULL or item.path.relative_to(TESTS).as_posix() in FULL_FILES:
        return True
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    uses_postgres = "postgres" in item.fixturenames or any(str(value).lower().endswith("postgres") for value in values)
    return uses_postgres and folder != POSTGRES


def report(reports: list[pytest.TestReport | pytest.CollectReport], reporter: pytest.TerminalReporter) -> None:
    """Print the slowest folders with their budgets."""
    seconds: Counter[str] = Counter()
    for one in reports:
        if isinstance(one, pytest.CollectReport):
            continue  # a folder that could not be read
        seconds[Path(one.nodeid.split("::")[0]).parts[1]] += one.duration  # type: ignore[assignment]
    reporter.section("slowest folders")
    for folder, spent in seconds.most_common(SHOWN):
        budget = BUDGET_SECONDS.get(folder, DEFAULT_SECONDS)
        reporter.line(f"{spent:7.1f} s of {budget} s  {folder}{'  over its budget' if spent > budget else ''}")
