"""What every test shares: how hard Hypothesis tries, and other implementations to judge what we write."""

import gc
import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests import bounds, tiers

LONG = 100
"""Characters of a value in the name of a test."""

# Tests start a thousand programs of ours. Where a machine says that none keeps what it compiled, all would compile
# every line that they import, which is most of what they would do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What gRPC does in a process that was just forked may kill it before it becomes the program that a test starts.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

pytest.register_assert_rewrite("tests.conformance")  # its scenarios are not in modules that pytest collects

# Timings on shared machines are noise, so no example has a deadline. `make test` is `quick`; `thorough` is for a night.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", parent=settings.get_profile("default"), max_examples=25)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Read all tests without looking for garbage in between: hardly anything is, and what is read stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show where the time went: the sum of durations, which a busy machine makes longer, so nothing fails by it."""
    outcomes = ("passed", "failed", "error", "skipped", "xfailed", "")
    tiers.report([one for outcome in outcomes for one in terminalreporter.getreports(outcome)], terminalreporter)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Call a long value by its argument: nobody reads it, and one that is made at random is another in each process."""
    return argname if isinstance(val, str | bytes) and len(val) > LONG else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no test wait for ever, and those that share what their file starts once run one after the other."""
    for item in items:
        if isinstance(item, pytest.Function):
            bounds.bind(item)
            _keep_together(item)
            if tiers.is_full(item):
                item.add_marker("full")


def _keep_together(item: pytest.Function) -> None:
    """Keep a test on the worker of those that share what is started once for its file, unless it says with whom.

    It counts with `--dist loadgroup`; otherwise every worker would start a server for the few tests that it gets.
    """
    if item.get_closest_marker("xdist_group") is None:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        if any(found[-1].scope == "module" for found in fixtures):
            item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}-{item.path.stem}"))
