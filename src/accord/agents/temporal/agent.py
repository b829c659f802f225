"""A Temporal workflow as an agent, with client and cancels.

The work, its state and its retries are Temporal's; no worker runs here. An execution holds nothing: it starts the
workflow or finds it, passes on messages of the caller, looks, and suspends the task until the workflow ends or it is
time to look again. A task that is canceled has ended at once; its workflow is canceled from here, by whichever node
comes first.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.api.common.v1 import Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from accord.agents.agent_types import Given, profile
from accord.agents.temporal import TemporalOptions, workflow_data
from accord.agents.temporal.workflow_data import ANSWER, MODES, report_result, workflow_input, workflow_value
from accord.agents.turns import external_context
from accord.engine.agent import Crash, Node
from accord.engine.clock import SYSTEM
from accord.engine.context import Context, Failed
from accord.engine.messages import parts_of
from accord.engine.store_retry import retry_until_available
from accord.errors import AccordError
from accord.model import Message, Role, TaskState
from accord.storage.commands import remote_tasks
from accord.storage.commands.remote_tasks import NewRemoteLink, RemoteCancel
from accord.storage.store import Store, StoreUnavailable

PASSING = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,
    }
)
"""Answers that may be others later."""


class TemporalUnreachable(Exception):
    """Temporal cannot be reached; the text says why."""


class TemporalService:
    """The way to Temporal; `name` tells it from others, to whom cancels of its workflows mean nothing."""

    def __init__(self, name: str, options: TemporalOptions, connect: Callable[[], Awaitable[Client]] | None) -> None:
        """Go there as the options say, or have `connect` make the client for the agent called `name`."""
        self.name = f"temporal:{name}" if connect else f"temporal://{options.address}/{options.namespace}"
        self._options = options
        self._connect = connect or self._by_options
        self._lock = asyncio.Lock()
        self._client: Client | None = None

    async def client(self) -> Client:
        """Return the client; once connected it connects again by itself."""
        async with self._lock:
            if self._client is None:
                try:
                    self._client = await self._connect()
                except (RuntimeError, OSError) as error:  # what the SDK raises, and what a file that is not there does
                    raise TemporalUnreachable(str(error)) from error
            return self._client

    async def _by_options(self) -> Client:
        options = self._options
        tls: bool | TLSConfig = options.tls
        if options.tls_ca or options.tls_cert:
            tls = TLSConfig(
                server_root_ca_cert=_read_file(options.tls_ca),
                client_cert=_read_file(options.tls_cert),
                client_private_key=_read_file(options.tls_key),
            )
        return await Client.connect(
            options.address, namespace=options.namespace, api_key=options.api_key, tls=tls, connect_timeout=ANSWER
        )


NO_ANSWER = (RPCError, TemporalUnreachable)
"""Everything that may come instead of an answer."""


async def latest_heartbeat(client: Client, seen: WorkflowExecutionDescription) -> Any:
    """Return what an activity of a workflow said with its latest heartbeat; None if none has said anything."""
    said = [one for one in seen.raw_description.pending_activities if one.heartbeat_details.payloads]
    if not said:
        return None
    latest = max(said, key=lambda one: one.last_heartbeat_time.ToNanoseconds())
    found = await client.data_converter.decode(latest.heartbeat_details.payloads)
    return found[0] if len(found) == 1 else found


def is_transient(error: Exception) -> bool:
    """Whether Temporal may give another answer later."""
    return not isinstance(error, RPCError) or error.status in PASSING


def _read_file(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


CANCEL_POLL_SECONDS = 0.3
"""How late a cancel may be passed on; one look is for all tasks."""

AT_ONCE = 16

MAX_TRIES = 8
"""How often it is tried, each time after twice the time: for an hour, if the grace is half a minute."""

REASON = "The A2A task has ended"

log = logging.getLogger("accord.temporal")


class WorkflowCancels:
    """Passes cancels on to one Temporal."""

    def __init__(self, store: Store, service: TemporalService, grace_seconds: float) -> None:
        """Cancel workflows of `service`, and terminate what has not ended after a grace."""
        self._store = store
        self._service = service
        self._grace_ms = round(grace_seconds * 1000)

    async def keep(self) -> None:
        """Pass on what there is, for ever."""
        while True:
            try:
                while found := await self._store.do(
                    remote_tasks.claim_cancels, self._service.name, AT_ONCE, self._grace_ms
                ):
                    await asyncio.gather(*(self._pass_on(cancel) for cancel in found))
            except StoreUnavailable as error:
                log.warning("store unavailable", extra={"reason": str(error)})
            except Exception:  # the node must go on; what went wrong is in the log
                log.exception("cancels were not passed on", extra={"service": self._service.name})
            await asyncio.sleep(CANCEL_POLL_SECONDS)

    async def _pass_on(self, cancel: RemoteCancel) -> None:
        """Do it; what is not done is due again after the grace."""
        about = {"task_id": cancel.link.task_id, "service": self._service.name}
        try:
            is_done = await self._cancelled(cancel.link.task_id)
        except NO_ANSWER as error:  # a workflow that is not there may be on its way
            log.warning("cancel was not passed on", extra=about | {"reason": str(error)})
            is_done = cancel.cancels + 1 >= MAX_TRIES or (cancel.cancels > 0 and not is_transient(error))
        if is_done:
            await self._store.do(remote_tasks.clear_cancel, cancel.tenant, cancel.link.task_id)

    async def _cancelled(self, workflow_id: str) -> bool:
        """Cancel a workflow, or end one that was asked to and has not; true if nothing is left to do."""
        handle = (await self._service.client()).get_workflow_handle(workflow_id)
        seen = await handle.describe(rpc_timeout=ANSWER)
        if seen.status is not WorkflowExecutionStatus.RUNNING:
            return True
        about = {"task_id": workflow_id, "service": self._service.name}
        if not seen.raw_description.workflow_extended_info.cancel_requested:
            await handle.cancel(reason=REASON, rpc_timeout=ANSWER)
            log.info("workflow cancelled", extra=about)
            return False
        await handle.terminate(reason=REASON, rpc_timeout=ANSWER)
        log.warning("workflow terminated: it did not end when it was cancelled", extra=about)
        return True


QUERY = timedelta(seconds=5)
"""How long a worker may take to say how a workflow stands; without a worker nobody ever does."""

AGAIN_SECONDS = 5.0
"""When to turn again to a Temporal that is not there."""

PATIENCE_SECONDS = 60.0
"""How long it may not be there before a task that it has not taken yet fails; others wait as long as it takes."""

SOONEST_SECONDS = 1.0
"""When to look at a workflow that has just begun; later after a tenth of its age."""

CLOSED = "closed"
"""What a task waits for: that its workflow has ended."""

QUESTION = "question"
"""The member of a status by which a workflow asks its caller something."""

Handle = WorkflowHandle[Any, Any]


class TemporalAgent:
    """An agent whose tasks are workflows."""

    def __init__(self, given: Given, connect: Callable[[], Awaitable[Client]] | None = None) -> None:
        """Start workflows as the options say, through the client that `connect` gives, if it is given."""
        options: TemporalOptions = given.options
        self.profile = profile(
            given,
            crash=Crash.RESUME,
            name=options.workflow,
            description=f"The Temporal workflow {options.workflow}",
            input_modes=MODES[options.input],
        )
        self._options = options
        self._connect = connect
        self._service = TemporalService(self.profile.name, options, connect)
        self._down_since: float | None = None
        self._node: Node | None = None
        self._cancels: asyncio.Task[None] | None = None
        self._watches: dict[tuple[str, str], asyncio.Task[None]] = {}

    # --- startup, work, shutdown ----------------------------------------------------------------------------------

    async def start(self, node: Node) -> None:
        """Begin to pass on cancels; Temporal need not be there yet."""
        self._node = node
        self._service = TemporalService(self.profile.name, self._options, self._connect)  # a client is its event loop's
        cancels = WorkflowCancels(node.store, self._service, self._options.grace_seconds)
        self._cancels = asyncio.create_task(cancels.keep(), name=f"cancels of {self.profile.name}")

    async def stop(self) -> None:
        """Stop watching; whoever goes on looks by itself."""
        ending = [*self._watches.values(), *([] if self._cancels is None else [self._cancels])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._node = self._cancels = None

    async def run(self, ctx: Context) -> None:
        """Let the workflow of this task go on, until it has ended."""
        if self._node is None:
            raise RuntimeError("A Temporal agent is run by a node that has started it")
        has_ended = False
        while not has_ended:
            try:
                has_ended = await self._go_on(ctx, self._node)
            except NO_ANSWER as error:
                await self._without_answer(ctx, error)

    async def _go_on(self, ctx: Context, node: Node) -> bool:
        """Do what there is to do and wait; true if the workflow has ended, and what it gave was said."""
        client = await self._service.client()
        handle = await self._begun(ctx, client, node)
        await self._pass_on_messages(ctx, client)
        said = None if ctx.handed_in(CLOSED) else await self._asked(ctx, handle, self._options.status)
        has_grown = await workflow_data.extend_answer(ctx, await self._asked(ctx, handle, self._options.progress_query))
        seen = await handle.describe(rpc_timeout=ANSWER)  # after that: what it asked before it ended is no question
        self._down_since = None
        if seen.status is not WorkflowExecutionStatus.RUNNING:
            await report_result(ctx, handle)
            return True
        if said is None and self._options.heartbeats:
            said = await latest_heartbeat(client, seen)
        await _report(ctx, said)
        self._watch(ctx, handle, node)
        delay = self._options.progress_seconds if has_grown else self._delay(seen)
        await ctx.pause(delay, key=None if ctx.handed_in(CLOSED) else CLOSED)
        return False

    # --- what is said to the workflow -----------------------------------------------------------------------------

    async def _begun(self, ctx: Context, client: Client, node: Node) -> Handle:
        """Return the workflow, started now unless it was before, by this run or by one that was lost."""
        if ctx.kept("workflow") is None:
            at = SYSTEM.now_ms()
            new = NewRemoteLink(task_id=ctx.task_id, agent=self._service.name, context_id=ctx.context_id, at=at)
            # Before it begins: from now on cancels get there.
            await retry_until_available(
                lambda: node.store.do(remote_tasks.create_link, ctx.tenant, new), log, task_id=ctx.task_id
            )
            await self._begin(ctx, client)
            await ctx.keep("workflow", ctx.task_id)
        return client.get_workflow_handle(ctx.task_id)

    async def _begin(self, ctx: Context, client: Client) -> None:
        options = self._options
        limit = options.execution_timeout
        about = {"task_id": ctx.task_id, "agent": self.profile.name, "workflow": options.workflow}
        try:
            await client.start_workflow(
                options.workflow,
                await workflow_input(ctx, _user_messages(ctx)[0], options.input),
                id=ctx.task_id,
                task_queue=options.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                execution_timeout=None if limit is None else timedelta(seconds=limit),
                memo={"agent": self.profile.name, "contextId": external_context(ctx)},
                rpc_timeout=ANSWER,
            )
        except WorkflowAlreadyStartedError:
            log.info("workflow found", extra=about)
        else:
            log.info("workflow started", extra=about)

    async def _pass_on_messages(self, ctx: Context, client: Client) -> None:
        """Signal what the caller said since; Temporal takes a request id once, so that nothing is signalled twice."""
        for message in _user_messages(ctx)[1:]:
            noted = f"signalled:{message.message_id}"
            if ctx.kept(noted) is not None:
                continue
            payloads = await client.data_converter.encode([workflow_value(ctx, message, self._options.input)])
            request = SignalWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=ctx.task_id),
                signal_name=self._options.signal,
                input=Payloads(payloads=payloads),
                identity=client.identity,
                request_id=f"{ctx.task_id}/{message.message_id}",
            )
            try:
                await client.workflow_service.signal_workflow_execution(request, retry=True, timeout=ANSWER)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return  # it has ended, or is not known any more, as will be seen
            await ctx.keep(noted, "")

    # --- what it says ---------------------------------------------------------------------------------------------

    async def _asked(self, ctx: Context, handle: Handle, query: str | None) -> Any:
        """Return what the workflow answers to a query; None if it does not."""
        if query is None:
            return None
        try:
            return await handle.query(query, rpc_timeout=QUERY)
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError, RPCError) as error:
            about = {"task_id": ctx.task_id, "query": query, "reason": str(error)}
            log.info("workflow did not say how it stands", extra=about)
            return None

    def _delay(self, seen: WorkflowExecutionDescription) -> float:
        """Return when to look again: for its status soon while it is young, for its end only lest that was missed."""
        options = self._options
        if options.status is None and options.progress_query is None and not options.heartbeats:
            return options.poll_seconds
        age = (datetime.now(UTC) - seen.start_time).total_seconds()
        return min(max(SOONEST_SECONDS, age / 10), options.poll_seconds)

    def _watch(self, ctx: Context, handle: Handle, node: Node) -> None:
        """Have the task woken when its workflow ends, if not too many are watched already."""
        key = (ctx.tenant, ctx.task_id)
        if key not in self._watches and len(self._watches) < self._options.watched:
            watch = asyncio.create_task(_wake_at_end(handle, node, *key), name=f"watch {ctx.task_id}")
            self._watches[key] = watch
            watch.add_done_callback(lambda _: self._watches.pop(key, None))

    async def _without_answer(self, ctx: Context, error: Exception) -> None:
        """Wait, if Temporal may answer later; fail, if it has said no."""
        about = {"task_id": ctx.task_id, "agent": self.profile.name, "reason": str(error)}
        is_begun = ctx.kept("workflow") is not None
        if not is_transient(error):
            log.error("Temporal refused", extra=about)
            lost = "Temporal does not know the workflow any more" if is_begun else "Temporal did not take the task"
            raise Failed(lost) from error
        log.warning("Temporal does not answer", extra=about)
        now = time.monotonic()
        self._down_since = self._down_since or now
        if not is_begun and now - self._down_since > PATIENCE_SECONDS:
            raise Failed("Temporal cannot be reached") from error
        await ctx.pause(AGAIN_SECONDS)


def _user_messages(ctx: Context) -> list[Message]:
    return [message for message in ctx.history if message.role is Role.USER]


async def _report(ctx: Context, said: Any) -> None:
    """Say how a workflow stands, or what it asks, if that is news."""
    asks = isinstance(said, dict) and QUESTION in said
    parts = parts_of(said[QUESTION] if asks else said)
    state = TaskState.INPUT_REQUIRED if asks else TaskState.WORKING
    now = ctx.task.status
    if parts and (state is not now.state or now.message is None or now.message.parts != parts):
        await ctx.enter(state, parts)


async def _wake_at_end(handle: Handle, node: Node, tenant: str, task_id: str) -> None:
    try:
        await handle.result()
    except RPCError as error:
        log.info("workflow is not watched", extra={"task_id": task_id, "reason": str(error)})
        return
    except Exception as error:  # it failed, or gave what only its own converter reads: it has ended
        log.debug("workflow ended", extra={"task_id": task_id, "reason": str(error)})
    try:
        await node.wake(tenant, task_id, CLOSED, True)
    except AccordError as error:  # the store cannot be used; the next look finds the end as well
        log.info("task is not woken", extra={"task_id": task_id, "reason": str(error)})
