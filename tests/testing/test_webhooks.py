"""The receiver of webhooks: what came, what was refused, and whose signature is good."""

import asyncio

import httpx
import pytest

from accord.model import PushConfig
from accord.protocol import http_headers
from accord.testing import Webhooks, catching, running, scripted
from accord.testing.scripts import artifact, say

KEY = "a key of the server's own"


async def post(hooks: Webhooks, body: bytes = b"{}", **headers: str) -> int:
    async with httpx.AsyncClient(timeout=10) as client:
        answer = await client.post(hooks.url, content=body, headers=headers)
    return answer.status_code


async def test_deliveries_are_recorded_and_verified() -> None:
    async with (
        catching(keys=[KEY]) as hooks,
        running(scripted(say("soon"), artifact("x")), push={"signing_keys": [KEY]}) as a2a,
        a2a.client() as client,
    ):
        handle = await client.start("go", push=PushConfig(url=hooks.url, token="a token"))
        found = await hooks.wait(2)
        assert {one.task_id for one in found} == {handle.id}
        assert all(one.is_signed for one in found)
        assert all(one.headers["x-a2a-notification-token"] == "a token" for one in found)
        assert len({one.event_id for one in found}) == len(found)
        assert "statusUpdate" in found[0].json


async def test_another_signature_is_not_good() -> None:
    async with catching(keys=[KEY]) as hooks:
        now, key = int(hooks._now()), http_headers.receiver_key(KEY, hooks.url)
        for signature in (
            http_headers.sign_webhook(b"{}", now, [key]),
            http_headers.sign_webhook(b"{}", now, [KEY]),
            http_headers.sign_webhook(b"{}", now, [http_headers.receiver_key(KEY, "https://another.example")]),
            http_headers.sign_webhook(b"{}", now, [http_headers.receiver_key(KEY, hooks.url, "another tenant")]),
            http_headers.sign_webhook(b"other", now, [key]),
            http_headers.sign_webhook(b"{}", now - 3600, [key]),
            "",
        ):
            await post(hooks, b"{}", **{http_headers.SIGNATURE_HEADER: signature} if signature else {})
        assert [one.is_signed for one in hooks.all] == [True] + [False] * 6


async def test_failures_can_be_scheduled() -> None:
    async with catching() as hooks:
        hooks.fail(2)
        hooks.fail(status=410)
        assert [await post(hooks) for _ in range(4)] == [503, 503, 410, 200]
        assert [one.status for one in hooks.all] == [503, 503, 410, 200]
        assert len(hooks.taken) == 1


async def test_receivers_can_stay_silent() -> None:
    async with catching() as hooks:
        hooks.hang()
        asked = asyncio.create_task(post(hooks, b"1"))
        (held,) = await hooks.wait_for_any(1)
        assert (held.status, hooks.taken) == (0, [])
        assert await post(hooks, b"2") == 200
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)


async def test_missing_deliveries_are_assertion_errors() -> None:
    async with catching() as hooks:
        hooks.fail(1)
        await post(hooks, b"{}", **{http_headers.EVENT_ID: "t:h:1"})
        with pytest.raises(AssertionError, match=r"In 0\.05 s 2 accepted waited for did not come, but t:h:1 \(503\)"):
            await hooks.wait(2, bound=0.05)
        with pytest.raises(AssertionError, match="did not come, but t:h:1"):
            await hooks.wait_for_any(2, bound=0.05)
        await hooks.until(lambda: hooks.all[-1].status == 503)


async def test_the_receiver_closes_after_the_block() -> None:
    async with catching() as hooks:
        pass
    with pytest.raises(httpx.ConnectError):
        await post(hooks)
