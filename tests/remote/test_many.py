"""Many tasks at once: those that wait hold nothing, and a flood of reports ends them all.

`ACCORD_MANY=10000` runs it in full size.
"""

import asyncio
import gc
import json
from functools import partial
from typing import Any

from accord.http.webhooks import WebhookEndpoint
from accord.model import SendRequest, Task
from accord.remote.flow_reports import WEBHOOK
from accord.testing.asgi import call
from tests.bounds import LONG_SECONDS, bounded
from tests.engine.conftest import ALICE, AT_ONCE, saying
from tests.engine.doubles import BETWEEN_SECONDS, rows, sent, until
from tests.remote.conftest import MANY, Joined, Joining, there

AT_A_TIME = 100


def numbered(request: SendRequest) -> Task:
    return there(id=f"r-{request.message.parts[0].text}")


async def parked(here: Joined, count: int) -> None:
    async def one(number: int) -> None:
        async with room:
            await sent(here.service, saying(str(number), configuration=AT_ONCE), ALICE)

    room = asyncio.Semaphore(AT_A_TIME)
    await asyncio.gather(*(one(number) for number in range(count)))

    async def all_wait() -> bool:
        jobs = await rows(here.store, "job", "kind, node")
        links = await rows(here.store, "remote", "sent")
        waiting = sum(kind == "run" and node is None for kind, node in jobs)
        return bool(waiting == count == sum(number for (number,) in links))

    await until(all_wait)


def token_of(request: SendRequest) -> str:
    assert request.configuration is not None
    assert request.configuration.task_push_notification_config is not None
    return request.configuration.task_push_notification_config.token or ""


@partial(bounded, seconds=LONG_SECONDS + MANY / 5)
async def test_many_suspended_tasks_end_by_a_flood_of_reports(joining: Joining) -> None:
    here = await joining()
    here.peer.answer = numbered
    before = len(asyncio.all_tasks())
    await parked(here, MANY)
    gc.collect()

    async def is_calm() -> bool:
        return len(asyncio.all_tasks()) <= before + 5

    await until(is_calm)  # the last runs have just written that they wait
    assert here.peer.following == 0
    receiver = WebhookEndpoint(here.remotes, most=64)
    refused = 0

    async def report(request: SendRequest) -> None:
        nonlocal refused
        number = request.message.parts[0].text
        body: dict[str, Any] = {"id": f"r-{number}", "kind": "task", "status": {"state": "completed"}}
        body["artifacts"] = [{"artifactId": "a", "parts": [{"kind": "text", "text": f"done {number}"}]}]
        headers = {"authorization": f"Bearer {token_of(request)}"}
        for _ in range(100_000):
            answer = await call(receiver, path=WEBHOOK, headers=headers, body=json.dumps(body).encode())
            if answer.status == 204:
                return
            assert answer.status == 429
            refused += 1
            await asyncio.sleep(BETWEEN_SECONDS)  # as the answer asks for
        raise AssertionError("It was never taken in")

    async def from_one_of_many(request: SendRequest) -> None:
        async with room:
            await report(request)

    room = asyncio.Semaphore(AT_A_TIME)
    twice = [request for request in here.peer.sent for _ in range(2)]
    await asyncio.gather(*(from_one_of_many(request) for request in twice))
    assert refused > 0
    states = await rows(here.store, "task", "state")
    assert states == [("completed",)] * MANY
    kinds = [kind for (kind,) in await rows(here.store, "event", "kind")]
    assert kinds.count("artifact") == MANY
    assert await rows(here.store, "job", "key") == []
