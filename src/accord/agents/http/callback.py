"""Flows that take long: they acknowledge a message, and report to an address that is theirs for one task.

A task of theirs is rows only while it waits: no connection and no process is held. What a flow reports gets into the
log through `core.remotes`, like what agents elsewhere report, by way of `core.callbacks` and the address that
`bindings.receiver` answers. How a message is posted is `answering`'s and `flow`'s.
"""

import logging
from typing import NoReturn

from msgspec.structs import replace

from accord.agents.http.answering import HttpAgent
from accord.agents.http.flow import InDoubt, Posting
from accord.agents.kinds import Given
from accord.engine.agent import Crash
from accord.engine.context import Context, Failed
from accord.model import Message, TaskState
from accord.protocol import hosts, lifecycle
from accord.remote.flow_reports import PATH, flow_report_url
from accord.remote.tasks import RemoteTasks, WebhookKeys, patiently, poll_signal, unsent_message
from accord.storage.commands.remotes import Link

ATTEMPTS = 20
"""How often a run may be lost: it posts nothing twice, so that beginning again does no harm."""

NO_ADDRESS = "This server has no address that a flow may call back: set receiver.url, or callback_url"

RETRY = "retry"
"""What a task is told whose user wants it tried again."""

log = logging.getLogger("accord.http")


class CallbackAgent(HttpAgent):
    """A flow that calls back."""

    crash = Crash.RESUME

    def __init__(self, given: Given) -> None:
        """Serve the flow of the options."""
        super().__init__(given)
        if self.options.callback_url is not None and not hosts.is_web(self.options.callback_url):
            raise ValueError("callback_url: The address of this server begins with http:// or https://, and has a host")
        self.profile = replace(self.profile, attempts=max(self.profile.attempts, ATTEMPTS))
        self.trust = WebhookKeys()
        self._remotes: RemoteTasks | None = None
        self._address: str | None = None

    # --- as whoever composes a node knows it ------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Begin; a flow says nothing about itself."""

    async def join(self, remotes: RemoteTasks, webhook: str | None = None) -> None:
        """Begin to work, with the links of a node's store; `webhook` is where agents elsewhere report."""
        self._remotes = remotes
        self._address = self.options.callback_url or flow_report_url(webhook)
        if self._address is None:
            log.error("flow cannot call back: %s", NO_ADDRESS, extra={"agent": self.profile.name})
            return
        here, there = hosts.host_of(self._address), hosts.host_of(self.options.address)
        if hosts.is_loopback(here) and not hosts.is_loopback(there):
            log.warning("flow is told to call back to %s, which is this machine", self._address.partition(PATH)[0])

    async def leave(self) -> None:
        """Stop; whoever goes on finds what there is to do in the store."""
        self._remotes = None

    # --- one run ----------------------------------------------------------------------------------------------------

    async def run(self, ctx: Context) -> None:
        """Post what the flow was not told yet, and wait; the task ends by a report, never by returning from here."""
        if self._remotes is None:
            raise RuntimeError("A flow that calls back is run by a host that it has joined")
        await ctx.usage(key="elsewhere")  # nothing yet: its budget is known to whoever hears what it uses
        await Waiting(self, ctx, self._remotes).go_on()

    async def tell(self, ctx: Context, said: Message, number: int, token: str) -> None:
        """Post a message, for whose reports there is a token; raises Failed, which is InDoubt if it may be there."""
        if self._address is None:
            raise Failed(NO_ADDRESS)
        body = self.body(ctx, said, f"{self._address}?token={token}")
        await self._flow.tell(body, Posting(ctx.task_id, number))

    @property
    def sla_seconds(self) -> float:
        """How long the flow may report nothing."""
        return self.options.sla_seconds

    @property
    def repeats(self) -> bool:
        """Whether a message may be posted again of which nobody knows whether it was."""
        return self.profile.crash is Crash.RESTART


class Waiting:
    """One run of a task that a flow does; nothing is remembered here but in its link."""

    def __init__(self, agent: CallbackAgent, ctx: Context, remotes: RemoteTasks) -> None:
        self._agent = agent
        self._ctx = ctx
        self._remotes = remotes

    async def go_on(self) -> NoReturn:
        """Do what there is to do, and wait."""
        while True:
            link, state = await self._look()
            if state in lifecycle.TERMINAL:
                await self._ctx.pause()
            elif (said := unsent_message(link, self._ctx.history)) is not None:
                await self._say(link, said)
            elif link.asks > link.looked:
                await self._asked(link)
            elif state in lifecycle.INTERRUPTED or state is TaskState.UNKNOWN:
                await self._rest(link)
            elif (left := self._left(link)) > 0:
                await self._rest(link, left)
            else:
                await self._give_up(link)

    async def _look(self) -> tuple[Link, TaskState]:
        ctx = self._ctx
        found = await patiently(lambda: self._remotes.look(ctx.tenant, ctx.task_id))
        if found is not None:
            return found
        blank = Link(task_id=ctx.task_id, agent=self._agent.profile.name, context_id=ctx.context_id)
        return blank, ctx.task.status.state

    async def _say(self, link: Link, said: Message) -> None:
        """Post a message, unless an earlier run may have done so; then only what the flow reports can tell."""
        ctx, number = self._ctx, link.sent + 1
        attempt = f"posted:{number}:{link.tries}"
        is_new = ctx.kept(attempt) is None
        expected = link
        link, token = await patiently(lambda: self._remotes.expect(ctx.tenant, expected, with_token=True))
        if is_new or self._agent.repeats:
            await ctx.keep(attempt, "yes")
            try:
                await self._agent.tell(ctx, said, number, token or "")
            except InDoubt as error:
                about = {"task_id": ctx.task_id, "agent": link.agent, "reason": str(error)}
                log.warning("flow may not have got the message", extra=about)
        else:
            log.warning("flow is not told twice", extra={"task_id": ctx.task_id, "agent": link.agent})
        await self._said(number)

    async def _said(self, number: int) -> None:
        """Note that a message was said, whatever was reported meanwhile; the same question may now be asked again."""
        while (link := (await self._look())[0]).sent < number:
            said = replace(link, sent=number, mark=None, heard_at=self._remotes.now_ms())
            await self._note(said)

    async def _asked(self, link: Link) -> None:
        """Post the last message again if a person wants that; a flow cannot be asked for anything else."""
        if self._ctx.handed_in(poll_signal(link.asks)) != RETRY:
            await self._note(replace(link, looked=link.asks))
            return
        log.warning("flow is told again by hand", extra={"task_id": link.task_id, "agent": link.agent})
        again = replace(link, sent=max(0, link.sent - 1), tries=link.tries + 1, looked=link.asks)
        await self._note(again)

    async def _note(self, link: Link) -> None:
        """Write a link; if somebody was faster, the next look shows what there is to do."""
        await patiently(lambda: self._remotes.note(self._ctx.tenant, link))

    async def _rest(self, link: Link, seconds: float | None = None) -> None:
        await self._ctx.pause(seconds, key=poll_signal(link.asks + 1))

    def _left(self, link: Link) -> float:
        return link.heard_at / 1000 + self._agent.sla_seconds - self._remotes.now_ms() / 1000

    async def _give_up(self, link: Link) -> None:
        seconds = self._agent.sla_seconds
        told = f"{seconds / 60:g} minutes" if seconds >= 60 else f"{seconds:g} seconds"
        reason = f"The flow reported nothing for {told}"
        await patiently(lambda: self._remotes.give_up(self._ctx.tenant, link, reason, seconds))
