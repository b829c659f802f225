"""Our client against other implementations' servers: each row of `OFFERS` does everything that it does not lack."""

from typing import Any

import pytest

from accord.client.client import Client
from interop.calls import SOON
from interop.offers import OFFERS, Offer
from interop.outcome import Operation
from interop.page import Direction
from interop.processes import Servers
from interop.rows import unexpected
from interop.servers.agent import CHUNKS
from tests.peers.conftest import Page, available

MARKS = {
    Operation.CARD: [pytest.mark.proves("1-09", "2-07")],
    Operation.SEND: [pytest.mark.proves("1-10", "1-11", "1-15", "2-12")],
    Operation.STREAM: [pytest.mark.proves("1-12", "C-07")],
    Operation.RESUME: [pytest.mark.proves("1-13")],
    Operation.PUSH: [pytest.mark.proves("C-22")],
}


def operations() -> list[Any]:
    return [pytest.param(operation, id=operation, marks=MARKS.get(operation, [])) for operation in Operation]


@pytest.fixture(params=available(OFFERS), scope="session")
def offer(request: pytest.FixtureRequest) -> Offer:
    found: Offer = request.param
    return found


@pytest.mark.parametrize("operation", operations())
async def test_servers_support_what_they_declare(
    offer: Offer, operation: Operation, servers: Servers, page: Page
) -> None:
    found = {operation: await offer.outcome(servers, operation)}
    assert unexpected(found, offer.shorts) == {}
    page.shows(Direction.IS_CALLED, offer, found)


@pytest.mark.proves("1-12", "C-07")
async def test_text_streams_in_the_agents_pieces(offer: Offer, servers: Servers) -> None:
    async with Client.connect(servers.theirs(offer.peer), binding=offer.binding, retries=SOON) as client:
        pieces = tuple([piece async for piece in client.stream_text("chunks")])
    assert pieces == CHUNKS or not offer.in_pieces
