"""Tests of pure functions that are loops: many cases in one item of pytest.

An item costs milliseconds in every process that collects it, a case costs what it does. `each` takes the place of
`pytest.mark.parametrize` where the cases share no fixture that a case could change.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest
from _pytest.mark import ParameterSet

Test = Callable[..., Any]

FAILURES = (Exception, pytest.fail.Exception)
"""What a failed case raises. `pytest.fail` and `pytest.raises` raise no `Exception`."""


def each(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for every case, and report all cases that failed."""
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    is_bare = isinstance(names, str) and len(wanted) == 1
    cases = [dict(zip(wanted, row(value, is_bare=is_bare), strict=True)) for value in values]
    assert cases, "a test without cases proves nothing"

    def fold(test: Test) -> Test:
        def report(failures: list[Exception]) -> None:
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)

        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def folded(**fixtures: Any) -> None:
                failures: list[Exception] = []
                for case in cases:
                    try:
                        await test(**fixtures, **case)
                    except FAILURES as error:
                        failures.append(named(error, case))
                report(failures)
        else:

            @wraps(test)
            def folded(**fixtures: Any) -> None:
                failures: list[Exception] = []
                for case in cases:
                    try:
                        test(**fixtures, **case)
                    except FAILURES as error:
                        failures.append(named(error, case))
                report(failures)

        signature = inspect.signature(test)
        parameters = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        folded.__dict__["__signature__"] = signature.replace(
            parameters=parameters
        )  # what pytest reads its fixtures from
        del folded.__dict__["__wrapped__"]
        return folded

    return fold


def row(value: Any, *, is_bare: bool) -> Sequence[Any]:
    """Return the values of one case, which may be a `pytest.param` without marks."""
    if isinstance(value, ParameterSet):
        assert not value.marks, "a case in a loop has no marks of its own"
        return value.values
    return (value,) if is_bare else value


def named(error: BaseException, case: dict[str, Any]) -> Exception:
    """Return the error with a note of its case."""
    failure = error if isinstance(error, Exception) else AssertionError(str(error)).with_traceback(error.__traceback__)
    failure.add_note(f"case: {repr(case)[:1000]}")
    return failure
