"""What happens next in a run: each rule by itself, then properties of runs of any shape, played in any order."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.workflows.decide import LONGEST_DELAY, decide, make_cancel_record, make_end_record
from accord.workflows.document import Barrier, Step
from accord.workflows.executors import Result
from accord.workflows.records import Record, StepEnded, StepStarted
from accord.workflows.state import FINAL, RunState
from accord.workflows.values import Unresolved
from tests.cases import each
from tests.workflows.playing import START, Play, answer, mapping, plan_of, step
from tests.workflows.scripts import scripts

DIAMOND = (step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))


def ended_as(play: Play, name: str) -> StepEnded:
    end = play.state.nodes[name].final_end
    assert end is not None
    return end


# --- order ------------------------------------------------------------------------------------------------------------


def test_steps_start_when_their_dependencies_end() -> None:
    play = Play(plan_of(step("a"), step("slow"), step("b", "a"), step("c", "b")))
    assert play.turn().begin == (("a", 1), ("slow", 1))
    play.end("a")
    assert play.turn().begin == (("b", 1),)
    play.end("b")
    assert play.turn().begin == (("c", 1),)
    assert play.running == ["slow", "c"]


def test_starts_are_repeated_until_recorded() -> None:
    play = Play(plan_of(*DIAMOND))
    state = play.state
    assert decide(state, START, play.holds).begin == decide(state, START, play.holds).begin == (("a", 1),)
    play.note(StepStarted(step="a", attempt=1, at=START))
    assert decide(state, START, play.holds).begin == ()


def test_slots_go_to_working_steps_in_plan_order() -> None:
    waits = (step("ask", type="approval"), step("sleep", type="wait"))
    play = Play(plan_of(step("c"), step("b"), *waits, step("a"), max_concurrency=2))
    assert play.turn().begin == (("c", 1), ("b", 1), ("ask", 1), ("sleep", 1))
    assert play.turn().begin == ()
    play.end("b")
    assert play.turn().begin == (("a", 1),)


def test_a_run_of_steps_that_all_end_well_is_completed() -> None:
    play = Play(plan_of(*DIAMOND))
    outcome = play.run()
    assert (outcome.status, outcome.failed, outcome.error) == ("completed", (), None)
    assert set(play.standing().values()) == {"completed"}


# --- failures ---------------------------------------------------------------------------------------------------------


def test_dependents_of_a_failure_are_skipped_with_the_reason() -> None:
    play = Play(plan_of(*DIAMOND, step("x"), step("y", "x"), step("z", "d"), strategy="continue"), {"b": 1})
    outcome = play.run()
    assert (outcome.status, outcome.failed, outcome.error) == ("failed", ("b",), "broken")
    assert play.standing() == {
        **dict.fromkeys(("a", "c", "x", "y"), "completed"),
        "b": "failed",
        **dict.fromkeys(("d", "z"), "skipped"),
    }
    for name in ("d", "z"):
        end = ended_as(play, name)
        assert (end.reason, end.error, end.cause) == ("skipped_by_failure", "'b' failed", "b")
    assert "d" not in play.began()


@pytest.mark.parametrize("strategy", ["fail-fast", "retry"])
def test_fail_fast_cancels_running_steps(strategy: str) -> None:
    play = Play(plan_of(step("a"), step("b"), step("c", "b"), step("d"), strategy=strategy, max_concurrency=2))
    play.turn()
    play.end("a", ok=False)
    decision = play.turn()
    assert (decision.begin, decision.cancel, decision.outcome) == ((), ("b",), None)
    play.note(make_cancel_record(play.state, "b", play.now))
    outcome = play.turn().outcome
    assert outcome is not None
    assert (outcome.status, outcome.failed) == ("failed", ("a",))
    assert [ended_as(play, name).reason for name in ("b", "c", "d")] == ["skipped_by_end_of_run"] * 3
    assert ended_as(play, "b").error == "'a' failed"


def test_running_steps_may_finish_after_a_failure() -> None:
    play = Play(plan_of(step("a"), step("b"), step("c", "b")))
    play.turn()
    play.end("a", ok=False)
    play.turn()
    play.end("b", ok=True)
    outcome = play.turn().outcome
    assert outcome is not None
    assert play.standing() == {"a": "failed", "b": "completed", "c": "skipped"}


@each(
    ("on_error", "status", "after", "outcome"),
    [
        (None, "failed", "skipped", "failed"),
        ("fail", "failed", "skipped", "failed"),
        ("skip", "skipped", "skipped", "completed"),
        ("continue", "failed", "completed", "completed"),
    ],
)
@each("strategy", ["fail-fast", "continue"])
def test_on_error_decides_dependents_and_run(
    strategy: str, on_error: Any, status: str, after: str, outcome: str
) -> None:
    play = Play(plan_of(step("a", on_error=on_error), step("b", "a"), strategy=strategy), {"a": 9})
    assert play.run().status == outcome
    assert play.standing() == {"a": status, "b": after}
    assert ended_as(play, "a").output == "a/1", "what it said is there for those after it"


def test_dependents_of_skipped_steps_name_them() -> None:
    play = Play(plan_of(step("a", on_error="skip"), step("b", "a"), step("c", "b")), {"a": 1})
    play.run()
    assert ended_as(play, "c").error == "'a' was skipped"


def test_external_stops_end_the_run_and_persist() -> None:
    play = Play(plan_of(step("a"), step("b", "a"), step("clean", "b", if_="always()")))
    play.turn()
    decision = play.turn(stop="it took longer than 10m")
    assert (decision.cancel, decision.begin) == (("a",), ()), "who cleans up begins when nothing before it runs"
    play.note(make_cancel_record(play.state, "a", play.now))
    assert play.turn(stop="it took longer than 10m").begin == (("clean", 1),)
    play.end("clean")
    outcome = decide(RunState(play.state.plan, play.records), play.now, play.holds).outcome
    assert outcome is not None
    assert (outcome.status, outcome.error) == ("failed", "it took longer than 10m")
    assert [end.error for end in (ended_as(play, "a"), ended_as(play, "b"))] == ["it took longer than 10m"] * 2


# --- if ---------------------------------------------------------------------------------------------------------------


def test_a_step_whose_if_is_false_is_skipped_alone() -> None:
    play = Play(plan_of(step("a"), step("b", "a", if_="false"), step("c", "b"), step("d", "a", if_="true")))
    assert play.run().status == "completed"
    assert play.standing() == {"a": "completed", "b": "skipped", "c": "completed", "d": "completed"}
    assert ended_as(play, "b").reason == "skipped_by_condition"


@pytest.mark.parametrize("strategy", ["fail-fast", "continue"])
@pytest.mark.parametrize(
    ("condition", "standing"), [("always()", "completed"), ("failed()", "completed"), ("true", "skipped")]
)
def test_failure_conditions_run_after_failures(strategy: str, condition: str, standing: str) -> None:
    play = Play(plan_of(step("a"), step("b", "a", if_=condition), step("c", "b"), strategy=strategy), {"a": 1})
    assert play.run().status == "failed"
    assert play.standing()["b"] == standing
    after = "completed" if standing == "completed" and strategy == "continue" else "skipped"
    assert play.standing()["c"] == after, "what comes after the clean-up is no clean-up, unless it says so"


def test_failure_conditions_are_skipped_without_failures() -> None:
    play = Play(plan_of(step("a"), step("b", "a", if_="failed()")))
    assert play.run().status == "completed"
    assert play.standing()["b"] == "skipped"


def test_an_if_without_an_answer_fails_its_step() -> None:
    state = RunState(plan_of(step("a", if_="vars.x == 1", retries=3)))

    def lost(_node: object) -> bool:
        raise Unresolved("there is no vars.x")

    decision = decide(state, START, lost)
    assert decision.outcome is not None
    assert decision.outcome.status == "failed"
    assert decision.outcome.error == "there is no vars.x"


# --- retries ----------------------------------------------------------------------------------------------------------


def test_retries_back_off_while_others_continue() -> None:
    play = Play(plan_of(step("a", retries=3, retry_delay=2.0, backoff=3.0), step("b"), max_concurrency=1))
    assert play.turn().begin == (("a", 1),)
    assert play.end("a", ok=False).again_at == START + 2_000
    decision = play.turn()
    assert (decision.begin, decision.wake_at) == ((("b", 1),), START + 2_000)
    play.end("b")
    play.now = START + 1_999
    assert play.turn().begin == ()
    play.now = START + 2_000
    assert play.turn().begin == (("a", 2),)
    assert play.end("a", ok=False).again_at == START + 8_000
    play.now = START + 9_000
    assert play.turn().begin == (("a", 3),)
    play.end("a", ok=True)
    outcome = play.turn().outcome
    assert outcome is not None
    assert outcome.status == "completed"


@pytest.mark.parametrize(
    ("members", "attempts"),
    [
        ({}, 1),
        ({"retries": 0, "on_error": "retry"}, 1),
        ({"retries": 1}, 2),
        ({"on_error": "retry"}, 3),
        ({"retries": 4, "on_error": "continue"}, 5),
        ({"retries": 1, "on_error": "skip"}, 2),
    ],
)
def test_how_often_a_step_is_tried(members: dict[str, Any], attempts: int) -> None:
    play = Play(plan_of(step("a", **members)), {"a": 99})
    play.run()
    assert play.began() == ["a"] * attempts


def test_the_pause_between_attempts_is_never_longer_than_an_hour() -> None:
    patient = step("a", retries=10_000, backoff=10.0)
    for attempt in (9, 500, 9_999):
        end = make_end_record(patient, attempt, Result(ok=False), START)
        assert end.again_at == START + LONGEST_DELAY * 1000


def test_pending_retries_end_with_the_run() -> None:
    play = Play(plan_of(step("a", retries=1), step("b")))
    play.turn()
    play.end("a", ok=False)
    play.end("b", ok=False)
    decision = play.turn()
    assert decision.outcome is not None
    assert decision.wake_at is None
    assert [(end.key, end.status) for end in decision.ends] == [("a:2:ended", "skipped")]


def test_rejected_approvals_are_not_retried() -> None:
    ask = step("ask", type="approval", retries=5, on_error="retry")
    assert make_end_record(ask, 1, Result(ok=False), START, rule="fail").again_at is None
    end = make_end_record(ask, 1, Result(ok=False), START, rule="skip")
    assert (end.status, end.cause, end.again_at) == ("skipped", "ask", None)


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_a_wait_is_over_at_its_time() -> None:
    play = Play(plan_of(step("nap", type="wait", for_=5.0)))
    play.turn()
    state = RunState(play.state.plan)
    state.apply(StepStarted(step="nap", attempt=1, at=START, until=START + 5_000))
    assert decide(state, START, play.holds).wake_at == START + 5_000
    decision = decide(state, START + 5_000, play.holds)
    assert decision.outcome is not None
    assert decision.outcome.status == "completed"


def test_a_step_that_waits_for_a_person_fails_when_it_is_too_late() -> None:
    play = Play(plan_of(step("ask", type="approval", timeout=60.0), step("b", "ask")))
    assert play.turn().begin == (("ask", 1),)
    assert play.turn().wake_at == START + 60_000
    play.now = START + 60_000
    decision = play.turn()
    assert decision.outcome is not None
    assert decision.outcome.error == "it took longer than 60 s"
    assert ended_as(play, "ask").reason == "timed_out"


# --- maps -------------------------------------------------------------------------------------------------------------


def test_maps_run_per_item_and_collect_outputs() -> None:
    play = Play(plan_of(mapping("m"), step("b", "m"), max_concurrency=2), items={"m": 3})
    assert play.turn().begin == (("m", 1),)
    assert play.turn().begin == (("m[0]", 1), ("m[1]", 1))
    play.end("m[1]")
    assert play.turn().begin == (("m[2]", 1),)
    play.end("m[0]")
    play.end("m[2]")
    assert play.turn().begin == (("b", 1),)
    assert msgspec.json.decode(ended_as(play, "m").output) == ["m[0]/1", "m[1]/1", "m[2]/1"]
    item = play.state.nodes["m[1]"]
    assert item.step is not None
    assert (item.item, item.index, item.step.name) == (1, 1, "m[1]")


def test_a_map_over_nothing_ends_at_once() -> None:
    play = Play(plan_of(mapping("m"), step("b", "m")))
    play.turn()
    assert play.turn().begin == (("b", 1),)
    assert ended_as(play, "m").output == "[]"


def test_maps_limit_concurrency_during_retries() -> None:
    play = Play(plan_of(mapping("m", concurrency=1, each={"retries": 1})), items={"m": 2})
    play.turn()
    assert play.turn().begin == (("m[0]", 1),)
    play.end("m[0]", ok=False)
    assert play.turn().begin == ()
    play.now += 1_000
    assert play.turn().begin == (("m[0]", 2),)
    play.end("m[0]", ok=True)
    assert play.turn().begin == (("m[1]", 1),)


def test_a_map_that_takes_too_long_gives_its_items_up() -> None:
    play = Play(plan_of(mapping("m", timeout=60.0, concurrency=2), step("b", "m")), items={"m": 4})
    play.turn()
    assert play.turn().begin == (("m[0]", 1), ("m[1]", 1))
    play.end("m[0]")
    assert play.turn().wake_at == START + 60_000
    play.now = START + 60_000
    assert set(play.turn().cancel) == {"m[1]", "m[2]"}
    assert play.run().status == "failed"
    end = ended_as(play, "m")
    assert (end.status, end.reason, end.error) == ("failed", "timed_out", "it took longer than 60 s")
    assert msgspec.json.decode(end.output) == ["m[0]/1", None, None, None]


def test_a_map_of_maps() -> None:
    inner = {"type": "map", "over": "{{item}}", "step": Step(name="deep", command="true")}
    play = Play(plan_of(mapping("m", each=inner)), items={"m": 2, "m[0]": 1, "m[1]": 2})
    assert play.run().status == "completed"
    outer = msgspec.json.decode(ended_as(play, "m").output)
    assert [msgspec.json.decode(each) for each in outer] == [["m[0][0]/1"], ["m[1][0]/1", "m[1][1]/1"]]


@pytest.mark.parametrize(
    ("on_error", "strategy", "third", "standing", "outcome"),
    [
        (None, "fail-fast", "skipped", "failed", "failed"),
        (None, "continue", "completed", "failed", "failed"),
        ("skip", "fail-fast", "skipped", "skipped", "completed"),
        ("continue", "fail-fast", "completed", "failed", "completed"),
    ],
)
def test_a_map_fails_with_an_item_by_its_own_rule(
    on_error: Any, strategy: str, third: str, standing: str, outcome: str
) -> None:
    plan = plan_of(mapping("m", concurrency=1, on_error=on_error), strategy=strategy)
    play = Play(plan, {"m[1]": 1}, {"m": 3})
    assert play.run().status == outcome
    assert play.standing() == {"m": standing, "m[0]": "completed", "m[1]": "failed", "m[2]": third}
    assert ended_as(play, "m").error == "1 of 3 items failed, the first is 'm[1]'"


@pytest.mark.parametrize(("on_error", "said"), [("continue", "m[0]/1"), ("skip", None)])
def test_items_may_fail_without_their_map(on_error: str, said: str | None) -> None:
    play = Play(plan_of(mapping("m", each={"on_error": on_error})), {"m[0]": 1}, {"m": 2})
    assert play.run().status == "completed"
    assert msgspec.json.decode(ended_as(play, "m").output) == [said, "m[1]/1"]


def test_a_map_whose_run_failed_is_given_up_with_its_items() -> None:
    play = Play(plan_of(mapping("m", concurrency=1), step("a")), items={"m": 2})
    play.turn()
    play.turn()
    play.end("a", ok=False)
    assert play.turn().cancel == ("m[0]",)
    play.note(make_cancel_record(play.state, "m[0]", play.now))
    assert play.turn().outcome is not None
    assert (ended_as(play, "m").status, ended_as(play, "m").error) == ("skipped", "'a' failed")


def test_a_map_cannot_begin_without_its_items() -> None:
    with pytest.raises(ValueError, match="'m' cannot begin without its items"):
        RunState(plan_of(mapping("m"))).apply(StepStarted(step="m", attempt=1, at=START))


# --- barriers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "needed"), [("all", 3), ("any", 1), ("majority", 2)])
def test_a_barrier_is_passed_when_enough_have_ended_well(mode: Any, needed: int) -> None:
    names = ("a", "b", "c")
    gate = Barrier(name="gate", wait_for=names, mode=mode)
    play = Play(plan_of(*map(step, names), gate, step("d", "gate")))
    play.turn()
    for count, name in enumerate(names, start=1):
        assert "d" not in play.began()
        play.end(name)
        if count == needed:
            assert play.turn().begin == (("d", 1),)
            break
        assert play.turn().begin == ()


@pytest.mark.parametrize(("mode", "passed"), [("all", False), ("majority", False), ("any", True)])
def test_unpassable_barriers_skip_their_dependents(mode: Any, passed: bool) -> None:
    gate = Barrier(name="gate", wait_for=("a", "b"), mode=mode)
    play = Play(plan_of(step("a"), step("b"), gate, step("d", "gate"), strategy="continue"), {"a": 1})
    play.run()
    assert play.standing()["gate"] == play.standing()["d"] == ("completed" if passed else "skipped")
    if not passed:
        assert ended_as(play, "d").cause == "a"


def test_a_barrier_waits_only_so_long_from_when_the_first_began() -> None:
    gate = Barrier(name="gate", wait_for=("a", "b"), timeout=10.0)
    play = Play(plan_of(step("a"), step("b", "a"), gate, step("d", "gate"), step("e"), strategy="continue"))
    play.turn()
    play.now += 4_000
    play.end("a")
    assert play.turn().wake_at == START + 10_000
    play.now = START + 10_000
    play.turn()
    assert ended_as(play, "gate").error == "it waited longer than 10 s for a, b"
    assert play.standing()["d"] == "skipped"
    assert play.running == ["e", "b"], "those that it waited for go on"
    assert play.run().failed == ("gate",)


# --- any run ----------------------------------------------------------------------------------------------------------


@given(scripts())
def test_every_run_ends_and_every_attempt_is_made_once_and_ended_once(play: Play) -> None:
    outcome = play.run()
    keys = [record.key for record in play.records]
    assert len(keys) == len(set(keys))
    assert set(play.standing().values()) <= FINAL
    assert play.turn().outcome == outcome, "and stays ended"
    for begun in (record for record in play.records if isinstance(record, StepStarted)):
        assert f"{begun.step}:{begun.attempt}:ended" in keys
        assert begun.attempt == 1 or f"{begun.step}:{begun.attempt - 1}:ended" in keys


@given(scripts())
def test_starts_respect_dependencies_and_concurrency(play: Play) -> None:
    def look() -> None:
        most = play.state.plan.max_concurrency
        assert most is None or sum(node.uses_slot for node in play.state.running.values()) <= most
        for node in play.state.nodes.values():
            cap = node.step.concurrency if node.step is not None and node.is_map else None
            assert cap is None or sum(item.status == "running" for item in node.items or ()) <= cap

    play.looks.append(look)
    play.run()
    places = {record.key: place for place, record in enumerate(play.records)}
    for begun in (record for record in play.records if isinstance(record, StepStarted)):
        for name in play.state.nodes[begun.step].dependencies:
            end = ended_as(play, name)
            assert places[end.key] < places[begun.key]


@given(scripts())
def test_after_a_failure_only_failure_conditions_start(play: Play) -> None:
    play.run()
    if play.state.plan.strategy == "continue":
        return
    failed = False
    for record in play.records:
        node = play.state.nodes[record.step]
        if isinstance(record, StepEnded):
            failed = failed or (record.fails and record.again_at is None and node.parent is None)
        elif failed:
            assert node.ignores_failures


def expected(play: Play) -> dict[str, tuple[str, str | None]]:
    """Say by the rules, one step after the other, how each ends when everything is done that can be."""
    found: dict[str, tuple[str, str | None]] = {}

    def worked(rules: Step, name: str, is_ok: bool) -> tuple[str, str | None]:
        if is_ok:
            return "completed", None
        return {"skip": ("skipped", name), "continue": ("failed", None)}.get(rules.on_error or "", ("failed", name))

    def done(rules: Step, name: str) -> tuple[str, str | None]:
        if rules.if_ in ("false", "failed()") and not rules.depends_on:
            return "skipped", None
        retries = rules.retries if rules.retries is not None else 2 if rules.on_error == "retry" else 0
        return worked(rules, name, play.failures[name] <= retries)

    for node in sorted(play.state.nodes.values(), key=lambda node: int(node.name.split("[")[0][1:])):
        if node.parent is not None:
            continue
        before = [found[name] for name in node.dependencies]
        causes = [cause for _, cause in before if cause is not None]
        if node.barrier is not None:
            needed = {"all": len(before), "any": 1, "majority": len(before) // 2 + 1}[node.barrier.mode]
            is_passed = len(before) - len(causes) >= needed
            found[node.name] = ("completed", None) if is_passed else ("skipped", causes[0])
            continue
        assert node.step is not None
        is_about_failures = node.step.if_ in ("always()", "failed()")
        if causes and not is_about_failures:
            found[node.name] = ("skipped", causes[0])
        elif node.step.if_ == "false" or (node.step.if_ == "failed()" and "failed" not in [how for how, _ in before]):
            found[node.name] = ("skipped", None)
        elif node.is_map:
            assert node.step.step is not None
            names = [f"{node.name}[{index}]" for index in range(play.items[node.name])]
            ends = [done(node.step.step, name) for name in names]
            found.update(zip(names, ends, strict=True))
            found[node.name] = worked(node.step, node.name, not any(end[0] == "failed" and end[1] for end in ends))
        else:
            retries = node.step.retries if node.step.retries is not None else 2 if node.step.on_error == "retry" else 0
            found[node.name] = worked(node.step, node.name, play.failures[node.name] <= retries)
    return found


@given(scripts(strategies=("continue",)))
def test_all_possible_steps_run_and_dependents_of_failures_skip(play: Play) -> None:
    outcome = play.run()
    says = expected(play)
    assert {name: (ended_as(play, name).status, ended_as(play, name).cause) for name in play.state.nodes} == says
    fatal = {name for name, (how, cause) in says.items() if how == "failed" and cause == name and "[" not in name}
    assert set(outcome.failed) == fatal
    assert outcome.status == ("failed" if fatal else "completed")


@given(scripts(), st.integers(0, 2**32))
def test_replayed_states_decide_equally(play: Play, seed: int) -> None:
    random = Random(seed)

    def again(records: list[Record]) -> RunState:
        mixed = [*records, *random.sample(records, len(records) // 3)]
        random.shuffle(mixed)
        return RunState(play.state.plan, mixed)

    def look() -> None:
        """Compare before anything begins or ends again: then both have the same to decide."""
        stored = msgspec.json.decode(msgspec.json.encode(play.records), type=list[StepStarted | StepEnded])
        other = again(stored)
        now = play.now
        theirs = decide(other, now, lambda node: answer(other, node))
        ours = decide(play.state, now, play.holds)
        play.records += ours.ends
        assert {end.key: end for end in theirs.ends} == {end.key: end for end in ours.ends}
        assert (theirs.begin, theirs.wake_at, theirs.outcome) == (ours.begin, ours.wake_at, ours.outcome)
        assert set(theirs.cancel) == set(ours.cancel)
        assert {name: node.status for name, node in other.nodes.items()} == play.standing()
        if random.random() < 0.3:  # the process ended, and another goes on
            play.state = other

    play.looks.append(look)
    play.run()


def test_records_have_a_json_of_their_own() -> None:
    records: list[Record] = [
        StepStarted(step="m", attempt=1, at=1, items=(1, "two", {"three": 3})),
        StepEnded(step="m", attempt=1, at=2, status="failed", error="no", cause="m", again_at=9),
    ]
    text = msgspec.json.encode(records)
    assert msgspec.json.decode(text, type=list[StepStarted | StepEnded]) == records
    assert b'"kind":"begun"' in text
