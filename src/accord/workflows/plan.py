"""What a run follows: one workflow of a document with everything settled that can be settled before it begins.

A plan is only data, and is kept with its run, so that a file that changes meanwhile changes no run; it holds names of
secrets, never secrets. `planning` makes one of a document, `decide` says what comes next in it.
"""

from typing import Any

from msgspec import Struct, field

from accord.workflows.document import (
    AgentDef,
    Barrier,
    IdleNudge,
    Permissions,
    Preflight,
    SharedState,
    Step,
    Trajectories,
)


class Plan(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The steps of a run: each with its type, whom it waits for and its agent's defaults, and nothing left to look up.

    `directory` is where relative paths begin. `steps` has what the pattern added, in the order of the file.
    """

    name: str
    workflow: str
    directory: str
    steps: tuple[Step, ...]
    pattern: str = "dag"
    barriers: tuple[Barrier, ...] = ()
    agents: tuple[AgentDef, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    permission_profiles: dict[str, Permissions] = field(default_factory=dict)
    max_concurrency: int | None = None
    timeout: float | None = None
    token_budget: int | None = None
    cost_budget: float | None = None
    strategy: str = "fail-fast"
    notify_channel: str | None = None
    repair_agent: str | None = None
    repair_retries: int = 0
    channel: str | None = None
    idle_nudge: IdleNudge | None = None
    completion_grace_period: float = 5.0
    preflight: tuple[Preflight, ...] = ()
    check_agents: bool = False
    output: str | None = None
    input: str = ""
    inputs: dict[str, Any] = field(default_factory=dict)
    vars: dict[str, Any] = field(default_factory=dict)
    state: SharedState | None = None
    trajectories: Trajectories | None = None

    def step(self, name: str) -> Step | None:
        """Return one of its steps."""
        return next((step for step in self.steps if step.name == name), None)

    def agent(self, name: str | None) -> AgentDef | None:
        """Return one of its agents."""
        return next((agent for agent in self.agents if agent.name == name), None)
