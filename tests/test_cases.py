"""Loops of cases: every case runs, and every failure is reported with its case."""

import pytest

from tests.cases import each

SEEN: list[int] = []


def test_every_case_runs_and_every_failure_is_reported() -> None:
    @each("number", [1, 2, pytest.param(3)])
    def is_even(number: int) -> None:
        SEEN.append(number)
        assert number % 2 == 0

    with pytest.raises(ExceptionGroup) as raised:
        is_even()
    assert SEEN == [1, 2, 3]
    assert [error.__notes__ for error in raised.value.exceptions] == [["case: {'number': 1}"], ["case: {'number': 3}"]]


async def test_a_failed_expectation_of_an_error_is_reported() -> None:
    @each(("first", "second"), [("a", "b")])
    async def raises_nothing(first: str, second: str) -> None:
        with pytest.raises(ValueError, match="never"):
            str(first + second)

    with pytest.raises(ExceptionGroup, match="1 of 1 cases failed"):
        await raises_nothing()


@each(("first", "second"), [(1, 1), (2, 2)])
@each("third", [3])
def test_loops_nest_and_take_fixtures(first: int, second: int, third: int, tmp_path: object) -> None:
    assert (first == second, third, bool(tmp_path)) == (True, 3, True)
