"""Webhooks as their receivers get them: over real HTTP on loopback, in every dialect, whatever the receiver does."""

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from accord import Context, agent
from accord.engine import webhook_delivery
from accord.engine.webhook_delivery import NotDelivered, WebhookDelivery
from accord.errors import InvalidParams
from accord.http.webhooks import HttpWebhookSender
from accord.model import (
    Artifact,
    Authentication,
    Event,
    Part,
    PushConfig,
    PushFormat,
    SendConfiguration,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.outbound import HttpSession, Policy
from accord.protocol import http_headers
from accord.protocol.dialects import DIALECTS, decode_webhook
from accord.protocol.operations import DialectName
from accord.storage.commands import webhooks
from tests.engine.conftest import ALICE, Hosting, bounded, hosting, postgres, saying, states
from tests.engine.doubles import rows, sent, until
from tests.outbound.conftest import Listening, listening
from tests.outbound.test_session import Names, begun, endless

__all__ = ["hosting", "listening", "postgres"]

S = TaskState
AT = 1_700_000_000
DEVELOPMENT = Policy(allow_private=True)

STATUS = TaskStatus(state=S.COMPLETED, timestamp="2026-01-01T00:00:00.000Z")
TASK = Task(
    id="t-1",
    context_id="c-1",
    status=STATUS,
    artifacts=(Artifact(artifact_id="a-1", parts=(Part(text="the answer"),)),),
)
EVENT = Event(seq=7, body=StatusUpdate(task_id="t-1", context_id="c-1", status=STATUS))


class Receiver:
    """A webhook that keeps what it gets, and answers as a test wants it."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.answers: Callable[[int], web.StreamResponse] = lambda _: web.Response()
        self.gate = asyncio.Event()
        self.gate.set()
        self._more = asyncio.Event()

    async def receive(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.got.append(request)
        self._more.set()
        await self.gate.wait()
        return self.answers(len(self.got))

    async def until(self, check: Callable[[], bool]) -> None:
        while not check():
            self._more.clear()
            await self._more.wait()

    def states(self) -> list[TaskState]:
        """The states that it was told."""
        bodies = [decode_webhook(body) for body in self.bodies]
        return [body.status.state for body in bodies if isinstance(body, StatusUpdate | Task)]

    def headers(self, name: str) -> list[str | None]:
        return [request.headers.get(name) for request in self.got]


Receiving = Callable[[], Coroutine[Any, Any, Receiver]]


@pytest.fixture
async def receiving() -> AsyncIterator[Receiving]:
    """A function that opens a webhook on loopback."""
    async with AsyncExitStack() as stack:

        async def receive() -> Receiver:
            receiver, app = Receiver(), web.Application(client_max_size=2**24)
            app.router.add_post("/hook", receiver.receive)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            stack.callback(receiver.gate.set)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook?a=b"
            return receiver

        yield receive


@pytest.fixture
async def receiver(receiving: Receiving) -> Receiver:
    return await receiving()


@pytest.fixture
async def sender() -> AsyncIterator[HttpWebhookSender]:
    """A sender that may reach this machine, and whose clock stands still."""
    async with HttpSession.strict(DEVELOPMENT, total_seconds=10) as outbound:
        yield HttpWebhookSender(outbound, keys=["server-key"], clock=lambda: AT + 0.9)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let retries follow soon."""
    monkeypatch.setattr(webhook_delivery, "RETRIES", replace(webhook_delivery.RETRIES, first_seconds=0.02))
    monkeypatch.setattr(webhook_delivery, "POLL_SECONDS", 0.1)


def delivery(url: str, dialect: DialectName | str = "v1", **fields: Any) -> WebhookDelivery:
    """One event for a webhook."""
    config = PushConfig(url=url, **{"id": "w-1", "task_id": "t-1", **fields})
    return WebhookDelivery(tenant="acme", config=config, dialect=f"{dialect}", event=EVENT, task=TASK, attempt=1)


# --- what is sent -------------------------------------------------------------------------------------------------

SHAPES: dict[DialectName, tuple[str, Callable[[Any], Any], Any]] = {
    DialectName.V1: (
        "application/a2a+json",
        lambda body: body["statusUpdate"]["status"]["state"],
        "TASK_STATE_COMPLETED",
    ),
    DialectName.V03: ("application/json", lambda body: (body["kind"], body["status"]["state"]), ("task", "completed")),
    DialectName.VAULT: ("application/json", lambda body: body["state"], "COMPLETED"),
    DialectName.GEN: ("application/json", lambda body: (body["task_id"], body["status"]), ("t-1", "completed")),
    DialectName.RELAY: ("application/json", lambda body: body["artifacts"][0]["parts"][0]["type"], "text"),
}


@pytest.mark.proves("B-10", "PUSH-DELIVER-003")
@pytest.mark.parametrize("dialect", list(DialectName))
@bounded
async def test_a_webhook_gets_the_body_of_its_dialect(
    dialect: DialectName, sender: HttpWebhookSender, receiver: Receiver
) -> None:
    await sender.send(delivery(receiver.url, dialect.value))
    media_type, looks, found = SHAPES[dialect]
    assert receiver.headers("Content-Type") == [media_type]
    assert looks(json.loads(receiver.bodies[0])) == found
    assert receiver.states() == [S.COMPLETED]
    (request,) = receiver.got
    assert (request.method, request.path_qs) == ("POST", "/hook?a=b")
    assert str(request.headers["User-Agent"]).startswith("accord/")


@pytest.mark.proves("B-10", "0-32")
@pytest.mark.parametrize("dialect", list(DialectName))
@bounded
async def test_a_webhook_may_ask_for_another_form(
    dialect: DialectName, sender: HttpWebhookSender, receiver: Receiver
) -> None:
    for form in PushFormat:
        await sender.send(delivery(receiver.url, dialect.value, payload_format=form))
    found = dict(zip(PushFormat, receiver.bodies, strict=True))
    assert json.loads(found[PushFormat.SIMPLE]) == {"taskId": "t-1", "status": "completed", "result": "the answer"}
    assert receiver.headers("Content-Type")[list(PushFormat).index(PushFormat.SIMPLE)] == "application/json"
    told = {form: type(decode_webhook(body)) for form, body in found.items()}
    assert told[PushFormat.TASK] is told[PushFormat.SIMPLE] is Task
    assert told[PushFormat.EVENT] is StatusUpdate


@bounded
async def test_a_webhook_without_a_dialect_gets_the_model_s_own(sender: HttpWebhookSender, receiver: Receiver) -> None:
    await sender.send(delivery(receiver.url, ""))
    assert receiver.bodies == [DIALECTS[DialectName.V1].encode_push(EVENT, TASK)]


@pytest.mark.proves("B-09", "0-29", "3-12", "PUSH-DELIVER-001")
@pytest.mark.parametrize("scheme", ["Bearer", "Basic", "ApiKey"])
@bounded
async def test_a_webhook_is_called_with_its_credentials(
    scheme: str, sender: HttpWebhookSender, receiver: Receiver
) -> None:
    authentication = Authentication(scheme=scheme, credentials="Y3JlZA==")
    await sender.send(delivery(receiver.url, token="t0ken", authentication=authentication))
    await sender.send(delivery(receiver.url, token="t0ken"))
    await sender.send(delivery(receiver.url))
    assert receiver.headers("Authorization") == [f"{scheme} Y3JlZA==", "Bearer t0ken", None]
    assert receiver.headers("X-A2A-Notification-Token") == ["t0ken", "t0ken", None]
    assert receiver.headers("X-A2A-Task-Id") == ["t-1"] * 3
    assert receiver.headers("X-A2A-Event-Id") == ["t-1:w-1:7"] * 3


@pytest.mark.proves("B-09", "4-30")
@bounded
async def test_webhooks_are_signed_with_every_valid_key(sender: HttpWebhookSender, receiver: Receiver) -> None:
    await sender.send(delivery(receiver.url, token="t0ken"))
    signed = b"%d." % AT + receiver.bodies[0]
    derived = http_headers.receiver_key("server-key", receiver.url, "acme").encode()
    server, own = (hmac.new(key, signed, hashlib.sha256).hexdigest() for key in (derived, b"t0ken"))
    assert receiver.headers("X-A2A-Signature") == [f"t={AT},v1={server},v1={own}"]


@bounded
async def test_without_any_key_nothing_is_signed(receiver: Receiver) -> None:
    async with HttpSession.strict(DEVELOPMENT) as outbound:
        await HttpWebhookSender(outbound).send(delivery(receiver.url))
    assert receiver.headers("X-A2A-Signature") == [None]


@bounded
async def test_a_large_task_is_sent_whole(sender: HttpWebhookSender, receiver: Receiver) -> None:
    part = Part(text="x" * 3_000_000)
    task = replace(TASK, artifacts=(Artifact(artifact_id="a-1", parts=(part,)),))
    await sender.send(replace(delivery(receiver.url, "v03"), task=task))
    assert json.loads(receiver.bodies[0])["artifacts"][0]["parts"][0]["text"] == part.text


# --- what the receiver answers ------------------------------------------------------------------------------------


@pytest.mark.proves("C-13")
@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
@bounded
async def test_any_2xx_is_a_delivery(status: int, sender: HttpWebhookSender, receiver: Receiver) -> None:
    receiver.answers = lambda _: web.Response(status=status)
    await sender.send(delivery(receiver.url))
    assert len(receiver.got) == 1


@pytest.mark.proves("C-13")
@pytest.mark.parametrize("status", [301, 304, 308, 400, 401, 403, 404, 405, 408, 410, 422, 425, 429, 500, 503, 599])
@bounded
async def test_other_statuses_fail_and_only_gone_is_final(
    status: int, sender: HttpWebhookSender, receiver: Receiver
) -> None:
    receiver.answers = lambda _: web.Response(status=status, text="internal details")
    with pytest.raises(NotDelivered) as failure:
        await sender.send(delivery(receiver.url))
    assert failure.value.is_final == (status == 410)
    assert str(failure.value) == f"The webhook answers {status}"


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("Tue, 14 Nov 2023 22:15:00 GMT", 99),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
        ("9" * 400, 24 * 3600),
        ("Tue, 99 Nov 2023 22:15:00 GMT", None),
    ],
)
@bounded
async def test_receivers_can_send_retry_after(
    stated: str, seconds: int | None, sender: HttpWebhookSender, receiver: Receiver
) -> None:
    receiver.answers = lambda _: web.Response(status=429, headers={"Retry-After": stated})
    with pytest.raises(NotDelivered) as failure:
        await sender.send(delivery(receiver.url))
    assert failure.value.retry_after == seconds


@pytest.mark.proves("B-18")
@bounded
async def test_a_redirect_is_not_followed(sender: HttpWebhookSender, receiving: Receiving) -> None:
    outside, inside = await receiving(), await receiving()
    outside.answers = lambda _: web.Response(status=307, headers={"Location": inside.url})
    with pytest.raises(NotDelivered, match="307"):
        await sender.send(delivery(outside.url, token="t0ken"))
    assert inside.got == []


@pytest.mark.parametrize("speaks", [endless, begun], ids=["a body without end", "a body that does not come"])
@bounded
async def test_receiver_bodies_are_not_awaited(speaks: Any, sender: HttpWebhookSender, listening: Listening) -> None:
    listener = await listening(speaks)
    await sender.send(delivery(f"http://127.0.0.1:{listener.port}/"))
    assert listener.connections == 1


@bounded
async def test_a_receiver_that_hangs_is_given_up_and_tried_again(receiver: Receiver) -> None:
    receiver.gate.clear()
    async with HttpSession.strict(DEVELOPMENT, total_seconds=0.2) as outbound:
        with pytest.raises(NotDelivered, match="in time") as failure:
            await HttpWebhookSender(outbound).send(delivery(receiver.url))
    assert not failure.value.is_final


# --- what is never called -----------------------------------------------------------------------------------------


@pytest.mark.proves("B-18")
@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::a00:1"]
)
@bounded
async def test_private_addresses_look_like_unknown_hosts(address: str) -> None:
    async def nowhere(_: str) -> list[str]:
        raise OSError("no such name")

    seen = []
    for resolve in (Names([address]), nowhere):
        async with HttpSession.strict(resolve=resolve) as outbound:
            with pytest.raises(NotDelivered) as failure:
                await HttpWebhookSender(outbound).send(delivery("https://hooks.example.com/"))
        seen.append((str(failure.value), failure.value.is_final, failure.value.sent.status))
    assert seen == [("The host's name has no public address", False, None)] * 2


@pytest.mark.proves("B-18")
@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1/", "https://0x7f.1/", "http://example.com/", "https://a@b.example/", "file:///etc/passwd"],
)
@bounded
async def test_a_hostile_address_is_refused_when_set_and_when_sent(url: str) -> None:
    async with HttpSession.strict() as outbound:
        sender = HttpWebhookSender(outbound)
        with pytest.raises(InvalidParams) as refused:
            sender.check(PushConfig(url=url))
        assert refused.value.violations[0].field == "url"
        with pytest.raises(NotDelivered) as failure:
            await sender.send(delivery(url))
        assert failure.value.is_final


@pytest.mark.parametrize(
    "fields",
    [
        {"token": "a\r\nX-Evil: 1"},
        {"token": "жетон"},
        {"authentication": Authentication(scheme="Bearer", credentials="a\nb")},
        {"authentication": Authentication(scheme="Bearer\r\nX-Evil: 1", credentials="a")},
    ],
)
@bounded
async def test_invalid_header_values_are_refused_when_set(
    fields: dict[str, Any], sender: HttpWebhookSender, receiver: Receiver
) -> None:
    with pytest.raises(InvalidParams):
        sender.check(PushConfig(url=receiver.url, **fields))
    with pytest.raises(NotDelivered) as failure:
        await sender.send(delivery(receiver.url, **fields))
    assert failure.value.is_final
    assert receiver.got == []


# --- from a task to its webhook -----------------------------------------------------------------------------------


@agent
async def tells(ctx: Context) -> AsyncIterator[str]:
    yield "one "
    await ctx.status("half way")
    yield "two"


def with_hook(receiver: Receiver, **fields: Any) -> Any:
    config = PushConfig(url=receiver.url, id="w", **fields)
    return saying("x", configuration=SendConfiguration(task_push_notification_config=config))


@pytest.mark.proves("C-13", "3-12", "3-43")
@pytest.mark.usefixtures("impatient")
@bounded
async def test_deliveries_are_ordered_and_retried(
    hosting: Hosting, sender: HttpWebhookSender, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.answers = lambda count: web.Response(status=500 if count in (1, 2, 4) else 200)
    host = await hosting(tells, sender=sender)
    task = await sent(host.default, with_hook(receiver, token="t0ken-s3cret"), ALICE)
    await receiver.until(lambda: len(receiver.got) == 7)
    assert receiver.states() == [S.WORKING] * 5 + [S.COMPLETED]
    assert receiver.headers("X-A2A-Event-Id") == [f"{task.id}:w:{seq}" for seq in (1, 1, 1, 3, 3, 4, 5)]
    assert len(set(receiver.bodies[:3])) == 1
    assert set(receiver.headers("Authorization")) == {"Bearer t0ken-s3cret"}
    assert "s3cret" not in caplog.text


@bounded
async def test_gone_receivers_wait_for_redelivery(
    hosting: Hosting, sender: HttpWebhookSender, receiver: Receiver
) -> None:
    receiver.answers = lambda count: web.Response(status=410 if count == 1 else 200)
    host = await hosting(tells, sender=sender)
    task = await sent(host.default, with_hook(receiver), ALICE)

    async def is_dead() -> bool:
        found = await host.node.store.read(webhooks.list_statuses, "dead", task.id, 10)
        return [webhook.last_error for webhook in found] == ["The webhook answers 410"]

    await until(is_dead)
    assert len(receiver.got) == 1
    assert await host.node.store.do(webhooks.redeliver_dead) == 1
    await receiver.until(lambda: len(receiver.got) == 5)
    assert receiver.states()[1:] == [S.WORKING, S.WORKING, S.COMPLETED]


@pytest.mark.proves("C-13")
@bounded
async def test_a_webhook_that_hangs_holds_up_no_stream_and_no_other_webhook(
    hosting: Hosting, sender: HttpWebhookSender, receiving: Receiving
) -> None:
    hanging, quick = await receiving(), await receiving()
    hanging.gate.clear()
    host = await hosting(tells, sender=sender)
    events = [event async for event in host.default.stream(with_hook(hanging), ALICE)]
    assert states(events)[-1] is S.COMPLETED
    await hanging.until(lambda: len(hanging.got) == 1)
    await sent(host.default, with_hook(quick), ALICE)
    await quick.until(lambda: S.COMPLETED in quick.states())
    assert len(hanging.got) == 1
    hanging.gate.set()
    await hanging.until(lambda: S.COMPLETED in hanging.states())
    assert hanging.states() == [S.WORKING, S.WORKING, S.COMPLETED]


@pytest.mark.proves("B-18")
@bounded
async def test_a_hostile_webhook_is_refused_by_the_service(hosting: Hosting) -> None:
    async with HttpSession.strict() as outbound:
        host = await hosting(tells, sender=HttpWebhookSender(outbound))
        task = await sent(host.default, saying("x"), ALICE)
        with pytest.raises(InvalidParams, match="loopback"):
            await host.default.push_set(PushConfig(url="https://127.0.0.1/", task_id=task.id), ALICE)
        config = PushConfig(url="https://example.com/", token="a\nb")
        request = saying("y", configuration=SendConfiguration(task_push_notification_config=config))
        with pytest.raises(InvalidParams, match="token"):
            await host.default.send(request, ALICE)
        assert await rows(host.node.store, "push", "id") == []
