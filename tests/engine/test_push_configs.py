"""Webhooks as callers see them: they are set, read, listed and deleted, each by whom its task belongs to."""

from collections.abc import Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from accord import Context, agent
from accord.a2a import Caller
from accord.engine.webhook_delivery import WebhookDelivery
from accord.errors import AccordError, InvalidParams, PushNotSupported, TaskNotFound
from accord.model import (
    Authentication,
    PushConfig,
    PushDeleteRequest,
    PushFormat,
    PushGetRequest,
    PushListRequest,
    SendConfiguration,
    Task,
)
from accord.service.host import Host
from tests.engine.conftest import ALICE, BOB, Hosting, all_of, saying
from tests.engine.doubles import rows, sent

URL = "https://example.com/hook"
FULL = PushConfig(
    url=URL,
    token="secret",
    authentication=Authentication(scheme="Bearer", credentials="xyz"),
    payload_format=PushFormat.SIMPLE,
    events=("completed",),
)


class Nowhere:
    """A sender that delivers nothing to nobody."""

    def check(self, config: PushConfig) -> None:
        if not config.url.startswith("https:"):
            raise InvalidParams("Only https")

    def form(self, dialect: str) -> PushFormat:
        return PushFormat.TASK

    async def send(self, delivery: WebhookDelivery) -> None: ...


@agent
async def asks(ctx: Context) -> str:
    return f"{await ctx.ask('Well?')}"


@agent
async def asks_twice(ctx: Context) -> str:
    return f"{await ctx.ask('Well?')} {await ctx.ask('And?')}"


@pytest.fixture
async def host(hosting: Hosting) -> Host:
    return await hosting(asks, sender=Nowhere())


@pytest.fixture
async def task(host: Host) -> Task:
    return await sent(host.default, saying("x"), ALICE)


async def ids(host: Host, task: Task, **page: Any) -> list[str | None]:
    """The webhooks of a task."""
    found = await host.default.push_list(PushListRequest(task_id=task.id, **page), ALICE)
    return [config.id for config in found.configs]


async def put(host: Host, task: Task, *names: str) -> None:
    for name in names:
        await host.default.push_set(PushConfig(url=f"{URL}/{name}", id=name, task_id=task.id), ALICE)


@pytest.mark.proves("3-11", "PUSH-CREATE-001", "PUSH-GET-001")
async def test_a_webhook_is_read_back_as_it_was_set(host: Host, task: Task) -> None:
    made = await host.default.push_set(replace(FULL, task_id=task.id), ALICE)
    assert made.id
    assert replace(made, id=None, task_id=None) == FULL
    for id in (made.id, None):
        assert await host.default.push_get(PushGetRequest(task_id=task.id, id=id), ALICE) == made
    other = await host.default.push_set(replace(FULL, task_id=task.id), ALICE)
    assert other.id != made.id


async def test_a_webhook_may_come_with_the_message(host: Host) -> None:
    configuration = SendConfiguration(task_push_notification_config=FULL)
    task = await sent(host.default, saying("x", configuration=configuration), ALICE)
    found = await host.default.push_get(PushGetRequest(task_id=task.id), ALICE)
    assert found.id
    assert found.task_id == task.id
    assert replace(found, id=None, task_id=None) == FULL
    more = SendConfiguration(task_push_notification_config=replace(FULL, id="zz"))
    await host.default.send(saying("good", task_id=task.id, configuration=more), ALICE)
    assert await ids(host, task) == sorted([found.id, "zz"])


@pytest.mark.proves("B-11", "3-40")
async def test_a_webhook_that_comes_with_each_message_is_one_webhook(hosting: Hosting) -> None:
    """It has no name of its own, so it has the task's, by which whoever sets it later in 0.3 replaces it as well."""
    host = await hosting(asks_twice, sender=Nowhere())
    first = SendConfiguration(task_push_notification_config=FULL)
    task = await sent(host.default, saying("x", configuration=first), ALICE)
    moved = SendConfiguration(task_push_notification_config=replace(FULL, url=f"{URL}/moved"))
    await host.default.send(saying("good", task_id=task.id, configuration=moved), ALICE)
    assert await ids(host, task) == [task.id]
    await put(host, task, "0")  # which comes first, but is not the one without a name
    for id in (None, "default"):
        found = await host.default.push_get(PushGetRequest(task_id=task.id, id=id), ALICE)
        assert (found.id, found.url) == (task.id, f"{URL}/moved")


async def test_a_webhook_that_the_sender_would_not_call_is_refused(host: Host, task: Task) -> None:
    bad = replace(FULL, url="ftp://example.com/", task_id=task.id)
    request = saying("x", configuration=SendConfiguration(task_push_notification_config=bad))
    attempts: list[Coroutine[Any, Any, Any]] = [
        host.default.push_set(bad, ALICE),
        host.default.send(request, ALICE),
        all_of(host.default.stream(request, ALICE)),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidParams, match="Only https"):
            await attempt
    assert await ids(host, task) == []
    assert await rows(host.node.store, "task", "id") == [(task.id,)]


@pytest.mark.proves("3-40")
async def test_a_webhook_of_the_same_id_is_replaced(host: Host, task: Task) -> None:
    await put(host, task, "w")
    changed = replace(FULL, id="w", task_id=task.id)
    assert await host.default.push_set(changed, ALICE) == changed
    assert await host.default.push_get(PushGetRequest(task_id=task.id, id="w"), ALICE) == changed
    assert await ids(host, task) == ["w"]
    assert await rows(host.node.store, "task", "pushes") == [(1,)]


@pytest.mark.proves("PUSH-GET-002")
async def test_a_webhook_that_is_not_there_cannot_be_read(host: Host, task: Task) -> None:
    for id in (None, "w"):
        with pytest.raises(TaskNotFound):
            await host.default.push_get(PushGetRequest(task_id=task.id, id=id), ALICE)


@pytest.mark.proves("B-11")
async def test_the_only_webhook_is_also_the_default_one(host: Host, task: Task) -> None:
    """Clients of 0.3 set one without an id and then ask for `default`."""
    default = PushGetRequest(task_id=task.id, id="default")
    with pytest.raises(TaskNotFound):
        await host.default.push_get(default, ALICE)
    made = await host.default.push_set(replace(FULL, task_id=task.id), ALICE)
    assert await host.default.push_get(default, ALICE) == made
    await put(host, task, "a")
    with pytest.raises(TaskNotFound):  # of several, none is meant
        await host.default.push_get(default, ALICE)
    await put(host, task, "default")
    assert (await host.default.push_get(default, ALICE)).url == f"{URL}/default"


@pytest.mark.proves("PUSH-LIST-001")
async def test_webhooks_are_listed_page_by_page(host: Host, task: Task) -> None:
    assert await ids(host, task) == []
    names = ["a", "b", "c", "d", "e"]
    await put(host, task, *reversed(names))
    assert await ids(host, task) == names
    seen: list[str | None] = []
    token = ""
    while True:
        request = PushListRequest(task_id=task.id, page_size=2, page_token=token)
        page = await host.default.push_list(request, ALICE)
        assert len(page.configs) <= 2
        seen += [config.id for config in page.configs]
        if not (token := page.next_page_token):
            break
        await put(host, task, "a")  # what was seen may change
    assert seen == names
    assert await ids(host, task, page_size=5) == names
    with pytest.raises(InvalidParams, match="pageToken"):
        await ids(host, task, page_token="!")


@pytest.mark.proves("PUSH-DEL-001", "PUSH-DEL-002")
async def test_webhooks_are_deleted_by_id_by_url_or_all(host: Host, task: Task) -> None:
    async def delete(**which: str) -> int:
        return await host.default.push_delete(PushDeleteRequest(task_id=task.id, **which), ALICE)

    await put(host, task, "a", "b", "c", "d")
    assert [await delete(id="a"), await delete(id="a")] == [1, 0]
    assert await ids(host, task) == ["b", "c", "d"]
    assert await delete(url=f"{URL}/b") == 1
    assert await delete(id="c", url=f"{URL}/d") == 0
    assert await delete() == 2
    assert await ids(host, task) == []
    assert await rows(host.node.store, "task", "pushes") == [(0,)]


@pytest.mark.proves("AUTH-SCOPE-003")
async def test_foreign_webhooks_look_missing(host: Host, task: Task) -> None:
    await put(host, task, "w")

    def attempts(task_id: str, caller: Caller) -> list[Coroutine[Any, Any, Any]]:
        service = host.default
        return [
            service.push_set(PushConfig(url=URL, id="mine", task_id=task_id), caller),
            service.push_get(PushGetRequest(task_id=task_id, id="w"), caller),
            service.push_list(PushListRequest(task_id=task_id), caller),
            service.push_delete(PushDeleteRequest(task_id=task_id), caller),
        ]

    for caller in (BOB, Caller(tenant="globex", owner="alice"), Caller()):
        for foreign, missing in zip(attempts(task.id, caller), attempts("nothing", caller), strict=True):
            with pytest.raises(TaskNotFound) as seen:
                await foreign
            with pytest.raises(TaskNotFound) as not_there:
                await missing
            assert seen.value.message == not_there.value.message
    assert await ids(host, task) == ["w"]


async def test_without_a_sender_webhooks_are_refused_everywhere(hosting: Hosting) -> None:
    service = (await hosting(asks)).default
    request = saying("x", configuration=SendConfiguration(task_push_notification_config=FULL))
    attempts: list[Coroutine[Any, Any, Any]] = [
        service.send(request, ALICE),
        all_of(service.stream(request, ALICE)),
        service.push_set(replace(FULL, task_id="x"), ALICE),
        service.push_get(PushGetRequest(task_id="x"), ALICE),
        service.push_list(PushListRequest(task_id="x"), ALICE),
        service.push_delete(PushDeleteRequest(task_id="x"), ALICE),
    ]
    for attempt in attempts:
        with pytest.raises(AccordError) as refused:
            await attempt
        assert isinstance(refused.value, PushNotSupported)


async def test_a_webhook_needs_a_task(host: Host) -> None:
    with pytest.raises(TaskNotFound):
        await host.default.push_set(FULL, ALICE)
