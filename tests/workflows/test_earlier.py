"""A run that goes on where an earlier one ended does again what has not ended well, and what comes after that."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given

from accord.workflows.document import Barrier, Step
from accord.workflows.plan import Plan
from accord.workflows.records import Record, StepEnded, StepStarted
from accord.workflows.run_request import carry_over_records
from tests.workflows.playing import Play, mapping, plan_of, step
from tests.workflows.scripts import scripts


def entries(records: Iterable[Record]) -> dict[str, str]:
    return {record.key: msgspec.json.encode(record).decode() for record in records}


def next_run(play: Play, start_from: str | None = None, plan: Plan | None = None) -> Play:
    """Begin another run, in which nothing fails, with what is kept of one."""
    again = Play(plan or play.state.plan, items=play.items)
    for record in carry_over_records(again.state.plan, entries(play.records), start_from, again.now):
        assert record.attempt == 1
        again.records.append(record)
        again.state.apply(record)
    return again


def done_again(play: Play, start_from: str | None = None, plan: Plan | None = None) -> list[str]:
    """Return what begins in the next run, which must end well."""
    again = next_run(play, start_from, plan)
    before = len(again.records)
    assert again.run().status == "completed"
    return sorted({record.step for record in again.records[before:] if isinstance(record, StepStarted)})


CHAIN = (step("a"), step("b", "a"), step("c", "b"), step("x"), step("y", "x"))


def test_resume_repeats_failed_and_skipped_steps_only() -> None:
    play = Play(plan_of(*CHAIN, strategy="continue"), {"b": 9})
    assert play.run().status == "failed"
    assert done_again(play) == ["b", "c"]
    again = next_run(play)
    end = again.state.nodes["a"].final_end
    assert end is not None
    assert (end.output, end.at) == ("a/1", again.now)


def test_canceled_steps_are_repeated() -> None:
    play = Play(plan_of(step("a"), step("b"), step("c", "a")), {"a": 9})
    play.turn()
    play.end("a")
    play.run()
    assert play.standing() == {"a": "failed", "b": "skipped", "c": "skipped"}
    assert done_again(play) == ["a", "b", "c"]


def test_interrupted_steps_are_repeated() -> None:
    play = Play(plan_of(*CHAIN))
    play.turn()
    play.end("a")
    play.turn()
    assert done_again(play) == ["b", "c", "x", "y"]


def test_steps_that_failed_or_were_skipped_with_leave_are_kept() -> None:
    steps = (step("a", on_error="continue"), step("b", "a", if_="false"), step("c", "b"), step("d", "c"))
    play = Play(plan_of(*steps), {"a": 9, "d": 9})
    play.run()
    assert done_again(play) == ["d"]


def test_failure_handlers_run_again() -> None:
    play = Play(plan_of(step("a"), step("clean", "a", if_="always()")), {"a": 9})
    play.run()
    assert done_again(play) == ["a", "clean"]


@pytest.mark.parametrize(("mode", "again"), [("all", ["b", "d"]), ("any", ["b", "e"])])
def test_steps_behind_a_satisfied_barrier_are_kept(mode, again: list[str]) -> None:
    gate = Barrier(name="gate", wait_for=("a", "b"), mode=mode)
    plan = plan_of(step("a"), step("b"), gate, step("d", "gate"), step("e", "b", if_="always()"), strategy="continue")
    play = Play(plan, {"b": 9})
    play.run()
    assert done_again(play) == sorted({*again, "e"})


def test_items_of_a_map_that_ended_well_are_kept() -> None:
    play = Play(plan_of(step("a"), mapping("m", "a"), step("b", "m"), strategy="continue"), {"m[1]": 9}, {"m": 3})
    play.run()
    assert done_again(play) == ["b", "m[1]"]


def test_a_map_that_ended_well_is_kept_with_the_items_that_did_not() -> None:
    maps = mapping("m", each={"on_error": "skip"})
    play = Play(plan_of(maps, step("b", "m")), {"m[1]": 9, "b": 9}, {"m": 3})
    play.run()
    assert done_again(play) == ["b"]
    end = next_run(play).state.nodes["m"].final_end
    assert end is not None
    assert msgspec.json.decode(end.output) == ["m[0]/1", None, "m[2]/1"]


def test_nested_maps_resume() -> None:
    inner = {"type": "map", "over": "{{item}}", "step": Step(name="deep", command="true")}
    play = Play(plan_of(mapping("m", each=inner), strategy="continue"), {"m[1][0]": 9}, {"m": 2, "m[0]": 2, "m[1]": 2})
    play.run()
    assert done_again(play) == ["m[1][0]"]


def test_maps_after_repeated_steps_are_repeated() -> None:
    play = Play(plan_of(step("a"), mapping("m", "a")), items={"m": 2})
    play.run()
    assert done_again(play, start_from="a") == ["a", "m", "m[0]", "m[1]"]


def test_start_from_repeats_only_later_steps() -> None:
    play = Play(plan_of(*CHAIN))
    play.run()
    assert done_again(play, start_from="b") == ["b", "c"]


def test_a_run_does_not_start_from_a_step_whose_way_is_not_done() -> None:
    gate = Barrier(name="gate", wait_for=("b",))
    play = Play(plan_of(*CHAIN, gate, step("z", "gate")), {"a": 9})
    play.run()
    with pytest.raises(ValueError, match="has not completed a, b, which z comes after"):
        next_run(play, start_from="z")


@pytest.mark.parametrize("name", ["nothing", "gate"])
def test_a_run_starts_from_a_step_that_is_there(name: str) -> None:
    with pytest.raises(ValueError, match=f"no step called '{name}'"):
        carry_over_records(plan_of(*CHAIN, Barrier(name="gate", wait_for=("a",))), {}, name, 0)


def test_start_from_without_a_run_omits_earlier_steps() -> None:
    play = Play(plan_of(*CHAIN))
    assert done_again(play, start_from="c") == ["c", "x", "y"]
    left_out = next_run(play, start_from="c").records
    assert [(record.step, isinstance(record, StepEnded) and record.reason) for record in left_out] == [
        ("a", "skipped_by_start"),
        ("b", "skipped_by_start"),
    ]


def test_a_plan_may_have_changed() -> None:
    play = Play(plan_of(step("a"), step("gone"), mapping("m"), step("b"), step("c")), items={"m": 2, "b": 1})
    play.run()
    plan = plan_of(step("a"), step("m"), mapping("b"), step("new"), step("c", "new"))
    assert done_again(play, plan=plan) == ["c", "new"]
    assert next_run(play, plan=plan).state.nodes["b"].items is None


@given(scripts())
def test_only_completed_steps_are_kept(play: Play) -> None:
    play.run()
    again = next_run(play)
    kept = {name for name, node in again.state.nodes.items() if node.final_end is not None and node.parent is None}
    for name in kept:
        before = play.state.nodes[name].final_end
        after = again.state.nodes[name].final_end
        assert before is not None
        assert after is not None
        assert (before.status, before.output, before.cause) == (after.status, after.output, None)
    first = len(again.records)
    assert again.run().status == "completed"
    begun = {record.step for record in again.records[first:] if isinstance(record, StepStarted)}
    assert not begun & kept
    for name, node in play.state.nodes.items():
        if node.final_end is not None and node.final_end.fails and node.parent is None and node.step is not None:
            assert name not in kept


@given(scripts())
def test_completed_runs_repeat_only_tolerated_failures(play: Play) -> None:
    play.failures = {}
    assert play.run().status == "completed"
    again = next_run(play)
    assert again.turn().begin == ()
    assert again.run().status == "completed"
