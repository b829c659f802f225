"""One run of a task that an agent elsewhere does: say what it was not told yet, look what became of it, and wait.

Nothing is remembered here: what was sent and heard is in the link, and that a message is about to be sent is kept
before, so that no run says anything twice. How it looks and waits is `waiting`; what an error tells about a message,
and how one is looked for, is `doubt`.
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

from accord.agents.remote import doubt
from accord.agents.remote.means import NO_ANSWER, Means, NotReachable, Peer
from accord.agents.remote.terms import Mode, Offer
from accord.agents.remote.waiting import NO_SUCH_WAY, RETRY, Waiting
from accord.client.retries import was_turned_away
from accord.client.sending import Unconfirmed
from accord.client.wire import TimedOut
from accord.engine.context import Context, Failed
from accord.errors import AccordError
from accord.model import Event, GetRequest, Message, PushConfig, SendConfiguration, SendRequest, Task, TaskState
from accord.model.base import Metadata
from accord.model.keys import BUDGET
from accord.protocol import lifecycle
from accord.protocol.budgets import stated_as
from accord.protocol.extensions import Route, route_of
from accord.remote.reports import Report
from accord.remote.tasks import patiently, poll_signal, unsent_message
from accord.storage.commands.remotes import Link

LEAST_SECONDS = 0.001
"""The shortest time that a message states: a time that is over is for this server to notice."""

UNLIMITED = sys.maxsize
"""How often a message is sent again that is safe to send again; the time that an agent may be silent limits it."""

log = logging.getLogger("accord.remote")


class Talk(Waiting):
    """One run."""

    def __init__(self, ctx: Context, means: Means, run_id: str) -> None:
        """Talk for the task of `ctx`; `run_id` tells this run from others."""
        super().__init__(ctx, means)
        self._run_id = run_id
        self._is_answered = self._is_left = False

    async def go_on(self) -> NoReturn:
        """Do what there is to do, and wait; the task ends by a report, never by returning from here."""
        while True:
            link, state = await self._look()
            if state in lifecycle.TERMINAL:
                await self._rest(None)
            elif (said := unsent_message(link, self._ctx.history)) is not None:
                await self._say(link, said)
            elif link.asks > link.looked:
                await self._answer_ask(link)
            elif state in lifecycle.INTERRUPTED:
                await self._rest(link)  # for the caller, who has all the time there is
            elif state is TaskState.UNKNOWN:
                await self._look_late(link)
            else:
                await self._wait(link)

    # --- saying something -----------------------------------------------------------------------------------------

    async def _say(self, link: Link, message: Message) -> None:
        """Send a message, unless an earlier run may have done so, or this one before."""
        number = link.sent + 1
        if number == 1 and link.remote_id is not None:  # whoever knows the token of the message has got it
            await self._noted(replace(link, sent=1, tries=0))
            return
        attempt = f"send:{number}:{link.tries}"
        before = self._ctx.kept(attempt)
        try:
            peer = await self._means.peer()
        except NO_ANSWER as error:
            link, _ = await self._expecting(link, None)
            await (self._put_off(link, error) if before is None else self._wait_in_doubt(link, looks=UNLIMITED))
            return
        message = replace(message, metadata=await self._metadata(message, number))
        request = self._request(link, message, number, Offer.of(peer.card))
        if before is not None and not peer.is_idempotent:
            await self._recover(peer, link, request)
            return
        if number == 1:
            mode = Offer.of(peer.card).mode(self._terms, may_push=self._means.may_push)
            link, push = await self._expecting(link, mode)
            request = _with_push(request, push)
        if await self._ctx.keep(attempt, self._run_id) == self._run_id or peer.is_idempotent:
            await self._send(peer, link, request)

    def _request(self, link: Link, message: Message, number: int, offer: Offer) -> SendRequest:
        """Return a message as it is sent, each time the same."""
        ctx = self._ctx
        name = f"{ctx.tenant}\n{ctx.task_id}\n{number}"
        said = replace(
            message,
            message_id=str(uuid5(NAMESPACE_URL, name)),
            context_id=link.context_id,
            task_id=link.remote_id if number > 1 else None,
            reference_task_ids=(),
        )
        configuration = SendConfiguration(return_immediately=True, accepted_output_modes=offer.output_modes)
        return SendRequest(message=said, configuration=configuration)

    async def _metadata(self, message: Message, number: int) -> Metadata:
        """Return a message's metadata with the route of the task and with what is left of its budget and its time.

        What was left when the message was sent first is kept: one that is sent again must be the same.
        """
        ctx, remotes = self._ctx, self._remotes
        route = (route_of(ctx.history) or Route()).after(f"{remotes.server_id}/{self._means.name}")
        metadata = route.added_to(message.metadata)
        key = f"limits:{number}"
        kept = ctx.kept(key)
        if kept is None:
            budget = await patiently(lambda: remotes.left(ctx.tenant, ctx.task_id))
            limits = (stated_as(budget) or {}).get(BUDGET, {})
            if ctx.deadline is not None:
                limits["deadline"] = max(LEAST_SECONDS, round(ctx.deadline - remotes.now_ms() / 1000, 3))
            if not limits and BUDGET not in metadata:
                return metadata
            kept = await ctx.keep(key, msgspec.json.encode(limits).decode())
        return {**metadata, BUDGET: msgspec.json.decode(kept)}

    async def _expecting(self, link: Link, mode: Mode | None) -> tuple[Link, PushConfig | None]:
        """Note how reports will get here; a webhook has a fresh token, whose hash is kept before it is used."""
        expected = replace(link, mode=None if mode is None else mode.value)
        with_token = mode is Mode.PUSH
        tenant = self._ctx.tenant
        link, token = await patiently(lambda: self._remotes.expect(tenant, expected, with_token=with_token))
        return link, PushConfig(url=self._terms.webhook or "", token=token) if with_token else None

    async def _send(self, peer: Peer, link: Link, request: SendRequest) -> None:
        """Send, and take in the answer, even if this run is stopped meanwhile: somebody has to know what it was."""
        exchange = asyncio.create_task(self._exchange(peer, link, request), name=f"send {link.task_id}")
        self._means.sending.add(exchange)
        exchange.add_done_callback(self._means.sending.discard)
        exchange.add_done_callback(lambda task: task.cancelled() or task.exception())  # known, if nobody waits
        try:
            state = await asyncio.shield(exchange)
        except asyncio.CancelledError:
            self._is_left = True
            if self._is_answered:
                exchange.cancel()
                await asyncio.gather(exchange, return_exceptions=True)
            raise
        except NO_ANSWER as error:
            await self._not_answered(peer, link, request, error)
        else:
            self._means.answered()
            await self._unless_ended(state)

    async def _not_answered(self, peer: Peer, link: Link, request: SendRequest, error: Exception) -> None:
        """Go on after a message that was sent, and came back with an error."""
        self._means.fault(error)
        if doubt.is_about_webhook(error, request):
            log.warning("remote agent takes no webhook", extra={"agent": link.agent, "reason": str(error)})
            self._means.may_push = False
            await self._noted(replace(link, tries=link.tries + 1))
        elif was_turned_away(error):
            await self._put_off(link, error)
        elif isinstance(error, AccordError) and doubt.is_refusal(error):
            await self._refused(peer, link, error)
        else:
            await self._recover(peer, link, request, error)

    async def _exchange(self, peer: Peer, link: Link, request: SendRequest) -> TaskState:
        is_first = request.message.task_id is None
        if is_first and link.mode == Mode.SUBSCRIBE.value and not self._means.streams.locked():
            return await self._stream(peer, link, request)
        answer = await peer.send(request)
        return await self._report(Report(body=answer, sent=link.sent + 1))

    async def _stream(self, peer: Peer, link: Link, request: SendRequest) -> TaskState:
        """Send, and follow what comes of it: its first event is the answer, and what breaks later is looked up."""
        is_numbered = Offer.of(peer.card).numbers_events
        events = cast("AsyncGenerator[Event]", peer.stream(request))
        async with self._means.streams, aclosing(events) as stream:
            try:
                async with asyncio.timeout(self._terms.answer_seconds):
                    first = await anext(stream)
            except TimeoutError:
                raise TimedOut(f"Nothing within {self._terms.answer_seconds:g} seconds", was_sent=True) from None
            seq = first.seq if is_numbered and not isinstance(first.body, Task) else None
            state = await self._report(Report(body=first.body, seq=seq, sent=link.sent + 1))
            self._is_answered = True
            if self._is_left or state in lifecycle.ENDED | lifecycle.INTERRUPTED:
                return state
            try:
                async with asyncio.timeout(self._terms.sla_seconds):
                    await self._relay(stream, is_numbered)
            except (*NO_ANSWER, TimeoutError) as error:
                log.info("remote stream ended", extra={"task_id": link.task_id, "reason": str(error)})
        return (await self._look())[1]

    async def _put_off(self, link: Link, error: Exception) -> None:
        """Try a message again later that certainly did not arrive."""
        tries = link.tries + 1
        self._means.fault(error)
        log.warning("remote agent not reached", extra={"agent": link.agent, "tries": tries, "reason": str(error)})
        if isinstance(error, NotReachable) and link.sent == 0:
            raise Failed(f"The remote agent cannot be talked to: {error}")
        if tries >= self._terms.sends:
            raise Failed(f"The remote agent could not be reached: {error}")
        await self._noted(replace(link, tries=tries))
        seconds = self._terms.send_seconds(link.tries)
        if isinstance(error, AccordError) and error.retry_after is not None:
            seconds = max(seconds, min(error.retry_after, self._terms.sla_seconds))
        await self._ctx.pause(seconds)

    async def _refused(self, peer: Peer, link: Link, error: AccordError) -> None:
        """Fail, if it is the first message; an answer that is refused changes nothing but is said to the caller."""
        if link.sent == 0:
            raise Failed(f"The remote agent refused the message: {error.message}")
        log.warning("remote agent refused a message", extra={"agent": link.agent, "reason": error.message})
        await self._noted(replace(link, sent=link.sent + 1))
        await self._ctx.status(f"The remote agent did not take the message: {error.message}")
        await self._ctx.flush()
        try:
            task = await peer.get(GetRequest(id=link.remote_id or ""))
        except NO_ANSWER as failed:
            log.info("remote task cannot be read", extra={"task_id": link.task_id, "reason": str(failed)})
        else:
            await self._unless_ended(await self._report(Report(body=task, insists=True)))

    # --- when nobody knows whether it was said --------------------------------------------------------------------

    async def _recover(self, peer: Peer, link: Link, request: SendRequest, error: Exception | None = None) -> None:
        """Look for what became of a message that may have been accepted; it is never sent twice on a guess."""
        latest, _ = await self._look()
        if latest.sent > link.sent or (latest.sent == 0 and latest.remote_id is not None):
            return
        looks = UNLIMITED if peer.is_idempotent else doubt.LOOKS
        try:
            if isinstance(error, Unconfirmed) and error.task_id is not None:
                task: Task | None = await peer.get(GetRequest(id=error.task_id))
            else:
                task = await doubt.found(peer, latest, request.message.message_id)
        except NO_ANSWER as failed:
            log.info("remote agent cannot be asked", extra={"agent": link.agent, "reason": str(failed)})
            task = None
            if isinstance(failed, NO_SUCH_WAY) and not peer.is_idempotent:
                looks = 0
        if task is not None:
            await self._unless_ended(await self._report(Report(body=task, sent=link.sent + 1)))
        else:
            await self._wait_in_doubt(latest, looks=looks)

    async def _wait_in_doubt(self, link: Link, *, looks: int) -> None:
        """Look again soon, then wait for a webhook that may yet tell, and in the end say that nobody knows.

        `looks` is how often it is looked. An agent that knows a message again gets it each time: it is in doubt for as
        long as an agent may be silent, and so is one that cannot be asked.
        Only a person may have the message sent again, who takes the risk that it is done twice.
        """
        told = self._ctx.handed_in(poll_signal(link.asks)) if link.asks > link.looked else None
        if told == RETRY:
            log.warning("remote message is sent again by hand", extra={"task_id": link.task_id, "agent": link.agent})
            await self._noted(replace(link, tries=link.tries + 1, looked=link.asks, polls=0))
            return
        _, state = await self._look()
        left = self._sla_left(link)
        if state is TaskState.UNKNOWN:
            await self._rest_in_doubt(link, may_find=looks > 0)
        elif link.polls < looks and left > 0:
            await self._poll_later(link)
        elif link.mode == Mode.PUSH.value and left > 0:
            await self._rest(link, left)
        else:
            await self._give_up(link, doubt.NOBODY_KNOWS)

    async def _rest_in_doubt(self, link: Link, *, may_find: bool) -> None:
        """Look now and then for a message that was given up; a webhook or a person may be sooner."""
        if not may_find or link.polls >= self._terms.late_looks:
            await self._rest(link)
            return
        await self._noted(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms()))
        await self._rest(link, self._terms.sla_seconds * 2.0**link.polls)


def _with_push(request: SendRequest, push: PushConfig | None) -> SendRequest:
    configuration = request.configuration or SendConfiguration()
    return replace(request, configuration=replace(configuration, task_push_notification_config=push))
