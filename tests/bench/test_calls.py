"""Python calls of our own: the counts are exact, and these limits may only fall."""

import asyncio
from pathlib import Path

import pytest

from bench.calls import CALLS, CHUNK, MODULES, RUN, SEND, Counted, measured

LIMITS = {
    (SEND, CALLS): 386,
    (SEND, MODULES): 58,
    (CHUNK, CALLS): 26,
    (RUN, CALLS): 1_560,
    (RUN, MODULES): 88,
}
"""A workflow run may differ by a few calls, because its processes end when they do."""

SHOWN = 25


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Counted], dict[str, dict[str, float]]]:
    folder: Path = tmp_path_factory.mktemp("calls")
    return asyncio.run(measured(f"sqlite:///{folder}/calls.db"))


@pytest.mark.parametrize(("row", "column"), LIMITS, ids=lambda value: str(value).replace(" ", "-"))
def test_no_more_calls_and_modules_than_before(
    counts: tuple[dict[str, Counted], dict[str, dict[str, float]]], row: str, column: str
) -> None:
    each, figures = counts
    figure, limit = figures[row][column], LIMITS[row, column]
    print(f"{row}, {column}: {figure:g}, limit {limit}")
    most_called = "\n".join(list(each[row].by_function())[:SHOWN])
    assert figure <= limit, f"{row}: {figure:g} {column}, at most {limit}; called most:\n{most_called}"
