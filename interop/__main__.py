"""`make interop`: runs every peer that is installed or can be, prints how it went, and writes docs/interop.md."""

import argparse
import asyncio
import subprocess
import sys
from typing import NamedTuple

import accord
from interop.callers import CALLERS, Caller
from interop.chats import CHATTERS, Chatter
from interop.offers import OFFERS, Offer
from interop.outcome import Verdict
from interop.page import PAGE, Direction, Row, Subject, written
from interop.processes import Servers
from interop.rows import unexpected


class Found(NamedTuple):
    """What a run came to."""

    rows: list[Row]
    missing: list[str]
    surprises: list[str]


PEERS: list[tuple[Direction, Caller | Chatter | Offer]] = [
    *((Direction.CALLS_US, caller) for caller in CALLERS),
    *((Direction.CALLS_US, chatter) for chatter in CHATTERS),
    *((Direction.IS_CALLED, offer) for offer in OFFERS),
]


async def measured(names: list[str]) -> Found:
    """Run the peers whose names begin with one of these, or all."""
    found = Found([], [], [])
    with Servers() as servers:
        for direction, peer in PEERS:
            if names and not str(peer).startswith(tuple(names)):
                continue
            try:
                row = await _row(servers, direction, peer)
            except (subprocess.CalledProcessError, FileNotFoundError) as error:
                found.missing.append(f"{peer}: {error}")
                continue
            found.rows.append(row)
            odd = unexpected(row.outcomes, peer.shorts)
            found.surprises.extend(f"{peer}: {name}: {outcome}" for name, outcome in odd.items())
            worked = sum(outcome.verdict is Verdict.WORKED for outcome in row.outcomes.values())
            print(f"{' '.join(row.subject)}: {worked} worked", file=sys.stderr)
    return found


async def _row(servers: Servers, direction: Direction, peer: Caller | Chatter | Offer) -> Row:
    if isinstance(peer, Offer) and not peer.is_available:
        raise FileNotFoundError("there is no release for this Python")
    subject = Subject(peer.name, peer.release, peer.binding, peer.version)
    return Row(direction, subject, await peer.outcomes(servers))


def main() -> int:
    """Measure, tell, and write."""
    parser = argparse.ArgumentParser(prog="make interop ARGS=...", description=__doc__)
    parser.add_argument("names", nargs="*", help="how the names of peers begin; with any, the page is left alone")
    asked = parser.parse_args()
    found = asyncio.run(measured(asked.names))
    page = written(found.rows, found.missing, accord.__version__)
    if asked.names:
        print(page)
    else:
        PAGE.write_text(page, encoding="utf-8")
    for line in (*found.missing, *found.surprises):
        print(f"not as expected: {line}", file=sys.stderr)
    return 1 if found.surprises else 0


if __name__ == "__main__":
    sys.exit(main())
