"""One call of a tool: what it says is sent to the agent, and what comes of it followed to where it rests.

Progress is what the agent says on its way; a call that is given up cancels its task; what an agent asks becomes a form
where the client has one, and otherwise a result that says how to go on. It knows neither stdio nor HTTP: `server` does.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
from mcp.server import ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, ElicitResult, InputRequiredResult
from mcp_types.version import is_version_at_least

from accord.bindings.mcp.arguments import Arguments, BadArguments, message_of, read
from accord.bindings.mcp.results import ANSWER, filled, form_of, refusal, result_of
from accord.bindings.mcp.tools import Exposed, Offered
from accord.engine.messages import text_of
from accord.errors import AccordError
from accord.model import (
    ArtifactUpdate,
    CancelRequest,
    Event,
    EventBody,
    GetRequest,
    Message,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskState,
)
from accord.protocol import lifecycle

CANCEL_SECONDS = 5.0
"""How long an agent may take to hear that nobody waits any more."""

FORMS_AS_RESULTS = "2026-07-28"
"""The version of MCP since when what a server asks is a result, and the answer another call."""

AT_REST = lifecycle.ENDED | lifecycle.INTERRUPTED

log = logging.getLogger("accord.mcp")

Context = ServerRequestContext[Any, Any]


class Calls:
    """Answers calls of tools."""

    def __init__(self, wait_seconds: float | None = None) -> None:
        """Let a call wait for its agent so long, or until it rests."""
        self._wait_seconds = wait_seconds

    async def answer(
        self, called: Offered, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Answer one call."""
        try:
            return await self._answer(called, ctx, params)
        except BadArguments as error:
            return refusal(str(error))
        except AccordError as error:
            log.info("call refused", extra={"tool": called.tool.name, "reason": error.message})
            return refusal(error.message)
        except called.exposed.unreachable as error:
            log.warning("agent not reached", extra={"tool": called.tool.name, "reason": str(error)})
            return refusal("The agent cannot be reached")

    async def _answer(
        self, called: Offered, ctx: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        says = _resumed(params) or read(params.arguments)
        while True:
            said = await _Talk(called.exposed, ctx).within(self._wait_seconds, says, called.skill)
            if not isinstance(said, Task) or said.status.state is not TaskState.INPUT_REQUIRED or not _has_forms(ctx):
                return result_of(said)
            form = form_of(said)
            if is_version_at_least(ctx.protocol_version, FORMS_AS_RESULTS):
                if params.request_state == said.id and says.says_nothing:
                    return result_of(said)  # the form was not filled in: it is not shown again
                return InputRequiredResult(input_requests={ANSWER: form}, request_state=said.id)
            answer = filled(said.id, await ctx.session.send_request(form, ElicitResult))
            if answer is None:
                return result_of(said)
            says = answer


def _resumed(params: CallToolRequestParams) -> Arguments | None:
    """Return what a call says that brings the answer to a form; one that was not filled in only looks at its task."""
    form = (params.input_responses or {}).get(ANSWER)
    if params.request_state is None or not isinstance(form, ElicitResult):
        return None
    return filled(params.request_state, form) or Arguments(task_id=params.request_state)


def _has_forms(ctx: Context) -> bool:
    """Whether the client can show a form; one that says nothing about modes can."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


class _Talk:
    """What is said and heard in one turn."""

    def __init__(self, exposed: Exposed, ctx: Context) -> None:
        self._agent = exposed.agent
        self._caller = exposed.caller
        self._refusals: tuple[type[Exception], ...] = (AccordError, *exposed.unreachable)
        self._ctx = ctx
        self._now: Task | Message | None = None
        self._heard = 0

    async def within(self, seconds: float | None, says: Arguments, skill: str | None) -> Task | Message:
        """Say something, or just look, and return what came of it where it rests, or after a while."""
        events = self._events(says, skill)
        try:
            async with asyncio.timeout(seconds), aclosing(events):  # type: ignore[type-var]  # they are generators
                async for event in events:
                    await self._hear(event.body)
                    if self._rests():
                        break
        except TimeoutError:
            if not isinstance(self._now, Task):
                raise BadArguments("The agent did not answer in time") from None
        except asyncio.CancelledError:
            await self._give_up()
            raise
        if self._now is None:
            raise BadArguments("The agent did not answer")
        return self._now

    async def _events(self, says: Arguments, skill: str | None) -> AsyncIterator[Event]:
        """Yield what comes of what is said, or of a task that is only looked at."""
        if not says.says_nothing:
            source = self._agent.stream(SendRequest(message=message_of(says, skill)), self._caller)
        else:
            task = await self._agent.get(GetRequest(id=says.task_id or ""), self._caller)
            yield Event(seq=0, body=task)
            if task.status.state in AT_REST:
                return
            source = self._agent.subscribe(SubscribeRequest(id=task.id), self._caller)
        async with aclosing(source) as events:  # type: ignore[type-var]  # every stream is a generator
            async for event in events:
                yield event

    async def _hear(self, body: EventBody) -> None:
        """Take in what happened, and tell whoever waits."""
        if isinstance(body, Task | Message):
            self._now = body
        elif isinstance(self._now, Task):
            self._now = lifecycle.apply(self._now, body)
        if text := _words(body):
            self._heard += 1
            await self._ctx.session.report_progress(self._heard, None, text)

    def _rests(self) -> bool:
        return isinstance(self._now, Message) or (self._now is not None and self._now.status.state in AT_REST)

    async def _give_up(self) -> None:
        """Cancel a task that nobody waits for any more."""
        if not isinstance(self._now, Task):
            return
        about = {"task_id": self._now.id}
        with anyio.move_on_after(CANCEL_SECONDS, shield=True):
            try:
                await self._agent.cancel(CancelRequest(id=self._now.id), self._caller)
                log.info("task cancelled", extra=about)
            except self._refusals as error:
                log.warning("task was not cancelled", extra=about | {"reason": str(error)})


def _words(body: EventBody) -> str:
    """Return what an agent says on its way."""
    match body:
        case StatusUpdate(status=status) if status.message is not None and status.state is TaskState.WORKING:
            return text_of(status.message.parts)
        case ArtifactUpdate(artifact=artifact):
            return text_of(artifact.parts)
    return ""
