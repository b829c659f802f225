"""A Temporal workflow as an agent, with client and cancels.

Temporal has the work, its state and its retries; no worker runs here. An execution holds no state of its own. It starts
the workflow or finds it, passes on messages of the caller, and checks the workflow. Then it suspends the task until the
workflow ends or the next check is due. A canceled task ends at once. The first node that is free cancels its workflow.
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

from accord.agents.temporal import (
    ANSWER,
    MODES,
    TemporalOptions,
    extend_answer,
    report_result,
    workflow_input,
    workflow_value,
)
from accord.agents.turns import CancelLoop, external_context
from accord.api import SYSTEM, AgentEnvironment, Context, Crash, Failed, Store, parts_of, remote, retry_until_available
from accord.api.agent_types import AgentArguments, profile
from accord.api.remote import NewRemoteLink, RemoteCancel
from accord.errors import AccordError
from accord.model import Message, Role, TaskState

TRANSIENT_STATUSES = frozenset(
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
"""Errors that may be temporary."""


class TemporalUnreachable(Exception):
    """Temporal cannot be reached; the text is the reason."""


class TemporalService:
    """The connection to a Temporal service.

    Cancels are stored under its `name`, because other services do not have its workflows.
    """

    def __init__(self, name: str, options: TemporalOptions, connect: Callable[[], Awaitable[Client]] | None) -> None:
        """Connect by the options, or let `connect` make the client for the agent called `name`."""
        self.name = f"temporal:{name}" if connect else f"temporal://{options.address}/{options.namespace}"
        self._options = options
        self._connect = connect or self._by_options
        self._lock = asyncio.Lock()
        self._client: Client | None = None

    async def client(self) -> Client:
        """Return the client, which reconnects by itself."""
        async with self._lock:
            if self._client is None:
                try:
                    self._client = await self._connect()
                except (RuntimeError, OSError) as error:  # raised by the SDK, or for a missing file
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
"""All errors in place of an answer."""


async def latest_heartbeat(client: Client, description: WorkflowExecutionDescription) -> Any:
    """Return the latest heartbeat of a workflow's activities, or None."""
    activities = [
        activity for activity in description.raw_description.pending_activities if activity.heartbeat_details.payloads
    ]
    if not activities:
        return None
    latest = max(activities, key=lambda activity: activity.last_heartbeat_time.ToNanoseconds())
    details = await client.data_converter.decode(latest.heartbeat_details.payloads)
    return details[0] if len(details) == 1 else details


def is_transient(error: Exception) -> bool:
    """Whether an error may be temporary."""
    return not isinstance(error, RPCError) or error.status in TRANSIENT_STATUSES


def _read_file(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()


CANCEL_POLL_SECONDS = 0.3
"""Interval of checks for cancels, in seconds; one check covers all tasks."""

BATCH_SIZE = 16

MAX_TRIES = 8
"""Maximum number of attempts, with delays that double; an hour, if the grace period is half a minute."""

REASON = "The A2A task has ended"

log = logging.getLogger("accord.temporal")


class WorkflowCancels:
    """Passes on cancels to one Temporal service."""

    def __init__(self, store: Store, service: TemporalService, grace_seconds: float) -> None:
        """Cancel workflows of `service`, and terminate those that have not ended after a grace period."""
        self._store = store
        self._service = service
        self._grace_ms = round(grace_seconds * 1000)

    async def keep(self) -> None:
        """Pass on cancels until canceled."""
        name = self._service.name
        await CancelLoop(
            name,
            lambda: remote.claim_cancels(self._store, name, BATCH_SIZE, self._grace_ms),
            self._pass_on,
            CANCEL_POLL_SECONDS,
        ).run()

    async def _pass_on(self, cancel: RemoteCancel) -> None:
        """Pass on one cancel; an unfinished one is due again after the grace period."""
        log_extra = {"task_id": cancel.link.task_id, "service": self._service.name}
        try:
            is_done = await self._cancelled(cancel.link.task_id)
        except NO_ANSWER as error:  # a missing workflow may still be on its way
            log.warning("cancel.not_passed_on", extra=log_extra | {"reason": str(error)})
            is_done = cancel.cancels + 1 >= MAX_TRIES or (cancel.cancels > 0 and not is_transient(error))
        if is_done:
            await remote.clear_cancel(self._store, cancel.tenant, cancel.link.task_id)

    async def _cancelled(self, workflow_id: str) -> bool:
        """Cancel a workflow, or terminate it if an earlier cancel had no effect; true if nothing is left to do."""
        handle = (await self._service.client()).get_workflow_handle(workflow_id)
        description = await handle.describe(rpc_timeout=ANSWER)
        if description.status is not WorkflowExecutionStatus.RUNNING:
            return True
        log_extra = {"task_id": workflow_id, "service": self._service.name}
        if not description.raw_description.workflow_extended_info.cancel_requested:
            await handle.cancel(reason=REASON, rpc_timeout=ANSWER)
            log.info("temporal.cancelled", extra=log_extra)
            return False
        await handle.terminate(reason=REASON, rpc_timeout=ANSWER)
        log.warning("temporal.terminated", extra=log_extra)
        return True


QUERY = timedelta(seconds=5)
"""Maximum time for a worker's answer to a query; without a worker there is never one."""

RETRY_SECONDS = 5.0
"""Delay before the next attempt when Temporal is unreachable, in seconds."""

PATIENCE_SECONDS = 60.0
"""Maximum outage before a task without a workflow fails, in seconds; tasks with a workflow wait without limit."""

FIRST_POLL_SECONDS = 1.0
"""First delay between checks of a new workflow, in seconds; later a tenth of its age."""

CLOSED = "closed"
"""Signal that the task's workflow has ended."""

QUESTION = "question"
"""Member of a status that contains a question of the workflow to its caller."""

Handle = WorkflowHandle[Any, Any]


class TemporalAgent:
    """An agent whose tasks are workflows."""

    def __init__(self, given: AgentArguments, connect: Callable[[], Awaitable[Client]] | None = None) -> None:
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
        self._node: AgentEnvironment | None = None
        self._cancels: asyncio.Task[None] | None = None
        self._watches: dict[tuple[str, str], asyncio.Task[None]] = {}

    # --- startup, work, shutdown ----------------------------------------------------------------------------------

    async def start(self, node: AgentEnvironment) -> None:
        """Start to pass on cancels; Temporal may still be unreachable."""
        self._node = node
        self._service = TemporalService(self.profile.name, self._options, self._connect)  # clients are per loop
        cancels = WorkflowCancels(node.store, self._service, self._options.grace_seconds)
        self._cancels = asyncio.create_task(cancels.keep(), name=f"cancels of {self.profile.name}")

    async def stop(self) -> None:
        """Stop watching workflows; later executions check them."""
        ending = [*self._watches.values(), *([] if self._cancels is None else [self._cancels])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._node = self._cancels = None

    async def run(self, ctx: Context) -> None:
        """Execute the workflow of this task until it has ended."""
        if self._node is None:
            raise RuntimeError("A Temporal agent is run by a node that has started it")
        has_ended = False
        while not has_ended:
            try:
                has_ended = await self._update(ctx, self._node)
            except NO_ANSWER as error:
                await self._handle_error(ctx, error)

    async def _update(self, ctx: Context, node: AgentEnvironment) -> bool:
        """Update the task once and wait; true if the workflow has ended and its result was reported."""
        client = await self._service.client()
        handle = await self._find_or_start(ctx, client, node)
        await self._pass_on_messages(ctx, client)
        status = None if ctx.handed_in(CLOSED) else await self._query(ctx, handle, self._options.status)
        has_grown = await extend_answer(ctx, await self._query(ctx, handle, self._options.progress_query))
        description = await handle.describe(
            rpc_timeout=ANSWER
        )  # after the queries: a question from before the end is void
        self._down_since = None
        if description.status is not WorkflowExecutionStatus.RUNNING:
            await report_result(ctx, handle)
            return True
        if status is None and self._options.heartbeats:
            status = await latest_heartbeat(client, description)
        await _report(ctx, status)
        self._watch(ctx, handle, node)
        delay = self._options.progress_seconds if has_grown else self._delay(description)
        await ctx.pause(delay, key=None if ctx.handed_in(CLOSED) else CLOSED)
        return False

    # --- messages to the workflow ---------------------------------------------------------------------------------

    async def _find_or_start(self, ctx: Context, client: Client, node: AgentEnvironment) -> Handle:
        """Return the workflow; start it unless this execution or a lost one did."""
        if ctx.kept("workflow") is None:
            at = SYSTEM.now_ms()
            new = NewRemoteLink(task_id=ctx.task_id, agent=self._service.name, context_id=ctx.context_id, at=at)
            # Before it starts, so that cancels arrive from now on.
            await retry_until_available(
                lambda: remote.create_link(node.store, ctx.tenant, new), log, task_id=ctx.task_id
            )
            await self._start_workflow(ctx, client)
            await ctx.keep("workflow", ctx.task_id)
        return client.get_workflow_handle(ctx.task_id)

    async def _start_workflow(self, ctx: Context, client: Client) -> None:
        options = self._options
        limit = options.execution_timeout
        log_extra = {"task_id": ctx.task_id, "agent": self.profile.name, "workflow": options.workflow}
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
            log.info("temporal.found", extra=log_extra)
        else:
            log.info("temporal.started", extra=log_extra)

    async def _pass_on_messages(self, ctx: Context, client: Client) -> None:
        """Signal the caller's messages since; Temporal ignores a repeated request id, so nothing is signaled twice."""
        for message in _user_messages(ctx)[1:]:
            key = f"signalled:{message.message_id}"
            if ctx.kept(key) is not None:
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
                return  # it has ended or is unknown, which the next check finds
            await ctx.keep(key, "")

    # --- status of the workflow -----------------------------------------------------------------------------------

    async def _query(self, ctx: Context, handle: Handle, query: str | None) -> Any:
        if query is None:
            return None
        try:
            return await handle.query(query, rpc_timeout=QUERY)
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError, RPCError) as error:
            log_extra = {"task_id": ctx.task_id, "query": query, "reason": str(error)}
            log.info("temporal.no_progress", extra=log_extra)
            return None

    def _delay(self, description: WorkflowExecutionDescription) -> float:
        """Return the delay before the next check: short for a young workflow's status, long if only its end matters."""
        options = self._options
        if options.status is None and options.progress_query is None and not options.heartbeats:
            return options.poll_seconds
        age = (datetime.now(UTC) - description.start_time).total_seconds()
        return min(max(FIRST_POLL_SECONDS, age / 10), options.poll_seconds)

    def _watch(self, ctx: Context, handle: Handle, node: AgentEnvironment) -> None:
        """Wake the task when its workflow ends, unless too many workflows are watched."""
        key = (ctx.tenant, ctx.task_id)
        if key not in self._watches and len(self._watches) < self._options.watched:
            watch = asyncio.create_task(_wake_at_end(handle, node, *key), name=f"watch {ctx.task_id}")
            self._watches[key] = watch
            watch.add_done_callback(lambda _: self._watches.pop(key, None))

    async def _handle_error(self, ctx: Context, error: Exception) -> None:
        """Suspend the task if Temporal may answer later, else fail."""
        log_extra = {"task_id": ctx.task_id, "agent": self.profile.name, "reason": str(error)}
        is_begun = ctx.kept("workflow") is not None
        if not is_transient(error):
            log.error("temporal.refused", extra=log_extra)
            lost = "Temporal no longer has the workflow" if is_begun else "Temporal did not take the task"
            raise Failed(lost) from error
        log.warning("temporal.no_answer", extra=log_extra)
        now = time.monotonic()
        self._down_since = self._down_since or now
        if not is_begun and now - self._down_since > PATIENCE_SECONDS:
            raise Failed("Temporal cannot be reached") from error
        await ctx.pause(RETRY_SECONDS)


def _user_messages(ctx: Context) -> list[Message]:
    return [message for message in ctx.history if message.role is Role.USER]


async def _report(ctx: Context, status: Any) -> None:
    asks = isinstance(status, dict) and QUESTION in status
    parts = parts_of(status[QUESTION] if asks else status)
    state = TaskState.INPUT_REQUIRED if asks else TaskState.WORKING
    current = ctx.task.status
    if parts and (state is not current.state or current.message is None or current.message.parts != parts):
        await ctx.enter(state, parts)


async def _wake_at_end(handle: Handle, node: AgentEnvironment, tenant: str, task_id: str) -> None:
    try:
        await handle.result()
    except RPCError as error:
        log.info("temporal.not_watched", extra={"task_id": task_id, "reason": str(error)})
        return
    except Exception as error:  # it failed, or its result needs the workflow's own converter: it has ended
        log.debug("temporal.ended", extra={"task_id": task_id, "reason": str(error)})
    try:
        await node.wake(tenant, task_id, CLOSED, True)
    except AccordError as error:  # the store cannot be used; the next check finds the end as well
        log.info("temporal.task_not_woken", extra={"task_id": task_id, "reason": str(error)})
