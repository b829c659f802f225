"""Real servers for real peers, each started by the first test that needs it: what `make interop` uses, in tests."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from interop.callers import Caller
from interop.chats import Chatter
from interop.offers import Offer
from interop.outcome import Operation, Outcome
from interop.page import MARKS, PAGE, Direction, shown_in
from interop.processes import Peer, Servers


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Ours and theirs."""
    with Servers() as running:
        yield running


@pytest.fixture(scope="session")
def started(servers: Servers) -> Callable[[Peer], str]:
    """A function that starts another implementation's server, once for all tests, and says where it is."""
    return servers.theirs


class Page:
    """docs/interop.md, as somebody reads it."""

    def __init__(self) -> None:
        self._shown = shown_in(PAGE.read_text(encoding="utf-8"))

    def shows(self, direction: Direction, peer: Caller | Chatter | Offer, found: Mapping[Operation, Outcome]) -> None:
        """Complain if the page says something else than was found."""
        shown = self._shown[direction, peer.name, peer.binding, peer.version]
        said = {operation: shown.marks[operation] for operation in found}
        due = {operation: MARKS[outcome.verdict] for operation, outcome in found.items()}
        assert (shown.release, said) == (peer.release, due), "`make interop` writes the page again"


@pytest.fixture(scope="session")
def page() -> Page:
    return Page()


_OLD_PYTHON = pytest.mark.skip(reason="It has no release for this Python")


def available(offers: Iterable[Offer]) -> list[object]:
    """Rows as a test's parameters; those of one server are on one worker, which starts it once."""
    return [pytest.param(offer, id=str(offer), marks=_marks(offer)) for offer in offers]


def _marks(offer: Offer) -> list[pytest.MarkDecorator]:
    together = pytest.mark.xdist_group(f"peers-{offer.peer.script}")
    return [together] if offer.is_available else [together, _OLD_PYTHON]
