"""One execution of a remote task: send messages, recover doubtful ones.

All state is in the link. The intent to send a message is stored before it is sent, so that no execution sends anything
twice. A message that is not found may still have been accepted, because lists lag, leave the history out, or are cut
short. `task_updates` reads and waits.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NoReturn, cast
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec.structs import replace

from accord.agents.remote import CardOffer, ReportMode
from accord.agents.remote.connection import NO_ANSWER, NotReachable, RemotePeer, RemoteResources
from accord.agents.remote.task_updates import NOT_OFFERED, RETRY, TaskUpdates
from accord.api import Context, Failed
from accord.api.remote import RemoteLink, Report, patiently, poll_signal, unsent_message
from accord.client.peer import Unconfirmed
from accord.client.retries import was_not_accepted
from accord.errors import (
    AccordError,
    AuthenticationFailed,
    ContentTypeNotSupported,
    ExtensionSupportRequired,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    PermissionDenied,
    PushNotSupported,
    RequestTimeout,
    TaskNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
from accord.model import (
    Event,
    GetRequest,
    Message,
    PushConfig,
    SendConfiguration,
    SendRequest,
    Task,
    TaskFilter,
    TaskState,
)
from accord.model.base import Metadata
from accord.model.metadata_keys import BUDGET
from accord.model.requests import MAX_PAGE_SIZE
from accord.outbound import TimedOut
from accord.protocol import lifecycle
from accord.protocol.budgets import budget_metadata
from accord.protocol.extensions import TaskRoute, route_of

SEARCHES = 5
"""Number of searches for a message before waiting for it; about half a minute, for lists that lag."""

PAGES = 10
"""Maximum number of pages in one search; the message is new, and lists start with new tasks."""

CANDIDATES = 20
"""Maximum number of tasks without a history that are read one by one, because some lists leave it out."""

DELIVERY_UNKNOWN = "It is not known whether the remote agent got the message, so it is not sent again"

REFUSALS = (
    AuthenticationFailed,
    ContentTypeNotSupported,
    ExtensionSupportRequired,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    PermissionDenied,
    PushNotSupported,
    TaskNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
"""Errors of an agent, or of a gateway in front of it, that has read a message and does not accept it."""

WEBHOOK_WORDS = ("push", "webhook", "callback", "url", "https")


def is_refusal(error: AccordError) -> bool:
    """Whether an error means that the message was not accepted and will not be. After a timeout it may have been."""
    return isinstance(error, REFUSALS) and not isinstance(error, RequestTimeout)


def is_about_webhook(error: Exception, request: SendRequest) -> bool:
    """Whether a message was refused because of its webhook, so that it can be sent without one."""
    if request.configuration is None or request.configuration.task_push_notification_config is None:
        return False
    if isinstance(error, InvalidParams | PermissionDenied):
        text = " ".join((error.message, *(f"{field} {why}" for field, why in error.violations))).lower()
        return any(word in text for word in WEBHOOK_WORDS)
    return isinstance(error, PushNotSupported)


async def find_task(peer: RemotePeer, link: RemoteLink, message_id: str) -> Task | None:
    """Return the task that contains our message, or None if the agent does not show one."""
    if link.remote_id is not None:
        task = await peer.get(GetRequest(id=link.remote_id))
        return task if _has_taken(task, message_id) else None
    # The agent's context id is known only after its first answer; until then it may be any.
    return await _find_in_list(peer, link.context_id, message_id) or await _find_in_list(peer, None, message_id)


async def _find_in_list(peer: RemotePeer, context_id: str | None, message_id: str) -> Task | None:
    token: str | None = None
    read = 0
    for _ in range(PAGES):
        query = TaskFilter(
            context_id=context_id, page_size=MAX_PAGE_SIZE, history_length=MAX_PAGE_SIZE, page_token=token
        )
        page = await peer.list(query)
        for task in page.tasks:
            if not task.history and read < CANDIDATES:
                read += 1
                whole = await peer.get(GetRequest(id=task.id))
                if _has_message(whole, message_id):
                    return whole
            elif _has_message(task, message_id):
                return await peer.get(GetRequest(id=task.id))  # a list leaves the artifacts out
        token = page.next_page_token or None
        if token is None:
            break
    return None


def _has_taken(task: Task, message_id: str) -> bool:
    """Whether a task has received its answer. Without a history, whether its state has changed since."""
    if task.history:
        return _has_message(task, message_id)
    return task.status.state not in lifecycle.INTERRUPTED


def _has_message(task: Task, message_id: str) -> bool:
    return any(message.message_id == message_id for message in task.history)


LEAST_SECONDS = 0.001
"""Shortest time that a message states, in seconds; this server itself detects a deadline that has passed."""

UNLIMITED = sys.maxsize
"""Retries of a message that is safe to send again; the SLA limits them instead."""

log = logging.getLogger("accord.remote")


class RemoteExecution(TaskUpdates):
    """One execution of a remote task."""

    def __init__(self, ctx: Context, resources: RemoteResources, run_id: str) -> None:
        """Send for the task of `ctx`; `run_id` distinguishes this execution from others."""
        super().__init__(ctx, resources)
        self._run_id = run_id
        self._is_answered = self._is_stopped = False

    async def run_until_suspended(self) -> NoReturn:
        """Handle the link's state until the task is suspended. A report ends the task; this never returns normally."""
        while True:
            link, state = await self._read_link()
            if state in lifecycle.TERMINAL:
                await self._suspend(None)
            elif (message := unsent_message(link, self._ctx.history)) is not None:
                await self._send_unless_sent(link, message)
            elif link.asks > link.looked:
                await self._handle_request(link)
            elif state in lifecycle.INTERRUPTED:
                await self._suspend(link)  # for the caller, whose answer has no time limit
            elif state is TaskState.UNKNOWN:
                await self._poll_given_up(link)
            else:
                await self._wait(link)

    # --- sending --------------------------------------------------------------------------------------------------

    async def _send_unless_sent(self, link: RemoteLink, message: Message) -> None:
        """Send a message, unless this execution or an earlier one may have done so."""
        number = link.sent + 1
        if number == 1 and link.remote_id is not None:  # an agent that has the message's token has received the message
            await self._write_link(replace(link, sent=1, tries=0))
            return
        attempt = f"send:{number}:{link.tries}"
        before = self._ctx.kept(attempt)
        try:
            peer = await self._resources.connection.peer()
        except NO_ANSWER as error:
            link, _ = await self._expect_reports(link, None)
            await (self._send_later(link, error) if before is None else self._wait_in_doubt(link, searches=UNLIMITED))
            return
        message = replace(message, metadata=await self._metadata(message, number))
        request = self._request(link, message, number, CardOffer.of(peer.card))
        if before is not None and not peer.is_idempotent:
            await self._recover(peer, link, request)
            return
        if number == 1:
            mode = CardOffer.of(peer.card).mode(self._terms, may_push=self._resources.may_push)
            link, push = await self._expect_reports(link, mode)
            request = _with_push(request, push)
        if await self._ctx.keep(attempt, self._run_id) == self._run_id or peer.is_idempotent:
            await self._send(peer, link, request)

    def _request(self, link: RemoteLink, message: Message, number: int, offer: CardOffer) -> SendRequest:
        """Return a message in the form that is sent, the same each time."""
        ctx = self._ctx
        identity = f"{ctx.tenant}\n{ctx.task_id}\n{number}"
        sent_message = replace(
            message,
            message_id=str(uuid5(NAMESPACE_URL, identity)),
            context_id=link.context_id,
            task_id=link.remote_id if number > 1 else None,
            reference_task_ids=(),
        )
        configuration = SendConfiguration(return_immediately=True, accepted_output_modes=offer.output_modes)
        return SendRequest(message=sent_message, configuration=configuration)

    async def _metadata(self, message: Message, number: int) -> Metadata:
        """Return a message's metadata with the task's route and its remaining budget and time.

        The values at the first attempt are stored, because a message that is sent again must be the same.
        """
        ctx, remotes = self._ctx, self._remotes
        route = (route_of(ctx.history) or TaskRoute()).after(f"{remotes.server_id}/{self._resources.name}")
        metadata = route.added_to(message.metadata)
        key = f"limits:{number}"
        stored = ctx.kept(key)
        if stored is None:
            budget = await patiently(lambda: remotes.remaining_budget(ctx.tenant, ctx.task_id))
            limits = (budget_metadata(budget) or {}).get(BUDGET, {})
            if ctx.deadline is not None:
                limits["deadline"] = max(LEAST_SECONDS, round(ctx.deadline - remotes.now_ms() / 1000, 3))
            if not limits and BUDGET not in metadata:
                return metadata
            stored = await ctx.keep(key, msgspec.json.encode(limits).decode())
        return {**metadata, BUDGET: msgspec.json.decode(stored)}

    async def _expect_reports(self, link: RemoteLink, mode: ReportMode | None) -> tuple[RemoteLink, PushConfig | None]:
        """Store the mode of reporting. A webhook has a new token, whose hash is stored before its use."""
        expected = replace(link, mode=None if mode is None else mode.value)
        with_token = mode is ReportMode.PUSH
        tenant = self._ctx.tenant
        link, token = await patiently(lambda: self._remotes.prepare_link(tenant, expected, with_token=with_token))
        return link, PushConfig(url=self._terms.webhook or "", token=token) if with_token else None

    async def _send(self, peer: RemotePeer, link: RemoteLink, request: SendRequest) -> None:
        """Send, and store the answer even if this execution is stopped meanwhile.

        Otherwise the answer would be lost.
        """
        exchange = asyncio.create_task(self._exchange(peer, link, request), name=f"send {link.task_id}")
        self._resources.sending.add(exchange)
        exchange.add_done_callback(self._resources.sending.discard)
        exchange.add_done_callback(lambda task: task.cancelled() or task.exception())  # marks it as retrieved
        try:
            state = await asyncio.shield(exchange)
        except asyncio.CancelledError:
            self._is_stopped = True
            if self._is_answered:
                exchange.cancel()
                await asyncio.gather(exchange, return_exceptions=True)
            raise
        except NO_ANSWER as error:
            await self._handle_error(peer, link, request, error)
        else:
            self._resources.connection.answered()
            await self._suspend_if_ended(state)

    async def _handle_error(self, peer: RemotePeer, link: RemoteLink, request: SendRequest, error: Exception) -> None:
        self._resources.connection.fault(error)
        if is_about_webhook(error, request):
            log.warning("remote.no_webhook", extra={"agent": link.agent, "reason": str(error)})
            self._resources.may_push = False
            await self._write_link(replace(link, tries=link.tries + 1))
        elif was_not_accepted(error):
            await self._send_later(link, error)
        elif isinstance(error, AccordError) and is_refusal(error):
            await self._refused(peer, link, error)
        else:
            await self._recover(peer, link, request, error)

    async def _exchange(self, peer: RemotePeer, link: RemoteLink, request: SendRequest) -> TaskState:
        is_first = request.message.task_id is None
        if is_first and link.mode == ReportMode.SUBSCRIBE.value and not self._resources.streams.locked():
            return await self._stream(peer, link, request)
        answer = await peer.send(request)
        return await self._report(Report(body=answer, sent=link.sent + 1))

    async def _stream(self, peer: RemotePeer, link: RemoteLink, request: SendRequest) -> TaskState:
        """Send, and relay the stream. Its first event is the answer; after a later break the link is read again."""
        is_numbered = CardOffer.of(peer.card).numbers_events
        events = cast("AsyncGenerator[Event]", peer.stream(request))
        async with self._resources.streams, aclosing(events) as stream:
            try:
                async with asyncio.timeout(self._terms.answer_seconds):
                    first = await anext(stream)
            except TimeoutError:
                raise TimedOut(f"Nothing within {self._terms.answer_seconds:g} seconds", was_sent=True) from None
            seq = first.seq if is_numbered and not isinstance(first.body, Task) else None
            state = await self._report(Report(body=first.body, seq=seq, sent=link.sent + 1))
            self._is_answered = True
            if self._is_stopped or state in lifecycle.ENDED | lifecycle.INTERRUPTED:
                return state
            try:
                async with asyncio.timeout(self._terms.sla_seconds):
                    await self._relay(stream, is_numbered)
            except (*NO_ANSWER, TimeoutError) as error:
                log.info("remote.stream_ended", extra={"task_id": link.task_id, "reason": str(error)})
        return (await self._read_link())[1]

    async def _send_later(self, link: RemoteLink, error: Exception) -> None:
        """Retry a message later that certainly did not arrive."""
        tries = link.tries + 1
        self._resources.connection.fault(error)
        log.warning("remote.not_reached", extra={"agent": link.agent, "tries": tries, "reason": str(error)})
        if isinstance(error, NotReachable) and link.sent == 0:
            raise Failed(f"The remote agent cannot be used: {error}")
        if tries >= self._terms.sends:
            raise Failed(f"The remote agent could not be reached: {error}")
        await self._write_link(replace(link, tries=tries))
        seconds = self._terms.send_seconds(link.tries)
        if isinstance(error, AccordError) and error.retry_after is not None:
            seconds = max(seconds, min(error.retry_after, self._terms.sla_seconds))
        await self._ctx.pause(seconds)

    async def _refused(self, peer: RemotePeer, link: RemoteLink, error: AccordError) -> None:
        """Fail if the first message is refused. A refused answer changes nothing, and is reported to the caller."""
        if link.sent == 0:
            raise Failed(f"The remote agent refused the message: {error.message}")
        log.warning("remote.refused", extra={"agent": link.agent, "reason": error.message})
        await self._write_link(replace(link, sent=link.sent + 1))
        await self._ctx.status(f"The remote agent did not take the message: {error.message}")
        await self._ctx.flush()
        try:
            task = await peer.get(GetRequest(id=link.remote_id or ""))
        except NO_ANSWER as failed:
            log.info("remote.not_read", extra={"task_id": link.task_id, "reason": str(failed)})
        else:
            await self._suspend_if_ended(await self._report(Report(body=task, insists=True)))

    # --- unknown deliveries ---------------------------------------------------------------------------------------

    async def _recover(
        self, peer: RemotePeer, link: RemoteLink, request: SendRequest, error: Exception | None = None
    ) -> None:
        """Search for a message that may have been accepted; it is never sent twice on a guess."""
        latest, _ = await self._read_link()
        if latest.sent > link.sent or (latest.sent == 0 and latest.remote_id is not None):
            return
        searches = UNLIMITED if peer.is_idempotent else SEARCHES
        try:
            if isinstance(error, Unconfirmed) and error.task_id is not None:
                task: Task | None = await peer.get(GetRequest(id=error.task_id))
            else:
                task = await find_task(peer, latest, request.message.message_id)
        except NO_ANSWER as failed:
            log.info("remote.not_asked", extra={"agent": link.agent, "reason": str(failed)})
            task = None
            if isinstance(failed, NOT_OFFERED) and not peer.is_idempotent:
                searches = 0
        if task is not None:
            await self._suspend_if_ended(await self._report(Report(body=task, sent=link.sent + 1)))
        else:
            await self._wait_in_doubt(latest, searches=searches)

    async def _wait_in_doubt(self, link: RemoteLink, *, searches: int) -> None:
        """Search again soon, then wait for a webhook, and finally give the task up as unknown.

        `searches` is the maximum number of searches. An agent that detects duplicates receives the message each time.
        It is retried until the SLA ends. The same applies to an agent that cannot be reached. Only a person may have
        the message sent again, at the risk that it is executed twice.
        """
        request = self._ctx.handed_in(poll_signal(link.asks)) if link.asks > link.looked else None
        if request == RETRY:
            log.warning("remote.message_sent_again", extra={"task_id": link.task_id, "agent": link.agent})
            await self._write_link(replace(link, tries=link.tries + 1, looked=link.asks, polls=0))
            return
        _, state = await self._read_link()
        seconds_left = self._sla_left(link)
        if state is TaskState.UNKNOWN:
            await self._suspend_in_doubt(link, may_find=searches > 0)
        elif link.polls < searches and seconds_left > 0:
            await self._poll_later(link)
        elif link.mode == ReportMode.PUSH.value and seconds_left > 0:
            await self._suspend(link, seconds_left)
        else:
            await self._give_up(link, DELIVERY_UNKNOWN)

    async def _suspend_in_doubt(self, link: RemoteLink, *, may_find: bool) -> None:
        """Search from time to time for a message that was given up; a webhook or a person may be earlier."""
        if not may_find or link.polls >= self._terms.late_looks:
            await self._suspend(link)
            return
        await self._write_link(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms()))
        await self._suspend(link, self._terms.sla_seconds * 2.0**link.polls)


def _with_push(request: SendRequest, push: PushConfig | None) -> SendRequest:
    configuration = request.configuration or SendConfiguration()
    return replace(request, configuration=replace(configuration, task_push_notification_config=push))
