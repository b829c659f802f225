"""A remote A2A agent, hosted here, and its cancels.

Its tasks are stored, listed, streamed, canceled and resumed here, in every dialect, while the remote agent does the
work. A canceled task ends at once. The cancel is stored in the same transaction. The first node that is free passes it
on, and retries it a limited number of times.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from accord.agents.remote import RemoteTerms
from accord.agents.remote.connection import NO_ANSWER, Connect, RemoteConnection, RemotePeer, RemoteResources
from accord.agents.remote.execution import RemoteExecution
from accord.agents.turns import CancelLoop
from accord.api import Context, Crash, Profile
from accord.api.remote import RemoteCancel, RemoteContact, RemoteTasks, WebhookKeys
from accord.errors import AuthenticationFailed, MethodNotFound, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from accord.model import AgentCard, CancelRequest
from accord.protocol.urls import host_of, is_loopback
from accord.retries import RetryPolicy

POLL_SECONDS = 1.0
"""Interval of checks for cancels, in seconds. No client waits for them, and one check for all tasks is cheap."""

AGAIN_SECONDS = 5.0
"""First delay before a cancel is retried, in seconds, doubled each time."""

MAX_TRIES = 8
"""Maximum number of attempts, which take about twenty minutes."""

BATCH_SIZE = 16

LAST_SECONDS = 3.0
"""Time that a stopping node spends on cancels, in seconds. It may be the only node, started for one task."""

FINAL_ERRORS = (TaskNotFound, TaskNotCancelable, UnsupportedOperation, MethodNotFound, AuthenticationFailed)
"""Errors that are final: the remote task has ended as well, or cannot be canceled."""

log = logging.getLogger("accord.remote")


class RemoteCancels:
    """Passes on the cancels of one agent's tasks."""

    def __init__(self, agent: str, remotes: RemoteTasks, peer: Callable[[], Awaitable[RemotePeer]]) -> None:
        """Pass cancels to `peer`, whose name here is `agent`."""
        self._agent = agent
        self._remotes = remotes
        self._peer = peer
        self._loop = CancelLoop(
            agent, lambda: remotes.claim_cancels(agent, BATCH_SIZE, AGAIN_SECONDS), self._pass_on, POLL_SECONDS
        )
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the loop."""
        self._running = asyncio.create_task(self._loop.run(), name=f"cancels of {self._agent}")

    async def stop(self) -> None:
        """Stop after one attempt at the cancels that are due. The rest are due again later, on any node."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._loop.pass_on_due()

    async def _pass_on(self, cancel: RemoteCancel) -> None:
        link = cancel.link
        about = {"task_id": link.task_id, "agent": self._agent, "remote_task_id": link.remote_id}
        try:
            if link.remote_id is not None:  # otherwise it was never accepted, or its id is still missing
                await (await self._peer()).cancel(CancelRequest(id=link.remote_id))
                log.info("remote.cancelled", extra=about)
        except FINAL_ERRORS as error:
            log.info("remote.not_cancelable", extra=about | {"reason": str(error)})
        except NO_ANSWER as error:
            log.warning("cancel.not_passed_on", extra=about | {"reason": str(error)})
            if cancel.cancels + 1 < MAX_TRIES:
                return
        else:
            if link.remote_id is None and cancel.cancels + 1 < MAX_TRIES:
                return
        await self._remotes.clear_cancel(cancel)


PREPARE_SECONDS = 5.0
"""Time that a starting server waits for an agent's card, in seconds; without a card the agent has a minimal profile."""

CARD_RETRIES = RetryPolicy(first_seconds=1.0, max_seconds=60.0, jitter=(1.0, 1.0))
"""Delays before a missing agent is checked again."""

LEAVE_SECONDS = 3.0
"""Time that a stopping server waits for replies to sent messages, in seconds."""

ATTEMPTS = 20
"""Maximum number of lost executions. A restart is harmless, because nothing is sent twice."""

ANY = ("*/*",)
"""Media types accepted for an agent without a card; the agent itself rejects those that it does not support."""


class RemoteAgent:
    """An agent on another server."""

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        terms: RemoteTerms | None = None,
        trust: WebhookKeys | None = None,
        connect: Connect | None = None,
        states: Callable[[Profile], Profile] | None = None,
        **client: Any,
    ) -> None:
        """Serve the agent at `url`, or with that name in a registry; `client` is passed on to `Client.connect`.

        Values from `states` override the agent's own card.
        """
        self.url = url
        self.terms = terms or RemoteTerms()
        self.trust = trust or WebhookKeys()
        self._states = states or (lambda profile: profile)
        without_card = Profile(
            name=name or "remote",
            description=f"The agent at {url}",
            input_modes=ANY,
            crash=Crash.RESUME,
            attempts=ATTEMPTS,
            reports_start=True,
        )
        self.profile = self._states(without_card)
        self._client = client
        self._connection = RemoteConnection(
            self.profile.name,
            connect or self._by_card,
            found=self._use_card,
            linger_seconds=max(self.terms.answer_seconds, self.terms.sla_seconds),
        )
        self._resources: RemoteResources | None = None
        self._cancels: RemoteCancels | None = None
        self._card_wait: asyncio.Task[None] | None = None

    # --- startup, work, shutdown ----------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Read the agent's card for its profile; the agent may still be offline."""
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                await self._connection.peer()
        except (*NO_ANSWER, TimeoutError) as error:
            reason = str(error) or f"It did not answer within {PREPARE_SECONDS:g} seconds"
            log.warning("remote.not_there", extra={"agent": self.profile.name, "reason": reason})

    async def _wait_for_card(self) -> None:
        """Read the agent's card as soon as it is available; a task that starts earlier reads it too."""
        checks = 0
        while not self._connection.is_open:
            checks += 1
            await asyncio.sleep(CARD_RETRIES.delay(checks))
            try:
                await self._connection.peer()
            except NO_ANSWER as error:
                log.info("remote.still_not_there", extra={"agent": self.profile.name, "reason": str(error)})

    async def join(self, remotes: RemoteTasks, webhook: str | None = None) -> None:
        """Start, with the remote links of a node's store; the agent reports to `webhook` if it can reach it."""
        terms = self.terms
        if terms.webhook is None and webhook is not None and _can_reach(self.url, webhook):
            terms = replace(terms, webhook=webhook)
        self._resources = RemoteResources(
            name=self.profile.name,
            terms=terms,
            remotes=remotes,
            connection=self._connection,
            streams=asyncio.Semaphore(self.terms.streams),
        )
        self._cancels = RemoteCancels(self.profile.name, remotes, self._connection.peer)
        self._cancels.start()
        self._card_wait = asyncio.create_task(self._wait_for_card(), name=f"look for {self.profile.name}")

    async def leave(self) -> None:
        """Stop and close connections; the next execution determines the outcome of messages under way."""
        if self._card_wait is not None:
            self._card_wait.cancel()
            await asyncio.gather(self._card_wait, return_exceptions=True)
        if self._cancels is not None:
            await self._cancels.stop()
        if self._resources is not None and self._resources.sending:
            _, unfinished = await asyncio.wait(self._resources.sending, timeout=LEAVE_SECONDS)
            for exchange in unfinished:
                exchange.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        self._resources = self._cancels = None
        await self._connection.close()

    async def run(self, ctx: Context) -> None:
        """Execute one turn on the remote agent."""
        if self._resources is None:
            raise RuntimeError("A remote agent is run by a host that it has joined")
        await ctx.usage(key="elsewhere")  # nothing yet: the endpoint that receives reports accounts for usage
        await RemoteExecution(ctx, self._resources, uuid4().hex).run_until_suspended()

    # --- availability -----------------------------------------------------------------------------------------------

    def contact(self) -> RemoteContact | None:
        """Return the agent's status at the last contact."""
        return self._connection.contact

    async def check(self) -> RemoteContact:
        """Check whether the agent is available, by reading its card again."""
        return await self._connection.check()

    # --- connection -----------------------------------------------------------------------------------------------

    def _use_card(self, peer: RemotePeer) -> None:
        """Update the profile from the agent's card; whether it accepts webhooks is to be tested again."""
        self.profile = self._states(describe_by_card(self.profile, peer.card))
        if self._resources is not None:
            self._resources.may_push = True

    def _by_card(self) -> AbstractAsyncContextManager[RemotePeer]:
        from accord.client.client import Client

        return Client.connect(self.url, timeout=self.terms.answer_seconds, **self._client)


def _can_reach(url: str, webhook: str) -> bool:
    """Whether the agent at a URL can reach a webhook. A loopback webhook is reachable only from this machine."""
    return is_loopback(host_of(url)) or not is_loopback(host_of(webhook))


def describe_by_card(profile: Profile, card: AgentCard) -> Profile:
    """Return a profile with the values of the agent's card, under its name here."""
    return replace(
        profile,
        description=card.description or profile.description,
        version=card.version or profile.version,
        skills=card.skills,
        input_modes=card.default_input_modes or ANY,
        output_modes=card.default_output_modes or profile.output_modes,
    )
