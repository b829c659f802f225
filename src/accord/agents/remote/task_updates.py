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

READ_ATTEMPTS = 3
"""Number of attempts before an answer is believed.

It applies to content that a report left out, to a task that the agent does not find, and to a question that the agent
repeats after the answer.
"""

RETRY = "retry"
"""Signal of a user to retry the task."""

NOT_OFFERED = (UnsupportedOperation, MethodNotFound)

FORGOTTEN = "The remote agent no longer has the task"

log = logging.getLogger("accord.remote")


class TaskUpdates:
    """The link of an execution to its remote task, and its means of updating it."""

    def __init__(self, ctx: Context, resources: RemoteResources) -> None:
        self._ctx = ctx
        self._resources = resources
        self._terms = resources.terms
        self._remotes = resources.remotes

    async def _read_link(self) -> tuple[RemoteLink, TaskState]:
        ctx = self._ctx
        linked = await patiently(lambda: self._remotes.find_with_state(ctx.tenant, ctx.task_id))
        if linked is not None:
            return linked
        new_link = RemoteLink(
            task_id=ctx.task_id, agent=self._resources.name, context_id=await patiently(self._remote_context)
        )
        return new_link, ctx.task.status.state

    async def _remote_context(self) -> str:
        """Return the agent's context id if it has sent one, else ours."""
        ctx, name = self._ctx, self._resources.name
        remote_id = await self._remotes.find_context(ctx.tenant, name, ctx.caller.owner, ctx.context_id)
        return remote_id if remote_id is not None else external_context(ctx, name)

    # --- reading --------------------------------------------------------------------------------------------------

    async def _handle_request(self, link: RemoteLink) -> None:
        """Read the task because a report left content out, or because a person asks for it."""
        request = self._ctx.handed_in(poll_signal(link.asks))
        try:
            task = await self._get(link)
        except NO_ANSWER as error:
            await self._handle_read_error(link, request, error)
            return
        is_behind = isinstance(request, dict) and task.status.state not in lifecycle.ENDED | lifecycle.INTERRUPTED
        if is_behind and link.polls < READ_ATTEMPTS:
            await self._poll_later(link)
            return
        looked = link.asks
        if is_behind:
            await self._report(Report(body=task))
            await self._use_partial_report(link, request)
        else:
            await self._suspend_if_ended(await self._report(Report(body=task, looked=looked, insists=request == RETRY)))

    async def _handle_read_error(self, link: RemoteLink, request: Any, error: Exception) -> None:
        is_lost = isinstance(error, (TaskNotFound, *NOT_OFFERED))
        if request == RETRY and isinstance(error, TaskNotFound):
            log.warning("remote.task_sent_again", extra={"task_id": link.task_id, "agent": link.agent})
            again = replace(link, sent=0, remote_id=None, tries=link.tries + 1, looked=link.asks)
            await self._write_link(replace(again, seq=None, stamp=None, mark=None, state=None))
        elif not is_lost and link.polls < READ_ATTEMPTS:
            await self._poll_later(link)
        elif isinstance(request, dict):
            await self._use_partial_report(link, request)
        else:
            await self._write_link(replace(link, looked=link.asks))

    async def _use_partial_report(self, link: RemoteLink, request: Any) -> None:
        """Use an incomplete report whose artifacts cannot be read."""
        update = msgspec.convert(request, StatusUpdate)
        state = await self._report(Report(body=update, is_last=True, looked=link.asks))
        await self._suspend_if_ended(state)

    async def _get(self, link: RemoteLink) -> Task:
        if link.remote_id is None:
            raise TaskNotFound
        peer = await self._resources.connection.peer()
        task = await peer.get(GetRequest(id=link.remote_id))
        if task.id != link.remote_id:
            raise InvalidAgentResponse(f"The remote agent was asked for {link.remote_id} and answered {task.id}")
        return task

    async def _get_patiently(self, link: RemoteLink) -> Task:
        """Read the task; believe that it is missing only after several attempts."""
        for number in range(READ_ATTEMPTS):
            try:
                return await self._get(link)
            except TaskNotFound:
                await asyncio.sleep(self._terms.poll_seconds(number))
        return await self._get(link)

    async def _poll_later(self, link: RemoteLink) -> None:
        await self._write_link(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms()))
        await self._ctx.pause(self._terms.poll_seconds(link.polls))

    # --- waiting --------------------------------------------------------------------------------------------------

    async def _wait(self, link: RemoteLink) -> None:
        """Wait for reports in the agreed mode. If none comes until the SLA ends, read once more and give up."""
        seconds_left = self._sla_left(link)
        if seconds_left <= 0:
            await self._read_before_giving_up(link)
        elif link.mode == ReportMode.PUSH.value:
            await self._suspend(link, seconds_left)
        elif link.mode == ReportMode.SUBSCRIBE.value and not self._resources.streams.locked():
            await self._subscribe(link)
        else:
            await self._poll(link, seconds_left)

    async def _read_before_giving_up(self, link: RemoteLink) -> None:
        minutes = f"{self._terms.sla_seconds / 60:g} minutes"
        try:
            task = await self._get(link)
        except NO_ANSWER as error:
            await self._give_up(link, f"The remote agent reported nothing for {minutes}, and then: {error}")
            return
        state = await self._report(Report(body=task, insists=True))
        await self._suspend_if_ended(state)
        latest, _ = await self._read_link()
        if latest.heard_at == link.heard_at:
            state_name = task.status.state.name
            await self._give_up(latest, f"The remote agent reported nothing for {minutes}; its state is {state_name}")

    async def _poll(self, link: RemoteLink, seconds_left: float) -> None:
        due = max(link.heard_at, link.asked_at) / 1000 + self._terms.poll_seconds(link.polls)
        wait = due - self._remotes.now_ms() / 1000
        if wait > 0:
            await self._suspend(link, min(wait, seconds_left))
            return
        await self._read_task(
            await self._write_link(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms()))
        )

    async def _read_task(self, link: RemoteLink) -> None:
        """Read the task; give it up if the agent no longer has it."""
        try:
            task = await self._get_patiently(link)
        except TaskNotFound:
            await self._give_up(link, FORGOTTEN)
        except NO_ANSWER as error:  # the SLA ends this otherwise
            log.info("remote.not_read", extra={"task_id": link.task_id, "reason": str(error)})
        else:
            await self._suspend_if_ended(await self._report(Report(body=task, insists=link.polls > READ_ATTEMPTS)))

    async def _subscribe(self, link: RemoteLink) -> None:
        """Subscribe to the task and report its events; read the task when the stream ends for any reason."""
        async with self._resources.streams:
            link = await self._write_link(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms()))
            try:
                peer = await self._resources.connection.peer()
                is_numbered = CardOffer.of(peer.card).numbers_events
                after = link.seq if is_numbered else None
                async with asyncio.timeout(max(0.0, self._sla_left(link))):
                    followed = peer.subscribe(SubscribeRequest(id=link.remote_id or ""), after=after)
                    await self._relay(followed, is_numbered)
            except (*NO_ANSWER, TimeoutError) as error:
                log.info("remote.stream_ended", extra={"task_id": link.task_id, "reason": str(error)})
        latest, state = await self._read_link()
        await self._suspend_if_ended(state)
        if state in (TaskState.SUBMITTED, TaskState.WORKING) and latest.asks == latest.looked:
            await self._read_task(latest)
            await self._suspend(latest, min(self._terms.poll_seconds(latest.polls), max(0.0, self._sla_left(latest))))

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

    async def _poll_given_up(self, link: RemoteLink) -> None:
        """Read a task that was given up from time to time; a webhook may be earlier."""
        if link.polls > self._terms.late_looks or link.remote_id is None:
            await self._suspend(link)
            return
        due = link.asked_at / 1000 + self._terms.sla_seconds * 2**link.polls
        wait = due - self._remotes.now_ms() / 1000
        if wait > 0:
            await self._suspend(link, wait)
            return
        link = await self._write_link(replace(link, polls=link.polls + 1, asked_at=self._remotes.now_ms()))
        try:
            await self._suspend_if_ended(await self._report(Report(body=await self._get(link))))
        except NO_ANSWER as error:
            log.info("remote.not_read", extra={"task_id": link.task_id, "reason": str(error)})

    async def _give_up(self, link: RemoteLink, reason: str) -> None:
        given_up = replace(link, polls=0, asked_at=self._remotes.now_ms())
        sla_seconds = self._terms.sla_seconds
        if await patiently(lambda: self._remotes.give_up(self._ctx.tenant, given_up, reason, sla_seconds)):
            await self._suspend(None)

    async def _suspend(self, link: RemoteLink | None, seconds: float | None = None) -> None:
        await self._ctx.pause(seconds, key=None if link is None else poll_signal(link.asks + 1))

    # --- helpers --------------------------------------------------------------------------------------------------

    async def _report(self, report: Report) -> TaskState:
        ctx = self._ctx
        try:
            return await patiently(lambda: self._remotes.report(ctx.tenant, ctx.task_id, report))
        except BadValue as error:
            raise Failed(f"The remote agent sent a value that cannot be stored: {error}") from error

    async def _write_link(self, link: RemoteLink) -> RemoteLink:
        """Write a link. If it changed meanwhile, the next look shows the present state."""
        return await patiently(lambda: self._remotes.update_link(self._ctx.tenant, link)) or link

    async def _suspend_if_ended(self, state: TaskState) -> None:
        """End the execution with its task; the report that ended the task also released the claim."""
        if state in lifecycle.TERMINAL:
            await self._suspend(None)

    def _sla_left(self, link: RemoteLink) -> float:
        return link.heard_at / 1000 + self._terms.sla_seconds - self._remotes.now_ms() / 1000
