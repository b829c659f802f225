"""The language of conditions and templates: what it reads, what it is worth, and what it says of mistakes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.workflows.expressions import (
    COMPARISONS,
    BadExpression,
    Both,
    Constant,
    Expression,
    Filtered,
    FunctionCall,
    Name,
    Not,
    heeds_failure,
    mentions,
    parse_expression,
    renamed,
    rendered,
)
from accord.workflows.values import StepValue, Unresolved, Values
from tests.cases import each

VALUES = Values(
    input="hello",
    inputs={"count": 3},
    vars={"limit": 2, "names": ["ann", "bob"], "deep": {"a": [{"b": "found"}]}},
    steps={
        "plan": StepValue("completed", "PLAN ok\nsecond line\n", 0),
        "test-it": StepValue("failed", "", 2),
        "data": StepValue("completed", '{"count": 3, "rows": [{"id": "x1"}], "done": true}'),
        "fenced": StepValue("completed", 'Here it is:\n```json\n{"score": 7}\n```\nBye.'),
        "later": StepValue("skipped", ""),
    },
    needs=("plan", "test-it"),
)


@each(
    ("condition", "expected"),
    [
        ("steps.plan.output contains 'ok'", True),
        ("{{steps.plan.output}} contains 'ok'", True),
        ("{{ steps.plan.output contains 'ok' }}", True),
        ("steps.plan.output matches '^second'", True),
        ("steps.plan.status == 'completed' and steps.test-it.status == 'failed'", True),
        ("steps.test-it.exit_code == 2", True),
        ("steps.test-it.exitCode > 2 or false", False),
        ("steps.data.json.count == 3 && steps.data.json.done", True),
        ("steps.data.json.rows[0].id == 'x1'", True),
        ("steps.fenced.json.score >= 7", True),
        ("inputs.count > vars.limit", True),
        ("inputs.count < limit", False),
        ("names contains 'bob'", True),
        ("deep.a[0].b == 'found'", True),
        ("not succeeded(plan)", False),
        ("!succeeded('test-it')", True),
        ("failed()", True),
        ("failed(plan)", False),
        ("succeeded()", False),
        ("skipped(later)", True),
        ("always()", True),
        ("(false or true) and not false", True),
        ("true or false and false", True),
        ("input == ' hello '", True),
        ("steps.later.output", False),
        ("'false'", False),
        ("null", False),
        ("steps.plan.output | first-line == 'PLAN ok'", True),
        ("vars.missing | default('x') == 'x'", True),
        ("vars.names | length == 2", True),
    ],
)
def test_condition_values(condition: str, expected: bool) -> None:
    assert VALUES.holds(condition) is expected


@each(
    ("text", "problem"),
    [
        ("steps.a.output ==", "a value is missing at its end"),
        ("== 3", "a value is missing before '=='"),
        ("a b", "cannot be read|not expected|is not expected"),
        ("a == b)", r"'\)' is not expected there"),
        ("(a", r"'\)' is missing"),
        ("a | frist-line", "did you mean 'first-line'"),
        ("fialed(x)", "did you mean 'failed'"),
        ("a | truncate", r"truncate is written truncate\(500\)"),
        ("failed(1 == 2)", "failed is about steps"),
        ("vote()", r"vote\(STEP\)"),
        ("a matches '['", "not a valid regular expression"),
        ("'{{steps.a.output}}' == 'x'", "leave the quotes"),
        ("a @ b", "cannot be read"),
        ("", "a value is missing"),
        ("(" * 100, "nested too deeply"),
        ("not " * 100 + "a", "nested too deeply"),
        ("a or " * 4000 + "a", "too long"),
    ],
)
def test_invalid_expressions_are_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(BadExpression, match=problem):
        parse_expression(text)


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("steps.nobody.output", "nobody"),
        ("vars.nothing == 1", "nothing"),
        ("steps.plan.json.a", "not JSON"),
        ("steps.data.json.rows[7].id", "there is no '7'"),
        ("steps.plan.output > 3", "not a number"),
        ("item == 1", "item"),
    ],
)
def test_missing_values_are_errors(condition: str, problem: str) -> None:
    with pytest.raises(Unresolved, match=problem):
        VALUES.holds(condition)


def test_which_conditions_are_about_failures() -> None:
    assert heeds_failure("always()")
    assert heeds_failure("true and not failed(a)")
    assert heeds_failure("{{steps.a.status}} == 'failed'")
    assert not heeds_failure("succeeded(a) and steps.a.output contains 'failed'")


def test_references_of_an_expression() -> None:
    found = list(
        mentions(parse_expression("failed(a, 'b') or steps.c.json.x == vars.y and (state.z | default(steps.d.output))"))
    )
    assert [(mention.path, mention.is_optional) for mention in found] == [
        (("steps", "a", "status"), False),
        (("steps", "b", "status"), False),
        (("steps", "c", "json", "x"), False),
        (("vars", "y"), False),
        (("state", "z"), True),
        (("steps", "d", "output"), False),
    ]


def test_steps_can_be_renamed_and_taken_out() -> None:
    node = parse_expression("vote(a) == 'X' and steps.a.output contains steps.b.output")
    assert (
        rendered(renamed(node, {"a": "a-2"})) == '(vote("a-2") == "X") and (steps.a-2.output contains steps.b.output)'
    )
    assert rendered(renamed(node, {"a": None})) == '("" == "X") and ("" contains steps.b.output)'


NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,6}", fullmatch=True).filter(
    lambda name: name not in {"and", "or", "not", "contains", "matches", "true", "false", "null"}
)
CONSTANTS = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(-1000, 1000),
    st.text(alphabet=st.characters(exclude_characters="'\"{}"), max_size=10),
).map(Constant)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: Name(tuple(parts)))


def _deeper(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    # A pattern that is a constant is compiled when it is read, so `matches` is given a path.
    signs = st.sampled_from([sign for sign in COMPARISONS if sign != "matches"] + ["and", "or"])
    return st.one_of(
        st.builds(Not, inner),
        st.builds(Both, signs, inner, inner),
        st.builds(lambda node: Filtered(node, "trim", ()), inner),
        st.builds(lambda node, length: Filtered(node, "truncate", (Constant(length),)), inner, st.integers(0, 9)),
        st.lists(NAMES, min_size=1, max_size=3).map(lambda names: FunctionCall("failed", tuple(map(Constant, names)))),
    )


@given(st.recursive(st.one_of(CONSTANTS, PATHS), _deeper, max_leaves=12))
def test_written_expressions_round_trip(node: Expression) -> None:
    assert parse_expression(rendered(node)) == node


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        node = parse_expression(text)
    except BadExpression:
        return
    assert parse_expression(rendered(node)) == node
