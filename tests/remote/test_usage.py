"""What an agent elsewhere says that it has used counts here, against the budgets of its task and of those above it."""

from typing import Any

from msgspec.structs import replace

from accord import Context, agent
from accord.engine.hooks import Hooks, TaskFinished, UsageReported
from accord.model import Event, SendRequest, StatusUpdate, Task, TaskState, TaskStatus
from accord.protocol.budgets import TokenUsage, TotalUsage, read_usage
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName
from accord.remote.tasks import ReportCredentials
from tests.cases import each
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, said, saying, state
from tests.engine.doubles import Watch, reaches, sent, until
from tests.remote.conftest import Joined, Joining, Scripted, there

S = TaskState
V1 = DIALECTS[DialectName.V1]


def using(inputs: Any, outputs: Any = 0, **more: Any) -> dict[str, Any]:
    """The metadata of a task that has used so much."""
    return {"usage": {"inputTokens": inputs, "outputTokens": outputs, "totalTokens": inputs, "cost": 0.0, **more}}


def within(tokens: int) -> SendRequest:
    request = saying("work", configuration=AT_ONCE)
    return replace(request, message=replace(request.message, metadata={"budget": {"maxTokens": tokens}}))


async def report(here: Joined, task: Task) -> None:
    await here.remotes.accept_webhook(ReportCredentials(token=here.peer.token), V1.push_task(task))


async def begun(here: Joined, request: SendRequest) -> Task:
    task = await sent(here.service, request, ALICE)
    await until(lambda: is_told(here.peer))
    return await reaches(here.service, task.id, S.WORKING, ALICE)


async def is_told(peer: Scripted) -> bool:
    return bool(peer.tasks)


async def is_cancelled(peer: Scripted) -> bool:
    return peer.cancelled == ["r-1"]


def used(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = (task.metadata or {})["usage"]
    return found


async def test_reported_usage_is_counted_once(joining: Joining) -> None:
    watch = Watch()
    here = await joining(hooks=Hooks((watch,)))
    task = await begun(here, saying("work", configuration=AT_ONCE))
    update = StatusUpdate(
        task_id="r-1",
        context_id="c",
        status=TaskStatus(state=S.WORKING),
        metadata=using(3, cost=0.5, models={"m": {"inputTokens": 3, "cost": 0.5}}),
    )
    frame = V1.encode_event(Event(seq=0, body=update))
    assert frame is not None
    for _ in range(2):
        await here.remotes.accept_webhook(ReportCredentials(token=here.peer.token), frame.data)
    done = there(S.COMPLETED, metadata=using(7, 5, cost=0.75, models={"m": {"inputTokens": 6, "cost": 0.5}}))
    for _ in range(2):
        await report(here, done)
    ended = await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert used(ended) == {
        "inputTokens": 7,
        "outputTokens": 5,
        "totalTokens": 12,
        "cost": 0.75,
        "models": {"m": {"inputTokens": 6, "outputTokens": 0, "cost": 0.5}},
    }
    assert [(one.agent, one.model, one.use) for one in watch.of(UsageReported)] == [
        ("there", "m", TokenUsage(input_tokens=3, cost=0.5)),
        ("there", "m", TokenUsage(input_tokens=3)),
        ("there", None, TokenUsage(input_tokens=1, output_tokens=5, cost=0.25)),
    ]
    assert [(one.task_id, one.agent, one.state) for one in watch.of(TaskFinished)] == [(task.id, "there", S.COMPLETED)]


async def test_a_budget_ends_the_task_here_and_there(joining: Joining) -> None:
    watch = Watch()
    here = await joining(hooks=Hooks((watch,)))
    task = await begun(here, within(5))
    await report(here, there(S.WORKING, metadata=using(5)))
    assert state(await reaches(here.service, task.id, S.WORKING, ALICE)) is S.WORKING
    await report(here, there(S.WORKING, metadata=using(5, 1)))
    ended = await reaches(here.service, task.id, S.FAILED, ALICE)
    assert (said(ended), used(ended)["totalTokens"]) == ("The budget of 5 tokens is spent", 6)
    await until(lambda: is_cancelled(here.peer))
    assert [(one.task_id, one.agent, one.state) for one in watch.of(TaskFinished)] == [(task.id, "there", S.FAILED)]


async def test_the_agents_own_budget_counts_as_well(joining: Joining) -> None:
    here = await joining()
    here.agent.profile = replace(here.agent.profile, budget=replace(here.agent.profile.budget, max_cost=0.5))
    task = await begun(here, saying("work", configuration=AT_ONCE))
    await report(here, there(S.COMPLETED, metadata=using(1, cost=0.75)))
    assert said(await reaches(here.service, task.id, S.FAILED, ALICE)) == "The budget of 0.5 (cost) is spent"


async def test_remote_usage_ends_an_exhausted_caller(joining: Joining, hosting: Hosting) -> None:
    peer = Scripted()
    here = await joining(peer)

    @agent(max_tokens=5)
    async def patron(ctx: Context) -> str:
        return (await ctx.call("there", "work")).text

    host = await hosting(patron)
    host.services |= {"there": here.service}
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await until(lambda: is_told(peer))
    assert (peer.sent[0].message.metadata or {})["budget"] == {"maxTokens": 5}
    await report(here, there(S.WORKING, metadata=using(9)))
    ended = await reaches(host.default, task.id, S.FAILED, ALICE)
    assert (said(ended), used(ended)["totalTokens"]) == ("The budget of 5 tokens is spent", 9)
    await until(lambda: is_cancelled(peer))


@each(
    "said",
    [None, 7, [], {"inputTokens": -1}, {"inputTokens": "many"}, {"inputTokens": 1.5}, {"cost": 1e300}, {"models": [1]}],
)
def test_invalid_usage_is_not_counted(said: Any) -> None:
    assert read_usage({"usage": said}) is None


def test_numbers_may_be_fractions_that_are_whole() -> None:
    assert read_usage({"usage": {"inputTokens": 7.0, "totalTokens": 7.0}}) == TotalUsage(input_tokens=7)
    assert read_usage(None) is None


def test_a_sum_that_shrinks_gives_nothing_back() -> None:
    before = TotalUsage(input_tokens=5, cost=1.0, models={"m": TokenUsage(input_tokens=5)})
    assert TotalUsage(input_tokens=3).since(before) == []
    more = TotalUsage(input_tokens=9, cost=1.5, models={"m": TokenUsage(input_tokens=6, cost=0.25)})
    assert more.since(before) == [
        (TokenUsage(input_tokens=1, cost=0.25), "m"),
        (TokenUsage(input_tokens=3, cost=0.25), None),
    ]
