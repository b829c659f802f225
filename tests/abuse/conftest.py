"""Servers to abuse, shared by the tests that leave them as they were."""

from collections.abc import Iterator

import pytest

from tests.abuse.server import Holder, Server, serving

HOLDERS = {
    "alice": Holder("alice", "acme"),
    "bob": Holder("bob", "acme"),
    "other-alice": Holder("alice", "globex"),
    "watch": Holder("watch", "acme", ("operator",)),
    "other-watch": Holder("watch", "globex", ("operator",)),
    "admin": Holder("root", "acme", ("admin",)),
    "other-admin": Holder("root", "globex", ("admin",)),
    "caller": Holder("caller", "acme", ("caller",)),
    "reader": Holder("reader", "acme", ("reader",)),
    "user": Holder("user", "acme", ("user",)),
    "stray": Holder("stray", "acme", ("wheel",)),
    "roamer": Holder("roamer", None),
}
"""Two tenants, in both of which there is an alice; everybody in them has a role of its own."""


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that wants keys, with two agents and a gRPC port."""
    agents = ("tests.abuse.agents:victim", "tests.abuse.agents:neighbour")
    # Rates are the subject of other tests, and these ask a lot.
    with serving(tmp_path_factory.mktemp("guarded"), {"limits": {"rate": 100_000}}, *agents, holders=HOLDERS) as server:
        yield server
