"""A remote A2A agent, hosted here, and its cancels.

Its tasks are stored, listed, streamed, canceled and resumed here, in every dialect, while it does the work. A task that
is canceled has ended at once; the cancel is noted in the same transaction and passed on by whichever node comes first,
until it is done or was tried often enough.
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
from accord.engine.agent import Crash, Profile
from accord.engine.context import Context
from accord.errors import AuthenticationFailed, MethodNotFound, TaskNotCancelable, TaskNotFound, UnsupportedOperation
from accord.model import AgentCard, CancelRequest
from accord.protocol.urls import host_of, is_loopback
from accord.remote.tasks import RemoteContact, RemoteTasks, WebhookKeys
from accord.storage.commands.remote_tasks import RemoteCancel
from accord.storage.store import StoreUnavailable

POLL_SECONDS = 1.0
"""How late a cancel may be passed on: nobody waits for it, and one look for all tasks is cheap."""

AGAIN_SECONDS = 5.0
"""When a cancel is tried again, doubled each time."""

MAX_TRIES = 8
"""How often it is tried: for about twenty minutes."""

AT_ONCE = 16

LAST_SECONDS = 3.0
"""How long a node that leaves still tells of cancels: it may have been started for one task, and nobody comes after."""

FINAL_ERRORS = (TaskNotFound, TaskNotCancelable, UnsupportedOperation, MethodNotFound, AuthenticationFailed)
"""Answers that will not be others later: the task has ended there as well, or cannot be cancelled."""

log = logging.getLogger("accord.remote")


class RemoteCancels:
    """Passes the cancels of one agent's tasks on."""

    def __init__(self, agent: str, remotes: RemoteTasks, peer: Callable[[], Awaitable[RemotePeer]]) -> None:
        """Tell `peer`, which is called `agent` here."""
        self._agent = agent
        self._remotes = remotes
        self._peer = peer
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._loop = asyncio.create_task(self._keep(), name=f"cancels of {self._agent}")

    async def stop(self) -> None:
        """Stop, once what is due was tried; what is left is due again later, on any node."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._look()

    async def _keep(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(POLL_SECONDS)

    async def _look(self) -> None:
        try:
            while found := await self._remotes.cancels(self._agent, AT_ONCE, AGAIN_SECONDS):
                await asyncio.gather(*(self._pass_on(cancel) for cancel in found))
        except StoreUnavailable as error:
            log.warning("store unavailable", extra={"reason": str(error)})
        except Exception:  # the node must go on; what went wrong is in the log
            log.exception("cancels were not passed on", extra={"agent": self._agent})

    async def _pass_on(self, cancel: RemoteCancel) -> None:
        link = cancel.link
        about = {"task_id": link.task_id, "agent": self._agent, "remote_task_id": link.remote_id}
        try:
            if link.remote_id is not None:  # otherwise it was never accepted, or will yet say what it is called
                await (await self._peer()).cancel(CancelRequest(id=link.remote_id))
                log.info("remote task cancelled", extra=about)
        except FINAL_ERRORS as error:
            log.info("remote task cannot be cancelled", extra=about | {"reason": str(error)})
        except NO_ANSWER as error:
            log.warning("cancel was not passed on", extra=about | {"reason": str(error)})
            if cancel.cancels + 1 < MAX_TRIES:
                return
        else:
            if link.remote_id is None and cancel.cancels + 1 < MAX_TRIES:
                return
        await self._remotes.told(cancel)


PREPARE_SECONDS = 5.0
"""How long a server that starts waits for an agent's card; without it the agent is served with a plain one."""

LOOK_SECONDS, MAX_LOOK_SECONDS = 1.0, 60.0
"""How soon it is looked for again that was not there when the server started; each time it takes twice as long."""

LEAVE_SECONDS = 3.0
"""How long answers to what was sent are waited for when the server stops."""

ATTEMPTS = 20
"""How often a run may be lost: it says nothing twice, so that beginning again does no harm."""

ANY = ("*/*",)
"""What is taken in for an agent of which nothing is known yet: it will say itself what it does not take."""


class RemoteAgent:
    """An agent elsewhere."""

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

        What `states` says about it counts more than what it says itself.
        """
        self.url = url
        self.terms = terms or RemoteTerms()
        self.trust = trust or WebhookKeys()
        self._states = states or _unchanged
        unknown = Profile(
            name=name or "remote",
            description=f"The agent at {url}",
            input_modes=ANY,
            crash=Crash.RESUME,
            attempts=ATTEMPTS,
            reports_start=True,
        )
        self.profile = self._states(unknown)
        self._client = client
        self._reach = RemoteConnection(
            self.profile.name,
            connect or self._by_card,
            found=self._is_found,
            linger_seconds=max(self.terms.answer_seconds, self.terms.sla_seconds),
        )
        self._means: RemoteResources | None = None
        self._cancels: RemoteCancels | None = None
        self._looking: asyncio.Task[None] | None = None

    # --- startup, work, shutdown ----------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Read the agent's card, so that it is described here as it describes itself; it need not be there yet."""
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                await self._reach.peer()
        except (*NO_ANSWER, TimeoutError) as error:
            reason = str(error) or f"It did not answer within {PREPARE_SECONDS:g} seconds"
            about = {"agent": self.profile.name, "reason": reason}
            log.warning("remote agent is not there yet: %s: %s", self.profile.name, reason, extra=about)

    async def _look_for(self) -> None:
        """Read the agent's card as soon as it can be had; whoever has a task for it before does so too."""
        seconds = LOOK_SECONDS
        while not self._reach.is_open:
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, MAX_LOOK_SECONDS)
            try:
                await self._reach.peer()
            except NO_ANSWER as error:
                log.info("remote agent is still not there", extra={"agent": self.profile.name, "reason": str(error)})

    async def join(self, remotes: RemoteTasks, webhook: str | None = None) -> None:
        """Begin to work, with the links of a node's store; the agent reports to `webhook`, if it can get there."""
        terms = self.terms
        if terms.webhook is None and webhook is not None and _may_reach(self.url, webhook):
            terms = replace(terms, webhook=webhook)
        self._means = RemoteResources(
            name=self.profile.name,
            terms=terms,
            remotes=remotes,
            peer=self._reach.peer,
            fault=self._reach.fault,
            answered=self._reach.answered,
            streams=asyncio.Semaphore(self.terms.streams),
        )
        self._cancels = RemoteCancels(self.profile.name, remotes, self._reach.peer)
        self._cancels.start()
        self._looking = asyncio.create_task(self._look_for(), name=f"look for {self.profile.name}")

    async def leave(self) -> None:
        """Stop, and let go of connections; whoever goes on finds out what became of messages that are on their way."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._cancels is not None:
            await self._cancels.stop()
        if self._means is not None and self._means.sending:
            _, unfinished = await asyncio.wait(self._means.sending, timeout=LEAVE_SECONDS)
            for exchange in unfinished:
                exchange.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        self._means = self._cancels = None
        await self._reach.close()

    async def run(self, ctx: Context) -> None:
        """Do the work of one turn, which is to let it be done."""
        if self._means is None:
            raise RuntimeError("A remote agent is run by a host that it has joined")
        await ctx.usage(key="elsewhere")  # nothing yet: its budget is known to whoever hears what it uses
        await RemoteExecution(ctx, self._means, uuid4().hex).go_on()

    # --- whether it is there ----------------------------------------------------------------------------------------

    def contact(self) -> RemoteContact | None:
        """Return how it was when it was last talked to."""
        return self._reach.contact

    async def check(self) -> RemoteContact:
        """Look whether it is there, by reading its card anew."""
        return await self._reach.look()

    # --- the way there --------------------------------------------------------------------------------------------

    def _is_found(self, peer: RemotePeer) -> None:
        """Be described as the agent describes itself now; whether it takes webhooks is to be seen again."""
        self.profile = self._states(describe_by_card(self.profile, peer.card))
        if self._means is not None:
            self._means.may_push = True

    def _by_card(self) -> AbstractAsyncContextManager[RemotePeer]:
        from accord.client.client import Client

        return Client.connect(self.url, timeout=self.terms.answer_seconds, **self._client)


def _may_reach(url: str, webhook: str) -> bool:
    """Whether the agent at a URL gets to a webhook: to one that is for this machine alone only from here."""
    return is_loopback(host_of(url)) or not is_loopback(host_of(webhook))


def _unchanged(profile: Profile) -> Profile:
    return profile


def describe_by_card(profile: Profile, card: AgentCard) -> Profile:
    """Return how an agent elsewhere is described here: as its own card does, under the name that it has here."""
    return replace(
        profile,
        description=card.description or profile.description,
        version=card.version or profile.version,
        skills=card.skills,
        input_modes=card.default_input_modes or ANY,
        output_modes=card.default_output_modes or profile.output_modes,
    )
