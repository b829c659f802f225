"""Execute a run from its stored state to its end.

`decide` chooses the steps. The end of an attempt, the attempts that start because of it, and their posts are one
transaction. Nothing starts before it is committed, so a lost run continues from its records. A run that only waits is
suspended.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from accord.api import Approval, ChildCall, Context, IncomingMessage, StatusEntry, wait_key
from accord.model import Task, TaskState
from accord.protocol import lifecycle
from accord.workflows import channel
from accord.workflows.attempts import AttemptStart, RunSetup, StepAttempt, behavior_of, child_key, start_attempt
from accord.workflows.channel import METADATA, OpenQuestions, Post
from accord.workflows.decide import RunDecision, RunOutcome, decide, make_cancel_record, make_end_record
from accord.workflows.document import OnError
from accord.workflows.executors import Result
from accord.workflows.records import Record, StepEnded, StepStarted, decode_records
from accord.workflows.state import PlanNode, RunState
from accord.workflows.step_executor import StepExecutor

P = ParamSpec("P")
T = TypeVar("T")

PREFIX = "flow:"
"""Prefix of the journal keys of records."""

SUSPEND_AFTER_SECONDS = 5.0
"""Seconds without news from members after which a run suspends. Most steps that take less time never suspend a run."""

SOON_MS = 2000
"""A run does not suspend for a time that is nearer than this, in milliseconds."""

SHOW_SECONDS = 1.0
"""Interval between posts of step output, in seconds."""

LOOK_SECONDS = 1.0
"""Interval of checks for answers without a notification, in seconds, while the run also waits for other things."""


class Runner:
    """One execution of a run."""

    def __init__(self, ctx: Context, setup: RunSetup) -> None:
        """Continue the task of `ctx` from its records."""
        self._ctx, self._setup = ctx, setup
        self._journal = ctx.journal
        self._searches = b"matches" in msgspec.json.encode(setup.plan.steps)
        self.state = RunState(setup.plan, decode_records(self._journal.entries(PREFIX)))
        self._executor = StepExecutor(ctx, setup, self.state, self._post)
        self._questions = OpenQuestions(ctx)
        self._work: dict[str, asyncio.Task[Result]] = {}
        self._children: dict[str, asyncio.Task[Task]] = {}
        self._asking: dict[str, str] = {}
        self._awaited: dict[str, str] = {}
        self._unclear_answers: Counter[str] = Counter()
        self._finished: deque[tuple[str, asyncio.Task[Result] | asyncio.Task[Task]]] = deque()
        self._new_ends: list[StepEnded] = []
        self._posts: list[Post] = []
        self._last_event_at = asyncio.get_running_loop().time()
        self._shown_at = 0.0

    async def run(self) -> RunOutcome:
        """Execute the run to its end."""
        self._resume_steps()
        try:
            if self._awaits_signal:
                await self._check_signals()
            while True:
                decision = await self._advance()
                if decision.outcome is not None:
                    return decision.outcome
                await self._wait(decision.wake_at)
        finally:
            await self._stop()

    # --- start and end --------------------------------------------------------------------------------------------

    def _resume_steps(self) -> None:
        """Continue the steps that were running when the run was suspended or lost."""
        for name, node in list(self.state.running.items()):
            step = node.step
            if step is None:
                continue
            if step.row.executor == "process" and step.on_crash == "fail":
                lost = Result(ok=False, error="It was interrupted, and `onCrash: fail` does not let it start again")
                self._record_result(node, lost)
            else:
                self._start(name)

    async def _advance(self) -> RunDecision:
        """Make all decisions that are possible now."""
        while True:
            now = self._setup.now_ms()
            decision = await self._evaluate(decide, self.state, now, self._holds)
            ends, self._new_ends = [*self._new_ends, *decision.ends], []
            for name in decision.cancel:
                await self._cancel_step(name)
                ends.append(self._apply_end(make_cancel_record(self.state, name, now)))
            starts = [
                await self._evaluate(start_attempt, self._attempt(name, number, now)) for name, number in decision.begin
            ]
            ends += [self._apply_end(begin.ended) for begin in starts if begin.ended is not None]
            self._post_output()
            if not ends and not starts and not self._posts:
                return decision
            await self._write(ends, [one for one in starts if one.begun is not None], is_last=bool(decision.outcome))

    async def _evaluate(self, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Evaluate conditions and templates; in a thread if the plan uses `matches`, which may take seconds."""
        return await asyncio.to_thread(work, *given, **named) if self._searches else work(*given, **named)

    async def _write(self, ends: list[StepEnded], starts: list[AttemptStart], *, is_last: bool) -> None:
        """Commit ends, starts and posts, then start the attempts.

        The last write belongs to the transaction that ends the run.
        """
        begun = [begin.begun for begin in starts if begin.begun is not None]
        records: list[Record] = [*ends, *begun]
        entries = {PREFIX + record.key: msgspec.json.encode(record).decode() for record in records}
        for one in begun:
            entries.update(await self._executor.entries_before(one))
        sets = [(end, values) for end in ends if (values := await self._executor.values_to_set(end))]
        for end, values in sets:
            entries.update(self._setup.shared.entry(end.step, end.attempt, values, end.at))
        calls: list[ChildCall] = [one.call for one in starts if one.call is not None]
        statuses = self._status_entries(ends, begun)
        if is_last and not sets:
            self._journal.note(entries, statuses)
        else:
            await self._journal.write(entries, calls, statuses)
        for end, values in sets:
            await self._setup.shared.put(values, end.at)
        for one in begun:
            self.state.apply(one)
            self._start(one.step)

    def _status_entries(self, ends: list[StepEnded], begun: list[StepStarted]) -> list[StatusEntry]:
        """Return the posts for ends and starts, and the open question again, because posts replace it."""
        posts, self._posts = self._posts, []
        for end in ends:
            node = self.state.nodes[end.step]
            printed = self._executor.printed.pop(end.step, None)
            if printed is not None and (last := printed.take()) is not None:
                posts.append(last)
            if node.step is not None:
                began = node.last_start
                posts.append(channel.end_post(node.step, end, None if began is None else (end.at - began.at) / 1000))
        started = [record.step for record in begun]
        if started:
            text, about = (posts[-1].text, posts[-1].about) if posts else ("", {})
            posts[-1:] = [Post(text, {**about, "started": started})]
        if posts:
            self._questions.forget()
        statuses = [self._status_entry(post) for post in posts]
        question = self._questions.show()
        return statuses if question is None else [*statuses, question]

    def _status_entry(self, post: Post) -> StatusEntry:
        node = self.state.nodes.get(post.about.get("step", ""))
        channels = channel.channels_of(self._setup.plan, None if node is None else node.step, post)
        about = {**post.about, "channels": channels} if channels else post.about
        return StatusEntry(TaskState.WORKING, post.text or None, {METADATA: about})

    def _attempt(self, name: str, number: int, now: int) -> StepAttempt:
        node = self.state.nodes[name]
        return StepAttempt(
            node=node,
            number=number,
            at=now,
            values=self._executor.values(node),
            run_id=self._ctx.task_id,
            setup=self._setup,
        )

    def _holds(self, node: PlanNode) -> bool:
        assert node.step is not None
        return self._executor.values(node).holds(node.step.if_ or "")

    # --- work -----------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        """Execute a step that has started, or wait for it."""
        node = self.state.nodes[name]
        step = node.step
        if step is None or node.is_map:
            return
        if step.row.executor == "process":
            self._run(name, asyncio.create_task(self._executor.execute(node), name=f"step {name}"))
            return
        if step.row.executor == "child":
            self._await_child(name)
            return
        behavior = behavior_of(step.kind)
        if behavior.signal is not None and (key := behavior.signal(node)) is not None:
            self._awaited[name] = wait_key(key)
        if behavior.question is not None:
            self._questions.open(name, self._executor.question(node))

    def _await_child(self, name: str) -> None:
        node = self.state.nodes[name]
        child = self._journal.child(child_key(name, node.attempt))
        if child is None:
            raise RuntimeError(f"{name} has begun without a task")  # the record and the child task are written together
        task = asyncio.create_task(self._executor.await_child(node, child), name=f"attend {name}")
        self._children[name] = task
        task.add_done_callback(lambda done: self._is_finished(name, done))

    def _run(self, name: str, work: asyncio.Task[Result]) -> None:
        self._work[name] = work
        work.add_done_callback(lambda done: self._is_finished(name, done))

    def _is_finished(self, name: str, done: asyncio.Task[Result] | asyncio.Task[Task]) -> None:
        self._finished.append((name, done))
        self._journal.nudge()

    def _post_output(self) -> None:
        """Post the output of steps at intervals, because one post per line would be too many."""
        now = asyncio.get_running_loop().time()
        if self._executor.printed and now - self._shown_at >= SHOW_SECONDS:
            self._shown_at = now
            self._posts += [post for printed in self._executor.printed.values() if (post := printed.take()) is not None]

    async def _post(self, post: Post) -> None:
        self._last_event_at = asyncio.get_running_loop().time()
        self._posts.append(post)
        self._journal.nudge()

    def _apply_end(self, end: StepEnded) -> StepEnded:
        self.state.apply(end)
        self._questions.close(end.step)
        self._unclear_answers.pop(end.step, None)
        self._asking.pop(end.step, None)
        self._awaited.pop(end.step, None)
        return end

    def _record_result(self, node: PlanNode, result: Result, rule: OnError | None = None) -> None:
        """Record the result of the current attempt of a step. A `rule` replaces the step's own for failures."""
        assert node.step is not None
        end = self._executor.after_repair(
            node, result, make_end_record(node.step, node.attempt, result, self._setup.now_ms(), rule)
        )
        self._new_ends.append(self._apply_end(end))

    async def _cancel_step(self, name: str) -> None:
        node = self.state.nodes[name]
        for work in (self._work.pop(name, None), self._children.pop(name, None)):
            if work is not None:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
        if node.step is not None and node.step.row.executor == "child":
            await self._executor.cancel(node)

    async def _stop(self) -> None:
        """Stop all local work. The next execution continues from the records."""
        if tasks := [*self._work.values(), *self._children.values()]:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- waiting --------------------------------------------------------------------------------------------------

    async def _wait(self, wake_at: int | None) -> None:
        """Wait for an event, and process it."""
        if not self._finished:
            left = None if wake_at is None else max(0, wake_at - self._setup.now_ms())
            if self._can_suspend(left):
                await self._suspend(left)
            if not self._new_ends:  # an end may have been added before the run could suspend
                seconds = LOOK_SECONDS if self._awaits_signal or self._work else SUSPEND_AFTER_SECONDS
                until = self._journal.changed if self._awaits_signal else self._journal.nudged
                await until(seconds if left is None else min(seconds, left / 1000 + 0.001))
        while self._finished:
            self._process_result(*self._finished.popleft())
        if self._awaits_signal:
            await self._check_signals()

    def _process_result(self, name: str, done: asyncio.Task[Result] | asyncio.Task[Task]) -> None:
        self._last_event_at = asyncio.get_running_loop().time()
        tasks = self._work if self._work.get(name) is done else self._children
        if tasks.get(name) is not done:
            return  # stopped in the meantime
        del tasks[name]
        result = done.result()
        node = self.state.nodes[name]
        if isinstance(result, Result):
            self._record_result(node, result)
        elif result.status.state in lifecycle.INTERRUPTED:
            self._asking[name] = result.id
            self._questions.open(name, self._executor.passed_question(node, result))
        else:
            self._run(name, asyncio.create_task(self._executor.conclude_child(node, result), name=f"conclude {name}"))

    def _can_suspend(self, left_ms: int | None) -> bool:
        if self._work or self._posts or (left_ms is not None and left_ms <= SOON_MS):
            return False
        return not self._children or asyncio.get_running_loop().time() - self._last_event_at > SUSPEND_AFTER_SECONDS

    async def _suspend(self, left_ms: int | None) -> None:
        """Suspend the run until an event; continue if it has already happened."""
        if (question := self._questions.show()) is not None:
            await self._journal.write({}, (), [question])
        names = [*self._children, *self._asking]
        children = {self._executor.child(self.state.nodes[name]): name in self._asking for name in names}
        attending = list(self._children)
        for name in attending:
            self._children.pop(name).cancel()
        await self._journal.suspend(keys=list(self._awaited.values()), children=children, delay_ms=left_ms)
        self._last_event_at = asyncio.get_running_loop().time()
        await self._check_signals()
        for name in attending:
            self._await_child(name)

    @property
    def _awaits_signal(self) -> bool:
        return bool(self._questions) or bool(self._awaited)

    async def _check_signals(self) -> None:
        """Process answers of the caller, signals, and members that do not ask anymore."""
        await self._journal.reload()
        for name, key in list(self._awaited.items()):
            if (entry := self._journal.entry(key)) is not None:
                self._end_with_value(self.state.nodes[name], msgspec.json.decode(entry))
        for name, child in list(self._asking.items()):
            child_task = await self._journal.children.read(child)
            if child_task is None or child_task.status.state not in lifecycle.INTERRUPTED:
                self._await_again(name)
        while (answer := self._questions.answer()) is not None and (first := self._questions.first) is not None:
            self._questions.forget()
            node = self.state.nodes[first]
            if first in self._asking:
                await self._executor.answer_child(node, answer)
                self._await_again(first)
            elif (approval := Approval.of(IncomingMessage(answer))).is_clear and not is_ruled(node):
                self._questions.close(first)
                self._end_with_value(node, approval)
            else:
                self._unclear_answers[first] += 1
                self._questions.open(first, self._executor.question(node, self._unclear_answers[first]))

    def _await_again(self, name: str) -> None:
        """Wait again for a member that no longer asks."""
        del self._asking[name]
        self._questions.close(name)
        self._await_child(name)

    def _end_with_value(self, node: PlanNode, value: object) -> None:
        """End a step with the value of its signal, or with the decision of the caller."""
        assert node.step is not None
        conclude = behavior_of(node.step.kind).result_of_signal
        assert conclude is not None
        result, rule = conclude(node.step, value)
        self._record_result(node, result, rule)


def is_ruled(node: PlanNode) -> bool:
    """Whether only some callers may decide an approval. A message comes from the owner, whose role is unknown here."""
    return node.step is not None and node.step.is_ruled_approval
