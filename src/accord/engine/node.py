"""A node: claims jobs under leases, executes agents, fires timers and drains.

A node keeps no state besides the store. It may be killed at any moment, and another node takes over.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from accord.a2a import Caller
from accord.engine import tracing
from accord.engine.agent import Agent, AgentWithMembers, Crash
from accord.engine.clock import SYSTEM
from accord.engine.cluster import Membership
from accord.engine.context import Context
from accord.engine.execution import Execution
from accord.engine.hooks import ExecutionEnded, ExecutionStarted, Hooks
from accord.engine.ids import new_id
from accord.engine.log_writer import ExecutionStart
from accord.engine.losses import Losses
from accord.engine.node_port import AgentService, ServedAgent
from accord.engine.outcome import Failed
from accord.engine.slots import Slots
from accord.engine.subscriptions import Hub, at_turn_end
from accord.engine.task_store import AT_REST, TaskStore
from accord.errors import TaskNotFound
from accord.model import Message, Task, TaskState
from accord.protocol import lifecycle
from accord.storage.commands import jobs, steps, task_endings, tasks
from accord.storage.commands.jobs import DEADLINE, TIMERS, ClaimedJob
from accord.storage.commands.tasks import StoredTask
from accord.storage.store import StoreUnavailable

LOOK_SECONDS = 0.5
"""Maximum delay of a cancellation whose notification was lost."""

CLAIM = 64
"""Maximum number of jobs per claim."""

STOP_SECONDS = 5.0
"""Time for an agent to stop before its job is handed over."""

BROKEN_MS = 1000
"""Delay before a retry of a job that could not start or whose execution broke off."""

LATE = "The task did not finish in time"
"""Status text of a task that its deadline ended."""

log = logging.getLogger("accord.engine")


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of a node."""

    lease_seconds: Annotated[float, Meta(gt=0)] = 15.0
    """Seconds until a silent node loses its jobs. It is three heartbeats, so that one lost heartbeat costs nothing."""

    poll_seconds: Annotated[float, Meta(gt=0)] = 1.0
    """Seconds between polls for jobs without a notification."""

    slots: Annotated[int, Meta(ge=1)] = 200
    """Maximum number of concurrent executions on a node."""

    tenant_runs: Annotated[int, Meta(ge=1)] | None = None
    """Maximum number of concurrent executions of one tenant on all nodes. Unlimited by default."""

    hops: Annotated[int, Meta(ge=1)] = 8
    """Maximum number of servers that a message may pass through before this server refuses it."""

    @property
    def heartbeat_seconds(self) -> float:
        """Seconds between heartbeats of a node."""
        return self.lease_seconds / 3


class Node:
    """A node that executes agents."""

    def __init__(
        self,
        task_store: TaskStore,
        hub: Hub,
        agents: Mapping[str, Agent],
        *,
        limits: Limits | None = None,
        hooks: Hooks | None = None,
        now_ms: Callable[[], int] = SYSTEM.now_ms,
        make_id: Callable[[], str] = new_id,
    ) -> None:
        """Execute `agents` by name. Clock and IDs can be injected."""
        self.task_store = task_store
        self.store = task_store.store
        self.hub = hub
        self.agents = agents
        self.limits = limits or Limits()
        self.hooks = hooks or Hooks()
        self.now_ms = now_ms
        self.make_id = make_id
        self.node_id = make_id()
        self.services: Mapping[str, AgentService] = {}
        self._executions: dict[tuple[str, str], Execution] = {}
        self._working: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._turn = 0
        self.is_dismissing = False
        self._claimed: frozenset[int] = frozenset()
        self._orphans: dict[tuple[int, int], float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.membership = Membership(self.store, self.node_id, self.limits.lease_seconds, self.hooks, now_ms)
        self._due = asyncio.Event()
        self._check_due = asyncio.Event()
        self.slots = Slots(
            self.node_id,
            agents,
            self._executions,
            limit=self.limits.slots,
            has_tenant_limit=self.limits.tenant_runs is not None,
            on_release=self._due.set,
        )
        self.losses = Losses(self.store, hub, self._executions, agents, self._abandon, self._check_due, now_ms)
        self._beats = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        hub.use(task_store)

    # --- startup, loops, shutdown ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the cluster and start to claim jobs."""
        self.hub.watch(self._due, jobs.queue_topic(TIMERS), *(jobs.queue_topic(name) for name in self.agents))
        self.hub.watch(self._check_due, jobs.node_topic(self.node_id))
        self.hub.observe_restarts(self.losses.suspect)
        await self._beat()
        self._loops = [
            asyncio.create_task(self._keep(self._beat, self._beats, self.limits.heartbeat_seconds), name="heartbeat"),
            asyncio.create_task(self._keep(self._look, self._check_due, LOOK_SECONDS), name="look"),
            asyncio.create_task(self._keep(self._claim, self._due, self.limits.poll_seconds), name="claim"),
        ]
        self.slots.is_open = True
        self._due.set()

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """Drain and leave: executions finish, or are handed over after the grace period."""
        self.slots.start_deferred()
        self.slots.is_open = False
        self.hub.unobserve_restarts(self.losses.suspect)
        if self._working:
            await asyncio.wait(list(self._working.values()), timeout=grace_seconds)
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        held = [(execution, self._working[key]) for key, execution in self._executions.items()]
        await asyncio.gather(*(self._hand_over(execution, work) for execution, work in held))
        try:
            await self.store.do(jobs.forget_node, self.node_id)
        except StoreUnavailable as error:
            log.warning("node.left_silently", extra={"reason": str(error)})

    def dismiss(self) -> None:
        """End the waits of callers for tasks that run here. They get the task in its current state."""
        self.is_dismissing = True

    async def _keep(self, do: Callable[[], Coroutine[Any, Any, None]], sooner: asyncio.Event, seconds: float) -> None:
        """Call a function repeatedly: at every notification, and at the latest after `seconds`."""
        while True:
            try:
                async with asyncio.timeout(seconds):
                    await sooner.wait()
            except TimeoutError:
                pass
            sooner.clear()
            try:
                await do()
            except StoreUnavailable as error:
                log.warning("store.unavailable", extra={"doing": do.__name__, "reason": str(error)})
                await asyncio.sleep(min(seconds, 1.0))
            except Exception:  # the node must continue; the error is in the log
                log.exception("node.loop_failed", extra={"doing": do.__name__})
                await asyncio.sleep(min(seconds, 1.0))

    async def _beat(self) -> None:
        """Renew the lease, stop executions whose claim is lost, and take over from dead nodes."""
        before = list(self._executions.items())
        held = await self.membership.beat()
        self.losses.add_heartbeats(self.membership.lost, self.limits.heartbeat_seconds)
        self._stop_lost(before, held)
        await self._release_orphans(held)
        await self.membership.take_over()
        self.membership.call_at_expiry(self._beats.set, within=self.limits.heartbeat_seconds)

    async def _look(self) -> None:
        """Stop executions whose claim is lost, and take over from ended processes of this host.

        The notification of a lost claim may be lost, and SQLite has none between processes.
        """
        await self.losses.compare()
        if before := list(self._executions.items()):
            self._stop_lost(before, await self.store.read(jobs.held_jobs, self.node_id))
        await self.membership.take_over_here()

    def _stop_lost(self, before: list[tuple[tuple[str, str], Execution]], held: dict[int, int]) -> None:
        for key, execution in before:
            is_held = execution.is_settling or held.get(execution.job.id) == execution.job.epoch
            if not is_held and not execution.is_cancelled and self._executions.get(key) is execution:
                log.info("run.taken_away", extra={"task_id": execution.job.key})
                self._abandon(key)

    async def _release_orphans(self, held: dict[int, int]) -> None:
        """Release jobs that this node has claimed but not executed for a heartbeat.

        A job whose task is being read counts as executed, however slow the database is.
        """
        mine = self._claimed.union(execution.job.id for execution in self._executions.values())
        orphans = [found for found in held.items() if found[0] not in mine]
        now = asyncio.get_running_loop().time()
        self._orphans = {found: self._orphans.get(found, now) for found in orphans}
        for (job, epoch), since in self._orphans.items():
            if now - since >= self.limits.heartbeat_seconds:
                log.warning("job.orphaned", extra={"job": job})
                await self.store.do(jobs.release_id, job, epoch, counts=False)

    # --- claims ---------------------------------------------------------------------------------------------------

    async def _claim(self) -> None:
        """Claim due jobs that fit. The first agent changes with each call."""
        await self._fire_timers()
        slots = self.slots
        slots.has_backlog = False
        names = list(self.agents)
        self._turn = (self._turn + 1) % len(names)
        for name in names[self._turn :] + names[: self._turn]:
            while count := min(slots.room(name), CLAIM):
                with slots.reserve_claims(name, count):
                    found = await self.store.do(jobs.claim, self.node_id, name, count, self.limits.tenant_runs)
                    await self._with_each(found, self._take_up)
                if len(found) < count:
                    break
            else:
                slots.has_backlog = True

    async def _fire_timers(self) -> None:
        while found := await self.store.do(jobs.claim, self.node_id, TIMERS, CLAIM):
            await self.membership.clock.compare()
            await self._with_each(found, self._fire)

    async def _fire(self, job: ClaimedJob) -> None:
        stored = await self.store.read(tasks.read_task, job.tenant, job.key)
        if stored is None:
            await self.store.do(jobs.finish, job)
            return
        if (left := await self.membership.clock.left_until(job, stored.deadline_at)) > 0:
            await self.store.do(jobs.release, job, left, counts=False)
            return
        state = TaskState.FAILED if job.kind == DEADLINE else TaskState.UNKNOWN
        at = self.now_ms()
        status = task_endings.server_status(state, job.arg or LATE, stored, at)
        self.hooks.emit_ended(await self.store.do(task_endings.expire_timer, job, status, at))

    async def _with_each(self, found: Sequence[ClaimedJob], do: Callable[[ClaimedJob], Awaitable[None]]) -> None:
        self._claimed = frozenset(job.id for job in found)
        try:
            for job in found:
                await do(job)
        finally:
            self._claimed = frozenset()

    async def _take_up(self, job: ClaimedJob) -> None:
        """Start an execution of a claimed job. A job that cannot start is retried later and delays no other."""
        try:
            await self._resume(job)
        except StoreUnavailable:
            raise
        except Exception:  # for example a task that cannot be read
            log.exception("job.not_begun", extra={"task_id": job.key})
            await self.store.do(jobs.release, job, BROKEN_MS)

    async def _resume(self, job: ClaimedJob) -> None:
        """Start an execution of a job that was claimed from the store."""
        stored = await self.store.read(tasks.read_task, job.tenant, job.key)
        if stored is None or stored.task_state in lifecycle.TERMINAL:
            self.hooks.emit_ended(await self.store.do(task_endings.release_ended_job, job))
            return
        if job.attempts > job.max_attempts:
            self.hooks.emit_ended(await self.store.do(task_endings.give_up_job, job))
            return
        task = await self.task_store.unpack(job.tenant, stored)
        self.start_from_stored(job, stored, task, await self.store.read(steps.load_steps, job.tenant, job.key))

    def start_from_stored(self, job: ClaimedJob, stored: StoredTask, task: Task, known: dict[str, str]) -> Execution:
        """Start an execution of a stored task with these known steps."""
        start = ExecutionStart(
            job=job,
            task=task,
            seq=stored.last_seq,
            snapshot_seq=stored.doc_seq,
            message=_turn(task, job.arg),
            caller=Caller(tenant=job.tenant, owner=stored.owner, origin=stored.origin),
            steps=known,
            deadline_at=stored.deadline_at,
            parent_id=stored.parent_id,
            resumes=self.agents[stored.agent].profile.crash is Crash.RESUME,
            has_large=self.task_store.is_packed(stored),
            trace=stored.trace,
        )
        return self.start_execution(stored.agent, start)

    def start_execution(self, agent: str, start: ExecutionStart) -> Execution:
        """Start an execution."""
        hosted = self.agents[agent]
        profile = hosted.profile
        execution = Execution(self, start, limit=profile.budget, reports_start=profile.reports_start)
        key = (execution.tenant, execution.job.key)
        if key in self._executions:
            self._abandon(key)  # an earlier execution, which this node lost and regained before it noticed
        self._executions[key] = execution
        work = self._working[key] = asyncio.create_task(
            self._supervise(key, execution, hosted), name=f"run {execution.job.key}"
        )
        execution.on_stop = work.cancel
        return execution

    async def _supervise(self, key: tuple[str, str], execution: Execution, agent: Agent) -> None:
        began = time.monotonic()
        tenant, task_id = key
        name, attempt, emit = execution.job.queue, execution.job.attempts, self.hooks.emit
        emit(
            ExecutionStarted(
                tenant=tenant, task_id=task_id, agent=name, attempt=attempt, context_id=execution.context_id
            )
        )
        work, tracer = partial(agent.run, Context(execution)), tracing.tracer
        try:
            await (execution.execute(work) if tracer is None else execution.execute_traced(tracer, work))
        except asyncio.CancelledError:
            if self._executions.get(key) is execution and not execution.is_cancelled:
                raise  # the process ends
        except Exception:  # the store is unavailable, or not even a failure can be committed
            log.exception("run.broke_off", extra={"task_id": execution.job.key})
            with suppress(StoreUnavailable):
                await self.store.do(jobs.release, execution.job, BROKEN_MS)
        finally:
            if self._executions.get(key) is execution:
                del self._executions[key], self._working[key]
            ended = execution.result.task if execution.result.is_final else None
            seconds = time.monotonic() - began
            state = ended.status.state if ended else None
            emit(ExecutionEnded(tenant=tenant, task_id=task_id, agent=name, state=state, seconds=seconds))
            if self.slots.has_backlog or self.limits.tenant_runs is not None:
                self._due.set()

    def _abandon(self, key: tuple[str, str]) -> None:
        """Stop an execution whose claim is lost. Only once, so that it can clean up."""
        execution = self._executions.get(key)
        if execution is not None and not execution.is_cancelled:
            execution.is_cancelled = True
            self._working[key].cancel()

    async def _hand_over(self, execution: Execution, work: asyncio.Task[None]) -> None:
        """Stop an execution and release its job. A job that cannot be repeated fails instead."""
        execution.is_cancelled = True
        work.cancel()
        await asyncio.wait([work], timeout=STOP_SECONDS)
        if execution.result.is_final and execution.result.task is not None:
            return  # it has ended or is suspended
        try:
            if self.agents[execution.job.queue].profile.crash is Crash.FAIL:
                await execution.end(TaskState.FAILED, "The server was stopped")
            else:
                await self.store.do(jobs.release, execution.job, counts=False)
        except Exception as error:  # for any error, the lease expires and another node takes over
            log.warning("run.not_handed_over", extra={"task_id": execution.job.key, "reason": str(error)})

    # --- interface of the service ---------------------------------------------------------------------------------

    def stop_execution(self, tenant: str, task_id: str) -> None:
        """Stop an execution of this node at once. Other nodes are stopped by the notification."""
        self._abandon((tenant, task_id))

    async def settled(self, tenant: str, task_id: str) -> Task:
        """Wait until nothing more happens to a task without its caller, and return it."""
        execution = self._executions.get((tenant, task_id))
        if execution is not None:
            is_new = not execution.result.is_settled
            task = await execution.result.wait()
            if task is not None and task.status.state in AT_REST and (is_new or execution.result.is_final):
                return task  # else it asked before: the store knows whether it was answered
        while True:
            found = await self.task_store.read(tenant, task_id)
            if found is None:
                raise TaskNotFound(metadata={"taskId": task_id})
            stored, task = found
            if task.status.state in AT_REST:
                return task
            async with self.hub.follow(tenant, task_id, stored.last_seq) as follower:
                async for _ in follower.events(at_turn_end):
                    pass

    def alarm(self, delay_ms: int) -> None:
        """Look for due jobs after a delay, unless an earlier look is planned.

        Polling finds the others, as on other nodes.
        """
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_ms / 1000 + 0.002
        if self._alarm is None or not loop.time() < self._alarm.when() <= at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_at(at, self._due.set)

    def service(self, agent: str) -> AgentService:
        """Return the service of an agent. Raises Failed for an unknown one."""
        service = self.services.get(agent)
        if service is None:
            raise Failed(f"Unknown agent {agent!r}")
        return service

    def served_agents(self) -> dict[str, ServedAgent]:
        """Return the agents that callers can reach, by name."""
        agents = self.agents.values()
        members = {
            member.profile.name
            for agent in agents
            if isinstance(agent, AgentWithMembers)
            for member in agent.members.values()
        }
        profiles = [agent.profile for agent in agents]
        return {
            profile.name: ServedAgent(name=profile.name, description=profile.description, skills=profile.skills)
            for profile in profiles
            if profile.name not in members
        }

    def without_slot(self, execution: Hashable) -> AbstractContextManager[None]:
        """Release the slot of an execution while it waits, because its child tasks need slots."""
        return self.slots.without(execution)

    async def drop_if_rewound(self, tenant: str, task_id: str) -> None:
        """Drop the execution of a task whose child is missing, if the store may have lost the child."""
        await self.losses.drop_if_rewound((tenant, task_id))


def _turn(task: Task, message_id: str | None) -> Message:
    """Return the message that started a turn. The history is never empty."""
    return next((message for message in task.history if message.message_id == message_id), task.history[0])
