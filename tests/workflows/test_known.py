"""What a step may speak of when its turn has come, and its `if` answered with that."""

import pytest

from accord.workflows.attempts import step_values
from accord.workflows.decide import decide
from accord.workflows.records import StepStarted
from accord.workflows.state import PlanNode, RunState
from accord.workflows.values import StepValue, Unresolved
from tests.cases import each
from tests.workflows.playing import START, Play, mapping, plan_of, step


class Real(Play):
    """A run whose conditions are really asked."""

    def holds(self, node: PlanNode) -> bool:
        assert node.step is not None
        return step_values(self.state, node).holds(node.step.if_ or "")


def test_only_ended_steps_have_values() -> None:
    play = Play(plan_of(step("a", retries=1), step("b", "a"), vars={"x": 1}, input="hello"))
    play.turn()
    steps = step_values(play.state, play.state.nodes["b"]).steps
    assert (len(steps), list(steps), "a" in steps) == (0, [], False)
    play.end("a", ok=False)
    assert "a" not in steps, "it is tried again"
    play.now += 1_000
    play.turn()
    play.end("a", ok=True)
    assert dict(steps) == {"a": StepValue(status="completed", output="a/2")}
    values = step_values(play.state, play.state.nodes["b"])
    assert values.text("{{input}} {{vars.x}} {{steps.a.output}}") == "hello 1 a/2"
    with pytest.raises(Unresolved):
        values.text("{{steps.b.output}}")


def test_items_have_the_map_s_name() -> None:
    state = RunState(plan_of(mapping("m", as_="word")))
    state.apply(StepStarted(step="m", attempt=1, at=START, items=("x", "y")))
    values = step_values(state, state.nodes["m[1]"])
    assert values.text("{{word}} {{index}}") == "y 1"


@each(
    ("condition", "fails", "standing"),
    [
        ("steps.a.output == 'a/1'", False, "completed"),
        ("steps.a.output contains 'b'", False, "skipped"),
        ("steps.a.output contains 'a'", True, "skipped"),
        ("{{ failed(a) }}", True, "completed"),
        ("failed()", True, "completed"),
        ("failed()", False, "skipped"),
        ("not succeeded(a)", True, "completed"),
        ("not succeeded(a)", False, "skipped"),
        ("succeeded(a)", True, "skipped"),
        ("steps.a.status == 'failed'", True, "completed"),
        ("always() and vars.x > 1", True, "skipped"),
    ],
)
@each("strategy", ["fail-fast", "continue"])
def test_conditions_of_the_language(strategy: str, condition: str, fails: bool, standing: str) -> None:
    plan = plan_of(step("a"), step("b", "a", if_=condition), vars={"x": 1}, strategy=strategy)
    play = Real(plan, {"a": int(fails)})
    play.run()
    assert play.standing()["b"] == standing


def test_items_have_conditions_too() -> None:
    play = Real(plan_of(mapping("m", each={"if_": "item != 1"})), items={"m": 3})
    assert play.run().status == "completed"
    assert [play.standing()[f"m[{index}]"] for index in range(3)] == ["completed", "skipped", "completed"]


def test_conditions_on_missing_values_fail_the_step() -> None:
    play = Real(plan_of(step("a", if_="vars.nothing == 1")))
    decision = decide(play.state, START, play.holds)
    assert decision.outcome is not None
    assert decision.outcome.failed == ("a",)
    assert "nothing" in (decision.outcome.error or "")
