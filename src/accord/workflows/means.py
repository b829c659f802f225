"""What a run of a plan works with: who does its steps, where, and with which environment.

Only values; `beginning` and `driving` use them, and the workflow's agent puts them together.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from accord.client.keys import Keys
from accord.workflows.members import Member
from accord.workflows.namespace import Shared
from accord.workflows.plan import Plan
from accord.workflows.steps.kinds import Executor, Executors

EXECUTORS: Mapping[str, Executor] = Executors()
"""Type of a step -> who does it, of those that are done in the process of their run."""


class Means(Struct, frozen=True, kw_only=True):
    """What a run works with.

    `flow` is the agent whose task the run is: parts of it that are workflows themselves are its children. `hosted` are
    the members that this node has, `run` is what templates may say of the run itself. `env` has the variables that the
    document may name, `commands` is the environment of its commands. `store_files` change with every task.
    """

    flow: str
    plan: Plan
    hosted: Mapping[str, Member]
    env: Mapping[str, str]
    commands: Mapping[str, str]
    now_ms: Callable[[], int]
    keys: Keys
    shared: Shared
    run: Mapping[str, Any] = {}
    executors: Mapping[str, Executor] = EXECUTORS
    store_files: frozenset[Path] = frozenset()

    @property
    def directory(self) -> Path:
        """Where the run works."""
        return Path(self.plan.directory)
