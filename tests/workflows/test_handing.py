"""What runs wait for, handed in from outside on every store: to whom it goes, how often, and by which address."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from accord.console.run_endpoints import EventUrls
from accord.engine.agent import AgentEnvironment
from accord.errors import AuthenticationFailed, TaskNotFound
from accord.model import Task, TaskState
from accord.remote.tasks import ReportCredentials
from accord.service.host import Host
from accord.storage.commands import steps
from accord.workflows import runner
from accord.workflows.agent import WorkflowAgent
from accord.workflows.signals import EventToken, NotWaiting, RunSignals
from accord.workflows.source import read_document
from accord.workflows.stored_run import StoredRun
from tests.crash.conftest import until
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, said, saying, state, text
from tests.workflows.flows import Noting

HEAD = 'version: "1.0"\nname: flow\nswarm: {pattern: dag}\nworkflows:\n  - name: main\n    steps:\n'
HERE = "http://localhost:1234"


class Flow:
    """A document on a node, and what can be handed in to its runs."""

    def __init__(self, host: Host, agent: WorkflowAgent, noting: Noting) -> None:
        self.host, self.agent, self.noting = host, agent, noting
        self.handing = RunSignals(host.node.store, host.default.wake, {"flow"})

    async def begun(self) -> str:
        task = await self.host.services["flow"].send(saying("go", configuration=AT_ONCE), ALICE)
        assert isinstance(task, Task)
        return task.id

    async def find(self, run: str) -> StoredRun:
        return await self.handing.find(ALICE.tenant, run)

    async def stands(self, run: str, **wanted: str) -> None:
        """Wait until steps stand so, and nothing runs."""

        async def is_so() -> bool:
            try:
                nodes = (await self.find(run)).state().nodes
            except TaskNotFound:
                return False
            is_there = all(name in nodes and nodes[name].status == how for name, how in wanted.items())
            return is_there and not self.host.node._executions

        await until(is_so)

    async def ended(self, run: str) -> Task:
        async def is_over() -> bool:
            return state(await self.host.node.settled(ALICE.tenant, run)) is not TaskState.INPUT_REQUIRED

        await until(is_over)
        return await self.host.node.settled(ALICE.tenant, run)


@pytest.fixture
def serving(hosting: Hosting, tmp_path: Path) -> Any:
    """A function that serves the steps of a workflow on a node."""

    async def serve(lines: str, url: str = HERE) -> Flow:
        noting = Noting()
        agent = WorkflowAgent(
            read_document(HEAD + lines), directory=tmp_path, env={}, executors={"deterministic": noting}
        )
        host = await hosting(agent)
        await agent.start(AgentEnvironment(store=host.node.store, url=url, wake=host.default.wake))
        return Flow(host, agent, noting)

    return serve


async def test_an_event_may_come_before_its_step_and_comes_once(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SUSPEND_AFTER_SECONDS", 600)  # what is there is not waited for
    flow = await serving(
        "      - {name: first, type: approval}\n"
        "      - {name: late, type: wait, event: paid, dependsOn: [first]}\n"
        "      - {name: end, type: deterministic, argv: [got, '{{steps.late.json.n}}'], dependsOn: [late]}\n"
    )
    run = await flow.begun()
    await flow.stands(run, first="running")
    await flow.handing.tell(await flow.find(run), "paid", {"n": 1})
    with pytest.raises(NotWaiting, match="Nothing waits for paid any more"):
        await flow.handing.tell(await flow.find(run), "paid", {"n": 2})
    await flow.handing.decide(await flow.find(run), "first", approved=True)
    task = await flow.ended(run)
    assert (state(task), text(task)) == (TaskState.COMPLETED, "got 1")
    for late in (
        flow.handing.tell(await flow.find(run), "paid", 3),
        flow.handing.tell(await flow.find(run), "paid", 4),
    ):
        with pytest.raises(NotWaiting):
            await late


async def test_map_items_get_events_before_their_start(serving: Any) -> None:
    flow = await serving(
        "      - {name: first, type: approval}\n"
        "      - name: all\n        type: map\n        over: [x, y]\n        dependsOn: [first]\n"
        "        step: {name: each, type: wait, event: paid}\n"
    )
    run = await flow.begun()
    await flow.stands(run, first="running")
    await flow.handing.tell(await flow.find(run), "paid", "sum")
    await flow.handing.decide(await flow.find(run), "first", approved=True)
    assert text(await flow.ended(run)) == '["sum","sum"]'


async def test_a_decision_is_for_a_step_that_asks(serving: Any) -> None:
    flow = await serving(
        "      - {name: one, type: approval, onReject: skip}\n"
        "      - {name: two, type: approval, dependsOn: [three]}\n"
        "      - {name: three, type: approval}\n"
    )
    run = await flow.begun()
    await flow.stands(run, one="running", three="running")
    with pytest.raises(NotWaiting, match="two does not ask: it is pending"):
        await flow.handing.decide(await flow.find(run), "two", approved=True)
    with pytest.raises(TaskNotFound, match="no approval four"):
        await flow.handing.decide(await flow.find(run), "four", approved=True)
    before = await flow.find(run)
    await flow.handing.decide(before, "one", approved=False, comment="not now")
    with pytest.raises(NotWaiting, match="one has been decided"):
        await flow.handing.decide(before, "one", approved=True)
    await flow.handing.decide(await flow.find(run), "three", approved=True)
    await flow.stands(run, two="running")
    await flow.handing.decide(await flow.find(run), "two", approved=False, comment="late")
    assert said(await flow.ended(run)) == "Failed at two: It was not approved: late"


async def test_foreign_and_missing_runs_look_the_same(serving: Any) -> None:
    flow = await serving("      - {name: one, type: approval}\n")
    run = await flow.begun()
    await flow.stands(run, one="running")
    stranger = RunSignals(flow.host.node.store, flow.host.default.wake, {"other"})
    for look in (flow.handing.find("elsewhere", run), flow.handing.find(ALICE.tenant, "x"), stranger.find("acme", run)):
        with pytest.raises(TaskNotFound):
            await look


# --- addresses --------------------------------------------------------------------------------------------------------

CALLED = (
    "      - {name: ask, type: deterministic, command: 'curl {{run.events.paid}} {{run.id}}'}\n"
    "      - {name: ok, type: approval, dependsOn: [ask]}\n"
    "      - {name: again, type: deterministic, command: 'curl {{run.events.paid}}', dependsOn: [ok]}\n"
    "      - {name: paid, type: wait, event: paid, dependsOn: [again]}\n"
    "      - {name: other, type: wait, event: other}\n"
)


def token(output: str) -> str:
    """The token in an address that a step was given."""
    url = httpx.URL(output.split()[1])
    assert str(url).startswith(f"{HERE}/api/events?token=")
    return str(url.params["token"])


async def told(flow: Flow, run: str, step: str) -> str:
    end = (await flow.find(run)).state().nodes[step].final_end
    assert end is not None
    return str(end.output)


async def refused(events: EventUrls, shown: str | None) -> None:
    with pytest.raises(AuthenticationFailed):
        await events.admit(ReportCredentials(token=shown))


async def test_an_address_is_for_one_event_of_one_run_and_stays_good(serving: Any) -> None:
    flow = await serving(CALLED)
    run = await flow.begun()
    await flow.stands(run, ok="running", other="running")
    output = await told(flow, run, "ask")
    assert output.endswith(f" {run}")
    first = token(output)
    await flow.handing.decide(await flow.find(run), "ok", approved=True)
    await flow.stands(run, paid="running")
    second = token(await told(flow, run, "again"))
    assert second != first, "the run was driven anew, and has not kept the secret"
    events = EventUrls(flow.handing)
    shown = EventToken.read(first)
    assert shown is not None
    for wrong in (
        EventToken(shown.tenant, shown.run, "other", shown.secret),
        EventToken(shown.tenant, await flow.begun(), "paid", shown.secret),
        EventToken("b", shown.run, "paid", shown.secret),
        EventToken(shown.tenant, shown.run, "paid", shown.secret[:-1]),
    ):
        await refused(events, wrong.token)
    for none in (None, "", "x", "é", "AAAA", first + "A" * 5):
        await refused(events, none)
    await events.accept(await events.admit(ReportCredentials(token=first)), b"by hand")
    await flow.stands(run, paid="completed")
    assert await told(flow, run, "paid") == "by hand"
    with pytest.raises(TaskNotFound, match="Nothing waits for paid any more"):
        await events.accept(await events.admit(ReportCredentials(token=second)), b"again")


async def test_only_the_hash_of_a_secret_is_kept(serving: Any) -> None:
    flow = await serving(CALLED.replace("{{run.events.paid}}", "{{run.events.paid | length}}"))
    run = await flow.begun()
    await flow.stands(run, ok="running")
    kept = await flow.host.node.store.read(steps.load_steps, ALICE.tenant, run)
    keys = [key for key in kept if key.startswith("flow-url:")]
    assert keys
    assert all(len(key.rpartition(":")[2]) == len(hashlib.sha256().hexdigest()) for key in keys)
    assert "token=" not in "".join([*kept, *kept.values()])


async def test_run_without_server_is_rejected_before_its_first_step(serving: Any) -> None:
    flow = await serving(CALLED, url="")
    task = await flow.ended(await flow.begun())
    assert task.status.state is TaskState.REJECTED
    assert "run.events.paid}}: only a run on a server has addresses for events" in said(task)


async def test_concurrent_signals_are_taken_once(serving: Any) -> None:
    flow = await serving("      - {name: paid, type: wait, event: paid}\n")
    run = await flow.begun()
    await flow.stands(run, paid="running")
    found = await flow.find(run)
    done = await asyncio.gather(*(flow.handing.tell(found, "paid", n) for n in range(8)), return_exceptions=True)
    assert sum(one is None for one in done) == 1
    assert sum(isinstance(one, NotWaiting) for one in done) == 7
