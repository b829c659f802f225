"""A planner over each kind of store: prompts become held tasks, commands begin, drop and conclude them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from accord import Context, agent
from accord.agents.planner import AGENT_TYPE, PlannerAgent, PlannerOptions, planner
from accord.api.agent_types import AgentArguments
from accord.model import GetRequest, StatusUpdate, Task, TaskFilter, TaskState
from accord.service.host import Host
from tests.agents.chat.server import Asked, Models, Scene, Stage, serving
from tests.engine.conftest import ALICE, BOB, Hosting, all_of, bounded, hosting, postgres, said, saying, state, text
from tests.engine.doubles import reaches, sent

__all__ = ["hosting", "postgres"]

S = TaskState
Plan = list[dict[str, Any]]


@agent(name="Writer", description="Writes reports", skills=["write"])
async def writer(ctx: Context) -> str:
    return f"written: {ctx.text}"


@agent(name="Researcher", description="Looks things up", skills=["research"])
async def researcher(ctx: Context) -> str:
    return f"found: {ctx.text}"


def plan_of(task: Task) -> Plan:
    """The plan that an answer shows."""
    (found,) = [part.data for one in task.artifacts if one.artifact_id == "plan" for part in one.parts]
    assert isinstance(found, dict)
    plan: Plan = found["tasks"]
    return plan


async def say(host: Host, words: str, caller: Any = ALICE, context: str = "ctx") -> Task:
    return await sent(host.default, saying(words, context_id=context), caller)


def tools(events: list[Any]) -> list[tuple[str, str]]:
    """Every tool that a stream shows, and whether it begins or what it gives."""
    told = [event.body.metadata or {} for event in events if isinstance(event.body, StatusUpdate)]
    found = [metadata["tool"] for metadata in told if "tool" in metadata]
    return [(tool["name"], next((key for key in ("output", "error") if key in tool), "input")) for tool in found]


@bounded
@pytest.mark.proves("0-02", "0-09")
async def test_a_prompt_becomes_held_tasks_of_suitable_agents(hosting: Hosting) -> None:
    host = await hosting(planner, writer, researcher)
    events = await all_of(host.default.stream(saying("Research the market; write a summary", context_id="ctx"), ALICE))
    assert tools(events) == [
        ("planTasks", "input"),
        ("planTasks", "output"),
        ("createTask", "input"),
        ("createTask", "output"),
        ("createTask", "input"),
        ("createTask", "output"),
    ]
    answer = (await host.default.list(TaskFilter(include_artifacts=True), ALICE)).tasks[0]
    plan = plan_of(answer)
    assert [(one["number"], one["title"], one["agent"]) for one in plan] == [
        (1, "Research the market", "Researcher"),
        (2, "Write a summary", "Writer"),
    ]
    assert "1. Research the market (Researcher)" in text(answer)
    for one in plan:
        made = await host.services[one["agent"]].get(GetRequest(id=one["taskId"]), ALICE)
        assert (state(made), made.context_id) == (S.SUBMITTED, "ctx")
        assert made.history[0].parts[0].text == one["title"]


@bounded
@pytest.mark.proves("0-02", "0-11", "0-50")
async def test_planned_tasks_start_drop_and_end(hosting: Hosting) -> None:
    host = await hosting(planner, writer, researcher)
    first, second, third = plan_of(await say(host, "Research A\nWrite B\nWrite C"))
    ran = await say(host, "execute 1")
    assert "1. Research A (Researcher): " in text(ran)
    done = await reaches(host.services["Researcher"], first["taskId"], S.COMPLETED, ALICE)
    assert text(done) == "found: Research A"
    await say(host, "cancel 2")
    assert state(await host.services["Writer"].get(GetRequest(id=second["taskId"]), ALICE)) is S.CANCELED
    await say(host, "done 3: by hand")
    ended = await host.services["Writer"].get(GetRequest(id=third["taskId"]), ALICE)
    assert (state(ended), said(ended)) == (S.COMPLETED, "by hand")
    status = text(await say(host, "status"))
    assert "1. Research A (Researcher) is completed: found: Research A" in status
    assert "2. Write B (Writer) is canceled" in status
    assert "3. Write C (Writer) is completed: by hand" in status
    refused = text(await say(host, "done 1: me too"))
    assert "already started" in refused
    assert "There is no task 9" in text(await say(host, "run 9"))


@bounded
async def test_all_held_tasks_start(hosting: Hosting) -> None:
    host = await hosting(planner, writer, researcher)
    plan = plan_of(await say(host, "Research A\nWrite B\nWrite C"))
    await say(host, "cancel 2")
    await say(host, "execute all")
    for one, wanted in zip(plan, (S.COMPLETED, S.CANCELED, S.COMPLETED), strict=True):
        await reaches(host.services[one["agent"]], one["taskId"], wanted, ALICE)
    more = plan_of(await say(host, "Write D"))
    assert [one["number"] for one in more] == [1, 2, 3, 4]  # the plan of a conversation goes on


@bounded
@pytest.mark.proves("0-40")
async def test_a_plan_belongs_to_its_caller_and_conversation(hosting: Hosting) -> None:
    host = await hosting(planner, writer)
    plan = plan_of(await say(host, "Write A"))
    for caller, context in ((BOB, "ctx"), (ALICE, "another")):
        other = await say(host, "execute 1", caller, context)
        assert [one["title"] for one in plan_of(other)] == ["Execute 1"]  # there is no plan, so it is a prompt
    assert state(await host.services["Writer"].get(GetRequest(id=plan[0]["taskId"]), ALICE)) is S.SUBMITTED


@bounded
async def test_a_planner_whose_process_was_lost_plans_once(hosting: Hosting) -> None:
    crashed = asyncio.Event()

    class Crashing(PlannerAgent):
        async def _write_plan(self, ctx: Context, *args: Any, **more: Any) -> None:
            if not crashed.is_set():
                crashed.set()
                await asyncio.Event().wait()
            await super()._write_plan(ctx, *args, **more)

    crashing = Crashing(AgentArguments(options=PlannerOptions()))
    first = await hosting(crashing, writer, researcher)
    sending = asyncio.create_task(say(first, "Research A\nWrite B"))
    await crashed.wait()
    sending.cancel()
    await first.stop(0)
    second = await hosting(crashing, writer, researcher)
    task = (await second.default.list(TaskFilter(), ALICE)).tasks[0]
    plan = plan_of(await reaches(second.default, task.id, S.COMPLETED, ALICE))
    assert [one["number"] for one in plan] == [1, 2]
    made = [(await second.services[name].list(TaskFilter(), ALICE)).total_size for name in ("Writer", "Researcher")]
    assert made == [1, 1]


@bounded
async def test_settings_limit_whom_and_how_much(hosting: Hosting) -> None:
    options = PlannerOptions(agents=("writer",), most=2)
    host = await hosting(AGENT_TYPE.make(AgentArguments(options=options)), researcher, writer)
    answer = await say(host, "Research A\nResearch B\nResearch C")
    assert [one["agent"] for one in plan_of(answer)] == ["Writer", "Writer"]
    assert "Research C" in text(answer)
    alone = await hosting(AGENT_TYPE.make(AgentArguments(options=PlannerOptions(agents=("nobody",)))), writer)
    assert state(await say(alone, "Write A", context="other")) is S.FAILED
    assert state(await say(host, " ... ", context="third")) is S.REJECTED


# --- with a model -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    async with serving() as found:
        yield found


@pytest.fixture
async def make(models: Models) -> AsyncIterator[Callable[..., PlannerAgent]]:
    """A function that makes planners with a model."""
    made: list[PlannerAgent] = []

    def one(**options: Any) -> PlannerAgent:
        made.append(PlannerAgent(AgentArguments(options=PlannerOptions(model="m", base_url=models.url, **options))))
        return made[-1]

    yield one
    for each in made:
        await each.stop()


def calls(text: str, *used: tuple[str, Any]) -> Scene:
    """A model that says something and uses tools, whose arguments come in two pieces."""

    async def scene(stage: Stage, asked: Asked) -> None:
        await stage.head()
        await stage.word(text)
        for at, (name, arguments) in enumerate(used):
            whole = json.dumps(arguments)
            for first, piece in ((True, whole[:5]), (False, whole[5:])):
                function = {"name": name, "arguments": piece} if first else {"arguments": piece}
                await stage.word(
                    "", tool_calls=[{"index": at, "id": f"c{at}", "type": "function", "function": function}]
                )
        await stage.end("tool_calls")

    return scene


@bounded
@pytest.mark.proves("0-02", "0-11")
async def test_a_model_plans_with_the_same_tools(
    hosting: Hosting, models: Models, make: Callable[..., PlannerAgent]
) -> None:
    host = await hosting(make(api_key="secret"), writer, researcher)
    models.plays(
        calls(
            "Here is a plan.",
            (
                "planTasks",
                {"tasks": [{"title": "Look it up", "agent": "researcher"}, {"title": "Write", "agent": "?"}]},
            ),
            ("createTask", {"title": "Say it", "agent": "Writer", "prompt": "Say it in French"}),
            ("unknown", {}),
        )
    )
    answer = await say(host, "I need a report")
    plan = plan_of(answer)
    assert [(one["title"], one["agent"]) for one in plan] == [
        ("Look it up", "Researcher"),
        ("Write", "Writer"),
        ("Say it", "Writer"),
    ]
    assert text(answer).startswith("Here is a plan.")
    (asked,) = models.asked
    assert [tool["function"]["name"] for tool in asked.body["tools"]] == ["planTasks", "createTask", "updateTask"]
    assert "Researcher: Looks things up" in asked.body["messages"][0]["content"]
    assert asked.headers["authorization"] == "Bearer secret"
    told = await host.services["Writer"].get(GetRequest(id=plan[2]["taskId"]), ALICE)
    assert told.history[0].parts[0].text == "Say it in French"

    models.plays(
        calls(
            "",
            ("updateTask", {"taskId": plan[0]["taskId"], "status": "working"}),
            ("updateTask", {"taskId": "x", "status": "working"}),
        )
    )
    begun = await say(host, "Begin")
    await reaches(host.services["Researcher"], plan[0]["taskId"], S.COMPLETED, ALICE)
    assert "There is no task x" in text(begun)
    assert plan[0]["taskId"] in models.asked[1].body["messages"][0]["content"]


@bounded
async def test_invalid_model_plans_are_skipped(
    hosting: Hosting, models: Models, make: Callable[..., PlannerAgent]
) -> None:
    host = await hosting(make(), writer)
    models.plays(
        calls(
            "Hm.",
            ("planTasks", {"tasks": 3}),
            ("planTasks", [1]),
            ("createTask", {"agent": "Writer"}),
            ("updateTask", {"taskId": 3}),
        )
    )
    assert text(await say(host, "go")) == "Hm."
    models.plays(calls(""))
    assert state(await say(host, "go")) is S.FAILED


@pytest.mark.parametrize("wrong", [{"base_url": "ftp://x"}, {"api_key": "k"}, {"most": 0}])
def test_settings_without_effect_are_refused(wrong: dict[str, Any]) -> None:
    import msgspec

    with pytest.raises((ValueError, msgspec.ValidationError)):
        msgspec.convert(wrong, PlannerOptions)
