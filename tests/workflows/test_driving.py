"""Runs of plans on every store: what is done once, waited for, asked, given up and gone on with."""

import asyncio
from typing import Any

from accord.engine.context import Context
from accord.engine.outcome import Failed
from accord.model import CancelRequest, GetRequest, SubscribeRequest, Task, TaskFilter, TaskState
from accord.service.host import Host
from accord.workflows.attempts import signal_key
from accord.workflows.channel import LOGGED, Printed
from accord.workflows.commands import LineSplitter
from accord.workflows.document import Step
from accord.workflows.steps.deterministic import run_step
from tests.crash.conftest import until
from tests.engine.conftest import ALICE, Hosting, all_of, said, saying, state
from tests.workflows.flows import FlowAgent, Member, Noting, abouts, agents, begun, ended, outputs, plan_of, step

S = TaskState


async def finished(host: Host) -> Task:
    return await ended(host, await begun(host))


async def test_steps_start_after_their_dependencies(hosting: Hosting) -> None:
    noting = Noting()
    noting.gates["slow"] = asyncio.Event()
    plan = plan_of(step("a"), step("slow"), step("b", "a", command="{{steps.a.output}}!"), step("end", "b", "slow"))
    host = await hosting(FlowAgent(plan, noting))
    task = await begun(host)
    await until(lambda: "b" in noting.done)
    assert "end" not in noting.runs
    noting.gates["slow"].set()
    task = await ended(host, task)
    assert state(task) is S.COMPLETED
    assert outputs(task) == {"a": "a", "slow": "slow", "b": "a!", "end": "end"}
    assert noting.runs == dict.fromkeys(("a", "slow", "b", "end"), 1)


async def test_failures_skip_dependents_and_fail_the_run(hosting: Hosting) -> None:
    noting = Noting()
    plan = plan_of(step("a", command="fail it"), step("b", "a"), step("c"), strategy="continue")
    host = await hosting(FlowAgent(plan, noting))
    task = await finished(host)
    assert (state(task), said(task)) == (S.FAILED, "Failed at a: fail it")
    assert sorted(noting.done) == ["a", "c"]


async def test_a_failed_step_is_tried_again(hosting: Hosting) -> None:
    noting = Noting()
    plan = plan_of(step("a", command="fail it", retries=2, retry_delay=0.0))
    host = await hosting(FlowAgent(plan, noting))
    assert state(await finished(host)) is S.FAILED
    assert noting.runs == {"a": 3}


async def test_a_map_does_its_step_for_every_item(hosting: Hosting) -> None:
    noting = Noting()
    inner = Step(name="one", type="deterministic", command="<{{item}}>")
    plan = plan_of(Step(name="all", type="map", over=("x", "y"), step=inner, depends_on=()), step("end", "all"))
    host = await hosting(FlowAgent(plan, noting))
    task = await finished(host)
    assert outputs(task)["all"] == '["<x>","<y>"]'
    assert sorted(noting.done) == ["all[0]", "all[1]", "end"]


async def test_an_approval_holds_nothing_and_is_given_by_the_caller(hosting: Hosting) -> None:
    plan = plan_of(step("a"), Step(name="ok", type="approval", task="Ship {{steps.a.output}}?", depends_on=("a",)))
    host = await hosting(FlowAgent(plan, Noting()))
    task = await finished(host)
    assert (state(task), said(task)) == (S.INPUT_REQUIRED, "Ship a?")
    await no_run(host)
    await host.services["flow"].send(saying("yes, do", task_id=task.id), ALICE)
    task = await ended(host, task)
    assert (state(task), outputs(task)["ok"]) == (S.COMPLETED, "do")


async def test_approvals_can_be_given_on_any_node(hosting: Hosting) -> None:
    noting = Noting()
    plan = plan_of(
        Step(name="one", type="approval", depends_on=()),
        Step(name="two", type="approval", depends_on=(), on_reject="skip"),
        step("a", "one"),
        step("b", "two"),
    )
    first = await hosting(FlowAgent(plan, noting))
    second = await hosting(FlowAgent(plan, noting))
    task = await finished(first)
    assert said(task) == "Approve one?"
    following = first.services["flow"].subscribe(SubscribeRequest(id=task.id), ALICE)
    await anext(following)  # or it might have ended before there is somebody to follow it
    assert await second.services["flow"].wake(ALICE.tenant, task.id, signal_key("two"), {"approved": False})
    assert await second.services["flow"].wake(ALICE.tenant, task.id, signal_key("one"), "ok")
    await all_of(following)
    assert state(await ended(first, task)) is S.COMPLETED
    assert noting.runs == {"a": 1}


async def test_a_rejected_approval_fails_the_run(hosting: Hosting) -> None:
    host = await hosting(FlowAgent(plan_of(Step(name="ok", type="approval", depends_on=())), Noting()))
    task = await finished(host)
    await host.services["flow"].send(saying("no, too early", task_id=task.id), ALICE)
    assert said(await ended(host, task)) == "Failed at ok: It was not approved: too early"


async def test_unclear_approval_answers_are_asked_again(hosting: Hosting) -> None:
    host = await hosting(FlowAgent(plan_of(Step(name="ok", type="approval", depends_on=())), Noting()))
    task = await finished(host)
    for unclear in ("maybe later", "who knows"):
        await host.services["flow"].send(saying(unclear, task_id=task.id), ALICE)
        task = await ended(host, task)
        assert (state(task), said(task)) == (S.INPUT_REQUIRED, "Please begin with yes or no. Approve ok?")
        await no_run(host)  # what it has asked is found again by whoever goes on
    await host.services["flow"].send(saying("Yes! at last", task_id=task.id), ALICE)
    assert outputs(await ended(host, task))["ok"] == "at last"


async def test_event_waits_return_the_signal(hosting: Hosting) -> None:
    plan = plan_of(Step(name="paid", type="wait", event="payment", depends_on=()))
    host = await hosting(FlowAgent(plan, Noting()))
    task = await begun(host)
    await no_run(host)
    assert await host.services["flow"].wake(ALICE.tenant, task.id, signal_key("event/payment"), {"sum": 3})
    assert outputs(await ended(host, task))["paid"] == '{"sum":3}'


async def test_a_wait_for_a_time_parks_until_then(hosting: Hosting) -> None:
    plan = plan_of(Step(name="rest", type="wait", for_=2.5, depends_on=()), step("end", "rest"))
    host = await hosting(FlowAgent(plan, Noting()))
    task = await begun(host)
    await no_run(host)
    assert state(await ended(host, task)) is S.COMPLETED


async def test_a_member_does_a_step_as_a_child_task(hosting: Hosting) -> None:
    async def shout(ctx: Context) -> str:
        return ctx.text.upper()

    plan = plan_of(
        Step(name="say", type="a2a", agent="loud", task="Hello {{steps.a.output}}", depends_on=("a",)),
        step("a"),
        agents=agents("loud"),
    )
    host = await hosting(FlowAgent(plan, Noting()), Member("loud", shout))
    task = await finished(host)
    assert outputs(task)["say"] == "HELLO A"
    events = await all_of(host.services["flow"].subscribe(SubscribeRequest(id=task.id), ALICE, after=0))
    posts = abouts(events)
    assert [post["step"] for post in posts if post.get("status") == "completed"] == ["a", "say"]
    assert [post["started"] for post in posts if "started" in post] == [["a"], ["say"]]


async def test_a_member_that_fails_fails_its_step(hosting: Hosting) -> None:
    async def refuse(ctx: Context) -> None:
        raise Failed("no way")

    plan = plan_of(Step(name="say", type="a2a", agent="bad", task="x", depends_on=()), agents=agents("bad"))
    host = await hosting(FlowAgent(plan, Noting()), Member("bad", refuse))
    assert said(await finished(host)) == "Failed at say: A2A agent failed: no way"


async def test_member_questions_go_to_the_caller(hosting: Hosting) -> None:
    async def asks(ctx: Context) -> str:
        return f"{(await ctx.ask('Name?')).text} {(await ctx.ask('Age?')).text}"

    plan = plan_of(Step(name="who", type="a2a", agent="asks", task="x", depends_on=()), agents=agents("asks"))
    host = await hosting(FlowAgent(plan, Noting()), Member("asks", asks))
    task = await finished(host)
    assert (state(task), said(task)) == (S.INPUT_REQUIRED, "Name?")
    await host.services["flow"].send(saying("Ada", task_id=task.id), ALICE)
    assert said(await ended(host, task)) == "Age?"
    await host.services["flow"].send(saying("36", task_id=task.id), ALICE)
    assert outputs(await ended(host, task))["who"] == "Ada 36"


async def test_runs_waiting_for_a_member_suspend_and_resume(hosting: Hosting, monkeypatch: Any) -> None:
    monkeypatch.setattr("accord.workflows.runner.SUSPEND_AFTER_SECONDS", 0.05)

    async def patient(ctx: Context) -> str:
        return str(await ctx.wait("news"))

    plan = plan_of(Step(name="far", type="a2a", agent="far", task="x", depends_on=()), agents=agents("far"))
    host = await hosting(FlowAgent(plan, Noting()), Member("far", patient))
    task = await begun(host)
    await no_run(host)
    children = await host.services["flow/far"].list(TaskFilter(), ALICE)
    assert await host.services["flow/far"].wake(ALICE.tenant, children.tasks[0].id, "news", "late")
    assert outputs(await ended(host, task))["far"] == "late"


async def test_cancelling_a_run_cancels_its_members(hosting: Hosting) -> None:
    began = asyncio.Event()

    async def forever(ctx: Context) -> None:
        began.set()
        await asyncio.sleep(1000)

    plan = plan_of(Step(name="far", type="a2a", agent="far", task="x", depends_on=()), agents=agents("far"))
    host = await hosting(FlowAgent(plan, Noting()), Member("far", forever))
    task = await begun(host)
    await began.wait()
    await host.services["flow"].cancel(CancelRequest(id=task.id), ALICE)
    children = await host.services["flow/far"].list(TaskFilter(), ALICE)
    child = await host.services["flow/far"].get(GetRequest(id=children.tasks[0].id), ALICE)
    assert state(child) is S.CANCELED


async def test_failures_stop_parallel_steps(hosting: Hosting) -> None:
    noting = Noting()
    noting.gates["slow"] = asyncio.Event()
    noting.gates["bad"] = asyncio.Event()
    plan = plan_of(step("slow"), step("bad", command="fail"), step("after", "slow"))
    host = await hosting(FlowAgent(plan, noting))
    task = await begun(host)
    await until(lambda: "slow" in noting.runs)
    noting.gates["bad"].set()
    assert said(await ended(host, task)) == "Failed at bad: fail"
    assert noting.done == ["bad"]


async def no_run(host: Host) -> None:
    """Wait until nothing runs any more."""
    await until(lambda: not host.node._executions)


async def test_every_line_that_a_step_prints_is_in_the_log(hosting: Hosting) -> None:
    command = "n=0; while [ $n -lt 3000 ]; do n=$((n+1)); echo line $n; done; printf 'no line break'"
    host = await hosting(FlowAgent(plan_of(step("a", command=command)), run_step))
    task = await finished(host)
    assert state(task) is S.COMPLETED
    about = abouts(await all_of(host.services["flow"].subscribe(SubscribeRequest(id=task.id), ALICE, after=0)))
    posted = [post["output"] for post in about if "output" in post]
    assert "\n".join(posted).split("\n") == [*(f"line {n}" for n in range(1, 3001)), "no line break"]
    assert about.index({"step": "a", "output": posted[-1]}) < next(
        at for at, post in enumerate(about) if post.get("status") == "completed"
    )


def test_long_step_logs_mark_skipped_lines() -> None:
    printed = Printed("a")
    for _ in range(2):
        printed.add("x" * (LOGGED // 2))
    post = printed.take()
    assert post is not None
    *lines, cut = post.about["output"].split("\n")
    assert (len(lines), "skips lines" in cut) == (2, True)
    printed.add("one\ntwo")
    printed.add("three\n")
    post = printed.take()
    assert post is not None
    assert post.about["output"] == "three"
    assert printed.take() is None


def test_output_is_cut_at_line_breaks_wherever_it_was_read() -> None:
    whole = "".join(f"{n} ü\r\n" for n in range(40)) + "\n10%\r20%\r30%\nlast"
    for size in (1, 2, 3, 7, 1000):
        lines, found = LineSplitter(), []
        data = whole.encode()
        for at in range(0, len(data), size):
            if (text := lines.add(data[at : at + size])) is not None:
                found.append(text)
        found.append(lines.rest())
        joined = b"\n".join(found).replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode()
        assert joined == whole.replace("\r\n", "\n").replace("\r", "\n")
