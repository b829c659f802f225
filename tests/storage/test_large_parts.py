"""Detaching large parts and attaching them again gives back what was there, and touches nothing else."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.model import Artifact, ArtifactUpdate, Message, Part, Role, Task, TaskState, TaskStatus
from accord.storage import schema
from accord.storage.blobs import THRESHOLD, BlobMissing, LargeParts
from tests import strategies
from tests.storage.conftest import AnyStore

TENANT = "acme"


class Shelved:
    """A place in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], bytes] = {}

    async def put(self, tenant: str, data: bytes) -> str:
        hash = hashlib.sha256(data).hexdigest()
        self.kept[tenant, hash] = data
        return hash

    async def get(self, tenant: str, hash: str) -> bytes:
        try:
            return self.kept[tenant, hash]
        except KeyError:
            raise BlobMissing(hash) from None

    async def pieces(self, tenant: str, hash: str) -> AsyncIterator[bytes]:
        yield await self.get(tenant, hash)

    async def sizes(self, tenant: str, hashes: Iterable[str]) -> dict[str, int]:
        return {hash: len(self.kept[tenant, hash]) for hash in hashes if (tenant, hash) in self.kept}

    async def delete(self, tenant: str, hash: str) -> None:
        self.kept.pop((tenant, hash), None)

    async def close(self) -> None:
        pass


@given(strategies.bodies | strategies.artifacts, st.integers(0, 8))
async def test_attaching_undoes_detaching(body: Any, threshold: int) -> None:
    place = Shelved()
    parts = LargeParts(place, b"s" * 33, threshold)
    stored, hashes = await parts.detach(TENANT, body)
    text = msgspec.json.encode(stored).decode()
    assert (parts.marker in text) == bool(hashes) == parts.has_large(body)
    assert {hash for _, hash in place.kept} == set(hashes)
    assert not parts.has_large(stored)
    assert (stored is body) == (not hashes)
    assert await parts.attach(TENANT, msgspec.json.decode(text, type=type(body))) == body
    assert hashes or await parts.attach(TENANT, stored) is stored


async def test_small_parts_stay_inline() -> None:
    parts = LargeParts(Shelved(), b"s" * 33)
    small = Artifact(artifact_id="b", parts=(Part(raw=b"x" * THRESHOLD),))
    large = Artifact(artifact_id="a", parts=(Part(raw=b"x" * (THRESHOLD + 1)),))
    assert (await parts.detach(TENANT, small))[0] is small
    stored, _ = await parts.detach(
        TENANT, Task(id="t", status=TaskStatus(state=TaskState.WORKING), artifacts=(large, small))
    )
    assert stored.artifacts[1] is small
    assert (await parts.attach(TENANT, stored)).artifacts[1] is small


async def test_missing_parts_are_reported_after_all_reads() -> None:
    place = Shelved()
    parts = LargeParts(place, b"s" * 33, threshold=1)
    update = ArtifactUpdate(
        task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=(Part(raw=b"one"), Part(raw=b"two")))
    )
    stored, hashes = await parts.detach(TENANT, update)
    await place.delete(TENANT, hashes[0])
    with pytest.raises(BlobMissing, match=hashes[0]):
        await parts.attach(TENANT, stored)


def message(*parts: Part) -> Message:
    return Message(message_id="m", role=Role.USER, parts=parts)


async def test_every_store_has_a_secret_of_its_own_and_keeps_it(store: AnyStore) -> None:
    await schema.upgrade_schema(store)
    place = Shelved()
    opened = await asyncio.gather(*(LargeParts.open(store, place, 1) for _ in range(4)))
    assert len({parts.marker for parts in opened}) == 1
    stored, _ = await opened[0].detach(TENANT, message(Part(raw=b"large")))
    assert (await opened[1].attach(TENANT, stored)).parts[0].raw == b"large"
    stranger = LargeParts(place, os.urandom(33), 1)
    assert stranger.marker not in msgspec.json.encode(stored).decode()
    assert await stranger.attach(TENANT, stored) is stored, "a reference with another secret is nothing but bytes"
