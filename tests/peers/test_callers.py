"""Clients that others wrote talk to `accord serve` as their own users would: each row of `CALLERS` and `CHATTERS`."""

from typing import Any

import pytest

from interop.callers import CALLERS, Caller
from interop.chats import CHATTERS, Chatter
from interop.page import Direction
from interop.processes import Servers
from interop.rows import unexpected
from tests.peers.conftest import Page

MARKS: dict[tuple[str, str], list[pytest.MarkDecorator]] = {
    ("a2a-sdk", "1.0"): [
        pytest.mark.proves("BIND-EQUIV-001", "BIND-EQUIV-002", "BIND-EQUIV-003", "BIND-EQUIV-004", "BIND-FIELD-001"),
        pytest.mark.proves("HTTP_JSON-SVC-001", "HTTP_JSON-SVC-002", "HTTP_JSON-SSE-001", "HTTP_JSON-ERR-002"),
        pytest.mark.proves("GRPC-SVC-001", "GRPC-SVC-002", "GRPC-ERR-001", "JSONRPC-SSE-001", "VER-SERVER-002", "3-13"),
    ],
    ("a2a-sdk", "0.3"): [pytest.mark.proves("VER-SERVER-001", "VER-SERVER-003", "3-04", "3-05")],
    ("a2a-sdk 0.3", "0.3"): [pytest.mark.proves("3-04", "3-05", "3-10", "3-13", "3-21", "3-43", "VER-SERVER-003")],
    ("agentvault", "AgentVault 0.2"): [
        pytest.mark.proves("2-13", "2-15", "2-16", "2-17", "2-18", "2-19", "2-33", "C-01"),
    ],
}


def parameters() -> list[Any]:
    """Those who call the same server of ours are on one worker, which starts it once."""
    callers: list[tuple[Caller | Chatter, str]] = [(caller, caller.kind) for caller in CALLERS]
    callers += [(chatter, "chats") for chatter in CHATTERS]
    return [pytest.param(caller, id=str(caller), marks=_marks(caller, kind)) for caller, kind in callers]


def _marks(caller: Caller | Chatter, kind: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.xdist_group(f"peers-{kind}"), *MARKS.get((caller.name, caller.version), [])]


@pytest.mark.parametrize("caller", parameters())
async def test_a_client_does_everything_that_it_has(caller: Caller | Chatter, servers: Servers, page: Page) -> None:
    outcomes = await caller.outcomes(servers)
    assert unexpected(outcomes, caller.shorts) == {}
    page.shows(Direction.CALLS_US, caller, outcomes)
