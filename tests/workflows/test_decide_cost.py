"""What a run costs: the lines of code that decide it, counted, grow with its steps and edges and no faster."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from accord.workflows import decide as deciding
from accord.workflows import state as run_state
from accord.workflows.document import Barrier, Step
from accord.workflows.plan import Plan
from tests.cases import each
from tests.workflows.playing import Play, mapping, plan_of, step

COUNTED = {deciding.__file__, run_state.__file__}
MOST = 5_000


def lines_of(work: Callable[[], object]) -> int:
    """Return how many lines of what decides were executed: every turn of every loop is at least one."""
    count = 0

    def per_line(_frame: FrameType, event: str, _given: Any) -> Any:
        nonlocal count
        count += event == "line"
        return per_line

    def per_call(frame: FrameType, _event: str, _given: Any) -> Any:
        return per_line if frame.f_code.co_filename in COUNTED else None

    before = sys.gettrace()
    sys.settrace(per_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def chain(size: int) -> Play:
    return Play(plan_of(step("s0"), *(step(f"s{n}", f"s{n - 1}") for n in range(1, size))))


def fan_out(size: int, **members: Any) -> Play:
    names = [f"s{n}" for n in range(1, size - 1)]
    return Play(plan_of(step("first"), *(step(name, "first") for name in names), step("last", *names), **members))


def narrow_fan_out(size: int) -> Play:
    return fan_out(size, max_concurrency=4)


def layered(size: int, width: int = 10) -> Play:
    names = [f"s{n}" for n in range(size)]
    above = (names[max(0, n - n % width - width) : n - n % width] for n in range(size))
    return Play(plan_of(*(step(name, *before) for name, before in zip(names, above, strict=True))))


def failing_chain(size: int) -> Play:
    play = chain(size)
    play.failures = {"s0": 9}
    return play


def cancelled_fan_out(size: int) -> Play:
    play = fan_out(size)
    play.failures = {f"s{n}": 1 for n in range(1, size - 1)}
    return play


def tried_again(size: int) -> Play:
    parts = [step(f"s{n}", retries=2, retry_delay=0.01 * (n % 7)) for n in range(size)]
    return Play(plan_of(*parts, max_concurrency=8), {f"s{n}": 2 for n in range(size)})


def one_map(size: int) -> Play:
    return Play(plan_of(mapping("m", concurrency=5)), items={"m": size})


def barriers(size: int) -> Play:
    parts: list[Step | Barrier] = [step("s0")]
    for n in range(1, size // 2):
        parts += [Barrier(name=f"b{n}", wait_for=(f"s{n - 1}",), timeout=60.0), step(f"s{n}", f"b{n}")]
    return Play(plan_of(*parts))


def edges_of(plan: Plan) -> int:
    waits = [one.depends_on or () for one in plan.steps] + [one.wait_for for one in plan.barriers]
    return sum(map(len, waits))


SHAPES = (
    chain, fan_out, narrow_fan_out, layered, failing_chain, cancelled_fan_out, tried_again, one_map, barriers
)  # fmt: skip


@each("shape", SHAPES)
def test_deciding_costs_the_same_per_step_in_large_runs(shape: Callable[[int], Play]) -> None:
    def cost(size: int) -> float:
        play = shape(size)
        lines = lines_of(play.run)
        return lines / (size + edges_of(play.state.plan))

    assert cost(MOST) < cost(MOST // 20) * 1.2


@each("shape", SHAPES)
def test_so_does_reading_its_records_again(shape: Callable[[int], Play]) -> None:
    def cost(size: int) -> float:
        play = shape(size)
        play.run()
        plan, records = play.state.plan, play.records
        lines = lines_of(lambda: run_state.RunState(plan, records))
        return lines / (size + edges_of(plan))

    assert cost(MOST) < cost(MOST // 20) * 1.2
