"""Patterns: each is documented and becomes what the documentation says, and runs of them do what they promise."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from accord.workflows import functions
from accord.workflows.attempts import step_values
from accord.workflows.decide import make_end_record
from accord.workflows.document import Step
from accord.workflows.executors import Result
from accord.workflows.expressions import references
from accord.workflows.findings import BadDocument
from accord.workflows.patterns import PATTERNS
from accord.workflows.plan import Plan
from accord.workflows.planner import make_plan
from accord.workflows.records import StepEnded
from accord.workflows.source import read_document
from accord.workflows.state import PlanNode
from accord.workflows.validation import check
from tests.cases import each
from tests.workflows.expansions import lines_of
from tests.workflows.playing import Play

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "workflows" / "patterns.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def example(pattern: str) -> str:
    (found,) = re.findall(r"```yaml\n(.*?)```", SECTIONS[pattern], re.DOTALL)
    return str(found)


def planned(text: str, **given: Any) -> Plan:
    return make_plan(read_document(text), base=Path.cwd(), **{"input": "the thing", **given})


def document(pattern: str, agents: Sequence[str], steps: Sequence[str], more: str = "") -> str:
    """A file whose agents are `name` or `name: role`."""
    lines = ['version: "1"', "name: example", f"swarm: {{pattern: {pattern}}}" if pattern else "swarm: {}"]
    lines += [more, "agents:"]
    for agent in agents:
        name, _, role = agent.partition(": ")
        lines.append(f"  - {{name: {name}, cli: claude, role: {role or name}}}")
    return "\n".join([*lines, "workflows:", "  - name: main", "    steps:", *(f"      - {{{step}}}" for step in steps)])


# --- what they become -------------------------------------------------------------------------------------------------


def test_the_page_has_a_section_for_each_pattern_and_no_other() -> None:
    assert list(SECTIONS) == list(PATTERNS)
    assert len(PATTERNS) == 24


@each("pattern", PATTERNS)
def test_documented_examples_expand_as_described(pattern: str) -> None:
    section = SECTIONS[pattern]
    (becomes,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    assert lines_of(planned(example(pattern))) == becomes.splitlines()
    assert f"When {PATTERNS[pattern].when}." in section
    assert [str(one) for one in check(read_document(example(pattern)), Path.cwd()) if one.severity == "error"] == []


@each("pattern", PATTERNS)
def test_patterns_expand_to_plain_steps(pattern: str) -> None:
    made = planned(example(pattern))
    seen: set[str] = set()
    left = {step.name: set(step.depends_on or ()) for step in made.steps}
    while ready := [name for name, before in left.items() if before <= seen]:
        seen.update(ready)
        for name in ready:
            del left[name]
    assert not left
    assert all(step.max_iterations is None and step.until is None and step.type is not None for step in made.steps)


@pytest.mark.proves("1-33", "C-09")
def test_a_pipeline_is_really_sequential() -> None:
    steps = [f"name: s{number}, type: deterministic, command: 'true'" for number in range(20)]
    text = document("pipeline", ["a"], steps)
    assert [step.depends_on for step in planned(text).steps] == [(), *((f"s{number}",) for number in range(19))]


def test_step_fields_override_the_pattern() -> None:
    text = document(
        "pipeline",
        ["a"],
        ["name: x, agent: a, task: x", "name: y, agent: a, task: y, dependsOn: []", "name: z, agent: a, task: z"],
    )
    assert [step.depends_on for step in planned(text).steps] == [(), (), ("y",)]


@pytest.mark.parametrize("pattern", ["hub-spoke", "hierarchical"])
def test_a_lead_that_depends_on_its_workers_collects(pattern: str) -> None:
    steps = [
        "name: dig, agent: w, task: x",
        "name: fix, agent: w, task: x, dependsOn: [dig]",
        "name: close, agent: l, task: x, dependsOn: [ready]",
    ]
    text = document(
        pattern, ["l: lead", "w: worker"], steps, "coordination: {barriers: [{name: ready, waitFor: [fix]}]}"
    )
    assert lines_of(planned(text)) == ["dig: w", "fix: w, after dig", "close: l, after ready"]
    opened = planned(
        document(
            pattern,
            ["l: lead", "w: worker"],
            ["name: go, agent: l, task: x", *steps[:2], steps[2].replace("ready", "fix")],
        )
    )
    assert lines_of(opened) == ["go: l", "dig: w, after go", "fix: w, after dig", "close: l, after fix"]


@pytest.mark.parametrize("pattern", ["hub-spoke", "hierarchical"])
def test_a_lead_waits_for_no_worker_that_waits_for_it(pattern: str) -> None:
    steps = [
        "name: go, agent: l, task: x",
        "name: dig, agent: w, task: x",
        "name: plan, agent: l, task: x",
        "name: fix, agent: w, task: x, dependsOn: [plan]",
    ]
    agents = ["l: lead", "w: worker"]
    found = lines_of(planned(document(pattern, agents, steps)))
    assert found == ["go: l", "dig: w, after go", "fix: w, after plan", "plan: l, after dig"]
    del steps[1]
    assert lines_of(planned(document(pattern, agents, steps)))[-1] == "plan: l, after go"


def test_a_manager_that_depends_on_a_worker_collects() -> None:
    steps = [
        "name: check, agent: m, task: x, dependsOn: [dig]",
        "name: go, agent: l, task: x",
        "name: dig, agent: w, task: x",
        "name: fill, agent: w, task: x",
    ]
    found = lines_of(planned(document("hierarchical", ["l: lead", "m: manager", "w: worker"], steps)))
    assert found == [
        "go: l",
        "dig: w, after go",
        "fill: w, after go",
        "check: m, after dig",
        "go-summary: l, after dig, fill, check",
    ]


def test_other_outputs_are_added_unless_referenced() -> None:
    last = "name: sum, agent: c, task: 'Sum up {{steps.a.output | first-line}}'"
    text = document(
        "scatter-gather", ["a", "b", "c"], ["name: a, agent: a, task: x", "name: b, agent: b, task: x", last]
    )
    task = planned(text).steps[-1].task or ""
    assert [reference.path[1] for reference in references(task)] == ["a", "b"]
    assert task.startswith("Sum up {{steps.a.output | first-line}}\n\nWhat b said:\n")


@each(
    ("pattern", "agents", "missing"),
    [
        ("scatter-gather", ["a"], "two steps at least besides the one that gathers"),
        ("map-reduce", ["a", "r: reducer"], "role mapper"),
        ("map-reduce", ["m: mapper"], "role reducer"),
        ("hub-spoke", ["a", "b"], "role hub"),
        ("hub-spoke", ["h: hub"], "others than the hub"),
        ("hierarchical", ["a", "b"], "role lead"),
        ("handoff", ["a"], "two steps at least"),
        ("saga", ["a", "b"], "undo-STEP"),
        ("review-loop", ["a", "b"], "role reviewer"),
        ("review-loop", ["r: reviewer"], "that makes what is looked at"),
        ("reflection", ["a"], "role critic"),
        ("red-team", ["d: defender"], "role attacker"),
        ("red-team", ["x: attacker"], "role defender"),
        ("supervisor", ["a", "b"], "role supervisor"),
        ("debate", ["a", "j: judge"], "two steps at least of those who debate"),
        ("debate", ["a", "b"], "consensusStrategy"),
        ("mesh", ["a"], "two steps"),
        ("blackboard", ["a", "m: moderator"], "two steps"),
        ("consensus", ["a", "p: proposer"], "two steps at least of those who vote"),
        ("verifier", ["a"], "role verifier"),
        ("competitive", ["a", "b"], "role judge"),
        ("competitive", ["a", "j: judge"], "those who compete"),
        ("swarm", ["a", "b"], "role hive-mind"),
        ("auction", ["a"], "those who bid"),
        ("cascade", ["a"], "two steps"),
        ("escalation", ["a", "t: tier-1"], "tier-1 and tier-2"),
        ("circuit-breaker", ["a"], "role primary"),
        ("circuit-breaker", ["p: primary"], "fallback or backup"),
    ],
)
def test_unfit_agents_are_errors_that_name_the_missing_role(pattern: str, agents: list[str], missing: str) -> None:
    steps = [f"name: do-{agent[0]}, agent: {agent.partition(':')[0]}, task: x" for agent in agents]
    with pytest.raises(BadDocument, match=missing) as refusal:
        planned(document(pattern, agents, steps))
    assert [finding.code for finding in refusal.value.findings] == ["WRONG_CAST"]


def test_unknown_patterns_get_a_suggestion() -> None:
    with pytest.raises(BadDocument, match="did you mean 'pipeline'") as refusal:
        planned(document("pipelin", ["a"], ["name: a, agent: a, task: x"]))
    assert refusal.value.findings[0].code == "UNKNOWN_PATTERN"


@each(
    ("agents", "steps", "more", "chosen"),
    [
        (["m: mapper", "r: reducer"], ["m", "r"], "", "map-reduce"),
        (["m: mapper", "r: reducer"], ["m", "r, dependsOn: [s-m]"], "", "dag"),
        (["a", "b", "c"], ["a", "b", "c"], "coordination: {consensusStrategy: unanimous}", "consensus"),
        (["x: attacker", "d: defender"], ["d", "x"], "", "red-team"),
        (["a", "c: critic"], ["a", "c"], "", "reflection"),
        (["a: tier-1", "b: tier-2"], ["a", "b"], "", "escalation"),
        (["a", "b", "x: auctioneer"], ["a", "b"], "", "auction"),
        (["a", "b", "c: compensate-handler"], ["a", "b"], "", "saga"),
        (["a: primary", "b: backup"], ["a", "b"], "", "circuit-breaker"),
        (["a", "b", "h: hive-mind"], ["a", "b"], "", "swarm"),
        (["a", "v: verifier"], ["a", "v"], "", "verifier"),
        (["a", "s: supervisor"], ["a"], "", "supervisor"),
        (["i: implementer", "r: reviewer", "q: reviewer"], ["i", "r", "q"], "", "review-loop"),
        (["l: lead", "a", "b", "c"], ["l", "a", "b", "c"], "", "hierarchical"),
        (["h: hub", "a"], ["h", "a"], "", "hub-spoke"),
        (["a", "b", "c"], ["a", "b", "c"], "", "pipeline"),
        (["a", "b"], ["a", "b"], "", "fan-out"),
    ],
)
def test_patterns_default_by_roles(agents: list[str], steps: list[str], more: str, chosen: str) -> None:
    written = [f"name: s-{step.partition(',')[0]}, agent: {step}, task: x" for step in steps]
    assert planned(document("", agents, written, more)).pattern == chosen


# --- what they do -----------------------------------------------------------------------------------------------------


class Scripted(Play):
    """A run whose agents say what a script says, the last of it again and again, and whose commands are really run."""

    def __init__(self, plan: Plan, said: Mapping[str, str | None], folder: Path) -> None:
        super().__init__(plan)
        self.said = said
        self.folder = folder
        self.told: dict[str, str] = {}

    def holds(self, node: PlanNode) -> bool:
        assert node.step is not None
        assert node.step.if_ is not None
        return step_values(self.state, node).holds(node.step.if_)

    def end(self, name: str, ok: bool | None = None) -> StepEnded:
        node = self.state.nodes[name]
        assert node.step is not None
        record = make_end_record(node.step, node.attempt, self._done(node, node.step), self.now)
        self.note(record)
        return record

    def _done(self, node: PlanNode, step: Step) -> Result:
        values = step_values(self.state, node)
        if step.command is not None:
            command, env = values.shell(step.command)
            done = subprocess.run(
                ["sh", "-c", command], env=env, cwd=self.folder, capture_output=True, text=True, timeout=30, check=False
            )
            return Result(ok=done.returncode == 0, output=done.stdout, exit_code=done.returncode, error=done.stderr)
        self.told[step.name] = values.text(step.task or "")
        said = self.said.get(step.name, f"{step.name} says\nDECISION: APPROVE")
        return Result(ok=said is not None, output=said or "", error=None if said is not None else "it broke")


def outcome(text: str, said: Mapping[str, str | None], folder: Path) -> Scripted:
    play = Scripted(planned(text), said, folder)
    play.status = play.run().status  # type: ignore[attr-defined]  # only these tests ask
    return play


def output(play: Scripted, name: str) -> str:
    end = play.state.nodes[name].final_end
    return "" if end is None else end.output


def test_a_review_ends_with_the_first_approval(tmp_path: Path) -> None:
    said = {"build-round-1": "draft", "review-round-1": "too short\nREVIEW_DECISION: REJECT", "build-round-2": "better"}
    play = outcome(example("review-loop"), said, tmp_path)
    assert play.standing()["build"] == "completed"
    assert output(play, "build") == "better"
    assert "too short" in play.told["build-round-2"]
    assert "too short" not in play.told["build-round-1"]
    assert "draft" in play.told["review-round-1"]

    play = outcome(example("review-loop"), {"build-round-1": "at once", "review-round-1": "LGTM"}, tmp_path)
    assert play.standing()["build-round-2"] == play.standing()["review-round-2"] == "skipped"
    assert output(play, "build") == "at once"


def test_unapproved_work_fails_the_run(tmp_path: Path) -> None:
    never = {f"review-round-{number}": "no\nDECISION: REJECT" for number in (1, 2)}
    play = outcome(example("review-loop"), never, tmp_path)
    assert play.standing()["review"] == "failed"
    assert play.standing()["build"] == "skipped"


@each(
    ("decisions", "strategy", "threshold", "agreed"),
    [
        (["APPROVE", "APPROVE", "REJECT"], "majority", None, "APPROVE"),
        (["APPROVE", "REJECT", ""], "majority", None, ""),
        (["APPROVE", "APPROVE", "REJECT"], "majority", 0.66, "APPROVE"),
        (["APPROVE", "APPROVE", "REJECT"], "majority", 0.7, ""),
        (["APPROVE", "REJECT"], "majority", 0.5, ""),
        (["red", "Red", "RED"], "unanimous", None, "RED"),
        (["A", "A", ""], "unanimous", None, ""),
        (["A", "A", ""], "quorum", None, "A"),
        (["A", "", ""], "quorum", None, ""),
        (["A", "", ""], "quorum", 0.3, "A"),
        ([], "majority", 0.0, ""),
    ],
)
def test_votes_are_counted_by_the_strategy(
    decisions: list[str], strategy: str, threshold: float | None, agreed: str
) -> None:
    texts = [f"I think so.\n**VOTE:** {word}." if word else "I abstain" for word in decisions]
    assert functions.consensus(strategy, threshold, texts, len(texts)) == agreed


@each(
    ("text", "vote"),
    [
        ("VOTE: yes", "APPROVE"),
        ("DECISION: REJECT\nno wait\nDECISION: APPROVE", "APPROVE"),
        ("> **Verdict**: `blue`", "BLUE"),
        ("We talked about VOTE: no in a sentence", ""),
        ("LGTM!", "APPROVE"),
        ("LGTM but\nREVIEW_DECISION: REJECT", "REJECT"),
        ("$(touch x)\nVOTE: $(touch x)", ""),
        ("", ""),
    ],
)
def test_which_line_is_a_vote(text: str, vote: str) -> None:
    assert functions.vote_in(text) == vote


def test_rejections_prevent_consensus(tmp_path: Path) -> None:
    said = dict.fromkeys(("ann", "bob", "cleo"), "VOTE: REJECT")
    play = outcome(example("consensus"), said, tmp_path)
    assert play.standing() | {"consensus": "failed", "publish": "skipped"} == play.standing()
    end = play.state.nodes["consensus"].final_end
    assert end is not None
    assert "no majority for APPROVE" in (end.error or "")


@pytest.mark.parametrize(("cleo", "published"), [("APPROVE", "completed"), ("$(touch pwned)", "skipped")])
def test_nothing_is_done_without_consensus(cleo: str, published: str, tmp_path: Path) -> None:
    said = {"ann": "VOTE: APPROVE", "bob": "VOTE: REJECT", "cleo": f"VOTE: {cleo}"}
    play = outcome(example("consensus").replace("./publish", "'true'"), said, tmp_path)
    assert play.standing()["publish"] == published
    assert play.standing()["consensus"] == ("completed" if published == "completed" else "failed")
    assert "proposal says" in play.told["ann"]
    assert list(tmp_path.iterdir()) == []


def test_a_verifier_stops_a_run(tmp_path: Path) -> None:
    assert outcome(example("verifier"), {}, tmp_path).standing()["verified"] == "completed"
    assert outcome(example("verifier"), {"check": "hmm"}, tmp_path).standing()["verified"] == "failed"


@pytest.mark.parametrize(
    "pattern", ["consensus", "verifier", "competitive", "swarm", "debate", "blackboard", "auction"]
)
def test_lower_levels_run_later(pattern: str) -> None:
    first = "steps:\n      - {name: begin, type: deterministic, command: 'true'}\n"
    last = "      - {name: go-on, type: deterministic, command: 'true'}\n"
    made = planned(example(pattern).replace("steps:\n", first) + last)
    before = {name for step in made.steps for name in step.depends_on or () if step.name != "go-on"}
    assert made.step("go-on") == made.steps[-1]
    assert set(made.steps[-1].depends_on or ()) == {step.name for step in made.steps[:-1]} - before
    assert made.steps[0].name == "begin"
    assert not made.steps[0].depends_on


def test_the_highest_bid_gets_the_work(tmp_path: Path) -> None:
    said = {"ann-bid": "BID: 40", "bob-bid": "BID: 40.5", "bob": "done by bob"}
    play = outcome(example("auction"), said, tmp_path)
    assert play.standing() | {"ann": "skipped", "bob": "completed"} == play.standing()
    assert output(play, "auction-result") == "done by bob"
    nobody = outcome(example("auction"), {"ann-bid": "no", "bob-bid": "no"}, tmp_path)
    assert nobody.standing()["auction-result"] == "failed"


@pytest.mark.parametrize(
    ("pattern", "first", "second", "declined"),
    [("cascade", "quick", "thorough", "REJECT"), ("escalation", "desk", "expert", "ESCALATE")],
)
def test_the_next_one_tries_when_one_fails_or_declines(
    pattern: str, first: str, second: str, declined: str, tmp_path: Path
) -> None:
    for said in (None, f"too hard\nDECISION: {declined}"):
        play = outcome(example(pattern), {first: said, second: "solved"}, tmp_path)
        assert output(play, f"{pattern}-result") == "solved"
        assert ("too hard" in play.told[second]) == (pattern == "escalation" and said is not None)
    play = outcome(example(pattern), {first: "easy"}, tmp_path)
    assert play.standing()[second] == "skipped"
    assert output(play, f"{pattern}-result") == "easy"
    for last in (None, f"me neither\nDECISION: {declined}"):
        for before in (None, f"too hard\nDECISION: {declined}"):
            play = outcome(example(pattern), {first: before, second: last}, tmp_path)
            assert play.standing()[f"{pattern}-result"] == "failed"


def test_a_fallback_stands_in_after_all_retries(tmp_path: Path) -> None:
    play = outcome(example("circuit-breaker"), {"ask": None, "ask-spare": "here"}, tmp_path)
    assert play.began().count("ask") == 3
    assert output(play, "circuit-breaker-result") == "here"
    assert outcome(example("circuit-breaker"), {}, tmp_path).standing()["ask-spare"] == "skipped"


def test_sagas_compensate_after_a_failure(tmp_path: Path) -> None:
    steps = [f"name: {name}, agent: clerk, task: do {name}" for name in ("one", "two", "three")]
    text = document("saga", ["clerk", "undoer: compensate-handler"], steps)
    play = outcome(text, {"three": None}, tmp_path)
    assert play.began() == ["one", "two", "three", "undo-two", "undo-one"]
    assert "two says" in play.told["undo-two"]
    assert outcome(text, {"two": None}, tmp_path).began() == ["one", "two", "undo-one"]
    assert outcome(text, {}, tmp_path).began() == ["one", "two", "three"]


def test_handoffs_end_with_the_final_agent(tmp_path: Path) -> None:
    play = outcome(example("handoff"), {"triage": "easy: 42\nDECISION: DONE"}, tmp_path)
    assert play.standing()["expert"] == "skipped"
    assert output(play, "handoff-result").startswith("easy: 42")
    play = outcome(example("handoff"), {"triage": "hard", "expert": "43"}, tmp_path)
    assert output(play, "handoff-result") == "43"
    assert "hard" in play.told["expert"]


def test_debaters_get_other_answers_and_the_judge_the_last(tmp_path: Path) -> None:
    said = {"pro-round-1": "first pro", "con-round-1": "first con", "pro": "second pro", "con": "second con"}
    play = outcome(example("debate"), said, tmp_path)
    assert "first con" in play.told["pro"]
    assert "first" not in play.told["pro-round-1"]
    assert "second pro" in play.told["verdict"]
    assert "first pro" not in play.told["verdict"]


def test_a_debate_without_a_judge_is_voted_on(tmp_path: Path) -> None:
    steps = [f"name: {name}, agent: {name}, task: What colour?" for name in ("a", "b", "c")]
    text = document("debate", ["a", "b", "c"], steps, "coordination: {consensusStrategy: majority}")
    play = outcome(text, {"a": "VOTE: RED", "b": "VOTE: RED", "c": "VOTE: BLUE"}, tmp_path)
    assert output(play, "debate-result") == "RED"


# --- loops of one's own -----------------------------------------------------------------------------------------------

LOOP = document(
    "dag",
    ["a"],
    [
        "name: guess, agent: a, maxIterations: 3, until: steps.guess.output contains 'right', "
        "task: 'Guess. Before: <{{steps.guess.output}}>'",
        "name: use, type: deterministic, dependsOn: [guess], command: 'printf %s {{steps.guess.output}}'",
    ],
)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_loop_is_done_until_its_condition_holds(rounds: int, tmp_path: Path) -> None:
    said = {f"guess-round-{number}": "right" if number == rounds else f"wrong {number}" for number in (1, 2, 3)}
    play = outcome(LOOP, said, tmp_path)
    assert [name for name in play.began() if "round" in name] == [f"guess-round-{n}" for n in range(1, rounds + 1)]
    assert output(play, "use") == "right"
    assert "Before: <>" in play.told["guess-round-1"]
    if rounds > 1:
        assert "Before: <wrong 1>" in play.told["guess-round-2"]


def test_a_loop_whose_condition_never_holds_fails(tmp_path: Path) -> None:
    play = outcome(LOOP, {}, tmp_path)
    assert play.standing()["guess"] == "failed"
    assert play.standing()["use"] == "skipped"


def test_loops_need_an_end_condition() -> None:
    with pytest.raises(BadDocument, match="until"):
        planned(document("dag", ["a"], ["name: x, agent: a, task: x, maxIterations: 3"]))
