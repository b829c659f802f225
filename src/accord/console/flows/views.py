"""What pages are given about workflows and their runs: rows, steps, attempts, and what a run waits for.

Plain structures like those of `console.views`, and with the same forms of times and states. How they come about is
`console.flows.runviews`, who gets to see them `console.flows.api`.
"""

from typing import Any, Literal

from accord.console.views import State, View

StepStatus = Literal["pending", "running", "waiting", "completed", "failed", "skipped", "cancelled"]
"""Where a step stands: `waiting` is between two attempts, `cancelled` one that had begun when its run ended."""


class CheckView(View, frozen=True, kw_only=True):
    """What must be so after a step, and whether it was; None if nobody has looked yet."""

    type: str
    value: str
    description: str | None
    passed: bool | None


class StepView(View, frozen=True, kw_only=True):
    """A step of a run as it stands, or a barrier; `needs` are the steps it waits for, `child` the task that does it.

    `parent` is the map that it is an item of. One that `is_reused` was done by the run that this one takes over from.
    `error` and `output` may be shortened here. It stands in the document from `line` to `last_line`, from 1.
    """

    name: str
    type: str
    status: StepStatus
    agent: str | None
    depth: int
    parent: str | None
    needs: list[str]
    attempts: int
    begin: str | None
    end: str | None
    exit_code: int | None
    reason: str | None
    error: str | None
    output: str
    is_reused: bool
    verification: CheckView | None
    child: str | None
    line: int | None
    last_line: int | None


class TryView(View, frozen=True, kw_only=True):
    """One attempt at a step, and what came of it."""

    attempt: int
    status: StepStatus
    begin: str | None
    end: str | None
    exit_code: int | None
    error: str | None
    output: str
    child: str | None


class StepDetail(StepView, frozen=True, kw_only=True):
    """All that is shown of a step: `input` is what it is told or runs, `item` what of a map it is for."""

    description: str | None
    condition: str | None
    input: str
    item: Any
    tries: list[TryView]


class WaitView(View, frozen=True, kw_only=True):
    """What a run waits for."""

    step: str
    kind: Literal["approval", "event", "time"]
    event: str | None
    until: str | None


class RunRow(View, frozen=True, kw_only=True):
    """A run in a list; `counts` says how many of its steps have which status."""

    id: str
    workflow: str
    agent: str
    slug: str
    status: State
    begin: str
    updated_at: str
    owner: str
    parent_id: str | None
    counts: dict[str, int]
    waits: list[WaitView]
    seq: int


class RunPage(View, frozen=True, kw_only=True):
    """A page of runs."""

    items: list[RunRow]
    next: str | None
    feed: int


class RunView(RunRow, frozen=True, kw_only=True):
    """All that is shown of a run; `document` is its YAML as it was when it began.

    `previous` is the run that it takes over from. What asks at the moment is `question`, of the step `asks`.
    """

    steps: list[StepView]
    input: str
    inputs: dict[str, Any]
    output: str | None
    error: str | None
    question: str | None
    asks: str | None
    document: str
    previous: str | None
    actions: list[Literal["cancel", "rerun", "again", "approve"]]
    feed: int


class RerunView(View, frozen=True, kw_only=True):
    """What a re-run does: the steps that run `again`, those whose result is `kept`, and the `approvals` among these."""

    again: list[str]
    kept: list[str]
    approvals: list[str]


class ScheduleView(View, frozen=True, kw_only=True):
    """When runs of a workflow begin by themselves."""

    cron: str
    timezone: str


class HookView(View, frozen=True, kw_only=True):
    """An address whose calls begin runs; one that `is_signed` only for those who can sign."""

    url: str
    is_signed: bool


class WorkflowView(View, frozen=True, kw_only=True):
    """A workflow that is served: what may be run of it by name, and the JSON Schema of what a run is given.

    One that `takes_input` also wants a text.
    """

    slug: str
    agent: str
    name: str
    description: str
    names: list[str]
    inputs: dict[str, Any] | None
    takes_input: bool
    schedules: list[ScheduleView]
    webhooks: list[HookView]


class WorkflowList(View, frozen=True, kw_only=True):
    """The workflows that somebody may run."""

    items: list[WorkflowView]
