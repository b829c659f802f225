"""Signatures that have been used are known to all, and forgotten with the keys of repeated sends."""

import asyncio

import pytest

from accord.storage.commands import authentication, retention
from accord.storage.store import Tx
from tests.storage.conftest import AnyStore, table

pytestmark = pytest.mark.proves("4-30")


async def test_a_signature_is_used_once_however_many_try(ready: AnyStore) -> None:
    tries = await asyncio.gather(*(ready.do(authentication.use_signature, "d-1", 60_000) for _ in range(10)))
    assert sorted(tries) == [False] * 9 + [True]
    assert await ready.do(authentication.use_signature, "d-2", 60_000)


async def test_it_is_forgotten_when_it_is_good_no_more(ready: AnyStore) -> None:
    await ready.do(authentication.use_signature, "old", 60_000)
    await ready.do(authentication.use_signature, "new", 60_000)

    async def expire(tx: Tx) -> None:
        await tx.run("UPDATE idempotency SET expires_at = 1 WHERE key = 'signature old'")

    await ready.do(expire)
    assert await ready.do(retention.forget_keys, 10) == 1
    assert [row[1] for row in await ready.read(table, "idempotency")] == ["signature new"]


async def test_a_delivery_is_claimed_once_and_has_its_run_until_it_expires(ready: AnyStore) -> None:
    claims = await asyncio.gather(*(ready.do(authentication.claim_signed_delivery, "d", 60_000) for _ in range(10)))
    assert sorted(claims, key=str) == [""] * 9 + [None]
    await ready.do(authentication.put_delivery_run, "d", "run-1", 60_000)
    assert await ready.do(authentication.claim_signed_delivery, "d", 60_000) == "run-1"
    assert await ready.do(authentication.claim_signed_delivery, "other", 60_000) is None

    async def expire(tx: Tx) -> None:
        await tx.run("UPDATE idempotency SET expires_at = 1 WHERE key = 'delivery d'")

    await ready.do(expire)
    assert await ready.do(authentication.claim_signed_delivery, "d", 60_000) is None
