"""Usage and budget of a task.

The store has the sum of a task and its children; an execution counts what its agent reports.
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
    """The run that uses something."""

    job: ClaimedJob
    tenant: str
    is_cancelled: bool
    on_lost: Callable[[], object]

    @property
    def task(self) -> Task:
        """The task as it is now."""

    def now_ms(self) -> int:
        """The time."""

    async def flush(self) -> None:
        """Wait until everything said is committed."""

    async def persist(self, command: Command[[str, Q], T], request: Q) -> T | None:
        """Run a command as often as it takes while the database cannot be used."""

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something as often as it takes while the database cannot be used."""


class TaskUsage:
    """What the task of one run has used."""

    def __init__(self, run: BudgetedExecution, most: Budget, known: str | None, store: Store, hooks: Hooks) -> None:
        """Count for a run whose agent's tasks may use `most`, from what was `known` when it began."""
        self._run: BudgetedExecution = weakref.proxy(run)  # which has this
        self._most = most
        self._account = steps.decode_account(known)
        self._store = store
        self._hooks = hooks

    @property
    def budget(self) -> Budget:
        """What the task may use: what its agent's tasks may, or less."""
        return budget_of(self._most, self._run.task)

    @property
    def left(self) -> Budget:
        """What of that is left."""
        return self.budget.left(self._account.used)

    def shown_in(self, metadata: Metadata | None) -> Metadata | None:
        """Return a status's metadata with what was used so far, if anything was."""
        if self._account.used == NOTHING:
            return metadata
        return {**(metadata or {}), USAGE: self._account.shown}

    async def count(self, use: TokenUsage, model: str | None, step: str) -> str | None:
        """Count a use, once for each step; if that was too much the task has ended, and it is said why."""
        run = self._run
        if use == NOTHING and self.budget == Budget():
            return None  # with a budget, those who count for the task elsewhere have to know it
        await run.flush()  # a task that ends here has said what was said before
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
        assert spent is not None  # only events may be found to be there already
        self._account = spent.account
        for counted, of in spent.counted:
            self._hooks.tell(
                UsageReported(tenant=run.tenant, task_id=run.job.key, agent=run.job.queue, use=counted, model=of)
            )
        self._hooks.tell_ended(spent.ended)
        if spent.over is not None:
            run.is_cancelled = True
            run.on_lost()  # an agent that catches every exception must not go on
        return spent.over

    async def recount(self) -> None:
        """Take in what children have added."""
        run = self._run
        self._account = await run.patiently(lambda: self._store.read(steps.read_account, run.tenant, run.job.key))


def budget_of(most: Budget, task: Task) -> Budget:
    """Return what a task may use: what its agent's tasks may at most, or less, if a message of its caller says so."""
    for said in task.history:
        if said.metadata is not None and said.role is Role.USER:
            most = most.tightened(read_budget(said.metadata))
    return most
