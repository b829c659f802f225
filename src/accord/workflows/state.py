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
    """A step, an item of a map or a barrier, and its status."""

    name: str
    order: tuple[int, ...]
    """Its place in the plan; of an item, that of its map and its index."""
    step: Step | None = None
    barrier: Barrier | None = None
    """A node has either a step or a barrier."""
    ignores_failures: bool = False
    """Whether it may start after a failure: its condition, or that of its map, has `always()` or `failed(x)`."""
    is_map: bool = False
    """Whether only its items are executed."""
    uses_slot: bool = False
    """Whether it counts toward `max_concurrency` while it runs."""

    dependencies: tuple[str, ...] = ()
    dependents: "list[PlanNode]" = field(default_factory=list)
    open_dependencies: int = 0
    """Number of dependencies that have not ended."""
    satisfied_dependencies: int = 0
    """Number of dependencies that ended and let it start."""

    parent: "PlanNode | None" = None
    """The map of an item."""
    index: int = 0
    """The index of an item."""
    item: Any = None
    """The element of the list of a map."""
    items: "list[PlanNode] | None" = None
    """The items of a map that has started."""
    open_items: int = 0
    """Number of items that have not ended."""
    failed_item: "PlanNode | None" = None
    """The first item, by order, that failed a map."""

    status: NodeStatus = "pending"
    rank: int = 0
    """Twice its attempt, plus one once that attempt has ended. Records of a lower rank change no status."""
    last_start: StepStarted | None = None
    """The start of its latest attempt."""
    last_end: StepEnded | None = None
    """The end of its latest attempt."""
    timer: int | None = None
    """The time at which it becomes due: of a retry, a timeout or the end of a wait."""
    is_due: bool = False
    """Whether the time in `timer` has come."""
    is_queued: bool = False
    """Whether it is in the queue of steps that can start."""

    @property
    def attempt(self) -> int:
        """The number of the current attempt; 0 before the first."""
        return self.rank // 2

    @property
    def required_dependencies(self) -> int:
        """The number of dependencies that must let it start."""
        total = len(self.dependencies)
        return (
            total if self.barrier is None else {"all": total, "any": 1, "majority": total // 2 + 1}[self.barrier.mode]
        )

    @property
    def exceeds_concurrency(self) -> bool:
        """Whether it is an item that must wait, because its map has at most `concurrency` active items."""
        parent = self.parent
        if parent is None or parent.items is None or parent.step is None or parent.step.concurrency is None:
            return False
        return self.index >= parent.step.concurrency + len(parent.items) - parent.open_items

    @property
    def final_end(self) -> StepEnded | None:
        """The record of its end, if no further attempt follows."""
        return self.last_end if self.status in FINAL else None


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
        self.steps_to_cancel: dict[str, PlanNode] = {}
        self.failed: list[PlanNode] = []
        self.open_nodes = 0
        self.nodes_to_check: deque[PlanNode] = deque()
        self._halted: SkipCause | None = None
        self._first_failure: tuple[int, tuple[int, ...]] | None = None
        self._used_slots = 0
        self._ready: dict[bool, list[tuple[tuple[int, ...], str]]] = {False: [], True: []}  # by whether they use a slot
        self._timers: list[tuple[int, tuple[int, ...], str]] = []
        self._early_records: dict[str, list[Record]] = {}
        self._build()
        for record in records:
            self.apply(record)

    def _build(self) -> None:
        for place, step in enumerate(self.plan.steps):
            self._add(
                PlanNode(
                    name=step.name, order=(place,), step=step, dependencies=tuple(dict.fromkeys(step.depends_on or ()))
                )
            )
        for place, barrier in enumerate(self.plan.barriers, start=len(self.plan.steps)):
            waits = tuple(dict.fromkeys(barrier.wait_for))
            self._add(PlanNode(name=barrier.name, order=(place,), barrier=barrier, dependencies=waits))
        for node in self.nodes.values():
            node.open_dependencies = len(node.dependencies)
            for name in node.dependencies:
                self.nodes[name].dependents.append(node)
        self.open_nodes = len(self.nodes)
        self.nodes_to_check.extend(self.nodes.values())

    def _add(self, node: PlanNode) -> None:
        condition = node.step.if_ if node.step is not None else None
        survives = condition is not None and heeds_failure(condition)
        node.ignores_failures = survives or (node.parent is not None and node.parent.ignores_failures)
        executor = None if node.step is None else node.step.row.executor
        node.is_map, node.uses_slot = executor == "items", executor in ("process", "child")
        self.nodes[node.name] = node

    # --- records ------------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Add a record."""
        node = self.nodes.get(record.step)
        if node is None:  # an item of a map whose own record has not been read yet
            self._early_records.setdefault(record.step, []).append(record)
        elif isinstance(record, StepStarted):
            self._apply_start(node, record)
        else:
            self._apply_end(node, record)

    def _apply_start(self, node: PlanNode, record: StepStarted) -> None:
        if node.is_map and record.items is None:
            raise ValueError(f"the map {node.name!r} cannot begin without its items")
        if node.last_start is None or node.last_start.attempt < record.attempt:
            node.last_start = record
        self._set_barrier_timers(node, record.at)
        is_new = _advance_rank(node, record.attempt * 2)
        if is_new:
            self._set_status(node, "running")
            self._set_timer(node, _timeout_at(node, record))
            self.nodes_to_check.append(node)
        if record.items is not None and node.items is None:
            self._create_items(node, record.items)

    def _apply_end(self, node: PlanNode, record: StepEnded) -> None:
        if node.last_end is None or node.last_end.attempt < record.attempt:
            node.last_end = record
        if not _advance_rank(node, record.attempt * 2 + 1):
            return
        if record.again_at is not None:
            self._set_status(node, "waiting")
            self._set_timer(node, record.again_at)
            self.nodes_to_check.append(node)
            return
        self._set_status(node, record.status)
        for other in node.dependents:
            other.open_dependencies -= 1
            other.satisfied_dependencies += record.cause is None
            if other.open_dependencies == 0 or other.barrier is not None:
                self.nodes_to_check.append(other)
        if node.parent is not None:
            self._item_ended(node.parent, node, record)
        else:
            self._step_ended(node, record)

    def _step_ended(self, node: PlanNode, record: StepEnded) -> None:
        self.open_nodes -= 1
        if record.fails:
            self.failed.append(node)
            if self.plan.strategy in HALTING:
                self._halt((record.at, node.order), SkipCause(node.name, f"{node.name!r} failed"))
        elif record.reason == BY_END_OF_RUN and record.cause == node.name:
            self._halt((record.at, node.order), SkipCause(None, record.error or ""))

    def _item_ended(self, parent: PlanNode, item: PlanNode, record: StepEnded) -> None:
        parent.open_items -= 1
        if parent.open_items == 0:
            self.nodes_to_check.append(parent)
            return
        step, items = parent.step, parent.items
        if step is None or items is None:
            return
        if step.concurrency is not None:
            place = step.concurrency + len(items) - parent.open_items - 1
            self.nodes_to_check.extend(items[place : place + 1])
        if record.fails and self.plan.strategy in HALTING and step.on_error != "continue":
            if parent.failed_item is None:
                self._add_items_to_check(parent)
            if parent.failed_item is None or item.order < parent.failed_item.order:
                parent.failed_item = item

    def _add_items_to_check(self, node: PlanNode) -> None:
        for item in node.items or ():
            self.nodes_to_check.append(item)
            self._add_items_to_check(item)

    def _create_items(self, node: PlanNode, items: tuple[Any, ...]) -> None:
        """Create the items of a map."""
        nested = node.step.step if node.step is not None else None
        if nested is None:
            raise ValueError(f"{node.name!r} is not a map with a step")
        node.items = []
        node.open_items = len(items)
        for index, item in enumerate(items):
            name = f"{node.name}[{index}]"
            step = replace(nested, name=name, type=nested.kind)
            child = PlanNode(name=name, order=(*node.order, index), step=step, parent=node, index=index, item=item)
            node.items.append(child)
            self._add(child)
        self.nodes_to_check.extend((node, *node.items))
        for child in node.items:
            for record in self._early_records.pop(child.name, ()):
                self.apply(record)

    def _set_status(self, node: PlanNode, status: NodeStatus) -> None:
        if node.status == "running":
            del self.running[node.name]
            self.steps_to_cancel.pop(node.name, None)
            self._used_slots -= node.uses_slot
        if status == "running":
            self.running[node.name] = node
            self._used_slots += node.uses_slot
        node.status = status
        node.timer = None
        node.is_due = False

    # --- the end of the run -------------------------------------------------------------------------------------------

    @property
    def halted(self) -> SkipCause | None:
        """Why nothing new starts anymore, or None."""
        return self._halted

    def stop(self, error: str) -> None:
        """Let nothing new start, for a reason outside of the steps."""
        if self._halted is None:
            self._halted = SkipCause(None, error)
            self.nodes_to_check.extend(node for node in self.nodes.values() if node.status not in FINAL)

    def _halt(self, when: tuple[int, tuple[int, ...]], skip_cause: SkipCause) -> None:
        if self._halted is None:
            self.nodes_to_check.extend(node for node in self.nodes.values() if node.status not in FINAL)
        if self._first_failure is None or when < self._first_failure:
            self._first_failure = when
            self._halted = skip_cause

    def skip_cause(self, node: PlanNode) -> SkipCause | None:
        """Return why a step that has not ended is to be given up, or None."""
        if node.ignores_failures:
            return None
        if self._halted is not None:
            return self._halted
        parent = node.parent
        while parent is not None:
            if parent.failed_item is not None:
                return SkipCause(parent.failed_item.name, f"{parent.failed_item.name!r} failed")
            if parent.is_due:
                return SkipCause(None, f"{parent.name!r} took too long")
            parent = parent.parent
        return None

    # --- time ---------------------------------------------------------------------------------------------------------

    def _set_timer(self, node: PlanNode, at: int | None) -> None:
        node.timer = at
        if at is not None:
            heappush(self._timers, (at, node.order, node.name))

    def _set_barrier_timers(self, node: PlanNode, at: int) -> None:
        """Start the timeout of barriers when the first of their steps starts."""
        for other in node.dependents:
            if other.barrier is not None and other.barrier.timeout is not None and other.status not in FINAL:
                expires_at = at + round(other.barrier.timeout * 1000)
                if not other.is_due and (other.timer is None or expires_at < other.timer):
                    self._set_timer(other, expires_at)

    def fire_due_timers(self, now: int) -> None:
        """Mark the nodes whose time has come as due."""
        while (at := self.next_timer()) is not None and at <= now:
            node = self.nodes[heappop(self._timers)[2]]
            node.timer = None
            node.is_due = True
            self.nodes_to_check.append(node)
            self._add_items_to_check(node)

    def next_timer(self) -> int | None:
        """Return the time of the next timer, or None."""
        while self._timers:
            at, _, name = self._timers[0]
            if self.nodes[name].timer == at:
                return at
            heappop(self._timers)  # the node has moved on since
        return None

    # --- steps that can start -----------------------------------------------------------------------------------------

    def enqueue(self, node: PlanNode) -> None:
        """Queue a step until a slot is free."""
        if not node.is_queued:
            node.is_queued = True
            heappush(self._ready[node.uses_slot], (node.order, node.name))

    def ready(self) -> list[PlanNode]:
        """Return the steps that can start now, in the order of the plan."""
        limit = self.plan.max_concurrency
        startable = self._first(self._ready[False], None)
        startable += self._first(self._ready[True], None if limit is None else limit - self._used_slots)
        return sorted(startable, key=lambda node: node.order)

    def _first(self, heap: list[tuple[tuple[int, ...], str]], slots: int | None) -> list[PlanNode]:
        startable: list[PlanNode] = []
        while heap and (slots is None or len(startable) < slots):
            node = self.nodes[heappop(heap)[1]]
            if node.status == "pending" or (node.status == "waiting" and node.is_due):
                startable.append(node)
            else:
                node.is_queued = False
        for node in startable:
            heappush(heap, (node.order, node.name))
        return startable


def _advance_rank(node: PlanNode, rank: int) -> bool:
    """Advance a node to a rank; return whether it was below."""
    if rank <= node.rank or node.status in FINAL:
        return False
    node.rank = rank
    return True


def _timeout_at(node: PlanNode, record: StepStarted) -> int | None:
    """Return when a waiting step or map ends by itself. Executors enforce the timeouts of the other types."""
    if node.step is None or not (node.step.row.executor == "signal" or node.is_map):
        return None
    timeout = None if node.step.timeout is None else record.at + round(node.step.timeout * 1000)
    return min((at for at in (record.until, timeout) if at is not None), default=None)
