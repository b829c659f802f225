"""Webhook delivery: in order and at least once.

Each webhook has a cursor in its task's event log. A failed delivery is retried with backoff and ends as a dead letter.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.engine import tracing
from accord.engine.hooks import Delivered
from accord.engine.node import Node
from accord.engine.task_store import TaskStore
from accord.engine.tracing import UNTRACED, DeliverySpan, Span
from accord.model import ArtifactUpdate, Event, EventBody, MessageUpdate, PushConfig, PushFormat, StatusUpdate, Task
from accord.model import TaskState as S
from accord.protocol import lifecycle
from accord.protocol.codec import invalid_field
from accord.protocol.states import GEN, LOWER, PROTO_03, VAULT
from accord.retries import RetryPolicy
from accord.storage.commands import tasks, webhook_deliveries, webhooks
from accord.storage.commands.tasks import Fenced, StoredTask
from accord.storage.commands.webhook_deliveries import DeliveryLoad
from accord.storage.commands.webhooks import ClaimedWebhook, DeliveryAttempt
from accord.storage.store import StoreUnavailable

ALL = "*"

STATUS = frozenset({"status", "statusupdate", "taskstatus", "task"})
ARTIFACT = frozenset({"artifact", "artifactupdate", "taskartifact"})
MESSAGE = frozenset({"message", "messageupdate", "taskmessage"})
"""The names of each event type, as `_normalized` returns them."""


def _normalized(name: str) -> str:
    """Return a name without case and punctuation: `status-update`, `statusUpdate` and `STATUS_UPDATE` are equal."""
    return "".join(filter(str.isalnum, name.lower())) or name


STATES: Mapping[S, frozenset[str]] = {
    state: frozenset(
        _normalized(name) for name in (LOWER[state], VAULT[state], GEN[state], PROTO_03[state], state.value)
    )
    for state in S
}
"""The names of each state.

Coarser dialects have one name for several: their `failed` is also `rejected` and `unknown`.
"""

_KNOWN = STATUS | ARTIFACT | MESSAGE | {ALL} | frozenset[str]().union(*STATES.values())


def check_events(names: Iterable[str]) -> None:
    """Raise InvalidParams for an unknown event name: a webhook with only such names would never be called."""
    for name in names:
        if _normalized(name) not in _KNOWN:
            raise invalid_field("events", f"Unknown event {name[:40]!r}")


def is_subscribed(event: Event, config: PushConfig) -> bool:
    """Whether a webhook gets an event."""
    if config.events:
        return not _names(event.body).isdisjoint(map(_normalized, config.events))
    if isinstance(event.body, StatusUpdate | Task):
        return True
    return isinstance(event.body, ArtifactUpdate) and config.payload_format is PushFormat.EVENT


def wants_complete_artifacts(config: PushConfig, form: PushFormat) -> bool:
    """Whether a webhook gets artifacts once they are complete. `form` is the body format of its dialect."""
    return not config.events and config.payload_format is None and form is PushFormat.EVENT


def is_last_chunk(event: Event) -> bool:
    """Whether an event is the last chunk of an artifact."""
    return isinstance(event.body, ArtifactUpdate) and event.body.last_chunk


def complete_artifact(event: Event, task: Task) -> Event:
    """Return the last chunk of an artifact as an event with the complete artifact of the task."""
    update = event.body
    assert isinstance(update, ArtifactUpdate)
    id = update.artifact.artifact_id
    complete = next((artifact for artifact in task.artifacts if artifact.artifact_id == id), update.artifact)
    return replace(event, body=replace(update, artifact=complete, append=False))


def _names(body: EventBody) -> frozenset[str]:
    match body:
        case StatusUpdate():
            return STATUS | STATES[body.status.state] | {ALL}
        case Task():  # the rest of a compacted log: the task's last state and all its artifacts
            return STATUS | STATES[body.status.state] | (ARTIFACT if body.artifacts else frozenset()) | {ALL}
        case ArtifactUpdate():
            return ARTIFACT | {ALL}
        case MessageUpdate():
            return MESSAGE | {ALL}
    return frozenset()


CLAIM = 256
"""Maximum number of concurrent deliveries.

`webhook_deliveries.claim_webhooks` shares them between callers and hosts.
"""

HANG_SECONDS = 5.0
"""Seconds without an answer after which a host counts as hung. It then gets one delivery at a time, after a backoff."""

MAX_ATTEMPTS = 12
RETRIES = RetryPolicy(first_seconds=1.0, max_seconds=300.0, attempts=MAX_ATTEMPTS, jitter=(0.5, 1.5))
"""About half an hour of retries."""

MAX_RETRY_AFTER = 3600.0
"""Maximum seconds of a receiver's Retry-After. It never shortens the backoff."""

POLL_SECONDS = 1.0

MAX_HUNG = 10_000
"""Hung hosts to remember before those whose backoff has ended are removed."""

MAX_ERROR = 500

log = logging.getLogger("accord.push")


class WebhookDelivery(Struct, frozen=True, kw_only=True):
    """One event for one webhook, and the task after it. `dialect` is the caller's."""

    tenant: str
    config: PushConfig
    dialect: str
    event: Event
    task: Task
    attempt: int


class ExchangeSide(Struct, frozen=True, kw_only=True):
    """One side of an exchange for display: shortened, and without secrets."""

    headers: dict[str, str] = {}
    body: str = ""


class Exchange(Struct, frozen=True, kw_only=True):
    """The request to a webhook and its response, if it responded."""

    request: ExchangeSide = ExchangeSide()
    response: ExchangeSide = ExchangeSide()
    status: int | None = None


class NotDelivered(Exception):
    """A delivery failed. `is_final` means that a retry is useless.

    `retry_after` is the delay in seconds that the receiver asked for. `sent` is the exchange, if any.
    """

    def __init__(
        self, reason: str, *, is_final: bool = False, retry_after: float | None = None, sent: Exchange | None = None
    ) -> None:
        """Create the error with its reason."""
        super().__init__(reason)
        self.is_final = is_final
        self.retry_after = retry_after
        self.sent = sent or Exchange()
        self.attempt: DeliveryAttempt | None = None


class WebhookSender(Protocol):
    """The interface that sends deliveries to webhooks."""

    def check(self, config: PushConfig) -> None:
        """Raise InvalidParams for a webhook that cannot be called."""

    def form(self, dialect: str) -> PushFormat:
        """Return the default body format of a dialect."""

    async def send(self, delivery: WebhookDelivery) -> Exchange:
        """Send a delivery, or raise NotDelivered."""


class TaskReplay:
    """A task after one event after the other, without later events.

    The first task is read from the store, and later events are folded in. The cost of a delivery depends on the events
    since the last one.
    """

    def __init__(self, task_store: TaskStore, tenant: str) -> None:
        """Create a replay that starts at any event."""
        self._task_store = task_store
        self._tenant = tenant
        self._task: Task | None = None
        self._since: list[Event] = []

    def pass_by(self, event: Event) -> None:
        """Advance past an event."""
        if self._task is not None:
            self._since.append(event)

    async def task(self, stored: StoredTask, event: Event) -> Task:
        """Return the task after the last passed event, or the current task with the event's status if the log is too
        short.
        """
        if self._task is None:
            self._task = await self._task_store.as_of(self._tenant, stored, event.seq)
        else:
            self._task, self._since = lifecycle.fold(self._task, self._since), []
        if self._task is not None:
            return self._task
        present = await self._task_store.unpack(self._tenant, stored)
        return replace(present, status=event.body.status) if isinstance(event.body, StatusUpdate) else present


class WebhookDispatcher:
    """Delivers the webhooks that a node claims."""

    def __init__(
        self,
        node: Node,
        sender: WebhookSender,
        *,
        retries: RetryPolicy | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Deliver through `sender`. `jitter` returns the random numbers of the delays."""
        self._node = node
        self._store = node.store
        self._sender = sender
        self._retries = retries or RETRIES
        self._jitter = jitter
        self._due = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._delivering: dict[asyncio.Task[None], ClaimedWebhook] = {}
        self._hung: dict[tuple[str, str], tuple[int, float]] = {}
        self._is_unsure = False

    def start(self) -> None:
        """Start to claim and deliver."""
        self._node.hub.watch(self._due, "push")
        self._node.hub.observe_restarts(self._note_restart)
        self._loop = asyncio.create_task(self._keep(), name="push")
        self._due.set()

    async def stop(self) -> None:
        """Stop. Another node repeats interrupted deliveries."""
        if self._loop is not None:
            self._node.hub.unobserve_restarts(self._note_restart)
        working = [task for task in (self._loop, *self._delivering) if task is not None]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    def _note_restart(self) -> None:
        """Restart all deliveries from the stored cursors, which are earlier if the store went back in time."""
        self._is_unsure = True
        for delivering in self._delivering:
            delivering.cancel()
        self._due.set()

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            try:
                await self._claim()
            except StoreUnavailable as error:
                log.warning("store.unavailable", extra={"reason": str(error)})
                self._is_unsure = True
            except Exception:  # the node must continue; the error is in the log
                log.exception("push.not_claimed")

    async def _claim(self) -> None:
        if self._is_unsure:  # the last claim may be committed without a delivery
            await self._store.do(webhooks.release, self._node.node_id, list(self._delivering.values()))
            self._is_unsure = False
        while room := CLAIM - len(self._delivering):
            found = await self._store.do(webhook_deliveries.claim_webhooks, self._node.node_id, room, self._load())
            for due in found:
                task = asyncio.create_task(self._deliver(due), name=f"push {due.task_id}")
                self._delivering[task] = due
                task.add_done_callback(self._delivered)
            if not found:
                return

    def _load(self) -> DeliveryLoad:
        now, under_way = time.monotonic(), list(self._delivering.values())
        return DeliveryLoad(
            tenants=Counter(webhooks.tenant_of(due.caller) for due in under_way),
            callers=Counter(due.caller for due in under_way),
            hosts=Counter((due.caller, due.host) for due in under_way),
            resting={key: round((until - now) * 1000) for key, (_, until) in self._hung.items() if until > now},
            hung=frozenset(self._hung),
        )

    def _note_answer(self, due: ClaimedWebhook, begun: float, *, has_answered: bool) -> None:
        """Remember hung hosts. Their webhooks share one backoff."""
        now, host_key = time.monotonic(), (due.caller, due.host)
        if has_answered or now - begun < HANG_SECONDS:
            self._hung.pop(host_key, None)
            return
        times, until = self._hung.get(host_key, (0, 0.0))
        if until <= now:  # concurrent deliveries count as one hang
            self._hung[host_key] = (times + 1, now + self._retries.delay(times + 1, draw=self._jitter))
        if len(self._hung) > MAX_HUNG:
            self._hung = {host_key: (times, until) for host_key, (times, until) in self._hung.items() if until > now}

    def _delivered(self, task: asyncio.Task[None]) -> None:
        del self._delivering[task]
        if not task.cancelled() and (error := task.exception()):
            log.error("push.broke_off", exc_info=error)
        self._due.set()

    async def _deliver(self, due: ClaimedWebhook) -> None:
        """Deliver all events after the cursor in order, and release the webhook."""
        try:
            cursor, replay = due.cursor, TaskReplay(self._node.task_store, due.tenant)
            while found := await self._after(due, cursor):
                stored, events = found
                for event in events:
                    cursor = event.seq
                    replay.pass_by(event)
                    if payload := await self._payload(due, event, stored, replay):
                        attempt = await self._send(due, *payload, stored.trace)
                        due = await self._store.do(webhooks.advance, due, cursor, keeps=True, attempt=attempt)
            await self._store.do(webhooks.advance, due, cursor, keeps=False)
        except Fenced:
            log.info("push.fenced", extra={"task_id": due.task_id})
        except NotDelivered as failure:
            await self._postpone(due, failure)
        except Exception as error:  # a sender may raise anything: release the webhook anyway
            log.exception("push.broke_off", extra={"task_id": due.task_id})
            await self._postpone(due, NotDelivered(f"{type(error).__name__} while delivering"))

    async def _payload(
        self, due: ClaimedWebhook, event: Event, stored: StoredTask, replay: TaskReplay
    ) -> tuple[Event, Task] | None:
        """Return the event that a webhook gets and the task after it, or None if it gets none.

        An artifact may lack its last chunk when the task pauses or ends. A webhook that gets complete artifacts then
        gets the whole task instead of its status.
        """
        wants_complete = wants_complete_artifacts(due.config, self._sender.form(due.dialect))
        if not (is_subscribed(event, due.config) or (wants_complete and is_last_chunk(event))):
            return None
        task = await replay.task(stored, event)
        if wants_complete and is_last_chunk(event):
            return complete_artifact(event, task), task
        if wants_complete and await self._node.task_store.leaves_open(due.tenant, due.task_id, event):
            return replace(event, body=task), task
        return event, task

    async def _after(self, due: ClaimedWebhook, cursor: int) -> tuple[StoredTask, list[Event]] | None:
        """Return the task and its events after the cursor, or None without any.

        A compacted log gives the task as one event.
        """
        task_store = self._node.task_store
        events = await task_store.events(due.tenant, due.task_id, cursor)
        stored = await self._store.read(tasks.read_task, due.tenant, due.task_id)
        if stored is None or stored.last_seq <= cursor:
            return None
        if not events and stored.min_seq > cursor + 1:
            task = await task_store.unpack(due.tenant, stored)
            events = [Event(seq=stored.last_seq, body=task, at=task.status.timestamp)]
        return stored, events  # empty, if they were added between the two reads

    async def _send(self, due: ClaimedWebhook, event: Event, task: Task, trace: str | None) -> DeliveryAttempt:
        tracer = tracing.tracer
        with UNTRACED if tracer is None else tracer.around(_delivering(due, event, trace)) as span:
            return await self._post(due, event, task, span)

    async def _post(self, due: ClaimedWebhook, event: Event, task: Task, span: Span) -> DeliveryAttempt:
        delivery = WebhookDelivery(
            tenant=due.tenant,
            config=self._node.task_store.webhook_secrets.open(due.tenant, due.config),
            dialect=due.dialect,
            event=event,
            task=task,
            attempt=due.attempts + 1,
        )
        at, begun = self._node.now_ms(), time.monotonic()
        error: str | None = None
        try:
            sent = await self._sender.send(delivery)
            self._note_answer(due, begun, has_answered=True)
        except NotDelivered as failure:
            self._note_answer(due, begun, has_answered=failure.sent.status is not None)
            error, sent = str(failure)[:MAX_ERROR], failure.sent
            failure.attempt = _attempt(delivery, at, begun, sent, error)
            _note_end(due, event, error)
            span.note(status=sent.status)
            raise
        finally:
            self._emit(due, event, error)
        _note_end(due, event)
        span.note(status=sent.status)
        return _attempt(delivery, at, begun, sent)

    async def _postpone(self, due: ClaimedWebhook, failure: NotDelivered) -> None:
        failures = due.attempts + 1
        is_dead = failure.is_final or self._retries.is_exhausted(failures)
        seconds = self._retries.delay(failures, draw=self._jitter)
        requested = min(MAX_RETRY_AFTER, failure.retry_after or 0)
        delay = None if is_dead else round(max(seconds, requested) * 1000)
        while True:
            try:
                await self._store.do(webhooks.fail, due, str(failure)[:MAX_ERROR], delay, failure.attempt)
                break
            except Fenced:
                return
            except StoreUnavailable:  # no other node can deliver it meanwhile either
                await asyncio.sleep(POLL_SECONDS)
        if delay is not None:
            asyncio.get_running_loop().call_later(delay / 1000 + 0.002, self._due.set)

    def _emit(self, due: ClaimedWebhook, event: Event, error: str | None) -> None:
        self._node.hooks.emit(
            Delivered(
                tenant=due.tenant,
                task_id=due.task_id,
                agent="",
                config_id=due.id,
                seq=event.seq,
                error=error,
            )
        )


def _note_end(due: ClaimedWebhook, event: Event, error: str | None = None) -> None:
    """Log whether a webhook accepted the end of its task."""
    body = event.body
    if not isinstance(body, Task | StatusUpdate) or body.status.state not in lifecycle.ENDED:
        return
    about = {"task_id": due.task_id, "webhook": due.id, "host": due.host, "state": body.status.state.name}
    if error is None:
        log.info("push.end_delivered", extra=about)
    else:
        log.info("push.end_not_delivered", extra=about | {"reason": error})


def _delivering(due: ClaimedWebhook, event: Event, trace: str | None) -> DeliverySpan:
    return DeliverySpan(task_id=due.task_id, url=due.config.url, seq=event.seq, attempt=due.attempts + 1, trace=trace)


def _attempt(
    delivery: WebhookDelivery, at: int, begun: float, sent: Exchange, error: str | None = None
) -> DeliveryAttempt:
    return DeliveryAttempt(
        seq=delivery.event.seq,
        attempt=delivery.attempt,
        at=at,
        duration_ms=round((time.monotonic() - begun) * 1000),
        status=sent.status,
        error=error,
        detail=msgspec.json.encode((sent.request, sent.response)).decode(),
    )
