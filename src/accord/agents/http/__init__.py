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
from accord.api import TEXT, Agent, AgentEnvironment, Context, Crash, Failed, Rejected, agent_types
from accord.api.agent_types import AgentArguments, AgentType
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
from accord.model import Message, TaskState
from accord.protocol import lifecycle, urls

USAGE = {
    "input_tokens": ("inputTokens", "input_tokens", "prompt_tokens", "promptTokens"),
    "output_tokens": ("outputTokens", "output_tokens", "completion_tokens", "completionTokens"),
    "cost": ("cost",),
}
"""Fields of usage, with the names that flows use for them."""

TEXT_AND_DATA, ANY = (TEXT, agent_types.JSON), "*/*"

log = logging.getLogger("accord.http")


class HttpAgent:
    """A flow that answers in its response."""

    crash = Crash.FAIL
    """A flow may not be safe to post to twice.

    `on_crash` states otherwise for flows that detect duplicates by their Idempotency-Key.
    """

    def __init__(self, given: AgentArguments) -> None:
        self.options: HttpOptions = given.options
        check_template(self.options.payload_template)
        spec = self.options.input_mapper
        self._mapper: Mapper | None = None if spec is None else import_function(spec, "input_mapper")
        self._flow = FlowWebhook(self.options)
        takes = (*TEXT_AND_DATA, ANY) if self.options.multimodal_mode else TEXT_AND_DATA
        own = agent_types.profile(
            given, crash=self.crash, name="flow", input_modes=takes, output_modes=(*TEXT_AND_DATA, ANY)
        )
        self.profile = replace(own, timeout=self.options.task_timeout)

    async def start(self, node: AgentEnvironment) -> None:
        """Do nothing; connections are opened on demand."""

    async def stop(self) -> None:
        """Close all connections."""
        await self._flow.close()

    async def run(self, ctx: Context) -> None:
        """Post the message, and then each answer to the flow's questions until it is done."""
        message, number = ctx.message, 1
        while True:
            question = ctx.kept(f"asked:{number}")
            if question is None:
                question = await self._turn(ctx, message, number)
                if question is None:
                    return
                await ctx.keep(f"asked:{number}", question)
            message = (await ctx.ask(question, key=f"http:{number}")).message
            number += 1

    async def _turn(self, ctx: Context, message: Message, number: int) -> str | None:
        """Post one message, write the flow's answer, and return its question or None."""
        body = self.body(ctx, message)
        await ctx.flush()  # subscribers see that the task works
        async with self._flow.post(body, PostedMessage(ctx.task_id, number)) as answer:
            question = await self._write_responses(ctx, answer)
        if question is None:
            await ctx.finish(answer_id(ctx))
        return question

    async def _write_responses(self, ctx: Context, answer: AsyncIterator[FlowResponse]) -> str | None:
        async for response in answer:
            if response.usage is not None:
                await ctx.usage(**reported_usage(response.usage))
            if response.failure is not None:
                raise Failed(response.failure)
            if response.question is not None:
                return response.question
            if response.progress:
                await ctx.status(response.progress)
            for part in response.parts:
                await ctx.artifact(part, id=answer_id(ctx), append=True, last_chunk=False)
        return None

    def body(self, ctx: Context, message: Message, callback_url: str | None = None) -> RequestBody:
        """Return the request body for a message."""
        if not self.options.multimodal_mode and file_parts(message.parts):
            raise Rejected("This agent takes text and data, and no files")
        flow_message = FlowMessage(
            parts=message.parts,
            context_id=external_context(ctx),
            task_id=ctx.task_id,
            message_id=message.message_id,
            callback_url=callback_url,
        )
        try:
            return build_body(self.options, flow_message, self._mapper)
        except Exception as error:
            if self._mapper is None:
                raise
            log.exception("http.mapper_failed", extra={"task_id": ctx.task_id, "agent": self.profile.name})
            raise Failed("The message could not be converted into the flow's input") from error


def reported_usage(usage: Any) -> dict[str, Any]:
    """Return a flow's reported usage in our names; values that are not valid numbers are left out."""
    counts: dict[str, Any] = {}
    for name, spellings in USAGE.items():
        value = next((usage[spelling] for spelling in spellings if isinstance(usage.get(spelling), int | float)), None)
        if value is not None and not isinstance(value, bool) and value >= 0:
            counts[name] = float(value) if name == "cost" else int(value)
    if isinstance(usage.get("model"), str):
        counts["model"] = usage["model"]
    return counts


ATTEMPTS = 20
"""Maximum number of lost executions. A restart is harmless, because nothing is posted twice."""

NO_ADDRESS = "This server has no address that a flow may call back: set receiver.url, or callback_url"

RETRY = "retry"
"""Signal of a user to post the last message again."""


class CallbackAgent(HttpAgent):
    """A flow that reports later, over a callback."""

    crash = Crash.RESUME

    def __init__(self, given: AgentArguments) -> None:
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
        await CallbackExecution(self, ctx, self._remotes).run_until_suspended()

    async def submit(self, ctx: Context, message: Message, number: int, token: str) -> None:
        """Post a message with a token for its reports; raises Failed, or DeliveryUnknown if it may have arrived."""
        if self._address is None:
            raise Failed(NO_ADDRESS)
        body = self.body(ctx, message, f"{self._address}?token={token}")
        await self._flow.submit(body, PostedMessage(ctx.task_id, number))

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

    async def run_until_suspended(self) -> NoReturn:
        """Handle the state of the link until the task is suspended."""
        while True:
            link, state = await self._read_link()
            if state in lifecycle.TERMINAL:
                await self._ctx.pause()
            elif (message := unsent_message(link, self._ctx.history)) is not None:
                await self._post(link, message)
            elif link.asks > link.looked:
                await self._handle_request(link)
            elif state in lifecycle.INTERRUPTED or state is TaskState.UNKNOWN:
                await self._suspend(link)
            elif (seconds_left := self._seconds_left(link)) > 0:
                await self._suspend(link, seconds_left)
            else:
                await self._give_up(link)

    async def _read_link(self) -> tuple[RemoteLink, TaskState]:
        ctx = self._ctx
        linked = await patiently(lambda: self._remotes.find_with_state(ctx.tenant, ctx.task_id))
        if linked is not None:
            return linked
        new_link = RemoteLink(task_id=ctx.task_id, agent=self._agent.profile.name, context_id=ctx.context_id)
        return new_link, ctx.task.status.state

    async def _post(self, link: RemoteLink, message: Message) -> None:
        """Post a message. If an earlier execution may have posted it, wait for the flow's report instead."""
        ctx, number = self._ctx, link.sent + 1
        attempt = f"posted:{number}:{link.tries}"
        is_new = ctx.kept(attempt) is None
        expected = link
        link, token = await patiently(lambda: self._remotes.prepare_link(ctx.tenant, expected, with_token=True))
        if is_new or self._agent.repeats:
            await ctx.keep(attempt, "yes")
            try:
                await self._agent.submit(ctx, message, number, token or "")
            except DeliveryUnknown as error:
                log_extra = {"task_id": ctx.task_id, "agent": link.agent, "reason": str(error)}
                log.warning("http.maybe_not_told", extra=log_extra)
        else:
            log.warning("http.not_told_twice", extra={"task_id": ctx.task_id, "agent": link.agent})
        await self._record_sent(number)

    async def _record_sent(self, number: int) -> None:
        """Record that a message was sent, and retry if a report changed the link.

        The same question may then be asked again.
        """
        while (link := (await self._read_link())[0]).sent < number:
            updated = replace(link, sent=number, mark=None, heard_at=self._remotes.now_ms())
            await self._write_link(updated)

    async def _handle_request(self, link: RemoteLink) -> None:
        """Post the last message again if a person asks for it; a flow has no other query."""
        if self._ctx.handed_in(poll_signal(link.asks)) != RETRY:
            await self._write_link(replace(link, looked=link.asks))
            return
        log.warning("http.told_again", extra={"task_id": link.task_id, "agent": link.agent})
        retried = replace(link, sent=max(0, link.sent - 1), tries=link.tries + 1, looked=link.asks)
        await self._write_link(retried)

    async def _write_link(self, link: RemoteLink) -> None:
        """Write a link. If it changed meanwhile, the next look shows the present state."""
        await patiently(lambda: self._remotes.update_link(self._ctx.tenant, link))

    async def _suspend(self, link: RemoteLink, seconds: float | None = None) -> None:
        await self._ctx.pause(seconds, key=poll_signal(link.asks + 1))

    def _seconds_left(self, link: RemoteLink) -> float:
        return link.heard_at / 1000 + self._agent.sla_seconds - self._remotes.now_ms() / 1000

    async def _give_up(self, link: RemoteLink) -> None:
        seconds = self._agent.sla_seconds
        duration = f"{seconds / 60:g} minutes" if seconds >= 60 else f"{seconds:g} seconds"
        reason = f"The flow reported nothing for {duration}"
        await patiently(lambda: self._remotes.give_up(self._ctx.tenant, link, reason, seconds))


def make(given: AgentArguments) -> Agent:
    """Make an agent from its options."""
    return CallbackAgent(given) if given.options.mode == "callback" else HttpAgent(given)


AGENT_TYPE = AgentType(name="http", options=HttpOptions, make=make)
