"""docs/interop.md is made of outcomes: nothing is lost on the way, and it has every row that is measured, no other."""

import asyncio

import pytest

from interop.callers import CALLERS
from interop.chats import CHATTERS
from interop.offers import OFFERS
from interop.outcome import BOUND_SECONDS, WORKED, NotOffered, Operation, Outcome, Verdict, Wrong, attempted, steady
from interop.page import PAGE, Direction, Row, Shown, Subject, shown_in, written
from interop.rows import absent, broken, unexpected

NO = Outcome(Verdict.NOT_OFFERED, "no such method")
FAILED = Outcome(Verdict.FAILED, "KeyError: 'task'")


def row(direction: Direction, name: str, **found: Outcome) -> Row:
    outcomes = {operation: found.get(operation.name, WORKED) for operation in Operation}
    return Row(direction, Subject(name, "1.2.3", "JSONRPC", "1.0"), outcomes)


def test_a_row_is_read_as_it_was_written() -> None:
    rows = [row(Direction.CALLS_US, "one", LIST=NO, GET=FAILED), row(Direction.IS_CALLED, "one")]
    shown = shown_in(written(rows, [], "9"))
    marks = dict.fromkeys(Operation, "✓")
    assert shown == {
        (Direction.CALLS_US, "one", "JSONRPC", "1.0"): Shown(
            "1.2.3", marks | {Operation.LIST: "·", Operation.GET: "✗"}
        ),
        (Direction.IS_CALLED, "one", "JSONRPC", "1.0"): Shown("1.2.3", marks),
    }


def test_every_reason_appears_once() -> None:
    text = written([row(Direction.CALLS_US, "one", LIST=NO, CANCEL=NO, GET=FAILED)], ["two: not there"], "9")
    assert "    - · list, cancel: no such method\n" in text
    assert "    - ✗ get: `KeyError: 'task'`\n" in text
    assert "## Not measured" in text
    assert "- two: not there\n" in text
    assert "## Not measured" not in written([row(Direction.CALLS_US, "one")], [], "9")


def test_the_page_has_every_row_and_no_other() -> None:
    measured = {(Direction.CALLS_US, peer.name, peer.binding, peer.version) for peer in CALLERS}
    measured |= {(Direction.CALLS_US, peer.name, peer.binding, peer.version) for peer in CHATTERS}
    measured |= {(Direction.IS_CALLED, peer.name, peer.binding, peer.version) for peer in OFFERS}
    assert set(shown_in(PAGE.read_text(encoding="utf-8"))) == measured, "`make interop` writes the page again"


def test_deviations_from_a_row_are_found() -> None:
    found = {Operation.GET: FAILED, Operation.LIST: NO, Operation.SEND: WORKED}
    assert unexpected(found, {Operation.GET: broken("KeyError"), Operation.LIST: absent("no such")}) == {}
    assert unexpected(found, {Operation.GET: absent("KeyError"), Operation.LIST: absent("another reason")}) == {
        "get": FAILED,
        "list": NO,
    }
    assert unexpected(found, {Operation.SEND: absent("")}) == {"get": FAILED, "list": NO, "send": WORKED}


@pytest.mark.parametrize(
    ("error", "due"),
    [
        (None, WORKED),
        (NotOffered("it has none"), Outcome(Verdict.NOT_OFFERED, "it has none")),
        (LookupError("no way"), Outcome(Verdict.NOT_OFFERED, "LookupError: no way")),
        (Wrong("1 where 2 was due"), Outcome(Verdict.FAILED, "1 where 2 was due")),
        (ValueError("bad"), Outcome(Verdict.FAILED, "ValueError: bad")),
        (TimeoutError(), Outcome(Verdict.FAILED, f"no answer within {BOUND_SECONDS} s")),
    ],
)
async def test_every_end_is_an_outcome(error: Exception | None, due: Outcome) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        if error is not None:
            raise error

    assert await attempted(work(), (LookupError,)) == due


def test_a_reason_is_the_same_in_every_run() -> None:
    text = "task 0b9dd0a1-7f7a-4a5c-8f0e-2a9c0e5d7a11 at\n http://localhost:4711/x and 127.0.0.1:80 <object at 0x7f00>"
    assert steady(text) == "task ... at http://localhost:.../x and 127.0.0.1:... <object at ...>"
    assert steady("x" * 500) == "x" * 200 + "..."
