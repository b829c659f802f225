"""Middleware in front of a service: observers, rate, authorization and limits.

`server.pipeline` composes it, so no binding can go around it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from accord.a2a import Call, Caller, Handler, Middleware, Pending, TaskEvents
from accord.auth.audit import ABANDONED, OK, Audit, entry
from accord.auth.authentication import Access, OpenStreams
from accord.auth.rate_limits import CallerUsage, Quotas
from accord.auth.roles import Roles, named_skills
from accord.errors import (
    AccordError,
    AgentUnavailable,
    ExtensionSupportRequired,
    InternalError,
    PermissionDenied,
    RateLimited,
    RequestTooLarge,
    Violation,
)
from accord.model import (
    AgentCard,
    AgentInterface,
    CancelRequest,
    Part,
    PushConfig,
    PushListRequest,
    SendRequest,
    Task,
    TaskPage,
)
from accord.protocol import codec, lifecycle
from accord.protocol.operations import SENDS, Operation
from accord.service.storage_quotas import QuotaShare, StorageQuotas
from accord.storage.store import StoreUnavailable

T = TypeVar("T")

Check = Callable[[Any], None]

KEEPS = SENDS | {Operation.PUSH_SET}
"""Operations that may store something."""

INTERNAL_REASON = InternalError().row.reason


class PlacedCard(Middleware):
    """Names the interfaces of one place in the extended card."""

    def __init__(self, inner: Handler, interfaces: tuple[AgentInterface, ...]) -> None:
        """Serve `inner` at `interfaces`."""
        super().__init__(inner)
        self._interfaces = interfaces

    def handle(self, call: Call) -> Pending[Any]:
        """Pass on an operation with a single reply."""
        return self.inner.handle(call) if call.operation is not Operation.EXTENDED_CARD else self._card(call)

    async def _card(self, call: Call) -> AgentCard:
        card: AgentCard = await self.inner.handle(call)
        return replace(card, supported_interfaces=self._interfaces)


# --- observation ------------------------------------------------------------------------------------------------------


class CallObserver(Protocol):
    """Receives the outcome of each call."""

    def note(self, call: Call, outcome: str, result: Any, seconds: float) -> None:
        """Note the outcome, the reply or open stream, and the time that it took."""

    def note_stream(self, stream: TaskEvents) -> None:
        """Observe an open stream."""


class Observed(Middleware):
    """Reports the outcome of each call to observers, also that of a refused one."""

    def __init__(
        self,
        inner: Handler,
        observers: Sequence[CallObserver],
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Report calls of `inner`."""
        super().__init__(inner)
        self._observers = observers
        self._clock = clock

    def handle(self, call: Call) -> Pending[Any]:
        """Pass on an operation with a single reply, and report it."""
        return self._observe(call, self.inner.handle)

    async def follow(self, call: Call) -> TaskEvents:
        """Pass on a streaming operation, and report its beginning."""
        stream = await self._observe(call, self.inner.follow)
        for observer in self._observers:
            observer.note_stream(stream)
        return stream

    async def _observe(self, call: Call, pass_on: Callable[[Call], Pending[T]]) -> T:
        began, outcome, result = self._clock(), ABANDONED, None
        try:
            result = await pass_on(call)
            outcome = OK
        except AccordError as error:
            outcome = error.row.reason
            raise
        except Exception:
            outcome = INTERNAL_REASON
            raise
        finally:
            seconds = self._clock() - began
            for observer in self._observers:
                observer.note(call, outcome, result, seconds)
        return result


class AuditObserver:
    """Writes an audit entry for each call that is audited."""

    def __init__(self, audit: Audit, agent: str) -> None:
        """Write entries about the agent with that name."""
        self._audit = audit
        self._agent = agent

    def note(self, call: Call, outcome: str, result: Any, seconds: float) -> None:
        """Write an entry. Of a stream it says how it began."""
        if self._audit.wants(call.operation, outcome):
            at = self._audit.now_ms() - int(seconds * 1000)
            task_id = _task_id(call.request, result)
            self._audit.note(entry(call.operation, call.caller, self._agent, task_id, outcome, at))

    def note_stream(self, stream: TaskEvents) -> None:
        """Do nothing."""


def _task_id(request: Any, result: Any) -> str | None:
    made = result.head.body if isinstance(result, TaskEvents) else result
    if isinstance(made, Task):
        return made.id
    if isinstance(request, SendRequest):
        return request.message.task_id
    return getattr(request, "task_id", None) or getattr(request, "id", None)


# --- authorization ----------------------------------------------------------------------------------------------------


class RateLimiter(Middleware):
    """Refuses requests beyond a caller's rate."""

    def __init__(self, inner: Handler, usage: CallerUsage) -> None:
        """Count requests in `usage`, which the agents of a server share."""
        super().__init__(inner)
        self._usage = usage

    def handle(self, call: Call) -> Pending[Any]:
        """Count an operation with a single reply."""
        self._usage.take(call.caller)
        return self.inner.handle(call)

    def follow(self, call: Call) -> Pending[TaskEvents]:
        """Count a streaming operation."""
        self._usage.take(call.caller)
        return self.inner.follow(call)


class Authorization(Middleware):
    """Refuses forbidden operations, and sets the tenant and the visibility of a caller."""

    def __init__(
        self,
        inner: Handler,
        agent: str,
        roles: Roles,
        *,
        access: Access | None = None,
        required: frozenset[str] = frozenset(),
        streams: OpenStreams | None = None,
        identifier: int,
    ) -> None:
        """Authorize callers of the agent with that name. `required` are the extensions that its card requires.

        If the `access` of the server is optional, only authenticated callers read its extended card. `streams` ends
        streams whose credential expires. `identifier` is the largest size of a tenant's name.
        """
        super().__init__(inner)
        self._agent = agent
        self._roles = roles
        self._access = access
        self._required = required
        self._streams = streams
        self._identifier = identifier

    def handle(self, call: Call) -> Pending[Any]:
        """Authorize an operation with a single reply."""
        self._authorize(call)
        return self.inner.handle(call)

    async def follow(self, call: Call) -> TaskEvents:
        """Authorize a streaming operation for as long as the caller's credential is valid."""
        self._authorize(call)
        stream = await self.inner.follow(call)
        if self._streams is not None and call.caller.ticket is not None:
            stream.pass_through(self._streams.kept(stream.rest, call.caller.ticket))
        return stream

    def _authorize(self, call: Call) -> None:
        operation, caller = call.operation, call.caller
        if operation is Operation.EXTENDED_CARD and self._access and self._access.is_optional and not caller.owner:
            raise self._access.failure()
        tenant = call.request.tenant
        if tenant and tenant != caller.tenant:  # refused, whether it exists or not
            if not caller.roams:
                raise PermissionDenied("This tenant is not yours")
            check_size("tenant", tenant, self._identifier)
            caller = replace(caller, tenant=tenant)
        if caller.roles is not None:
            caller = self._entitled(call, caller, caller.roles)
        # They apply to messages (3.3.4): any client may read or cancel a task.
        if self._required and operation in SENDS:
            missing = self._required.difference(caller.extensions, call.request.message.extensions)
            if missing:
                named = ", ".join(sorted(missing))
                raise ExtensionSupportRequired(f"The agent requires extensions that are not declared: {named}")
        call.caller = caller

    def _entitled(self, call: Call, caller: Caller, roles: frozenset[str]) -> Caller:
        """Return the caller with the visibility of its roles, or raise PermissionDenied."""
        operation, request = call.operation, call.request
        rights = self._roles.rights(roles, self._agent)
        right = rights.get(operation)
        missing = operation if right is None else Operation.SEND if call.starts_held_task else None
        if right is None or (missing is not None and missing not in rights):
            raise PermissionDenied(f"Your roles do not include {(missing or operation).value} of this agent")
        if operation in SENDS and _webhook(request) is not None and Operation.PUSH_SET not in rights:
            raise PermissionDenied(f"Your roles do not include {Operation.PUSH_SET.value}: send it without a webhook")
        if operation in SENDS and not right.has_all_skills:
            skills = named_skills(request)
            if not skills:
                raise PermissionDenied("Your roles are limited to some skills; name one as `skill` in the metadata")
            if not all(map(right.has_skill, skills)):
                raise PermissionDenied("Your roles do not include this skill")
        return replace(caller, sees_all=True) if right.sees_all else caller


# --- limits -----------------------------------------------------------------------------------------------------------


class CallLimits(Middleware):
    """Enforces the sizes of requests and replies, and the number of tasks, streams and webhooks."""

    def __init__(self, inner: Handler, usage: CallerUsage, storage: StorageQuotas | None = None) -> None:
        """Enforce the quotas of `usage` and `storage`, which the agents of a server share."""
        super().__init__(inner)
        self._usage = usage
        self._quotas = usage.quotas
        self._sizes = RequestSizes(self._quotas)
        self._storage = storage if storage is not None and storage.has_limits else None

    async def handle(self, call: Call) -> Any:
        """Limit an operation with a single reply."""
        share = None
        try:
            self._sizes.check(call)
            if call.operation in KEEPS:
                share = await self._reserve_quota(call)
            elif call.operation is Operation.LIST:
                self._limit_page(call)
            result = await self.inner.handle(call)
        except AccordError:
            if share is not None:
                share.give_back()
            raise
        except StoreUnavailable as error:  # on the way to the operation, which has its own handling
            raise _store_unavailable() from error
        if isinstance(result, Task):
            return lifecycle.limit_history(result, self._quotas.history)
        if isinstance(result, TaskPage):
            return replace(result, tasks=tuple(map(self._limit_history, result.tasks)))
        return result

    async def follow(self, call: Call) -> TaskEvents:
        """Limit a streaming operation."""
        share = None
        try:
            self._sizes.check(call)
            if call.operation in KEEPS:
                share = await self._reserve_quota(call)
            stream = await self._open(call)
        except AccordError:
            if share is not None:
                share.give_back()
            raise
        except StoreUnavailable as error:  # as in handle
            raise _store_unavailable() from error
        if isinstance(stream.head.body, Task):
            stream.replace_first(replace(stream.head, body=self._limit_history(stream.head.body)))
        return stream

    async def _open(self, call: Call) -> TaskEvents:
        caller = call.caller
        self._usage.open_stream(caller)
        try:
            stream = await self.inner.follow(call)
        except BaseException:
            self._usage.close_stream(caller)
            raise
        stream.on_close(partial(self._usage.close_stream, caller))
        return stream

    def _limit_page(self, call: Call) -> None:
        """Limit the size of a page whose tasks have their artifacts."""
        request, most = call.request, self._quotas.page_with_artifacts
        if request.include_artifacts and (request.page_size is None or request.page_size > most):
            call.request = replace(request, page_size=most)

    def _limit_history(self, task: Task) -> Task:
        return lifecycle.limit_history(task, self._quotas.history)

    async def _reserve_quota(self, call: Call) -> QuotaShare | None:
        """Enforce the limits that only the store can count."""
        request, caller = call.request, call.caller
        if isinstance(request, PushConfig):
            await self._check_webhooks(request, request.task_id, caller)
        elif not request.message.task_id:
            await self._usage.open_task(caller)
        elif (push := _webhook(request)) is not None:
            task_id = request.message.task_id
            await self._check_webhooks(replace(push, id=push.id or task_id), task_id, caller)
        if self._storage is None:
            return None
        return await self._storage.take(caller, request if isinstance(request, PushConfig) else request.message)

    async def _check_webhooks(self, config: PushConfig, task_id: str | None, caller: Caller) -> None:
        """Refuse one webhook too many. Two concurrent requests may both be accepted."""
        listing = Call(Operation.PUSH_LIST, PushListRequest(task_id=task_id or ""), caller)
        most, page = self._quotas.webhooks, await self.inner.handle(listing)
        if sum(webhook.id != config.id for webhook in page.configs) >= most:
            raise RateLimited(f"The task has {most} webhooks already", metadata={"limit": "webhooks"})


def _store_unavailable() -> AgentUnavailable:
    return AgentUnavailable("The task store is not available at the moment; try again", retry_after=1)


def _webhook(request: SendRequest) -> PushConfig | None:
    configuration = request.configuration
    return None if configuration is None else configuration.task_push_notification_config


class RequestSizes:
    """Size limits on requests."""

    def __init__(self, quotas: Quotas) -> None:
        """Enforce the limits of `quotas`."""
        self._quotas = quotas
        self.checks: Mapping[Operation, Check] = {
            Operation.SEND: self._send,
            Operation.STREAM: self._send,
            Operation.CANCEL: self._cancel,
            Operation.PUSH_SET: self._push_set,
        }
        """Operation -> the check that refuses a request that is too large."""

    def check(self, call: Call) -> None:
        """Raise RequestTooLarge if a request is too large."""
        if call.caller.idempotency_key is not None:
            check_size("Idempotency-Key", call.caller.idempotency_key, self._quotas.identifier)
        check = self.checks.get(call.operation)
        if check is not None:
            check(call.request)

    def _send(self, request: SendRequest) -> None:
        message, configuration, quotas = request.message, request.configuration, self._quotas
        check_size("message.messageId", message.message_id, quotas.identifier)
        if message.context_id is not None:
            check_size("message.contextId", message.context_id, quotas.identifier)
        if message.metadata is not None:
            self._free("message.metadata", message.metadata, quotas.metadata)
        members = max(len(message.parts), len(message.extensions), len(message.reference_task_ids))
        if members > quotas.parts:
            self._list("message.parts", message.parts)
            self._list("message.extensions", message.extensions)
            self._list("message.referenceTaskIds", message.reference_task_ids)
        for position, part in enumerate(message.parts):
            self._part(position, part)
        if request.metadata is not None:
            self._free("metadata", request.metadata, quotas.metadata)
        if configuration is not None:
            self._list("configuration.acceptedOutputModes", configuration.accepted_output_modes)
            if configuration.task_push_notification_config is not None:
                self._webhook("configuration.taskPushNotificationConfig.", configuration.task_push_notification_config)

    def _cancel(self, request: CancelRequest) -> None:
        if request.metadata is not None:
            self._free("metadata", request.metadata, self._quotas.metadata)

    def _push_set(self, request: PushConfig) -> None:
        self._webhook("", request)

    def _part(self, position: int, part: Part) -> None:
        text = part.text if part.text is not None else part.url
        if text is not None and len(text) > self._quotas.text:
            raise _too_large(f"message.parts[{position}]", f"More than {self._quotas.text} characters")
        if part.data is not UNSET:
            self._free(f"message.parts[{position}].data", part.data, self._quotas.text)
        if part.metadata is not None:
            self._free(f"message.parts[{position}].metadata", part.metadata, self._quotas.metadata)

    def _webhook(self, where: str, config: PushConfig) -> None:
        size = self._quotas.webhook_field
        check_size(where + "id", config.id or "", self._quotas.identifier)
        check_size(where + "url", config.url, size)
        check_size(where + "token", config.token or "", size)
        self._list(where + "events", config.events)
        if config.authentication is not None:
            check_size(where + "authentication.scheme", config.authentication.scheme, size)
            check_size(where + "authentication.credentials", config.authentication.credentials or "", size)

    # --- field checks ---------------------------------------------------------------------------------------------

    def _list(self, where: str, members: tuple[object, ...]) -> None:
        if len(members) > self._quotas.parts:
            raise _too_large(where, f"More than {self._quotas.parts}")

    def _free(self, where: str, value: object, size: int) -> None:
        """Raise RequestTooLarge if data is too large or too deep. Does not recurse."""
        try:
            written = codec.encode(value)
        except RecursionError:
            raise self._too_deep(where) from None
        if len(written) > size:
            raise _too_large(where, f"More than {size} bytes")
        if codec.is_too_deep(written, self._quotas.depth):
            raise self._too_deep(where)

    def _too_deep(self, where: str) -> RequestTooLarge:
        return _too_large(where, f"Nested more deeply than {self._quotas.depth} levels")


def check_size(where: str, text: str, size: int) -> None:
    """Raise RequestTooLarge if a text is too long."""
    if len(text) > size or (not text.isascii() and len(text.encode(errors="replace")) > size):
        raise _too_large(where, f"More than {size} bytes")


def _too_large(where: str, reason: str) -> RequestTooLarge:
    return RequestTooLarge(f"`{where}`: {reason}", violations=(Violation(where, reason),))
