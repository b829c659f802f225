"""Remote tasks: authenticates reports and commits their events.

A webhook, an answer, a stream and a poll are all reports. Each is committed in one transaction with the remote task's
cursor.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar, runtime_checkable
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.engine.agent import Profile
from accord.engine.clock import SYSTEM
from accord.engine.context import wait_key
from accord.engine.hooks import Hooks, UsageReported
from accord.engine.task_store import TaskStore, retry_until_available
from accord.errors import AgentUnavailable, AuthenticationFailed, InvalidParams, TaskNotFound
from accord.model import EventBody, Message, Role, StatusUpdate, Task, TaskState
from accord.model.base import Metadata
from accord.protocol import http_headers, lifecycle
from accord.protocol.budgets import Budget, read_usage
from accord.protocol.dialects import decode_webhook
from accord.remote.reports import ForeignReport, LocalTask, Report, ReportEffect, needs_task, report_effect
from accord.storage.commands import remote_tasks, steps, task_endings
from accord.storage.commands.remote_tasks import NewRemoteLink, RemoteCancel, RemoteLink
from accord.storage.commands.steps import RemoteUsage
from accord.storage.commands.task_endings import NoSuchTask
from accord.storage.commands.tasks import Append, Behind, StoredTask, TaskHead
from accord.storage.store import BadValue, StoreUnavailable

TOKEN_BYTES = 32
"""256 random bits: twice as many as are needed against guessing."""

LOCKS = 64
"""Number of locks. Reports on one task are processed in order, those on other tasks in parallel. A lock is cheap."""

SNAPSHOT_AT = 128
"""Events after which a snapshot is written, and then whenever their number has doubled."""

RETRY_SECONDS = 5
"""`Retry-After` of a report while the database is unavailable, in seconds."""


NO_HOOKS = Hooks()

T = TypeVar("T")

log = logging.getLogger("accord.remote")

Redact = Callable[[EventBody], EventBody]
"""Removes content from a report that must not be stored."""


class ReportCredentials(Struct, frozen=True, kw_only=True):
    """The credentials of an incoming webhook."""

    token: str | None = None
    signature: str | None = None
    event_id: str | None = None

    def __repr__(self) -> str:
        return f"ReportCredentials(event_id={self.event_id!r})"  # all other fields are secrets


class ReportSender(Struct, frozen=True, kw_only=True):
    """The sender of a webhook: the task of its token, or unknown until its signature is verified."""

    evidence: ReportCredentials
    tenant: str = ""
    link: RemoteLink | None = None

    @property
    def is_known(self) -> bool:
        """Whether it has presented a valid token."""
        return self.link is not None


class WebhookKeys(Struct, frozen=True, kw_only=True):
    """The webhook keys of one remote agent, and the redaction of its reports."""

    keys: tuple[str, ...] = ()
    redact: Redact | None = None

    def __repr__(self) -> str:
        return f"WebhookKeys(keys={len(self.keys)})"


@runtime_checkable
class RemoteAgentPort(Protocol):
    """An agent that executes its tasks remotely, as a node uses it."""

    profile: Profile
    trust: WebhookKeys

    async def prepare(self) -> None:
        """Discover its profile, before it is described."""

    async def join(self, remotes: "RemoteTasks", webhook: str | None) -> None:
        """Start work with the links of a node's store. `webhook` is the address for its reports, if it has one."""

    async def leave(self) -> None:
        """Stop, after its executions have ended."""


class RemoteContact(Struct, frozen=True, kw_only=True):
    """The last contact with a remote agent: whether it was reachable, when (in milliseconds), and details.

    `findings` are readable remarks on its card.
    """

    is_up: bool
    at: int
    detail: str = ""
    findings: tuple[str, ...] = ()


@runtime_checkable
class ContactPort(Protocol):
    """A remote agent whose reachability is recorded."""

    url: str

    def contact(self) -> RemoteContact | None:
        """Return the last contact, or None if there was none yet."""

    async def check(self) -> RemoteContact:
        """Check its reachability by fetching its card."""


class RemoteTasks:
    """The links of a store's tasks to remote agents."""

    def __init__(
        self,
        task_store: TaskStore,
        *,
        trust: Mapping[str, WebhookKeys] | None = None,
        ttl_seconds: float | None = None,
        hooks: Hooks = NO_HOOKS,
        now_ms: Callable[[], int] = SYSTEM.now_ms,
    ) -> None:
        """Store links in the store of `task_store`.

        Tokens are valid for `ttl_seconds`, or as long as their task is stored. The usage of remote agents is
        reported to `hooks`.
        """
        self._task_store = task_store
        self._store = task_store.store
        self._trust = dict(trust or {})
        self._ttl_ms = None if ttl_seconds is None else round(ttl_seconds * 1000)
        self.now_ms = now_ms
        self._hooks = hooks
        self._locks = [asyncio.Lock() for _ in range(LOCKS)]

    # --- links ----------------------------------------------------------------------------------------------------

    async def find(self, tenant: str, task_id: str) -> RemoteLink | None:
        """Return a task's link."""
        return await self._store.read(remote_tasks.find_link, tenant, task_id)

    async def find_with_state(self, tenant: str, task_id: str) -> tuple[RemoteLink, TaskState] | None:
        """Return a task's link and its local state."""
        found = await self._store.read(remote_tasks.read_link_and_task, tenant, task_id, whole=False)
        return None if found is None else (found[0], found[1].task_state)

    async def prepare_link(self, tenant: str, link: RemoteLink, *, with_token: bool) -> tuple[RemoteLink, str | None]:
        """Prepare a task for reports before a message is sent. Returns its link and a new token, if requested.

        The token is not stored: the store has its hash.
        """
        token = secrets.token_urlsafe(TOKEN_BYTES) if with_token else None
        new = NewRemoteLink(
            task_id=link.task_id,
            agent=link.agent,
            context_id=link.context_id or "",
            at=self.now_ms(),
            mode=link.mode,
            token_hash=None if token is None else token_hash(token),
            ttl_ms=self._ttl_ms,
        )
        return await self._store.do(remote_tasks.create_link, tenant, new), token

    @property
    def server_id(self) -> str:
        """The id shared by the nodes of this store."""
        return self._task_store.server_id

    async def remaining_budget(self, tenant: str, task_id: str) -> Budget:
        """Return a task's remaining budget."""
        return await self._store.read(steps.remaining_budget, tenant, task_id)

    async def find_context(self, tenant: str, agent: str, owner: str, context_id: str) -> str | None:
        """Return the remote id of a context, if the agent uses another one."""
        return await self._store.read(remote_tasks.find_remote_context, tenant, agent, owner, context_id)

    async def update_link(self, tenant: str, link: RemoteLink) -> RemoteLink | None:
        """Store a link with changed counters. Returns None if it was changed since it was read."""
        if not await self._store.do(remote_tasks.update_link, tenant, link):
            return None
        return replace(link, version=link.version + 1)

    # --- webhooks -------------------------------------------------------------------------------------------------

    async def accept_webhook(self, evidence: ReportCredentials, body: bytes) -> None:
        """Commit an incoming webhook, or raise the error for its sender."""
        await self.accept(await self.admit(evidence), body)

    async def admit(self, evidence: ReportCredentials) -> ReportSender:
        """Identify the sender of a webhook by its headers, or refuse it before its body is read.

        A sender without credentials gets the same error whether the task exists or not (C-05).
        """
        if evidence.token is None:
            if evidence.signature is None or not any(trust.keys for trust in self._trust.values()):
                log.warning("report.no_credentials")
                raise unauthenticated()
            return ReportSender(evidence=evidence)
        given = token_hash(evidence.token)
        try:
            found = await self._store.read(remote_tasks.find_link_by_token, given)
        except StoreUnavailable as error:
            raise _unavailable() from error
        if found is None or not hmac.compare_digest(found[0], given):
            log.warning("report.no_such_token")
            raise unauthenticated()
        return ReportSender(evidence=evidence, tenant=found[1], link=found[2])

    async def accept(self, sender: ReportSender, body: bytes) -> None:
        """Commit the body of a webhook, or refuse it."""
        with _report_errors():
            tenant, link, event = await self._read(sender, body)
        await self.accept_report(tenant, link, Report(body=event, seq=_seq(sender.evidence.event_id, event)))

    async def accept_report(self, tenant: str, link: RemoteLink, report: Report) -> TaskState:
        """Commit an incoming report, or raise the error for its sender."""
        with _report_errors():
            state = await self.report(tenant, link.task_id, report)
        about = {"task_id": link.task_id, "agent": link.agent, "state": state.name}
        if state in lifecycle.ENDED:
            log.info("report.accepted", extra=about)
        else:
            log.debug("report.accepted", extra=about)
        return state

    async def was_reported(self, tenant: str, task_id: str) -> bool:
        """Whether an ended task was ended by its agent's report, and not canceled or over its budget."""
        with _report_errors():
            link = await self.find(tenant, task_id)
        return link is not None and link.state in lifecycle.TERMINAL

    async def _read(self, sender: ReportSender, body: bytes) -> tuple[str, RemoteLink, EventBody]:
        """Return the content of a webhook and its task, after checking the signature."""
        evidence, link = sender.evidence, sender.link
        if link is None:
            return await self._signed(evidence.signature or "", body)
        keys = (evidence.token or "", *self._keys(link.agent))
        if evidence.signature is not None and not self._is_signed(evidence.signature, body, keys):
            log.warning("report.wrong_signature", extra={"task_id": link.task_id, "agent": link.agent})
            raise unauthenticated()
        return sender.tenant, link, decode_webhook(body)

    async def _signed(self, signature: str, body: bytes) -> tuple[str, RemoteLink, EventBody]:
        """Return the content of a webhook without a token, from an agent with a known key."""
        known = self._trust.items()
        agents = [name for name, trust in known if trust.keys and self._is_signed(signature, body, trust.keys)]
        if not agents:
            log.warning("report.wrong_signature")
            raise unauthenticated()
        event = decode_webhook(body)
        for agent in agents:
            match = await self._store.read(remote_tasks.find_link_by_remote_id, agent, _task_id(event) or "")
            if match is not None:
                return *match, event
        raise TaskNotFound

    def _is_signed(self, signature: str, body: bytes, keys: Sequence[str]) -> bool:
        return http_headers.is_signed_webhook(signature, body, keys, self.now_ms() / 1000)

    def _keys(self, agent: str) -> tuple[str, ...]:
        trust = self._trust.get(agent)
        return () if trust is None else trust.keys

    # --- reports --------------------------------------------------------------------------------------------------

    async def report(self, tenant: str, task_id: str, report: Report) -> TaskState:
        """Commit a report from any source, and return the local state of the task."""
        async with self._locks[hash((tenant, task_id)) % LOCKS]:
            while True:
                try:
                    return await self._report(tenant, task_id, report)
                except Behind:
                    continue  # an execution or another node was faster: the report's effect may have changed

    async def _report(self, tenant: str, task_id: str, report: Report) -> TaskState:
        seen = await self._store.read(remote_tasks.read_link_and_task, tenant, task_id, whole=needs_task(report.body))
        if seen is None:
            raise NoSuchTask(task_id)
        link, head = seen
        body, blobs = await self._packed(tenant, link, report.body)
        report, here = replace(report, body=body), _local_task(head)
        effect = report_effect(report, link, here, self.now_ms())
        if (used := await self._charge_usage(tenant, link, body)) is not None:
            effect = report_effect(report, link, replace(here, usage=used), self.now_ms())
        if effect == ReportEffect(link=replace(link, heard_at=effect.link.heard_at)):
            return head.task_state  # nothing new; a duplicate does not count as contact either
        request = await self._report_request(tenant, head, effect, report, blobs)
        self._hooks.emit_ended(await self._store.do(remote_tasks.write_report, tenant, request))
        self._log_report(head, link, effect)
        return request.last.state or head.task_state

    async def _charge_usage(self, tenant: str, link: RemoteLink, body: EventBody) -> Metadata | None:
        """Record a reported usage, and return the total in the form that tasks show.

        Raises Behind if it exceeded the budget, which has ended the task.
        """
        total = read_usage(body.metadata) if isinstance(body, Task | StatusUpdate) else None
        if total is None:
            return None
        usage = RemoteUsage(task_id=link.task_id, name=_task_id(body) or "", total=total, at=self.now_ms())
        charged = await self._store.do(task_endings.charge_remote_usage, tenant, usage)
        for use, model in charged.counted:
            self._hooks.emit(UsageReported(tenant=tenant, task_id=link.task_id, agent=link.agent, use=use, model=model))
        self._hooks.emit_ended(charged.ended)
        if charged.over is not None:
            log.info("remote.over_budget", extra={"task_id": link.task_id, "reason": charged.over})
            raise Behind(link.task_id)
        return charged.account.shown

    async def _packed(self, tenant: str, link: RemoteLink, body: EventBody) -> tuple[EventBody, tuple[str, ...]]:
        """Return a report in its stored form: redacted, with large parts as blobs."""
        trust = self._trust.get(link.agent)
        if trust is not None and trust.redact is not None:
            body = trust.redact(body)
        if not self._task_store.has_large(body):
            return body, ()
        packed = await self._task_store.pack(tenant, [body], None)
        return packed.bodies[0], packed.blobs

    async def _report_request(
        self, tenant: str, head: TaskHead, effect: ReportEffect, report: Report, blobs: tuple[str, ...]
    ) -> remote_tasks.ReportRequest:
        state = next((body.status.state for body in reversed(effect.bodies) if isinstance(body, StatusUpdate)), None)
        last = Append(
            task_id=head.id,
            epoch=head.epoch,
            after=head.last_seq,
            bodies=effect.bodies,
            at=self.now_ms(),
            state=state,
            snapshot=await self._snapshot(tenant, head, effect.bodies, state),
            blobs=blobs if effect.bodies else (),
        )
        output = msgspec.json.encode(report.body if isinstance(report.body, StatusUpdate) else None).decode()
        return remote_tasks.ReportRequest(
            link=effect.link,
            last=last,
            step=poll_step(effect.link.asks) if effect.asks else None,
            output=output if effect.asks else "null",
            keeps_context=effect.has_other_context,
        )

    async def _snapshot(
        self, tenant: str, head: TaskHead, bodies: Sequence[EventBody], state: TaskState | None
    ) -> Task | None:
        """Return the snapshot of the task after new events, if one is due."""
        before, after = head.last_seq, head.last_seq + len(bodies)
        has_doubled = after >= SNAPSHOT_AT and before.bit_length() != after.bit_length()
        if state not in lifecycle.ENDED and not has_doubled:
            return None
        stored = head
        if not isinstance(stored, StoredTask):
            seen = await self._store.read(remote_tasks.read_link_and_task, tenant, head.id, whole=True)
            if seen is None or not isinstance(seen[1], StoredTask) or seen[1].last_seq != before:
                raise Behind(head.id)
            stored = seen[1]
        return lifecycle.extended(stored.task(), bodies)

    def _log_report(self, head: TaskHead, before: RemoteLink, effect: ReportEffect) -> None:
        link = effect.link
        about = {"task_id": head.id, "agent": link.agent, "remote_task_id": link.remote_id}
        if link.sent > before.sent:
            log.info("remote.acknowledged", extra=about)
        if effect.has_other_context:
            contexts = {"told": before.context_id, "answered": link.context_id}
            log.warning("remote.other_context", extra=about | contexts)
        if link.state in lifecycle.TERMINAL and effect.bodies:
            log.info("remote.ended", extra=about | {"state": link.state.name})

    async def give_up(self, tenant: str, link: RemoteLink, reason: str, again_seconds: float) -> bool:
        """End a task whose outcome is unknown, unless a report arrived meanwhile.

        A late report may still set the outcome. The agent is also polled again after a while.
        """
        again_ms = round(again_seconds * 1000)
        request = remote_tasks.GiveUpRequest(link=link, reason=reason, at=self.now_ms(), again_ms=again_ms)
        ended = await self._store.do(remote_tasks.give_up_remote_task, tenant, request)
        self._hooks.emit_ended(ended)
        if ended:
            log.warning("remote.given_up", extra={"task_id": link.task_id, "agent": link.agent, "reason": reason})
        return bool(ended)

    # --- manual actions -------------------------------------------------------------------------------------------

    async def retry(self, tenant: str, task_id: str) -> bool:
        """Let a task poll its agent again and send its unsent messages. False if it has ended for good."""
        while (link := await self.find(tenant, task_id)) is not None:
            more = replace(link, asks=link.asks + 1)
            try:
                return await self._store.do(
                    remote_tasks.retry_remote_task, tenant, more, poll_step(more.asks), self.now_ms()
                )
            except Behind:
                continue
        return False

    async def claim_cancels(self, agent: str, limit: int, again_seconds: float) -> list[RemoteCancel]:
        """Claim the local cancellations that an agent must be sent now."""
        return await self._store.do(remote_tasks.claim_cancels, agent, limit, round(again_seconds * 1000))

    async def clear_cancel(self, cancel: RemoteCancel) -> None:
        """Record that a cancellation need not be sent any more."""
        await self._store.do(remote_tasks.clear_cancel, cancel.tenant, cancel.link.task_id)


def poll_signal(number: int) -> str:
    """Return the signal of a task's poll with this number."""
    return f"remote:{number}"


def poll_step(number: int) -> str:
    """Return the step that the signal completes."""
    return wait_key(poll_signal(number))


def token_hash(token: str) -> str:
    """Return the stored hash of a token. One round is enough because the token is random."""
    return hashlib.sha256(token.encode()).hexdigest()


def _local_task(head: TaskHead) -> LocalTask:
    task = head.task() if isinstance(head, StoredTask) else None
    return LocalTask(task_id=head.id, context_id=head.context_id, state=head.task_state, task=task)


def unsent_message(link: RemoteLink, history: Sequence[Message]) -> Message | None:
    """Return the caller's first message that a remote agent has not accepted."""
    messages = [message for message in history if message.role is Role.USER]
    return messages[link.sent] if link.sent < len(messages) else None


def _task_id(body: EventBody) -> str | None:
    return body.id if isinstance(body, Task) else body.task_id


def _seq(event_id: str | None, body: EventBody) -> int | None:
    """Return the sequence number in the sender's log, from a header with task, webhook and number."""
    task, _, rest = (event_id or "").partition(":")
    number = rest.rpartition(":")[2]
    is_ours = task == quote(_task_id(body) or "", safe="") and number.isascii() and number.isdecimal()
    return int(number) if is_ours and len(number) < 19 else None


@contextmanager
def _report_errors() -> Iterator[None]:
    """Turn a failure to commit a report into the error for its sender."""
    try:
        yield
    except (ForeignReport, NoSuchTask):
        log.warning("report.not_its_task")
        raise unauthenticated() from None
    except BadValue as error:
        raise InvalidParams(f"Invalid parameters: {error}") from None
    except StoreUnavailable as error:
        raise _unavailable() from error


async def patiently(do: Callable[[], Awaitable[T]]) -> T:
    """Retry an operation while the database is unavailable, which is not the task's fault."""
    return await retry_until_available(do, log)


def _unavailable() -> AgentUnavailable:
    return AgentUnavailable("The task store is not available at the moment", retry_after=RETRY_SECONDS)


def unauthenticated() -> AuthenticationFailed:
    """Return the refusal of a sender without a valid token for the task."""
    error = AuthenticationFailed("The token does not belong to this task")
    error.challenges = ("Bearer",)
    return error
