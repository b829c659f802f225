"""The state of a run: an index over its plan and its records.

Adding a record costs only the record's own edges. `decide` uses the state to choose the next steps. The module uses
neither a clock nor I/O. The same records give the same state in any order, also when some are added twice.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from accord.workflows.document import Barrier, Step
from accord.workflows.expressions import heeds_failure
from accord.workflows.plan import Plan
from accord.workflows.records import BY_END_OF_RUN, Record, StepEnded, StepStarted

NodeStatus = Literal["pending", "running", "waiting", "completed", "failed", "skipped"]
"""The status of a step; `waiting` is between two attempts."""

FINAL = frozenset({"completed", "failed", "skipped"})
"""Statuses that do not change anymore."""

HALTING = frozenset({"fail-fast", "retry"})
"""Strategies with which nothing new starts after a failure."""


class PlanNode(Struct, kw_only=True, eq=False):
    """A step, an item of a map or a barrier, and its status.

    `order` is its place in the plan. With `immune` it may start after a failure. Of a map (`is_map`) only the items are
    executed. A step that `works` occupies one of the slots of `max_concurrency`. Of its dependencies in `after`, `open`
    have not ended and `passed` let it start. `broken` is the item that failed a map. `due` means that the time in
    `alarm` has come, and `queued` that it waits for a free slot. `begun` and `ended` are its latest records.
    """

    name: str
    order: tuple[int, ...]
    step: Step | None = None
    barrier: Barrier | None = None
    immune: bool = False
    is_map: bool = False
    works: bool = False

    after: tuple[str, ...] = ()
    dependents: "list[PlanNode]" = field(default_factory=list)
    open: int = 0
    passed: int = 0

    parent: "PlanNode | None" = None
    index: int = 0
    item: Any = None
    items: "list[PlanNode] | None" = None
    items_open: int = 0
    broken: "PlanNode | None" = None

    standing: NodeStatus = "pending"
    rank: int = 0
    begun: StepStarted | None = None
    ended: StepEnded | None = None
    alarm: int | None = None
    due: bool = False
    queued: bool = False

    @property
    def attempt(self) -> int:
        """The number of the current attempt; 0 before the first."""
        return self.rank // 2

    @property
    def needed(self) -> int:
        """The number of dependencies that must let it start."""
        every = len(self.after)
        return (
            every if self.barrier is None else {"all": every, "any": 1, "majority": every // 2 + 1}[self.barrier.mode]
        )

    @property
    def held(self) -> bool:
        """Whether it is an item that must wait for others, because a map has at most `concurrency` active items."""
        parent = self.parent
        if parent is None or parent.items is None or parent.step is None or parent.step.concurrency is None:
            return False
        return self.index >= parent.step.concurrency + len(parent.items) - parent.items_open

    @property
    def end(self) -> StepEnded | None:
        """The record of its end, if it has ended."""
        return self.ended if self.standing in FINAL else None


class SkipCause(Struct, frozen=True):
    """Why a step is given up: the step that caused it, if any, and the reason in words."""

    cause: str | None
    error: str


class RunState:
    """The state of a run."""

    def __init__(self, plan: Plan, records: Iterable[Record] = ()) -> None:
        self.plan = plan
        self.nodes: dict[str, PlanNode] = {}
        self.running: dict[str, PlanNode] = {}
        self.condemned: dict[str, PlanNode] = {}
        self.failed: list[PlanNode] = []
        self.open = 0
        self.touched: deque[PlanNode] = deque()
        self._halted: SkipCause | None = None
        self._first_failure: tuple[int, tuple[int, ...]] | None = None
        self._working = 0
        self._ready: dict[bool, list[tuple[tuple[int, ...], str]]] = {False: [], True: []}  # by whether they work
        self._alarms: list[tuple[int, tuple[int, ...], str]] = []
        self._early: dict[str, list[Record]] = {}
        self._build()
        for record in records:
            self.apply(record)

    def _build(self) -> None:
        for place, step in enumerate(self.plan.steps):
            self._add(
                PlanNode(name=step.name, order=(place,), step=step, after=tuple(dict.fromkeys(step.depends_on or ())))
            )
        for place, barrier in enumerate(self.plan.barriers, start=len(self.plan.steps)):
            waits = tuple(dict.fromkeys(barrier.wait_for))
            self._add(PlanNode(name=barrier.name, order=(place,), barrier=barrier, after=waits))
        for node in self.nodes.values():
            node.open = len(node.after)
            for name in node.after:
                self.nodes[name].dependents.append(node)
        self.open = len(self.nodes)
        self.touched.extend(self.nodes.values())

    def _add(self, node: PlanNode) -> None:
        condition = node.step.if_ if node.step is not None else None
        survives = condition is not None and heeds_failure(condition)
        node.immune = survives or (node.parent is not None and node.parent.immune)
        executor = None if node.step is None else node.step.row.executor
        node.is_map, node.works = executor == "items", executor in ("process", "child")
        self.nodes[node.name] = node

    # --- records ------------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Add a record."""
        node = self.nodes.get(record.step)
        if node is None:  # an item of a map whose own record has not been read yet
            self._early.setdefault(record.step, []).append(record)
        elif isinstance(record, StepStarted):
            self._begin(node, record)
        else:
            self._end(node, record)

    def _begin(self, node: PlanNode, record: StepStarted) -> None:
        if node.is_map and record.items is None:
            raise ValueError(f"the map {node.name!r} cannot begin without its items")
        if node.begun is None or node.begun.attempt < record.attempt:
            node.begun = record
        self._wind_barriers(node, record.at)
        fresh = _raise(node, record.attempt * 2)
        if fresh:
            self._move(node, "running")
            self._wind(node, _over_at(node, record))
            self.touched.append(node)
        if record.items is not None and node.items is None:
            self._unfold(node, record.items)

    def _end(self, node: PlanNode, record: StepEnded) -> None:
        if node.ended is None or node.ended.attempt < record.attempt:
            node.ended = record
        if not _raise(node, record.attempt * 2 + 1):
            return
        if record.again_at is not None:
            self._move(node, "waiting")
            self._wind(node, record.again_at)
            self.touched.append(node)
            return
        self._move(node, record.status)
        for other in node.dependents:
            other.open -= 1
            other.passed += record.cause is None
            if other.open == 0 or other.barrier is not None:
                self.touched.append(other)
        if node.parent is not None:
            self._item_ended(node.parent, node, record)
        else:
            self._step_ended(node, record)

    def _step_ended(self, node: PlanNode, record: StepEnded) -> None:
        self.open -= 1
        if record.fails:
            self.failed.append(node)
            if self.plan.strategy in HALTING:
                self._halt((record.at, node.order), SkipCause(node.name, f"{node.name!r} failed"))
        elif record.reason == BY_END_OF_RUN and record.cause == node.name:
            self._halt((record.at, node.order), SkipCause(None, record.error or ""))

    def _item_ended(self, parent: PlanNode, item: PlanNode, record: StepEnded) -> None:
        parent.items_open -= 1
        if parent.items_open == 0:
            self.touched.append(parent)
            return
        step, items = parent.step, parent.items
        if step is None or items is None:
            return
        if step.concurrency is not None:
            place = step.concurrency + len(items) - parent.items_open - 1
            self.touched.extend(items[place : place + 1])
        if record.fails and self.plan.strategy in HALTING and step.on_error != "continue":
            if parent.broken is None:
                self._touch_items(parent)
            if parent.broken is None or item.order < parent.broken.order:
                parent.broken = item

    def _touch_items(self, node: PlanNode) -> None:
        for item in node.items or ():
            self.touched.append(item)
            self._touch_items(item)

    def _unfold(self, node: PlanNode, items: tuple[Any, ...]) -> None:
        """Create the items of a map."""
        nested = node.step.step if node.step is not None else None
        if nested is None:
            raise ValueError(f"{node.name!r} is not a map with a step")
        node.items = []
        node.items_open = len(items)
        for index, item in enumerate(items):
            name = f"{node.name}[{index}]"
            step = replace(nested, name=name, type=nested.kind)
            child = PlanNode(name=name, order=(*node.order, index), step=step, parent=node, index=index, item=item)
            node.items.append(child)
            self._add(child)
        self.touched.extend((node, *node.items))
        for child in node.items:
            for record in self._early.pop(child.name, ()):
                self.apply(record)

    def _move(self, node: PlanNode, standing: NodeStatus) -> None:
        if node.standing == "running":
            del self.running[node.name]
            self.condemned.pop(node.name, None)
            self._working -= node.works
        if standing == "running":
            self.running[node.name] = node
            self._working += node.works
        node.standing = standing
        node.alarm = None
        node.due = False

    # --- the end of the run -------------------------------------------------------------------------------------------

    @property
    def halted(self) -> SkipCause | None:
        """Why nothing new starts anymore, or None."""
        return self._halted

    def stop(self, error: str) -> None:
        """Let nothing new start, for a reason outside of the steps."""
        if self._halted is None:
            self._halted = SkipCause(None, error)
            self.touched.extend(node for node in self.nodes.values() if node.standing not in FINAL)

    def _halt(self, when: tuple[int, tuple[int, ...]], doom: SkipCause) -> None:
        if self._halted is None:
            self.touched.extend(node for node in self.nodes.values() if node.standing not in FINAL)
        if self._first_failure is None or when < self._first_failure:
            self._first_failure = when
            self._halted = doom

    def doom(self, node: PlanNode) -> SkipCause | None:
        """Return why a step that has not ended is to be given up, or None."""
        if node.immune:
            return None
        if self._halted is not None:
            return self._halted
        parent = node.parent
        while parent is not None:
            if parent.broken is not None:
                return SkipCause(parent.broken.name, f"{parent.broken.name!r} failed")
            if parent.due:
                return SkipCause(None, f"{parent.name!r} took too long")
            parent = parent.parent
        return None

    # --- time ---------------------------------------------------------------------------------------------------------

    def _wind(self, node: PlanNode, at: int | None) -> None:
        node.alarm = at
        if at is not None:
            heappush(self._alarms, (at, node.order, node.name))

    def _wind_barriers(self, node: PlanNode, at: int) -> None:
        """Start the timeout of barriers when the first of their steps starts."""
        for other in node.dependents:
            if other.barrier is not None and other.barrier.timeout is not None and other.standing not in FINAL:
                over = at + round(other.barrier.timeout * 1000)
                if not other.due and (other.alarm is None or over < other.alarm):
                    self._wind(other, over)

    def ring(self, now: int) -> None:
        """Touch the nodes whose time has come."""
        while (at := self.next_alarm()) is not None and at <= now:
            node = self.nodes[heappop(self._alarms)[2]]
            node.alarm = None
            node.due = True
            self.touched.append(node)
            self._touch_items(node)

    def next_alarm(self) -> int | None:
        """Return the time of the next alarm, or None."""
        while self._alarms:
            at, _, name = self._alarms[0]
            if self.nodes[name].alarm == at:
                return at
            heappop(self._alarms)  # the node has moved on since
        return None

    # --- steps that can start -----------------------------------------------------------------------------------------

    def offer(self, node: PlanNode) -> None:
        """Queue a step until a slot is free."""
        if not node.queued:
            node.queued = True
            heappush(self._ready[node.works], (node.order, node.name))

    def ready(self) -> list[PlanNode]:
        """Return the steps with a free slot, in the order of the plan."""
        most = self.plan.max_concurrency
        found = self._first(self._ready[False], None)
        found += self._first(self._ready[True], None if most is None else most - self._working)
        return sorted(found, key=lambda node: node.order)

    def _first(self, heap: list[tuple[tuple[int, ...], str]], places: int | None) -> list[PlanNode]:
        found: list[PlanNode] = []
        while heap and (places is None or len(found) < places):
            node = self.nodes[heappop(heap)[1]]
            if node.standing == "pending" or (node.standing == "waiting" and node.due):
                found.append(node)
            else:
                node.queued = False
        for node in found:
            heappush(heap, (node.order, node.name))
        return found


def _raise(node: PlanNode, rank: int) -> bool:
    """Advance a node to a rank; return whether it was below."""
    if rank <= node.rank or node.standing in FINAL:
        return False
    node.rank = rank
    return True


def _over_at(node: PlanNode, record: StepStarted) -> int | None:
    """Return when a waiting step or map ends by itself. Executors enforce the timeouts of the other types."""
    if node.step is None or not (node.step.row.executor == "signal" or node.is_map):
        return None
    timeout = None if node.step.timeout is None else record.at + round(node.step.timeout * 1000)
    return min((at for at in (record.until, timeout) if at is not None), default=None)
