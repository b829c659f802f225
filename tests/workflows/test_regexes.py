"""Patterns of users: searched in linear time, away from the event loop where that takes long, and refused early."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.agents.safe_regexes import LOOP_STEPS, PATTERN_BYTES, STEPS, BadRegex, Regex, compile_regex, escape_text
from accord.model import TaskState
from accord.workflows.functions import score_in, vote_in
from accord.workflows.permissions import matches
from accord.workflows.values import Unresolved, Values
from tests.cases import each
from tests.engine.conftest import Hosting, state
from tests.workflows.flows import FlowAgent, Noting, begun, ended, plan_of, step
from tests.workflows.test_checks import found

EVIL = "a" * 5000 + "!"
"""Takes Python's engine longer than the universe has existed, for patterns with nested repetitions."""


@each(
    ("pattern", "text", "expected"),
    [
        ("b", "abc", True),
        ("^b$", "a\nb\nc", True),
        ("x+y*z{2}", "xzz", True),
        ("x+y*z{2}", "xz", False),
        ("end$", "x" * 20_000 + "end", True),
        ("end$", "x" * 20_000, False),
        ("a+b+", "\ud800ab\0", True),
        ("ü+ß+", "üß", True),
        ("(?i)ready", "All READY.", True),
    ],
)
def test_search_finds_matches(pattern: str, text: str, expected: bool) -> None:
    assert compile_regex(pattern).search(text) is expected


@settings(deadline=None)
@given(st.text("ab\n", max_size=20), st.sampled_from(["a+b+", "^a*b*$", "(ab)+a{2}", "^$", r"\bab\b"]))
def test_search_equals_python_re(text: str, pattern: str) -> None:
    assert compile_regex(pattern).search(text) is (re.search(pattern, text, re.MULTILINE) is not None)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_escaped_text_matches_itself(text: str) -> None:
    assert Regex(f"\\A{escape_text(text)}\\z").search(text)


@pytest.mark.proves("C-17")
@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "a?" * 30 + "a" * 30 + "$", "(.*a){12}$", r"(\w+\s?)+$"])
def test_no_pattern_takes_exponential_time(pattern: str) -> None:
    assert Values(input=EVIL).holds(f"input matches '{pattern}'") is False


@pytest.mark.proves("C-17")
def test_globs_of_agents_take_linear_time() -> None:
    assert not matches("a" * 200 + "!", ["**a" * 30])


@each(
    ("pattern", "fix"),
    [
        ("a(?=b)", "lookahead is not supported"),
        ("(?<!a)b", "lookbehind is not supported"),
        (r"(a)\1", "backreferences are not supported"),
        ("(?P<x>a)(?P=x)", "backreferences are not supported"),
        (r"a\Z", r"write \\z for the end"),
        ("a{,3}", "write {0,N} for {,N}"),
        ("[", r"missing \]"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_non_linear_patterns_are_refused_with_a_fix(pattern: str, fix: str) -> None:
    with pytest.raises(BadRegex, match=f"is not a valid regular expression.*{fix}"):
        Regex(pattern)


@pytest.mark.parametrize("text", ["\n" * 200_000, "> \n" * 100_000, "VOTE\n\n" * 50_000, "SCORE:\n" * 50_000])
def test_votes_of_agents_are_read_in_linear_time(text: str) -> None:
    assert (vote_in(text), score_in(text)) == ("", None)
    assert vote_in(f"{text}\n\t> **VOTE**: yes\n") == "APPROVE"


OPEN = "{{" * 100_000


FLOW = """
version: "1"
name: f
swarm: {pattern: dag}
agents: [{name: w, command: cat, interactive: false, role: "ROLE"}]
workflows: [{name: m, steps: [{name: a, agent: w, task: t, timeout: 1m}]}]
"""


@pytest.mark.parametrize(("role", "has_template"), [(OPEN, False), ("{{x}}", True)])
def test_text_without_templates_is_checked_in_linear_time(role: str, has_template: bool) -> None:
    codes = [one.code for one in found(FLOW.replace("ROLE", role))]
    assert ("TEMPLATE_NOT_READ" in codes) is has_template


def long_text(steps: int) -> str:
    """A text for whose search `wanted` may take more steps than that."""
    return "ab" * (steps // 1000)


WANTED = "input matches '(a|b|ab|ba){0,200}!'"


@pytest.mark.parametrize("unit", [r"\pL", "a", "[^ü]", "(a|b)?"])
def test_long_pattern_of_an_agent_is_not_compiled(unit: str) -> None:
    """RE2 takes 7 s to refuse 150 KB of Unicode classes, and keeps the GIL meanwhile."""
    with pytest.raises(Unresolved, match="bytes are too much for a regular expression"):
        Values(input="a", vars={"pattern": unit * (PATTERN_BYTES + 1)}).holds("input matches vars.pattern")


async def test_long_search_is_refused_on_the_event_loop() -> None:
    with pytest.raises(Unresolved, match="bytes are too much to search for"):
        Values(input=long_text(LOOP_STEPS)).holds(WANTED)


def test_search_in_a_thread_has_a_limit_as_well() -> None:
    assert Values(input=long_text(LOOP_STEPS)).holds(WANTED) is False
    with pytest.raises(Unresolved, match="bytes are too much to search for"):
        Values(input=long_text(STEPS)).holds(WANTED)


@pytest.mark.proves("C-17")
async def test_run_searches_long_outputs_away_from_the_loop(hosting: Hosting) -> None:
    noting = Noting()
    condition = WANTED.replace("input", "steps.a.output")
    plan = plan_of(
        step("a", command=long_text(LOOP_STEPS)),
        step("b", "a", if_=condition),
        step("c", "a", if_=f"not ({condition})"),
        step("d", "c", type="map", command=None, over=f"{{{{ {condition} }}}}", step=step("one")),
    )
    host = await hosting(FlowAgent(plan, noting))
    task = await ended(host, await begun(host))
    assert noting.done == ["a", "c"]
    assert state(task) is TaskState.FAILED, "what is no list is refused: but it was searched"
