"""Authorization and limits in front of a service.

It wraps any `A2A` and is one itself, so no binding can go around it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from accord.a2a import A2A, Caller, HeldTasks
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
    UnsupportedOperation,
    Violation,
)
from accord.model import (
    AgentCard,
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
)
from accord.protocol import codec, lifecycle
from accord.protocol.operations import SENDS, Operation
from accord.service.storage_quotas import QuotaShare, StorageQuotas
from accord.storage.store import StoreUnavailable

Check = Callable[[Any], None]


class RequestLimits:
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

    def _send(self, request: SendRequest) -> None:
        message, configuration = request.message, request.configuration
        self._message(message)
        if request.metadata is not None:
            self._free("metadata", request.metadata, self._quotas.metadata)
        if configuration is not None:
            self._list("configuration.acceptedOutputModes", configuration.accepted_output_modes)
            if configuration.task_push_notification_config is not None:
                self._webhook("configuration.taskPushNotificationConfig.", configuration.task_push_notification_config)

    def _cancel(self, request: CancelRequest) -> None:
        if request.metadata is not None:
            self._free("metadata", request.metadata, self._quotas.metadata)

    def _push_set(self, request: PushConfig) -> None:
        self._webhook("", request)

    def _message(self, message: Message) -> None:
        self.line("message.messageId", message.message_id, self._quotas.identifier)
        if message.context_id is not None:
            self.line("message.contextId", message.context_id, self._quotas.identifier)
        if message.metadata is not None:
            self._free("message.metadata", message.metadata, self._quotas.metadata)
        self._list("message.parts", message.parts)
        self._list("message.extensions", message.extensions)
        self._list("message.referenceTaskIds", message.reference_task_ids)
        for position, part in enumerate(message.parts):
            self._part(position, part)

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
        self.line(where + "id", config.id or "", self._quotas.identifier)
        self.line(where + "url", config.url, size)
        self.line(where + "token", config.token or "", size)
        self._list(where + "events", config.events)
        if config.authentication is not None:
            self.line(where + "authentication.scheme", config.authentication.scheme, size)
            self.line(where + "authentication.credentials", config.authentication.credentials or "", size)

    # --- field checks ---------------------------------------------------------------------------------------------

    def line(self, where: str, text: str, size: int) -> None:
        """Raise RequestTooLarge if a text is too long."""
        if len(text) > size or (not text.isascii() and len(text.encode(errors="replace")) > size):
            raise _too_large(where, f"More than {size} bytes")

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


def _too_large(where: str, reason: str) -> RequestTooLarge:
    return RequestTooLarge(f"`{where}`: {reason}", violations=(Violation(where, reason),))


T = TypeVar("T")
R = TypeVar("R", bound=Any)

Follow = Callable[[R, Caller, int | None], AsyncIterator[Event]]

KEEPS = SENDS | {Operation.PUSH_SET}
"""Operations that may store something."""


class GuardedService:
    """An `A2A` that authorizes requests and enforces limits before the wrapped service runs."""

    def __init__(  # noqa: PLR0913  # one for each check
        self,
        inner: A2A,
        agent: str,
        *,
        roles: Roles | None = None,
        usage: CallerUsage | None = None,
        required: frozenset[str] = frozenset(),
        audit: Audit | None = None,
        standing: OpenStreams | None = None,
        storage: StorageQuotas | None = None,
        access: Access | None = None,
    ) -> None:
        """Guard `inner`, the agent with that name. `required` are the extensions that its card requires.

        `usage`, `audit`, `standing` and `storage` are shared by the agents of a server. If the `access` of the
        server is optional, only authenticated callers read its extended card.
        """
        self._inner = inner
        self._agent = agent
        self._roles = roles or Roles()
        self._usage = usage or CallerUsage()
        self._quotas = self._usage.quotas
        self._bounds = RequestLimits(self._quotas)
        self._checks = self._bounds.checks
        self._required = required
        self._audit = audit
        self._storage = storage if storage is not None and storage.has_limits else None
        self._access = access
        self._standing = standing or OpenStreams()

    # --- the operations -------------------------------------------------------------------------------------------

    async def send(self, request: SendRequest, caller: Caller) -> Task | Message:
        """Send a message."""
        answer = await self._ask(Operation.SEND, self._inner.send, request, caller)
        return self._shown(answer) if isinstance(answer, Task) else answer

    def stream(self, request: SendRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Send a message and yield the task's events."""
        return self._follow(Operation.STREAM, self._inner.stream, request, caller, after)

    async def get(self, request: GetRequest, caller: Caller) -> Task:
        """Read one task."""
        return self._shown(await self._ask(Operation.GET, self._inner.get, request, caller))

    async def list(self, request: TaskFilter, caller: Caller) -> TaskPage:
        """List tasks."""
        most = self._quotas.page_with_artifacts
        if request.include_artifacts and (request.page_size is None or request.page_size > most):
            request = replace(request, page_size=most)
        page = await self._ask(Operation.LIST, self._inner.list, request, caller)
        return replace(page, tasks=tuple(map(self._shown, page.tasks)))

    async def cancel(self, request: CancelRequest, caller: Caller) -> Task:
        """Cancel one task."""
        return self._shown(await self._ask(Operation.CANCEL, self._inner.cancel, request, caller))

    async def execute(self, task_id: str, caller: Caller) -> Task:
        """Start a held task. Requires the `send` permission and the visibility of `get`."""
        return self._shown(await self._ask(Operation.GET, self._begin, GetRequest(id=task_id), caller))

    async def _begin(self, request: GetRequest, caller: Caller) -> Task:
        if caller.roles is not None and Operation.SEND not in self._roles.rights(caller.roles, self._agent):
            raise PermissionDenied(f"Your roles do not include {Operation.SEND.value} of this agent")
        if not isinstance(self._inner, HeldTasks):
            raise UnsupportedOperation("This agent holds no tasks")
        return await self._inner.execute(request.id, caller)

    def subscribe(self, request: SubscribeRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Subscribe to a task."""
        return self._follow(Operation.SUBSCRIBE, self._inner.subscribe, request, caller, after)

    async def push_set(self, request: PushConfig, caller: Caller) -> PushConfig:
        """Create or replace a webhook."""
        return await self._ask(Operation.PUSH_SET, self._inner.push_set, request, caller)

    async def push_get(self, request: PushGetRequest, caller: Caller) -> PushConfig:
        """Read a webhook."""
        return await self._ask(Operation.PUSH_GET, self._inner.push_get, request, caller)

    async def push_list(self, request: PushListRequest, caller: Caller) -> PushPage:
        """List a task's webhooks."""
        return await self._ask(Operation.PUSH_LIST, self._inner.push_list, request, caller)

    async def push_delete(self, request: PushDeleteRequest, caller: Caller) -> int:
        """Remove webhooks."""
        return await self._ask(Operation.PUSH_DELETE, self._inner.push_delete, request, caller)

    async def extended_card(self, request: CardRequest, caller: Caller) -> AgentCard:
        """Read the card for authenticated callers."""
        return await self._ask(Operation.EXTENDED_CARD, self._inner.extended_card, request, caller)

    # --- operations, with an audit record -------------------------------------------------------------------------

    async def _ask(
        self, operation: Operation, ask: Callable[[R, Caller], Awaitable[T]], request: R, caller: Caller
    ) -> T:
        """Authorize and run an operation, and record its outcome in the audit log."""
        audit, result, outcome, taken = self._audit, None, ABANDONED, None
        at = 0 if audit is None else audit.now_ms()
        try:
            caller = self._allow(operation, request, caller)
            if operation in KEEPS:
                taken = await self._make_room(request, caller)
            result = await ask(request, caller)
            outcome = OK
        except AccordError as error:
            outcome = error.row.reason
            if taken is not None:
                taken.give_back()
            raise
        except StoreUnavailable as error:  # on the way to the operation, which has its own handling
            refusal = AgentUnavailable("The task store is not available at the moment; try again", retry_after=1)
            outcome = refusal.row.reason
            raise refusal from error
        except Exception:
            outcome = InternalError().row.reason
            raise
        finally:
            if audit is not None and audit.wants(operation, outcome):
                audit.note(entry(operation, caller, self._agent, _task_id(request, result), outcome, at))
        return result

    async def _follow(
        self, operation: Operation, follow: Follow[R], request: R, caller: Caller, after: int | None
    ) -> AsyncIterator[Event]:
        """Run a streaming operation until the caller's credential expires. The audit record contains how it began."""
        opened: list[AsyncIterator[Event]] = []

        async def begin(request: R, placed: Caller) -> Event:
            self._usage.open_stream(caller)
            opened.append(follow(request, placed, after))
            first = await anext(opened[0])
            return replace(first, body=self._shown(first.body)) if isinstance(first.body, Task) else first

        try:
            yield await self._ask(operation, begin, request, caller)
            async with aclosing(self._standing.kept(opened[0], caller.ticket)) as events:  # type: ignore[type-var]
                with suppress(StopAsyncIteration):
                    while True:  # no event is held while a slow reader blocks: it may be a large task
                        yield await anext(events)
        finally:
            for events in opened:
                self._usage.close_stream(caller)
                await events.aclose()  # type: ignore[attr-defined]  # every service stream is an async generator

    def _shown(self, task: Task) -> Task:
        return lifecycle.limit_history(task, self._quotas.history)

    # --- authorization --------------------------------------------------------------------------------------------

    def _allow(self, operation: Operation, request: Any, caller: Caller) -> Caller:
        """Return the caller with the requested tenant and its visibility, or raise the refusal."""
        self._usage.take(caller)
        if operation is Operation.EXTENDED_CARD and self._access and self._access.is_optional and not caller.owner:
            raise self._access.failure()
        caller = self._placed(request.tenant, caller)
        if caller.roles is not None:
            caller = self._entitled(operation, request, caller, caller.roles)
        # They apply to messages (3.3.4): any client may read or cancel a task.
        if self._required and operation in SENDS:
            self._need_extensions(request, caller)
        if caller.idempotency_key is not None:
            self._bounds.line("Idempotency-Key", caller.idempotency_key, self._quotas.identifier)
        check = self._checks.get(operation)
        if check is not None:
            check(request)
        return caller

    def _placed(self, tenant: str | None, caller: Caller) -> Caller:
        """Return the caller in the requested tenant. Another tenant is refused, whether it exists or not."""
        if not tenant or tenant == caller.tenant:
            return caller
        if not caller.roams:
            raise PermissionDenied("This tenant is not yours")
        self._bounds.line("tenant", tenant, self._quotas.identifier)
        return replace(caller, tenant=tenant)

    def _entitled(self, operation: Operation, request: Any, caller: Caller, roles: frozenset[str]) -> Caller:
        """Return the caller with the visibility of its roles, or raise PermissionDenied."""
        rights = self._roles.rights(roles, self._agent)
        right = rights.get(operation)
        if right is None:
            raise PermissionDenied(f"Your roles do not include {operation.value} of this agent")
        if operation in SENDS and _webhook(request) is not None and Operation.PUSH_SET not in rights:
            raise PermissionDenied(f"Your roles do not include {Operation.PUSH_SET.value}: send it without a webhook")
        if operation in SENDS and not right.has_all_skills:
            skills = named_skills(request)
            if not skills:
                raise PermissionDenied("Your roles are limited to some skills; name one as `skill` in the metadata")
            if not all(map(right.has_skill, skills)):
                raise PermissionDenied("Your roles do not include this skill")
        return replace(caller, sees_all=True) if right.sees_all else caller

    def _need_extensions(self, request: SendRequest, caller: Caller) -> None:
        missing = self._required.difference(caller.extensions, request.message.extensions)
        if missing:
            named = ", ".join(sorted(missing))
            raise ExtensionSupportRequired(f"The agent requires extensions that are not declared: {named}")

    async def _make_room(self, request: SendRequest | PushConfig, caller: Caller) -> QuotaShare | None:
        """Enforce the limits that only the store can count."""
        if isinstance(request, PushConfig):
            await self._make_room_for(request, request.task_id, caller)
        elif not request.message.task_id:
            await self._usage.open_task(caller)
        elif (push := _webhook(request)) is not None:
            task_id = request.message.task_id
            await self._make_room_for(replace(push, id=push.id or task_id), task_id, caller)
        if self._storage is None:
            return None
        return await self._storage.take(caller, request if isinstance(request, PushConfig) else request.message)

    async def _make_room_for(self, config: PushConfig, task_id: str | None, caller: Caller) -> None:
        """Refuse one webhook too many. Two concurrent requests may both be accepted."""
        page = await self._inner.push_list(PushListRequest(task_id=task_id or ""), caller)
        most = self._quotas.webhooks
        if sum(known.id != config.id for known in page.configs) >= most:
            raise RateLimited(f"The task has {most} webhooks already", metadata={"limit": "webhooks"})


def _webhook(request: SendRequest) -> PushConfig | None:
    """Return the webhook in a message's configuration."""
    configuration = request.configuration
    return None if configuration is None else configuration.task_push_notification_config


def _task_id(request: Any, result: Any) -> str | None:
    """Return the id of the task that an operation concerned."""
    made = result.body if isinstance(result, Event) else result
    if isinstance(made, Task):
        return made.id
    if isinstance(request, SendRequest):
        return request.message.task_id
    return getattr(request, "task_id", None) or getattr(request, "id", None)
