"""The retry policy: delays and the number of attempts."""

import pytest

from accord.retries import RetryPolicy


def test_delays_grow_to_the_maximum() -> None:
    policy = RetryPolicy(first_seconds=1.0, max_seconds=5.0, jitter=(1.0, 1.0))
    assert [policy.delay(failures) for failures in (1, 2, 3, 4, 10_000)] == [1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize(("drawn", "seconds"), [(0.0, 2.0), (0.5, 4.0), (1.0, 6.0)])
def test_jitter_spreads_a_delay_over_its_range(drawn: float, seconds: float) -> None:
    policy = RetryPolicy(first_seconds=4.0, jitter=(0.5, 1.5))
    assert policy.delay(draw=lambda: drawn) == seconds


def test_attempts_are_limited_only_by_policy() -> None:
    assert not RetryPolicy(first_seconds=1.0).is_exhausted(10_000)
    limited = RetryPolicy(first_seconds=1.0, attempts=2)
    assert [limited.is_exhausted(failures) for failures in (1, 2, 3)] == [False, True, True]
