"""Flows behind a webhook, such as n8n's, as agents.

The caller's message is posted, and the flow's answer is the agent's. A flow may ask the caller a question, and accept
and return files. A long flow acknowledges the message and reports to a webhook endpoint of its task
(`remote.flow_reports`). Such a task is suspended meanwhile.
"""

import logging
from collections.abc import AsyncIterator
from typing import Any, NoReturn

from msgspec.structs import replace

from accord.agents.http.flow import (
    DeliveryUnknown,
    FlowMessage,
    FlowWebhook,
    HttpOptions,
    Mapper,
    PostedMessage,
    RequestBody,
    build_body,
    check_template,
)
from accord.agents.http.responses import FlowResponse
from accord.agents.loader import import_function
from accord.agents.messages import answer_id, file_parts
from accord.agents.turns import external_context
from accord.api import TEXT, Agent, Context, Crash, Failed, Node, Rejected, agent_types
from accord.api.agent_types import Given, Kind
from accord.api.remote import (
    PATH,
    RemoteLink,
    RemoteTasks,
    WebhookKeys,
    flow_report_url,
    patiently,
    poll_signal,
    unsent_message,
)
from accord.model import Message, Part, TaskState
from accord.protocol import lifecycle, urls

USAGE = {
    "input_tokens": ("inputTokens", "input_tokens", "prompt_tokens", "promptTokens"),
    "output_tokens": ("outputTokens", "output_tokens", "completion_tokens", "completionTokens"),
    "cost": ("cost",),
}
"""Fields of usage, with the names that flows use for them."""

SPOKEN, ANY = (TEXT, agent_types.JSON), "*/*"

log = logging.getLogger("accord.http")


class HttpAgent:
    """A flow that answers in its response."""

    crash = Crash.FAIL
    """A flow may not be safe to post to twice.

    `on_crash` states otherwise for flows that detect duplicates by their Idempotency-Key.
    """

    def __init__(self, given: Given) -> None:
        self.options: HttpOptions = given.options
        check_template(self.options.payload_template)
        spec = self.options.input_mapper
        self._mapper: Mapper | None = None if spec is None else import_function(spec, "input_mapper")
        self._flow = FlowWebhook(self.options)
        takes = (*SPOKEN, ANY) if self.options.multimodal_mode else SPOKEN
        own = agent_types.profile(given, crash=self.crash, name="flow", input_modes=takes, output_modes=(*SPOKEN, ANY))
        self.profile = replace(own, timeout=self.options.task_timeout)

    async def start(self, node: Node) -> None:
        """Do nothing; connections are opened on demand."""

    async def stop(self) -> None:
        """Close all connections."""
        await self._flow.close()

    async def run(self, ctx: Context) -> None:
        """Post the message, and then each answer to the flow's questions until it is done."""
        said, number = ctx.message, 1
        while True:
            question = ctx.kept(f"asked:{number}")
            if question is None:
                question = await self._turn(ctx, said, number)
                if question is None:
                    return
                await ctx.keep(f"asked:{number}", question)
            said = (await ctx.ask(question, key=f"http:{number}")).message
            number += 1

    async def _turn(self, ctx: Context, said: Message, number: int) -> str | None:
        """Post one message, write the flow's answer, and return its question or None."""
        body = self.body(ctx, said)
        await ctx.flush()  # subscribers see that the task works
        async with self._flow.post(body, PostedMessage(ctx.task_id, number)) as answer:
            question = await self._say(ctx, answer)
        if question is None:
            await ctx.finish(answer_id(ctx))
        return question

    async def _say(self, ctx: Context, answer: AsyncIterator[FlowResponse]) -> str | None:
        async for heard in answer:
            if heard.usage is not None:
                await ctx.usage(**reported_usage(heard.usage))
            if heard.failure is not None:
                raise Failed(heard.failure)
            if heard.question is not None:
                return heard.question
            if heard.progress:
                await ctx.status(heard.progress)
            for part in heard.parts:
                await ctx.artifact(part, id=answer_id(ctx), append=True, last_chunk=False)
        return None

    def body(self, ctx: Context, said: Message, callback_url: str | None = None) -> RequestBody:
        """Return the request body for a message."""
        if not self.options.multimodal_mode and file_parts(said.parts):
            raise Rejected("This agent takes text and data, and no files")
        told = FlowMessage(
            parts=said.parts,
            context_id=external_context(ctx),
            task_id=ctx.task_id,
            message_id=said.message_id,
            callback_url=callback_url,
        )
        try:
            return build_body(self.options, told, self._mapper)
        except Exception as error:
            if self._mapper is None:
                raise
            log.exception("http.mapper_failed", extra={"task_id": ctx.task_id, "agent": self.profile.name})
            raise Failed("The message could not be made into what the flow expects") from error


def reported_usage(usage: Any) -> dict[str, Any]:
    """Return a flow's reported usage in our names; values that are not valid numbers are left out."""
    found: dict[str, Any] = {}
    for name, spellings in USAGE.items():
        value = next((usage[one] for one in spellings if isinstance(usage.get(one), int | float)), None)
        if value is not None and not isinstance(value, bool) and value >= 0:
            found[name] = float(value) if name == "cost" else int(value)
    if isinstance(usage.get("model"), str):
        found["model"] = usage["model"]
    return found


ATTEMPTS = 20
"""Maximum number of lost executions. A restart is harmless, because nothing is posted twice."""

NO_ADDRESS = "This server has no address that a flow may call back: set receiver.url, or callback_url"

RETRY = "retry"
"""Signal of a user to post the last message again."""


class CallbackAgent(HttpAgent):
    """A flow that reports later, over a callback."""

    crash = Crash.RESUME

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        if self.options.callback_url is not None and not urls.is_http_url(self.options.callback_url):
            raise ValueError("callback_url: The address of this server begins with http:// or https://, and has a host")
        self.profile = replace(self.profile, attempts=max(self.profile.attempts, ATTEMPTS))
        self.trust = WebhookKeys()
        self._remotes: RemoteTasks | None = None
        self._address: str | None = None

    # --- for the composition of a node ------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Do nothing; a flow has no card."""

    async def join(self, remotes: RemoteTasks, webhook: str | None = None) -> None:
        """Start, with the remote links of a node's store; `webhook` is the node's URL for reports."""
        self._remotes = remotes
        self._address = self.options.callback_url or flow_report_url(webhook)
        if self._address is None:
            log.error("http.no_callback", extra={"agent": self.profile.name, "reason": NO_ADDRESS})
            return
        here, there = urls.host_of(self._address), urls.host_of(self.options.address)
        if urls.is_loopback(here) and not urls.is_loopback(there):
            url = self._address.partition(PATH)[0]
            log.warning("http.callback_is_local", extra={"agent": self.profile.name, "url": url})

    async def leave(self) -> None:
        """Stop; the next node finds the pending work in the store."""
        self._remotes = None

    # --- one execution ----------------------------------------------------------------------------------------------

    async def run(self, ctx: Context) -> None:
        """Post unsent messages and suspend. A report ends the task; this method never returns normally."""
        if self._remotes is None:
            raise RuntimeError("A flow that calls back is run by a host that it has joined")
        await ctx.usage(key="elsewhere")  # nothing yet: the endpoint that receives reports accounts for usage
        await CallbackExecution(self, ctx, self._remotes).go_on()

    async def tell(self, ctx: Context, said: Message, number: int, token: str) -> None:
        """Post a message with a token for its reports; raises Failed, or DeliveryUnknown if it may have arrived."""
        if self._address is None:
            raise Failed(NO_ADDRESS)
        body = self.body(ctx, said, f"{self._address}?token={token}")
        await self._flow.tell(body, PostedMessage(ctx.task_id, number))

    @property
    def sla_seconds(self) -> float:
        """Maximum time without a report from the flow, in seconds."""
        return self.options.sla_seconds

    @property
    def repeats(self) -> bool:
        """Whether a message of unknown delivery may be posted again."""
        return self.profile.crash is Crash.RESTART


class CallbackExecution:
    """One execution of a task by a callback flow; its state is only in the link."""

    def __init__(self, agent: CallbackAgent, ctx: Context, remotes: RemoteTasks) -> None:
        self._agent = agent
        self._ctx = ctx
        self._remotes = remotes

    async def go_on(self) -> NoReturn:
        """Handle the state of the link until the task is suspended."""
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

    async def _look(self) -> tuple[RemoteLink, TaskState]:
        ctx = self._ctx
        found = await patiently(lambda: self._remotes.look(ctx.tenant, ctx.task_id))
        if found is not None:
            return found
        blank = RemoteLink(task_id=ctx.task_id, agent=self._agent.profile.name, context_id=ctx.context_id)
        return blank, ctx.task.status.state

    async def _say(self, link: RemoteLink, said: Message) -> None:
        """Post a message. If an earlier execution may have posted it, wait for the flow's report instead."""
        ctx, number = self._ctx, link.sent + 1
        attempt = f"posted:{number}:{link.tries}"
        is_new = ctx.kept(attempt) is None
        expected = link
        link, token = await patiently(lambda: self._remotes.expect(ctx.tenant, expected, with_token=True))
        if is_new or self._agent.repeats:
            await ctx.keep(attempt, "yes")
            try:
                await self._agent.tell(ctx, said, number, token or "")
            except DeliveryUnknown as error:
                about = {"task_id": ctx.task_id, "agent": link.agent, "reason": str(error)}
                log.warning("http.maybe_not_told", extra=about)
        else:
            log.warning("http.not_told_twice", extra={"task_id": ctx.task_id, "agent": link.agent})
        await self._said(number)

    async def _said(self, number: int) -> None:
        """Record that a message was sent, and retry if a report changed the link.

        The same question may then be asked again.
        """
        while (link := (await self._look())[0]).sent < number:
            said = replace(link, sent=number, mark=None, heard_at=self._remotes.now_ms())
            await self._note(said)

    async def _asked(self, link: RemoteLink) -> None:
        """Post the last message again if a person asks for it; a flow has no other query."""
        if self._ctx.handed_in(poll_signal(link.asks)) != RETRY:
            await self._note(replace(link, looked=link.asks))
            return
        log.warning("http.told_again", extra={"task_id": link.task_id, "agent": link.agent})
        again = replace(link, sent=max(0, link.sent - 1), tries=link.tries + 1, looked=link.asks)
        await self._note(again)

    async def _note(self, link: RemoteLink) -> None:
        """Write a link. If it changed meanwhile, the next look shows the present state."""
        await patiently(lambda: self._remotes.note(self._ctx.tenant, link))

    async def _rest(self, link: RemoteLink, seconds: float | None = None) -> None:
        await self._ctx.pause(seconds, key=poll_signal(link.asks + 1))

    def _left(self, link: RemoteLink) -> float:
        return link.heard_at / 1000 + self._agent.sla_seconds - self._remotes.now_ms() / 1000

    async def _give_up(self, link: RemoteLink) -> None:
        seconds = self._agent.sla_seconds
        told = f"{seconds / 60:g} minutes" if seconds >= 60 else f"{seconds:g} seconds"
        reason = f"The flow reported nothing for {told}"
        await patiently(lambda: self._remotes.give_up(self._ctx.tenant, link, reason, seconds))


def make(given: Given) -> Agent:
    """Make an agent from its options."""
    return CallbackAgent(given) if given.options.mode == "callback" else HttpAgent(given)


KIND = Kind(name="http", options=HttpOptions, make=make)
