"""Official A2A SDK: an `AgentExecutor`, hosted unchanged.

A turn is a call of `execute`, and a question ends it. The SDK's types are written as JSON, which is A2A 1.0 (protobuf
messages) or A2A 0.3 (pydantic models before 1.0), so nothing is mapped by hand. The SDK is imported when an agent is
made. Streams, webhooks, subscriptions and the store are Accord's, not the SDK's.
"""

import logging
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from accord.agents.turns import EventRecord, external_context, run_cancelable, run_turns, with_context_id
from accord.api import Context, Failed, Profile
from accord.api.agent_types import ANY_MEDIA, AgentArguments, AgentType, Options, is_instance_of, needs, profile
from accord.model import EventBody, Message, SendRequest, Task
from accord.protocol.dialects.v03 import V03
from accord.protocol.dialects.v1 import V1
from accord.protocol.operations import Operation
from accord.protocol.sse import Frame

log = logging.getLogger("accord.agents.a2a_sdk")

PutEvent = Callable[[EventBody], Awaitable[None]]


class ExecutorOptions(Options, frozen=True, kw_only=True):
    """Options of an executor.

    An executor with `answers_message` enqueues messages for tasks of one turn. Their callers receive only the message.
    """

    answers_message: bool = False


class SdkTypes(Struct, frozen=True, kw_only=True):
    """One version of the SDK: its dialect, and functions between its types and JSON."""

    dialect: V1 | V03
    task: Callable[[bytes], Any]
    request: Callable[[bytes], Any]
    context: Callable[..., Any]
    """Makes a `RequestContext` from request, user, tenant and extensions, and its own keyword arguments."""

    event: Callable[[Any], str]
    message: Callable[[Exception], str | None]
    """Returns the message of an error that is meant for callers, or None."""


class ExecutorAgent:
    """An agent made of one executor."""

    def __init__(self, executor: Any, profile: Profile, types: SdkTypes) -> None:
        self.profile = profile
        self._executor = executor
        self._types = types
        self._queue_class, self._user_class = _queue_class(types), _user_class()

    async def run(self, ctx: Context) -> None:
        """Execute the turns of the task: one, and one for each question that the caller has answered."""

        async def turn(message: Message, record: EventRecord) -> None:
            request = self._request(ctx, message, None if record.is_first else ctx.task)
            await run_cancelable(ctx, self._executor.execute(request, self._queue_class(record.put)), cancel)

        async def cancel() -> None:
            await self._executor.cancel(self._request(ctx, None, ctx.task), self._queue_class(_discard))

        try:
            await run_turns(ctx, turn)
        except Exception as error:
            if (reason := self._types.message(error)) is None:
                raise
            log.exception("a2a_sdk.executor_failed", extra={"task_id": ctx.task_id})
            raise Failed(reason) from error

    def _request(self, ctx: Context, message: Message | None, task: Task | None) -> Any:
        """Return the context of a call.

        Executors store state by `context_id`, and few check its owner. The id is therefore unique for each caller.
        """
        types, context_id, request = self._types, external_context(ctx), None
        if message is not None:
            sent = SendRequest(message=with_context_id(message, context_id), metadata=ctx.task.metadata)
            request = types.request(types.dialect.encode_request(Operation.SEND, sent))
        return types.context(
            request,
            user=self._user_class(ctx.caller.owner),
            tenant=ctx.tenant,
            extensions={*ctx.caller.extensions, *(message.extensions if message else ())},
            task_id=ctx.task_id,
            context_id=context_id,
            task=None if task is None else types.task(types.dialect.push_task(with_context_id(task, context_id))),
        )


async def _discard(_body: EventBody) -> None:
    """Ignore events of a task that has ended."""


# --- the SDK's types --------------------------------------------------------------------------------------------------


def _v1_types() -> SdkTypes:
    from a2a.server.agent_execution import RequestContext
    from a2a.server.context import ServerCallContext
    from a2a.types import a2a_pb2 as pb
    from a2a.utils.errors import A2AError
    from google.protobuf import json_format

    members = {
        pb.Task: "task",
        pb.Message: "message",
        pb.TaskStatusUpdateEvent: "status_update",
        pb.TaskArtifactUpdateEvent: "artifact_update",
    }

    def parse(data: bytes, into: Any) -> Any:
        return json_format.Parse(data, into, ignore_unknown_fields=True)

    def context(request: Any, *, user: Any, tenant: str, extensions: set[str], **ids: Any) -> Any:
        return RequestContext(
            ServerCallContext(user=user, tenant=tenant, requested_extensions=extensions), request, **ids
        )

    def event(reported: Any) -> str:
        member = members.get(type(reported))
        if member is None:
            raise TypeError(f"An executor cannot report {type(reported).__name__}")
        return str(json_format.MessageToJson(pb.StreamResponse(**{member: reported}), indent=None))

    return SdkTypes(
        dialect=V1(),
        task=lambda data: parse(data, pb.StreamResponse()).task,
        request=lambda data: parse(data, pb.SendMessageRequest()),
        context=context,
        event=event,
        message=lambda error: error.message if isinstance(error, A2AError) else None,
    )


def _v03_types(types: Any) -> SdkTypes:
    # Version 1.x, which is used for type checks, has the same modules with other names in them.
    server: Any = import_module("a2a.server.context")
    execution: Any = import_module("a2a.server.agent_execution")
    errors: Any = import_module("a2a.utils.errors")

    def context(request: Any, *, user: Any, tenant: str, extensions: set[str], **ids: Any) -> Any:
        call = server.ServerCallContext(user=user, state={"tenant": tenant}, requested_extensions=extensions)
        return execution.RequestContext(request, call_context=call, **ids)

    def message(error: Exception) -> str | None:
        if isinstance(error, errors.ServerError):
            return getattr(error.error, "message", None) or str(error)
        return str(error) if isinstance(error, errors.A2AServerError) else None

    return SdkTypes(
        dialect=V03(),
        task=types.Task.model_validate_json,
        request=types.MessageSendParams.model_validate_json,
        context=context,
        event=lambda reported: str(reported.model_dump_json(by_alias=True, exclude_none=True)),
        message=message,
    )


def _queue_class(types: SdkTypes) -> Callable[[PutEvent], Any]:
    """Return a class of event queues that pass each event on."""
    base: Any = import_module("a2a.server.events").EventQueue

    class ForwardingEventQueue(base):  # type: ignore[misc]  # its version is not known before
        def __init__(self, put: PutEvent) -> None:
            super().__init__()
            self._put = put

        async def enqueue_event(self, event: Any) -> None:
            await self._put(types.dialect.decode_event(Frame(data=types.event(event).encode())))

    return ForwardingEventQueue


def _user_class() -> Callable[[str], Any]:
    """Return the class of callers as the SDK's users."""
    base: Any = import_module("a2a.auth.user").User

    class CallerAsUser(base):  # type: ignore[misc]  # its version is not known before
        def __init__(self, owner: str) -> None:
            self._owner = owner

        @property
        def is_authenticated(self) -> bool:
            return bool(self._owner)

        @property
        def user_name(self) -> str:
            return self._owner

    return CallerAsUser


# --- the agent type ---------------------------------------------------------------------------------------------------


def make(given: AgentArguments) -> ExecutorAgent:
    """Make an agent from an executor."""
    with needs("a2a-sdk", "a2a-sdk"):
        types = import_module("a2a.types")
    executor = given.target
    own = profile(
        given,
        name=type(executor).__name__,
        description=(type(executor).__doc__ or "").strip().partition("\n")[0],
        input_modes=ANY_MEDIA,  # the executor's own card is not visible here
        output_modes=ANY_MEDIA,
    )
    sdk = _v1_types() if hasattr(types, "a2a_pb2") else _v03_types(types)
    return ExecutorAgent(executor, replace(own, answers_message=given.options.answers_message), sdk)


AGENT_TYPE = AgentType(
    name="a2a-sdk",
    options=ExecutorOptions,
    make=make,
    recognizes=lambda thing: is_instance_of(thing, "a2a.server.agent_execution.agent_executor:AgentExecutor"),
)
