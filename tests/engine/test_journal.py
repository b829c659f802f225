"""What a run only notes: it is written with what is written next, with the end of the run, or before it waits."""

from accord import Context, agent
from accord.engine.execution import StatusEntry
from accord.engine.hooks import EventsAppended, Hooks
from accord.engine.outcome import Failed
from accord.model import TaskState
from accord.service.host import Host
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, said, saying, state, text
from tests.engine.doubles import Watch, is_parked, rows, sent, until, words

S = TaskState
NOTED = {"a:1:ended": "1", "b:1:ended": "2"}


async def kept(host: Host) -> dict[str, str]:
    """What all runs have written down."""
    return dict(await rows(host.node.store, "step", "key, output"))


@agent
async def notes(ctx: Context) -> str:
    ctx.journal.note(NOTED, [StatusEntry(S.WORKING, "almost")])
    assert ctx.journal.entry("a:1:ended") == "1"
    return "done"


async def test_the_last_entry_is_committed_with_the_end(hosting: Hosting) -> None:
    watch = Watch()
    host = await hosting(notes, hooks=Hooks((watch,)))
    task = await sent(host.default, saying("x"), ALICE)
    assert (state(task), text(task)) == (S.COMPLETED, "done")
    assert words(task.history[-1]) == "almost"
    assert await kept(host) == NOTED
    told = watch.of(EventsAppended)
    assert told[-1].count == 3  # what is said, the artifact and the end: one commit


async def test_entries_are_committed_with_the_next_event(hosting: Hosting) -> None:
    found: list[dict[str, str]] = []

    @agent
    async def writes(ctx: Context) -> str:
        ctx.journal.note(NOTED, [StatusEntry(S.WORKING, "first")])
        await ctx.journal.write({"c": "3"}, (), [StatusEntry(S.WORKING, "second")])
        found.append(await kept(host))
        return "done"

    host = await hosting(writes)
    task = await sent(host.default, saying("x"), ALICE)
    assert [words(message) for message in task.history[1:]] == ["first", "second"]
    assert found == [{**NOTED, "c": "3"}]


async def test_entries_of_failed_executions_are_kept(hosting: Hosting) -> None:
    @agent
    async def fails(ctx: Context) -> str:
        ctx.journal.note(NOTED)
        raise Failed("no")

    host = await hosting(fails)
    task = await sent(host.default, saying("x"), ALICE)
    assert (state(task), said(task)) == (S.FAILED, "no")
    assert await kept(host) == NOTED


async def test_entries_of_suspended_executions_are_kept(hosting: Hosting) -> None:
    @agent
    async def waits(ctx: Context) -> str:
        ctx.journal.note(NOTED)
        await ctx.journal.suspend(keys=["never"], children={}, delay_ms=None)
        return "done"

    host = await hosting(waits)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await until(lambda: is_parked(host.node.store, task.id))
    assert await kept(host) == NOTED
