"""Usage and budget of a task.

The store has the total of a task and its children. An execution counts the usage that its agent reports.
"""

import weakref
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from accord.engine.hooks import Hooks, UsageReported
from accord.model import Role, Task
from accord.model.base import Metadata
from accord.model.metadata_keys import USAGE
from accord.protocol.budgets import Budget, TokenUsage, read_budget
from accord.storage.commands import steps, task_endings
from accord.storage.commands.jobs import ClaimedJob
from accord.storage.store import Command, Store

Q = TypeVar("Q")
T = TypeVar("T")

NOTHING = TokenUsage()


class BudgetedExecution(Protocol):
    """The execution whose usage is counted."""

    job: ClaimedJob
    tenant: str
    is_cancelled: bool
    on_lost: Callable[[], object]

    @property
    def task(self) -> Task:
        """The current task."""

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""

    async def flush(self) -> None:
        """Wait until all output is committed."""

    async def persist(self, command: Command[[str, Q], T], request: Q) -> T | None:
        """Run a command, and retry it while the database is unavailable."""

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Call a function, and retry it while the database is unavailable."""


class TaskUsage:
    """The usage of the task of one execution."""

    def __init__(self, run: BudgetedExecution, most: Budget, known: str | None, store: Store, hooks: Hooks) -> None:
        """Count from the usage `known` at the start. `most` is the budget per task of the agent."""
        self._run: BudgetedExecution = weakref.proxy(run)  # to avoid a reference cycle
        self._most = most
        self._account = steps.decode_account(known)
        self._store = store
        self._hooks = hooks

    @property
    def budget(self) -> Budget:
        """The budget of the task: the agent's budget per task, or less."""
        return budget_of(self._most, self._run.task)

    @property
    def left(self) -> Budget:
        """The remaining budget."""
        return self.budget.left(self._account.used)

    def shown_in(self, metadata: Metadata | None) -> Metadata | None:
        """Return a status's metadata with the usage so far, if there is any."""
        if self._account.used == NOTHING:
            return metadata
        return {**(metadata or {}), USAGE: self._account.shown}

    async def count(self, use: TokenUsage, model: str | None, step: str) -> str | None:
        """Count a usage once per step. Return the reason if it exceeded the budget and ended the task."""
        run = self._run
        if use == NOTHING and self.budget == Budget():
            return None  # with a budget, parents and children have to see it
        await run.flush()  # before the task may end
        spend = steps.UsageRequest(
            task_id=run.job.key,
            epoch=run.job.epoch,
            step=step,
            use=use,
            model=model,
            budget=self.budget,
            at=run.now_ms(),
        )
        spent = await run.persist(task_endings.charge_usage, spend)
        assert spent is not None  # only commands with events can be found committed
        self._account = spent.account
        for counted, of in spent.counted:
            self._hooks.tell(
                UsageReported(tenant=run.tenant, task_id=run.job.key, agent=run.job.queue, use=counted, model=of)
            )
        self._hooks.tell_ended(spent.ended)
        if spent.over is not None:
            run.is_cancelled = True
            run.on_lost()  # an agent that catches every exception must not continue
        return spent.over

    async def recount(self) -> None:
        """Load the usage that children have added."""
        run = self._run
        self._account = await run.patiently(lambda: self._store.read(steps.read_account, run.tenant, run.job.key))


def budget_of(most: Budget, task: Task) -> Budget:
    """Return the budget of a task: the agent's budget per task, tightened by the caller's messages."""
    for said in task.history:
        if said.metadata is not None and said.role is Role.USER:
            most = most.tightened(read_budget(said.metadata))
    return most
