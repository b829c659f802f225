"""Official A2A SDK: an `AgentExecutor`, hosted unchanged.

A turn is a call of `execute`, and a question ends it. `v1` and `v03` each contain the types of one SDK version. The SDK
is imported when an agent is made. Streams, webhooks, subscriptions and the store are Accord's, not the SDK's.
"""

import importlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from accord.agents.agent_types import Given, Kind, Options, is_instance_of, profile
from accord.agents.turns import EventRecord, external_context, run_cancelable, take_turns, with_context_id
from accord.engine.agent import Profile
from accord.engine.context import Context, Failed
from accord.model import EventBody, Message, Task

__all__ = ["KIND"]


ANY_MEDIA = ("text/plain", "application/json", "*/*")
"""Default input and output media types.

The executor's own card is not visible here, and the options may narrow them.
"""

log = logging.getLogger("accord.agents.a2a_sdk")

PutEvent = Callable[[EventBody], Awaitable[None]]


class ExecutorOptions(Options, frozen=True, kw_only=True):
    """Options of an executor.

    An executor with `answers_message` enqueues messages for tasks of one turn. Their callers receive only the message.
    """

    answers_message: bool = False


class SdkTypes(Protocol):
    """One version of the SDK's types."""

    def request(self, ctx: Context, context_id: str, message: Message | None, task: Task | None) -> Any:
        """Return the `RequestContext` of a call in the context `context_id`."""

    def queue(self, put: PutEvent) -> Any:
        """Return an `EventQueue` that passes its events to `put`."""

    def told(self, error: Exception) -> str | None:
        """Return the message of an error that is meant for callers, or None."""


class ExecutorAgent:
    """An agent made of one executor."""

    def __init__(self, executor: Any, profile: Profile, version: SdkTypes) -> None:
        """Run `executor`, whose types are those of `version`."""
        self.profile = profile
        self._executor = executor
        self._version = version

    async def run(self, ctx: Context) -> None:
        """Execute the turns of the task: one, and one for each question that the caller has answered."""

        async def turn(message: Message, record: EventRecord) -> None:
            request = self._request(ctx, message, None if record.is_first else ctx.task)
            await run_cancelable(ctx, self._executor.execute(request, self._version.queue(record.put)), cancel)

        async def cancel() -> None:
            await self._executor.cancel(self._request(ctx, None, ctx.task), self._version.queue(_discard))

        try:
            await take_turns(ctx, turn)
        except Exception as error:
            if (told := self._version.told(error)) is None:
                raise
            log.exception("a2a_sdk.executor_failed", extra={"task_id": ctx.task_id})
            raise Failed(told) from error

    def _request(self, ctx: Context, message: Message | None, task: Task | None) -> Any:
        """Return the context of a call.

        Executors store state by `context_id`, and few check its owner. The id is therefore unique for each caller.
        """
        name = external_context(ctx)
        said = None if message is None else with_context_id(message, name)
        return self._version.request(ctx, name, said, None if task is None else with_context_id(task, name))


async def _discard(_body: EventBody) -> None:
    """Ignore events of a task that has ended."""


def make(given: Given) -> ExecutorAgent:
    """Make an agent from an executor."""
    executor, options = given.target, given.options
    name = type(executor).__name__
    who = profile(
        given,
        name=name,
        description=(type(executor).__doc__ or "").strip().partition("\n")[0],
        input_modes=ANY_MEDIA,
        output_modes=ANY_MEDIA,
    )
    return ExecutorAgent(
        executor, msgspec.structs.replace(who, answers_message=options.answers_message), _installed_types()
    )


def _installed_types() -> SdkTypes:
    """Return the types of the installed SDK: protobuf from 1.0 on, pydantic before."""
    try:
        types = importlib.import_module("a2a.types")
    except ImportError as error:
        raise ImportError("Executors of the official SDK need it: pip install 'accord[a2a-sdk]'") from error
    if hasattr(types, "a2a_pb2"):
        from accord.agents.a2a_sdk import v1

        return v1.V1SdkTypes()
    from accord.agents.a2a_sdk import v03

    return v03.V03SdkTypes()


KIND = Kind(
    name="a2a-sdk",
    options=ExecutorOptions,
    make=make,
    recognises=lambda thing: is_instance_of(thing, "a2a.server.agent_execution.agent_executor:AgentExecutor"),
)
