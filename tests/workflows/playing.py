"""Runs that are only played: a driver with a clock of its own, whose steps end as a script says, in any order."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from accord.workflows.decide import RunDecision, RunOutcome, decide, make_cancel_record, make_end_record
from accord.workflows.document import Barrier, Step
from accord.workflows.executors import Result
from accord.workflows.plan import Plan
from accord.workflows.records import Record, StepEnded, StepStarted
from accord.workflows.state import PlanNode, RunState

START = 1_000_000


def plan_of(*parts: Step | Barrier, **members: Any) -> Plan:
    steps = tuple(part for part in parts if isinstance(part, Step))
    barriers = tuple(part for part in parts if isinstance(part, Barrier))
    return Plan(name="flow", workflow="main", directory=".", steps=steps, barriers=barriers, **members)


def step(name: str, *after: str, **members: Any) -> Step:
    return Step(name=name, depends_on=after, **{"type": "deterministic", "command": "true", **members})


def mapping(name: str, *after: str, each: Mapping[str, Any] | None = None, **members: Any) -> Step:
    return step(
        name, *after, type="map", over="{{vars.x}}", step=Step(name="each", command="true", **(each or {})), **members
    )


def answer(state: RunState, node: PlanNode) -> bool:
    """Answer the few conditions that played steps have."""
    assert node.step is not None
    before = [state.nodes[name].status for name in node.dependencies]
    answers = {"true": True, "false": False, "always()": True, "failed()": "failed" in before}
    return answers[node.step.if_ or "true"]


class Play:
    """One run of a plan. `failures` says how many attempts at a step fail before one does not."""

    def __init__(
        self,
        plan: Plan,
        failures: Mapping[str, int] | None = None,
        items: Mapping[str, int] | None = None,
        random: Random | None = None,
    ) -> None:
        self.failures = failures or {}
        self.items = items or {}
        self.random = random or Random(0)
        self.state = RunState(plan)
        self.records: list[Record] = []
        self.now = START
        self.running: list[str] = []
        self.looks: list[Callable[[], None]] = []

    def holds(self, node: PlanNode) -> bool:
        return answer(self.state, node)

    def turn(self, stop: str | None = None) -> RunDecision:
        """Decide, and begin what is to begin."""
        decision = decide(self.state, self.now, self.holds, stop)
        self.records += decision.ends
        for name, attempt in decision.begin:
            items = tuple(range(self.items.get(name, 0))) if self.state.nodes[name].is_map else None
            self.note(StepStarted(step=name, attempt=attempt, at=self.now, items=items))
        for look in self.looks:
            look()
        return decision

    def note(self, record: Record) -> None:
        self.records.append(record)
        self.state.apply(record)
        if isinstance(record, StepEnded):
            self.running.remove(record.step)
        elif record.items is None:
            self.running.append(record.step)

    def end(self, name: str, ok: bool | None = None) -> StepEnded:
        """Let a running step end, by the script unless told otherwise."""
        node = self.state.nodes[name]
        assert node.step is not None
        assert node.status == "running"
        is_ok = node.attempt > self.failures.get(name, 0) if ok is None else ok
        result = Result(ok=is_ok, output=f"{name}/{node.attempt}", error=None if is_ok else "broken")
        record = make_end_record(node.step, node.attempt, result, self.now)
        self.note(record)
        return record

    def run(self) -> RunOutcome:
        """Go on until the end, which must come."""
        for _ in range(100_000):
            decision = self.turn()
            if decision.outcome is not None:
                return decision.outcome
            self._go_on(decision)
        raise AssertionError("it does not end")

    def _go_on(self, decision: RunDecision) -> None:
        if decision.begin:
            return
        for name in decision.cancel:
            self.note(make_cancel_record(self.state, name, self.now))
        if decision.cancel:
            return
        if self.running:
            self.now += self.random.randrange(50)
            self.end(self.random.choice(self.running))
        else:
            assert decision.wake_at is not None, "nothing runs, nothing is waited for, and it is not over"
            assert decision.wake_at > self.now
            self.now = decision.wake_at

    def standing(self) -> dict[str, str]:
        return {name: node.status for name, node in self.state.nodes.items()}

    def began(self) -> list[str]:
        return [record.step for record in self.records if isinstance(record, StepStarted)]
