"""Updates of a remote task, by webhook, stream or polling.

It never sends a caller's message and never ends the task. The agent's answers go through `remote.tasks`, like its
reports.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from accord.agents.remote import CardOffer, ReportMode
from accord.agents.remote.connection import NO_ANSWER, RemoteResources
from accord.agents.turns import external_context
from accord.api import BadValue, Context, Failed
from accord.api.remote import RemoteLink, Report, leaves_out, patiently, poll_signal
from accord.errors import InvalidAgentResponse, MethodNotFound, TaskNotFound, UnsupportedOperation
from accord.model import Event, GetRequest, Message, StatusUpdate, SubscribeRequest, Task, TaskState
from accord.protocol import lifecycle

PATIENCE = 3
"""Number of attempts before an answer is believed.

It applies to content that a report left out, to a task that the agent does not find, and to a question that the agent
repeats after the answer.
"""

RETRY = "retry"
"""Signal of a user to retry the task."""

NOT_OFFERED = (UnsupportedOperation, MethodNotFound)

FORGOTTEN = "The remote agent does not know the task any more"

log = logging.getLogger("accord.remote")


class TaskUpdates:
    """The link of an execution to its remote task, and its means of updating it."""

    def __init__(self, ctx: Context, means: RemoteResources) -> None:
        self._ctx = ctx
        self._means = means
        self._terms = means.terms
        self._remotes = means.remotes

    async def _look(self) -> tuple[RemoteLink, TaskState]:
        ctx = self._ctx
        found = await patiently(lambda: self._remotes.look(ctx.tenant, ctx.task_id))
        if found is not None:
            return found
        blank = RemoteLink(task_id=ctx.task_id, agent=self._means.name, context_id=await patiently(self._context))
        return blank, ctx.task.status.state

    async def _context(self) -> str:
        """Return the agent's context id if it has sent one, else ours."""
        ctx, name = self._ctx, self._means.name
        known = await self._remotes.context(ctx.tenant, name, ctx.caller.owner, ctx.context_id)
        return known if known is not None else external_context(ctx, name)

    # --- reading --------------------------------------------------------------------------------------------------

    async def _answer_ask(self, link: RemoteLink) -> None:
        """Read the task because a report left content out, or because a person asks for it."""
        told = self._ctx.handed_in(poll_signal(link.asks))
        try:
            task = await self._get(link)
        except NO_ANSWER as error:
            await self._without_answer(link, told, error)
            return
        is_behind = isinstance(told, dict) and task.status.state not in lifecycle.ENDED | lifecycle.INTERRUPTED
        if is_behind and link.polls < PATIENCE:
            await self._poll_later(link)
            return
        looked = link.asks
        if is_behind:
            await self._report(Report(body=task))
            await self._take_word(link, told)
        else:
            await self._unless_ended(await self._report(Report(body=task, looked=looked, insists=told == RETRY)))

    async def _without_answer(self, link: RemoteLink, told: Any, error: Exception) -> None:
        is_lost = isinstance(error, (TaskNotFound, *NOT_OFFERED))
        if told == RETRY and isinstance(error, TaskNotFound):
            log.warning("remote.task_sent_again", extra={"task_id": link.task_id, "agent": link.agent})
            again = replace(link, sent=0, remote_id=None, tries=link.tries + 1, looked=link.asks)
            await self._noted(replace(again, seq=None, stamp=None, mark=None, state=None))
        elif not is_lost and link.polls < PATIENCE:
            await self._poll_later(link)
        elif isinstance(told, dict):
            await self._take_word(link, told)
        else:
            await self._noted(replace(link, looked=link.asks))

    async def _take_word(self, link: RemoteLink, told: Any) -> None:
        """Use an incomplete report whose artifacts cannot be read."""
        update = msgspec.convert(told, StatusUpdate)
        state = await self._report(Report(body=update, is_last=True, looked=link.asks))
        await self._unless_ended(state)

    async def _get(self, link: RemoteLink) -> Task:
        if link.remote_id is None:
            raise TaskNotFound
        peer = await self._means.peer()
        task = await peer.get(GetRequest(id=link.remote_id))
        if task.id != link.remote_id:
            raise InvalidAgentResponse(f"The remote agent was asked for {link.remote_id} and answered {task.id}")
        return task

    async def _get_patiently(self, link: RemoteLink) -> Task:
        """Read the task; believe that it is missing only after several attempts."""
        for number in range(PATIENCE):
            try:
                return await self._get(link)
            except TaskNotFound:
                await asyncio.sleep(self._terms.poll_seconds(number))
        return await self._get(link)

    async def _poll_later(self, link: RemoteLink) -> None:
        await self._noted(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms()))
        await self._ctx.pause(self._terms.poll_seconds(link.polls))

    # --- waiting --------------------------------------------------------------------------------------------------

    async def _wait(self, link: RemoteLink) -> None:
        """Wait for reports in the agreed mode. If none comes until the SLA ends, read once more and give up."""
        left = self._sla_left(link)
        if left <= 0:
            await self._ask_once_more(link)
        elif link.mode == ReportMode.PUSH.value:
            await self._rest(link, left)
        elif link.mode == ReportMode.SUBSCRIBE.value and not self._means.streams.locked():
            await self._follow(link)
        else:
            await self._poll(link, left)

    async def _ask_once_more(self, link: RemoteLink) -> None:
        minutes = f"{self._terms.sla_seconds / 60:g} minutes"
        try:
            task = await self._get(link)
        except NO_ANSWER as error:
            await self._give_up(link, f"The remote agent reported nothing for {minutes}, and then: {error}")
            return
        state = await self._report(Report(body=task, insists=True))
        await self._unless_ended(state)
        latest, _ = await self._look()
        if latest.heard_at == link.heard_at:
            said = task.status.state.name
            await self._give_up(latest, f"The remote agent reported nothing for {minutes}; it says {said}")

    async def _poll(self, link: RemoteLink, left: float) -> None:
        due = max(link.heard_at, link.asked_at) / 1000 + self._terms.poll_seconds(link.polls)
        wait = due - self._remotes.now_ms() / 1000
        if wait > 0:
            await self._rest(link, min(wait, left))
            return
        await self._ask(await self._noted(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms())))

    async def _ask(self, link: RemoteLink) -> None:
        """Read the task; give it up if the agent no longer has it."""
        try:
            task = await self._get_patiently(link)
        except TaskNotFound:
            await self._give_up(link, FORGOTTEN)
        except NO_ANSWER as error:  # the SLA ends this otherwise
            log.info("remote.not_read", extra={"task_id": link.task_id, "reason": str(error)})
        else:
            await self._unless_ended(await self._report(Report(body=task, insists=link.polls > PATIENCE)))

    async def _follow(self, link: RemoteLink) -> None:
        """Subscribe to the task and report its events; read the task when the stream ends for any reason."""
        async with self._means.streams:
            link = await self._noted(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms()))
            try:
                peer = await self._means.peer()
                is_numbered = CardOffer.of(peer.card).numbers_events
                after = link.seq if is_numbered else None
                async with asyncio.timeout(max(0.0, self._sla_left(link))):
                    followed = peer.subscribe(SubscribeRequest(id=link.remote_id or ""), after=after)
                    await self._relay(followed, is_numbered)
            except (*NO_ANSWER, TimeoutError) as error:
                log.info("remote.stream_ended", extra={"task_id": link.task_id, "reason": str(error)})
        latest, state = await self._look()
        await self._unless_ended(state)
        if state in (TaskState.SUBMITTED, TaskState.WORKING) and latest.asks == latest.looked:
            await self._ask(latest)
            await self._rest(latest, min(self._terms.poll_seconds(latest.polls), max(0.0, self._sla_left(latest))))

    async def _relay(self, events: AsyncIterator[Event], is_numbered: bool) -> None:
        """Report the events of a stream until the task ends or is interrupted."""
        async with aclosing(cast("AsyncGenerator[Event]", events)) as stream:
            async for event in stream:
                if isinstance(event.body, Message):
                    continue
                seq = event.seq if is_numbered and not isinstance(event.body, Task) else None
                state = await self._report(Report(body=event.body, seq=seq))
                if state in lifecycle.ENDED | lifecycle.INTERRUPTED or leaves_out(event.body):
                    return

    async def _look_late(self, link: RemoteLink) -> None:
        """Read a task that was given up from time to time; a webhook may be earlier."""
        if link.polls > self._terms.late_looks or link.remote_id is None:
            await self._rest(link)
            return
        due = link.asked_at / 1000 + self._terms.sla_seconds * 2**link.polls
        wait = due - self._remotes.now_ms() / 1000
        if wait > 0:
            await self._rest(link, wait)
            return
        link = await self._noted(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms()))
        try:
            await self._unless_ended(await self._report(Report(body=await self._get(link))))
        except NO_ANSWER as error:
            log.info("remote.not_read", extra={"task_id": link.task_id, "reason": str(error)})

    async def _give_up(self, link: RemoteLink, reason: str) -> None:
        given = replace(link, polls=0, asked_at=self._remotes.now_ms())
        again = self._terms.sla_seconds
        if await patiently(lambda: self._remotes.give_up(self._ctx.tenant, given, reason, again)):
            await self._rest(None)

    async def _rest(self, link: RemoteLink | None, seconds: float | None = None) -> None:
        await self._ctx.pause(seconds, key=None if link is None else poll_signal(link.asks + 1))

    # --- helpers --------------------------------------------------------------------------------------------------

    async def _report(self, report: Report) -> TaskState:
        ctx = self._ctx
        try:
            return await patiently(lambda: self._remotes.report(ctx.tenant, ctx.task_id, report))
        except BadValue as error:
            raise Failed(f"The remote agent said something that cannot be kept: {error}") from error

    async def _noted(self, link: RemoteLink) -> RemoteLink:
        """Write a link. If it changed meanwhile, the next look shows the present state."""
        return await patiently(lambda: self._remotes.note(self._ctx.tenant, link)) or link

    async def _unless_ended(self, state: TaskState) -> None:
        """End the execution with its task; the report that ended the task also released the claim."""
        if state in lifecycle.TERMINAL:
            await self._rest(None)

    def _sla_left(self, link: RemoteLink) -> float:
        return link.heard_at / 1000 + self._terms.sla_seconds - self._remotes.now_ms() / 1000
