"""Channels of agent-relay as A2A agents.

A task is posted to the channel, which is read every few seconds until an agent there reports that it is DONE. Accord
can host the class. Its `invoke` and `get_metadata` are those of a2a-adapter's adapters, so a2a-adapter can host it too.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import NAMESPACE_OID, uuid4, uuid5

import msgspec
from msgspec.structs import replace

from accord.agents.messages import answer_id, prompt
from accord.agents.relay.channel import (
    FAILED,
    AnswerSearch,
    ChannelMessage,
    RelayChannel,
    RelayRequest,
    RelayUnavailable,
    format_request,
)
from accord.api import TEXT, AgentEnvironment, Context, Crash, Failed, Profile
from accord.api.agent_types import JSON, skills_of
from accord.retries import RetryPolicy

__all__ = ["AdapterMetadata", "RelayA2AAdapter"]


RELAYCAST = "https://api.relaycast.dev"

RETRIES = RetryPolicy(first_seconds=0.5, attempts=3, jitter=(1.0, 1.0))
"""Retries of a message that was not delivered, and of reads."""

ATTEMPTS = 20
"""Maximum number of lost executions. A restart is harmless, because nothing is posted twice."""

log = logging.getLogger("accord.relay")

T = TypeVar("T")

OnMessage = Callable[[ChannelMessage], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class AdapterMetadata:
    """Content of an agent card; the names are those of a2a-adapter, whose servers read them."""

    name: str
    description: str
    version: str = "1.0.0"
    skills: list[dict[str, Any]] = field(default_factory=list)
    input_modes: list[str] = field(default_factory=lambda: ["text"])
    output_modes: list[str] = field(default_factory=lambda: ["text"])
    streaming: bool = False
    provider: dict[str, Any] | None = None
    documentation_url: str | None = None
    icon_url: str | None = None


class RequestNotDone(Exception):
    """An agent reports that it could not do the request."""


def conversation_id(ctx: Context) -> str:
    """Return the id of a task's conversation in a channel.

    The id is different for each caller, so that no caller can enter another's conversation by naming its context.
    """
    return _stable_id(ctx.tenant, ctx.caller.owner, ctx.context_id)


def _stable_id(*names: str) -> str:
    return str(uuid5(NAMESPACE_OID, msgspec.json.encode(names).decode()))


class RelayA2AAdapter:
    """The agents of a channel as one agent."""

    def __init__(
        self,
        relay_api_key: str,
        channel: str = "general",
        target_agent: str | None = None,
        base_url: str = RELAYCAST,
        poll_interval: float = 2.0,
        timeout: float = 300.0,
    ) -> None:
        """Ask in `channel`; with a `target_agent` only its messages are answers.

        The channel is read every `poll_interval` seconds, and an answer may take `timeout` seconds.
        """
        self.api_key = relay_api_key
        self.channel = channel
        self.target_agent = target_agent
        self.base_url = base_url
        self.poll_interval = poll_interval
        self.timeout = timeout
        self._relay: RelayChannel | None = None
        metadata = self.get_metadata()
        self.profile = Profile(
            name=metadata.name,
            description=metadata.description,
            version=metadata.version,
            skills=skills_of((metadata.name,), metadata.description),
            input_modes=(TEXT, JSON),
            crash=Crash.RESUME,
            attempts=ATTEMPTS,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(channel={self.channel!r}, target_agent={self.target_agent!r})"

    # --- interface of a2a-adapter -------------------------------------------------------------------------------------

    async def invoke(self, user_input: str, context_id: str | None = None, **kwargs: Any) -> str:
        """Post a request and return the answer; raises TimeoutError after `timeout` seconds."""
        task = kwargs.get("task_id") or getattr(kwargs.get("context"), "task_id", None)
        asking = copy(self)
        asking._relay = None  # connections belong to an event loop, and each call may come from another
        try:
            before = await asking.before(
                user_input, str(task or uuid4().hex), _stable_id(context_id) if context_id else None
            )
            return await asking.answer(await asking.ask(before))
        finally:
            await asking.close()

    def get_metadata(self) -> AdapterMetadata:
        """Return the metadata for the card."""
        return AdapterMetadata(
            name="Agent Relay", description=f"Multi-agent workspace (channel: {self.channel})", streaming=False
        )

    def supports_streaming(self) -> bool:
        """Whether answers are streamed."""
        return False

    async def cancel(self, context_id: str | None = None, **kwargs: Any) -> None:
        """Do nothing; agents in a channel cannot be stopped."""

    async def close(self) -> None:
        """Close all connections."""
        relay, self._relay = self._relay, None
        if relay is not None:
            await relay.close()

    # --- as a hosted agent --------------------------------------------------------------------------------------------

    async def start(self, node: AgentEnvironment) -> None:
        """Do nothing; connections are opened on demand."""

    async def stop(self) -> None:
        """Close all connections."""
        await self.close()

    async def run(self, ctx: Context) -> None:
        """Post the request unless an earlier execution did, and write the answer."""
        try:
            answer = await self.answer(await self._posted_request(ctx), hear=lambda entry: ctx.status(entry.answer))
        except (TimeoutError, RequestNotDone, RelayUnavailable) as error:
            raise Failed(str(error)) from error
        await ctx.artifact(answer, id=answer_id(ctx))

    async def _posted_request(self, ctx: Context) -> RelayRequest:
        """Return the request of a task.

        It is stored before it is posted, so that a later execution can resume. The channel shows whether it was posted.
        """
        stored = ctx.kept("relay")
        if stored is None:
            before = await self.before(prompt(ctx.message.parts), ctx.task_id, conversation_id(ctx))
            await ctx.keep("relay", msgspec.json.encode(before).decode())
        else:
            before = msgspec.json.decode(stored, type=RelayRequest)
            search = AnswerSearch(before)
            search.feed(await self._read_channel())
            if search.is_posted() or ctx.kept("relay:posted") is not None:
                return before
        posted = await self.ask(before)
        await ctx.keep("relay:posted", posted.id or "yes")
        return posted

    # --- requests -----------------------------------------------------------------------------------------------------

    @property
    def relay(self) -> RelayChannel:
        """The channel's client."""
        if self._relay is None:
            self._relay = RelayChannel(self.base_url, self.api_key, self.channel)
        return self._relay

    async def before(self, text: str, tag: str, context: str | None = None) -> RelayRequest:
        """Return a request that is not posted yet, with the present messages of the channel."""
        return RelayRequest(
            tag=tag, text=format_request(text, tag, context), at=time.time(), before=tuple(await self._read_channel())
        )

    async def ask(self, request: RelayRequest) -> RelayRequest:
        """Post a request. A request that may have arrived is not posted again; the channel shows whether it did."""
        try:
            return replace(request, id=await self._retried(lambda: self.relay.post(request.text)))
        except RelayUnavailable as error:
            if error.was_posted:
                return request
            raise

    async def answer(self, request: RelayRequest, hear: OnMessage | None = None) -> str:
        """Wait for the answer to a request; `hear` receives other messages about it."""
        search = AnswerSearch(request, self.target_agent)
        until = request.at + self.timeout
        while True:
            for entry in search.feed(await self._read_page()):
                if hear is not None and search.is_about(entry):
                    await hear(entry)
            if (message := search.answer()) is not None:
                if message.word == FAILED:
                    raise RequestNotDone(message.answer or "The agent could not do it")
                return message.answer
            seconds_left = until - time.time()
            if seconds_left <= 0:
                raise TimeoutError(f"No DONE response within {self.timeout}s")
            await asyncio.sleep(min(self.poll_interval, seconds_left))

    async def _read_channel(self) -> list[ChannelMessage]:
        return await self._retried(self.relay.latest)

    async def _retried(self, do: Callable[[], Awaitable[T]]) -> T:
        """Call the relay, and retry if it is unavailable for a moment."""
        failures = 0
        while True:
            try:
                return await do()
            except RelayUnavailable as error:
                failures += 1
                if error.was_posted or not error.may_pass or RETRIES.is_exhausted(failures):
                    raise
            await asyncio.sleep(RETRIES.delay(failures))

    async def _read_page(self) -> list[ChannelMessage]:
        """Read the channel. A failed read returns nothing, and does not extend the time for an answer."""
        try:
            return await self.relay.latest()
        except RelayUnavailable as error:
            if not error.may_pass:
                raise
            log.warning("relay.channel_unreadable", extra={"channel": self.channel, "reason": str(error)})
            return []
