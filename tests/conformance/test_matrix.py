"""The conformance matrix, played: requirement x binding x dialect x store, and that nothing is missing from it.

`pytest tests/conformance --collect-only -q` prints it: `v1-jsonrpc-sqlite-cancel-terminal` is one place of it.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from accord.protocol.operations import Operation
from tests.conformance.matrix import STORED, Row, Store
from tests.conformance.scene import Scene
from tests.conformance.table import TABLE
from tests.conformance.wire import SPEECHES, Speech

BOUND_SECONDS = 30


def places() -> Iterator[Any]:
    """Every place of the matrix where there is something to prove."""
    for store in Store:
        for speech in SPEECHES:
            for row in TABLE:
                if row.applies(speech, store):
                    name = f"{speech}-{store.value}-{row.name}"
                    yield pytest.param(row, speech, store, id=name, marks=row.proves)


@pytest.mark.parametrize(("row", "speech", "store"), list(places()))
async def test_requirement(row: Row, speech: Speech, store: Store, scene: Scene) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        await row.plays(scene)
    assert set(row.uses) <= scene.sent, f"{row.says}: says to use what it did not"


@pytest.mark.proves("3-16")
@pytest.mark.parametrize("speech", SPEECHES, ids=str)
def test_every_operation_of_a_dialect_is_tried_over_every_binding(speech: Speech) -> None:
    tried = {operation for row in TABLE if row.applies(speech, Store.MEMORY) for operation in row.uses}
    assert tried == {operation for operation in Operation if speech.has(operation)}


@pytest.mark.parametrize("store", [Store.SQLITE, Store.POSTGRES])
def test_every_stored_operation_is_tried_with_every_store(store: Store) -> None:
    tried = {operation for row in TABLE if row.applies(STORED, store) for operation in row.uses}
    assert tried == set(Operation) - {Operation.EXTENDED_CARD}


def test_no_name_is_used_twice() -> None:
    names = [row.name for row in TABLE]
    assert len(set(names)) == len(names)
