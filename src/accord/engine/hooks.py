"""Hooks for observers: frozen details, passed to plain functions.

A hook that raises is logged and never disturbs the work.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from accord.model import TaskState
from accord.protocol.budgets import TokenUsage
from accord.storage.commands.tasks import EndedTask

log = logging.getLogger("accord.hooks")


class Detail(Struct, frozen=True, kw_only=True):
    """An event of a task, for hooks."""

    tenant: str
    task_id: str
    agent: str


class TaskAccepted(Detail, frozen=True, kw_only=True):
    """A message was accepted. `is_new` if it created the task."""

    is_new: bool


class ExecutionStarted(Detail, frozen=True, kw_only=True):
    """A node started an execution. `attempt` counts from 1. The hook is called within the execution, as at its end."""

    attempt: int
    context_id: str


class ExecutionEnded(Detail, frozen=True, kw_only=True):
    """An execution ended. `state` is the task's, or None if the execution was lost or handed over."""

    state: TaskState | None
    seconds: float


class TaskFinished(Detail, frozen=True, kw_only=True):
    """This node committed the end of a task. A task given up as unknown may end once more."""

    state: TaskState


class EventsAppended(Detail, frozen=True, kw_only=True):
    """Events were committed to the task's log, up to `seq`."""

    seq: int
    count: int


class UsageReported(Detail, frozen=True, kw_only=True):
    """A task used tokens or money, with the model if it is known. The usage is not repeated for calling tasks."""

    use: TokenUsage
    model: str | None


class Delivered(Detail, frozen=True, kw_only=True):
    """A webhook delivery succeeded, or failed with `error`."""

    config_id: str
    seq: int
    error: str | None = None


class NodeReaped(Detail, frozen=True, kw_only=True):
    """This node released the jobs of a dead node. Belongs to no task."""

    node: str


class LeaseLost(Detail, frozen=True, kw_only=True):
    """This node failed to renew its lease before it expired. Belongs to no task."""

    node: str


Hook = Callable[[Detail], None]


class Hooks:
    """The registered hooks."""

    def __init__(
        self, hooks: tuple[Hook, ...] = (), by_kind: Mapping[type[Detail], Callable[[Any], None]] = MappingProxyType({})
    ) -> None:
        """Call the hook of a detail's type, then `hooks` in this order."""
        self._hooks = hooks
        self._by_kind = by_kind

    def emit_ended(self, ended: Iterable[EndedTask]) -> None:
        """Report the tasks that a command has ended."""
        for tenant, task_id, agent, state in ended:
            self.emit(TaskFinished(tenant=tenant, task_id=task_id, agent=agent, state=state))

    def emit(self, detail: Detail) -> None:
        """Pass a detail to every hook."""
        by_kind = self._by_kind.get(type(detail))
        for hook in self._hooks if by_kind is None else (by_kind, *self._hooks):
            try:
                hook(detail)
            except Exception:  # an observer must not break what it observes
                log.exception("hook.failed", extra={"detail": type(detail).__name__})
