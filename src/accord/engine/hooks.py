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
    """Something that happened to a task."""

    tenant: str
    task_id: str
    agent: str


class TaskAccepted(Detail, frozen=True, kw_only=True):
    """A message was accepted; `is_new` if it made the task."""

    is_new: bool


class ExecutionStarted(Detail, frozen=True, kw_only=True):
    """A node began to run an agent; `attempt` counts from 1. It is told within the run, as is its end."""

    attempt: int
    context_id: str


class ExecutionEnded(Detail, frozen=True, kw_only=True):
    """A run ended, with the task's state; without one it was lost to another node or handed over."""

    state: TaskState | None
    seconds: float


class TaskFinished(Detail, frozen=True, kw_only=True):
    """This node committed how a task ended, whoever ended it; one that was given up as unknown may end once more."""

    state: TaskState


class EventsAppended(Detail, frozen=True, kw_only=True):
    """Events were committed to the task's log, up to `seq`."""

    seq: int
    count: int


class UsageReported(Detail, frozen=True, kw_only=True):
    """A task used tokens or money, of a model if it said which; for those that called it, this is not told again."""

    use: TokenUsage
    model: str | None


class Delivered(Detail, frozen=True, kw_only=True):
    """A webhook got an event; with `error` it did not."""

    config_id: str
    seq: int
    error: str | None = None


class NodeReaped(Detail, frozen=True, kw_only=True):
    """A node is gone, and this one gave its work to others; it is about no task."""

    node: str


class LeaseLost(Detail, frozen=True, kw_only=True):
    """This node could not renew its lease before it ran out; it is about no task."""

    node: str


Hook = Callable[[Detail], None]


class Hooks:
    """Those who want to know."""

    def __init__(
        self, hooks: tuple[Hook, ...] = (), by_kind: Mapping[type[Detail], Callable[[Any], None]] = MappingProxyType({})
    ) -> None:
        """Tell `hooks` everything, in this order, after the one that wants to know that kind of thing only."""
        self._hooks = hooks
        self._by_kind = by_kind

    def tell_ended(self, ended: Iterable[EndedTask]) -> None:
        """Say which tasks a command has ended."""
        for tenant, task_id, agent, state in ended:
            self.tell(TaskFinished(tenant=tenant, task_id=task_id, agent=agent, state=state))

    def tell(self, detail: Detail) -> None:
        """Hand a detail to everyone."""
        one = self._by_kind.get(type(detail))
        for hook in self._hooks if one is None else (one, *self._hooks):
            try:
                hook(detail)
            except Exception:  # an observer must not break what it observes
                log.exception("hook failed", extra={"detail": type(detail).__name__})
