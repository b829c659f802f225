"""Many turns of one task: each costs the same few commands, on whichever node, and no answer is lost or mixed up."""

import asyncio

from accord import Context, agent
from accord.model import GetRequest, Part, Task, TaskState
from accord.service.host import Host
from accord.storage.blobs import THRESHOLD
from accord.storage.store import Store
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, said, saying, state, text
from tests.engine.doubles import Meddler, rows, sent

S = TaskState
TURNS = 60
A_TURN = ["task_lifecycle.add_message", "steps.commit_step", "task_lifecycle.settle_execution"]
"""The message is kept, what it answers is noted, and the next question is asked."""


@agent
async def counts(ctx: Context) -> str:
    return " ".join([(await ctx.ask(f"What is {at}?")).text for at in range(int(ctx.text))])


async def answered(host: Host, task: Task, word: str) -> Task:
    assert state(task) is S.INPUT_REQUIRED
    return await sent(host.default, saying(word, task_id=task.id), ALICE)


async def as_kept(host: Host, task: Task) -> Task:
    return await host.default.get(GetRequest(id=task.id), ALICE)


async def test_each_turn_costs_the_same_commands_and_is_kept(hosting: Hosting) -> None:
    meddlers: list[Meddler] = []

    def watched(store: Store) -> Store:
        meddlers.append(Meddler(store))
        return meddlers[-1]

    host = await hosting(counts, wrap=watched)
    (meddler,) = meddlers
    task = await sent(host.default, saying(f"{TURNS + 1}"), ALICE)
    for at in range(TURNS):
        meddler.done.clear()
        task = await answered(host, task, f"{at}")
        assert [name for name in meddler.done if name.startswith(("task_lifecycle.", "tasks.", "steps."))] == A_TURN
        assert (said(task), len(task.history)) == (f"What is {at + 1}?", 2 * at + 3)
        assert await as_kept(host, task) == task
    settled = [given[-1] for name, given in meddler.given if name == "task_lifecycle.settle_execution"]
    snapshots = [request.last.snapshot for request in settled if request.last.snapshot is not None]
    assert len(settled) == TURNS + 1
    assert TURNS / 4 < len(snapshots) < TURNS * 3 / 4, "a long talk is not written down anew with every turn"
    task = await answered(host, task, "the end")
    assert text(task) == " ".join([*map(str, range(TURNS)), "the end"])
    assert await as_kept(host, task) == task


async def test_any_node_resumes_from_an_older_snapshot(hosting: Hosting) -> None:
    nodes = [await hosting(counts) for _ in range(2)]
    task = await sent(nodes[0].default, saying(f"{TURNS}"), ALICE)
    later: list[int] = []
    for at in range(TURNS):
        task = await answered(nodes[at % 2], task, f"{at}")
        later += [events for (events,) in await rows(nodes[0].node.store, "snapshot, task", "last_seq - seq")]
    assert max(later) > 3, "more than a turn"
    assert (state(task), text(task)) == (S.COMPLETED, " ".join(map(str, range(TURNS))))
    assert await as_kept(nodes[0], task) == await as_kept(nodes[1], task) == task


async def test_a_large_answer_is_kept_once(hosting: Hosting) -> None:
    @agent(input_modes=["*/*"])
    async def measures(ctx: Context) -> str:
        files = (await ctx.ask("Which file?")).files
        await ctx.ask("Shall I?")
        return f"{[len(part.raw or b'') for part in files]}"

    host = await hosting(measures)
    task = await sent(host.default, saying("go"), ALICE)
    file = Part(raw=b"x" * (THRESHOLD + 1), media_type="image/png")
    task = await sent(host.default, saying("", parts=(file,), task_id=task.id), ALICE)
    assert await rows(host.node.store, "step", "length(output)") == [(1,)]
    assert text(await answered(host, task, "yes")) == f"[{THRESHOLD + 1}]"


async def test_concurrent_questions_take_different_answers(hosting: Hosting) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @agent
    async def hurries(ctx: Context) -> str:
        started.set()
        await gate.wait()
        await ctx.status("asking")
        await ctx.flush()
        await ctx.artifact("x", id="draft")
        both = await asyncio.gather(ctx.ask("One?"), ctx.ask("Two?"))
        return " ".join(answer.text for answer in both)

    host = await hosting(hurries)
    stream = host.default.stream(saying("hi"), ALICE)
    first = (await anext(stream)).body
    assert isinstance(first, Task)
    await started.wait()
    for word in ("early", "bird"):
        await host.default.send(saying(word, task_id=first.id, configuration=AT_ONCE), ALICE)
    gate.set()
    await all_of(stream)
    assert text(await as_kept(host, first)).endswith("early bird")
