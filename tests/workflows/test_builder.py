"""Workflows written in Python are the documents that files would be, and say what is wrong where it was said."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from msgspec.structs import replace

import accord.workflows
from accord.model import Event, Task, TaskState
from accord.workflows import (
    Builder,
    is_a2a_step,
    is_agent_step,
    is_deterministic_step,
    is_worktree_step,
    isA2AStep,
    isAgentStep,
    isDeterministicStep,
    isWorktreeStep,
    workflow,
)
from accord.workflows.agent_definition import Permissions
from accord.workflows.decoder import camel_case
from accord.workflows.document import Document, IdleNudge, Step, Swarm, Verification
from accord.workflows.findings import BadDocument
from accord.workflows.source import load_document, read_document, tree_of
from accord.workflows.step_types import STEP_TYPES
from tests.cases import each
from tests.workflows.saying import DOCUMENTS, documents


def same(builder: Builder) -> Document:
    """Return what it comes to, which its own file says as well."""
    document = builder.to_config()
    assert read_document(builder.to_yaml()) == document
    return document


@pytest.mark.proves("1-30")
def test_the_first_snippet_of_the_proposal() -> None:
    document = same(
        workflow("my-flow")
        .a2aAgent("data-processor", {
            "url": "http://localhost:9000",
            "role": "Processes data via n8n",
        })
        .step("fetch-data", {
            "type": "a2a",
            "agent": "data-processor",
            "task": "Pull latest dataset from warehouse",
        })
    )  # fmt: skip
    [agent], [step] = document.agents, document.workflows[0].steps
    assert (document.version, document.name, document.swarm.pattern) == ("1", "my-flow", "dag")
    assert (agent.name, agent.runtime, agent.url) == ("data-processor", "a2a", "http://localhost:9000")
    assert agent.role == "Processes data via n8n"
    assert (step.name, step.type, step.agent) == ("fetch-data", "a2a", "data-processor")
    assert step.task == "Pull latest dataset from warehouse"


@pytest.mark.proves("1-31")
def test_the_second_snippet_of_the_proposal_in_python() -> None:
    document = same(
        workflow("quick").step(
            "summarize",
            type="a2a",
            url="http://localhost:9001",
            task="Summarize this document: {{steps.read.output}}",
        )
    )
    [step] = document.workflows[0].steps
    assert (document.agents, step.url, step.agent) == ((), "http://localhost:9001", None)


@pytest.mark.proves("1-30")
def test_the_hybrid_file_written_in_python_is_the_same_document() -> None:
    built = same(
        workflow("hybrid-data-pipeline")
        .description("Mix local CLI agents with remote A2A agents")
        .pattern("dag")
        .agent("planner", cli="claude", role="Plans implementation approach")
        .a2a_agent("data-processor", url="http://localhost:9000", role="n8n workflow that processes data")
        .a2a_agent("summarizer", url="http://localhost:9001", role="LangChain summarization agent", streaming=True)
        .agent("developer", cli="codex", role="Implements code changes", interactive=False)
        .step(
            "plan",
            agent="planner",
            task="Analyze the feature request and create an implementation plan",
            verification={"type": "output_contains", "value": "PLAN_COMPLETE"},
        )
        .step(
            "fetch-data",
            type="a2a",
            agent="data-processor",
            task="Pull dataset from warehouse and return as JSON",
            depends_on=["plan"],
            timeout_ms=120_000,
        )
        .step(
            "summarize",
            type="a2a",
            agent="summarizer",
            task="Summarize the data: {{steps.fetch-data.output}}",
            dependsOn=["fetch-data"],
        )
        .step(
            "implement",
            agent="developer",
            task="Implement the plan using this data summary:\n{{steps.summarize.output}}\n",
            depends_on=("summarize",),
        )
        .step("test", type="deterministic", command="npm test", dependsOn=["implement"])
    )
    assert built == load_document(DOCUMENTS / "hybrid.yaml")


def test_members_may_be_dicts_keywords_or_structs() -> None:
    a = workflow("a").timeout("10m")
    a.step("s", task="t", agent="x", timeout="2m", verification={"type": "exit_code"})
    b = workflow("a").timeout(600)
    b.step("s", {"task": "t", "agent": "x", "timeoutMs": 120_000}, verification=Verification(type="exit_code"))
    c = workflow("a").timeoutMs(600_000)
    c.step("s", {"task": "t"}, agent="x", timeout_ms=120_000, verification={"type": "exit_code"})
    first, *others = (same(way) for way in (a, b, c))
    assert first.swarm.timeout == 600.0
    assert first.workflows[0].steps[0].timeout == 120.0
    assert all(other == first for other in others)


def test_python_keywords_take_an_underscore_and_none_is_omitted() -> None:
    document = same(
        workflow("a")
        .step("s", type="map", over=["x", "y"], as_="word", step={"name": "each", "command": "true"}, retries=None)
        .step("w", type="wait", for_="5s", if_="always()")
        .step("u", use="own", with_={"if_": 1})
    )
    mapped, waits, uses = document.workflows[0].steps
    assert (mapped.over, mapped.as_, mapped.retries) == (("x", "y"), "word", None)
    assert (waits.for_, waits.if_) == (5.0, "always()")
    assert uses.with_ == {"if_": 1}, "names below a member are one's own"


def test_everything_about_the_whole() -> None:
    document = same(
        workflow("a")
        .maxConcurrency(3)
        .tokenBudget(1_000)
        .cost_budget(2.5)
        .channel("progress")
        .idle_nudge(nudge_after="1m")
        .completion_grace_period(1)
        .inputs(topic={"type": "string", "required": True})
        .inputs({"size": {"type": "integer", "default": 3}})
        .vars(branch="main", tags=("a", "b"))
        .paths([{"name": "docs", "path": "../docs", "required": False}])
        .permission_profile("careful", access="readonly")
        .permissions(default={"profile": "careful"})
        .custom_step("own", params=[{"name": "x", "required": True}], type="deterministic", command="echo {{x}}")
        .on(schedule=[{"cron": "0 6 * * *"}])
        .coordination(voting_threshold=0.5, consensusStrategy="quorum")
        .barrier("gate", wait_for=["s"], mode="any")
        .state(backend="memory", ttl="1h")
        .trajectories(False)
        .onError("retry", maxRetries=2, retry_delay="1s")
        .preflight("git status --porcelain", failIf="non-empty")
        .output("{{steps.s.output}}")
        .step("s", type="deterministic", command="true")
    )
    nudge = IdleNudge(nudge_after=60.0)
    assert document.swarm == Swarm(
        pattern="dag", max_concurrency=3, token_budget=1_000, cost_budget=2.5, channel="progress", idle_nudge=nudge,
        completion_grace_period=1.0,
    )  # fmt: skip
    assert list(document.inputs) == ["topic", "size"]
    assert document.vars == {"branch": "main", "tags": ["a", "b"]}
    assert (document.paths[0].name, document.paths[0].required) == ("docs", False)
    assert document.permission_profiles["careful"].access == "readonly"
    assert document.permissions.default == Permissions(profile="careful")
    assert document.steps["own"].step["command"] == "echo {{x}}"
    assert document.on is not None
    assert document.on.schedule[0].cron == "0 6 * * *"
    assert document.coordination.voting_threshold == 0.5
    assert [barrier.name for barrier in document.coordination.barriers] == ["gate"]
    assert document.state is not None
    assert (document.state.backend, document.state.ttl) == ("memory", 3600.0)
    assert document.trajectories is not None
    assert not document.trajectories.enabled
    assert document.error_handling is not None
    assert (document.error_handling.strategy, document.error_handling.retry_delay) == ("retry", 1.0)
    [main] = document.workflows
    assert (main.name, main.output, main.preflight[0].fail_if) == ("main", "{{steps.s.output}}", "non-empty")


def test_workflows_of_other_names() -> None:
    build = Step(name="b", command="make")
    document = same(
        workflow("a").workflow("build", on_error="retry").step("b", command="make").workflow("ship").step("s", task="t")
        .workflow("build").step("c", command="true")
    )  # fmt: skip
    assert [(one.name, [step.name for step in one.steps]) for one in document.workflows] == [
        ("build", ["b", "c"]),
        ("ship", ["s"]),
    ]
    assert document.workflows[0].steps[0] == build
    assert document.workflows[0].on_error == "retry"


def test_a_pattern_may_be_left_to_the_roles() -> None:
    assert same(workflow("a").pattern(None).channel("c")).swarm == Swarm(channel="c")


@each(
    ("build", "says"),
    [
        (lambda: workflow("a").step("s", tsak="t"), "<step 's'>: error UNKNOWN_KEY: .* did you mean `task`"),
        (lambda: workflow("a").step("s", type="integration"), "<step 's'>: error UNSUPPORTED"),
        (lambda: workflow("a").agent("x", cli="cloude"), "<agent 'x'>: error BAD_VALUE: .* did you mean claude"),
        (lambda: workflow("a").max_concurrency(0), "<swarm>: error BAD_VALUE"),
        (lambda: workflow("a").timeout("soon"), "<swarm>: error BAD_DURATION"),
        (lambda: workflow("a").step("s", timeout=1, timeoutMs=1_000), "<step 's'>: error DUPLICATE_KEY"),
        (lambda: workflow("a").barrier("b", wait_for=[]), "<barrier 'b'>: error BAD_VALUE"),
        (lambda: workflow("a").output("x").to_config(), "<workflow 'main'>: error BAD_VALUE: `steps` is empty"),
    ],
)
def test_errors_are_raised_at_the_call(build, says: str) -> None:
    with pytest.raises(BadDocument, match=says.replace(" .* ", r" .*\(.*")):
        build()


def test_every_method_has_its_name_in_camel_case_too() -> None:
    methods = {name: one for name, one in inspect.getmembers(Builder, inspect.isfunction) if not name.startswith("_")}
    for name, method in methods.items():
        assert methods[camel_case(name)] is method


def build_workflows(builder: Builder, workflows: list[dict[str, Any]]) -> None:
    for one in workflows:
        builder.workflow(one["name"], {key: one[key] for key in one if key not in ("name", "steps")})
        for step in one["steps"]:
            builder.step(step["name"], step)


def for_each(method: Callable[..., Builder]) -> Callable[[Builder, Any], object]:
    """Call a method for each of several: those of a list have a name, those of a table are below one."""

    def call(builder: Builder, several: Any) -> None:
        named = several.items() if isinstance(several, dict) else ((one["name"], one) for one in several)
        for name, one in named:
            method(builder, name, one)

    return call


BUILT: dict[str, Callable[[Builder, Any], object]] = {
    "version": lambda _builder, _said: None,
    "name": lambda _builder, _said: None,
    "swarm": lambda builder, said: [getattr(builder, name)(one) for name, one in said.items()],
    "agents": for_each(Builder.agent),
    "workflows": build_workflows,
    "permission_profiles": for_each(Builder.permission_profile),
    "steps": for_each(Builder.custom_step),
    "errorHandling": lambda builder, said: builder.on_error(said.get("strategy", "fail-fast"), said),
}
"""Members of a document that are not said by one call of their own name."""


@settings(max_examples=60)
@given(documents)
def test_any_document_can_be_built(document: Document) -> None:
    names = [one.name for one in document.workflows]
    assume(len(set(names)) == len(names))
    builder = workflow(document.name).pattern(None)
    for name, said in tree_of(document).items():
        if name in BUILT:
            BUILT[name](builder, said)
        else:
            getattr(builder, name)(said)
    assert builder.to_config() == replace(document, version="1")


@pytest.mark.proves("1-20")
def test_predicates_distinguish_steps() -> None:
    kinds = {
        "agent": is_agent_step,
        "deterministic": is_deterministic_step,
        "worktree": is_worktree_step,
        "a2a": is_a2a_step,
    }
    for kind in STEP_TYPES:
        step = Step(name="s", type=kind)
        assert [name for name, says in kinds.items() if says(step)] == ([kind] if kind in kinds else [])
    assert is_agent_step(Step(name="s", agent="x", task="t"))
    assert (isAgentStep, isDeterministicStep, isWorktreeStep, isA2AStep) == tuple(kinds.values())


def test_the_package_has_its_public_names_and_no_others() -> None:
    for name in accord.workflows.__all__:
        assert getattr(accord.workflows, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        accord.workflows.nothing  # noqa: B018  # looking at it is what fails


def test_dry_runs_describe_the_run(tmp_path: Path) -> None:
    flow = workflow("a").vars(x=1).step("one", type="deterministic", command="echo {{vars.x}}")
    flow.step("two", type="deterministic", command="true", dependsOn=["one"])
    report = flow.dry_run(directory=tmp_path)
    assert [[line.name for line in wave] for wave in report.waves] == [["one"], ["two"]]
    assert flow.dryRun(vars={"x": 2}, directory=tmp_path) is not None
    with pytest.raises(BadDocument, match=r"vars\.y"):
        flow.step("three", command="echo {{vars.y}}", type="deterministic").dry_run(directory=tmp_path)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep runs in a store of this test's own."""
    monkeypatch.setenv("ACCORD_STORE", f"sqlite:///{tmp_path}/runs.db")
    return tmp_path


def counted() -> Builder:
    """Two steps that leave a line each in a file, wherever they work."""
    flow = workflow("counted").step("one", type="deterministic", command="echo one >> done; echo {{input}}")
    return flow.step("two", type="deterministic", command="echo two >> done; echo {{vars.x}}", dependsOn=["one"])


def said(task: Task) -> str:
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts).strip()


@pytest.mark.proves("1-30")
async def test_builders_run_their_document(kept: Path) -> None:
    events: list[Event] = []

    async def heard(event: Event) -> None:
        events.append(event)

    task = await counted().run(vars={"x": "X"}, input="hello", directory=str(kept), onEvent=heard)
    assert task.status.state is TaskState.COMPLETED, task.status.message
    assert (kept / "done").read_text().split() == ["one", "two"]
    assert said(task) == "X"
    assert events


async def test_a_builder_starts_from_a_step_of_an_earlier_run(kept: Path) -> None:
    first = await counted().run(vars={"x": "X"}, directory=kept)
    task = await counted().startFrom("two").previousRunId(first.id).run(vars={"x": "Y"}, directory=kept)
    assert task.status.state is TaskState.COMPLETED, task.status.message
    assert (kept / "done").read_text().split() == ["one", "two", "two"]
    assert said(task) == "Y"


def test_a_builder_runs_in_a_script_without_async(kept: Path) -> None:
    task = counted().vars(x="X").run_blocking(directory=kept)
    assert task.status.state is TaskState.COMPLETED, task.status.message


async def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="strat_from"):
        await counted().run(strat_from="two")


def test_a_step_may_be_a_program_with_its_arguments() -> None:
    made = workflow("w").step("a", type="deterministic", argv=["git", "log", "{{input}}"], allow_options=True)
    assert made.to_config() == read_document(made.to_yaml())
    (step,) = made.to_config().workflows[0].steps
    assert (step.argv, step.allow_options, step.command) == (("git", "log", "{{input}}"), True, None)
