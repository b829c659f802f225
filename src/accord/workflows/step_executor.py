"""Execute steps in the process of the run, or wait for their members.

The executor starts nothing of its own accord, except calls of agents that help after a failure. `runner` decides what
follows from a result.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from accord.api import UNTRACED, ChildCall, Context, StepSpan, tracing
from accord.client.text import text_of
from accord.model import ArtifactUpdate, Message, Part, Role, Task, TaskState
from accord.workflows import agent_access, channel, members, permissions
from accord.workflows.attempts import FAILED_WITH_DIAGNOSTIC, RunSetup, behavior_of, child_key, step_values
from accord.workflows.channel import CHUNKS, METADATA, OpenQuestion, Post
from accord.workflows.decide import make_end_record
from accord.workflows.document import Step
from accord.workflows.executors import Result, Scene, executor_of
from accord.workflows.records import StepEnded, StepStarted
from accord.workflows.state import PlanNode, RunState
from accord.workflows.steps.approval import RULES
from accord.workflows.values import Unresolved, UnsafeCommand, Values
from accord.workflows.verification import CompletionEvidence, diagnostic_prompt, judge_completion, verify

REPAIRED = "retry_after_repair"
"""The reason of an extra attempt after a repair."""

LONGER_SECONDS = 2.0
"""Maximum wait of an ended step for the introduction of its agent, in seconds. Fast agents have fast cards."""

log = logging.getLogger("accord.workflows")


class StepExecutor:
    """Executes the steps of one run."""

    def __init__(self, ctx: Context, setup: RunSetup, state: RunState, post: Callable[[Post], Awaitable[None]]) -> None:
        """Execute steps for the task of `ctx`, and send posts to `post`. `printed` is the output of each step."""
        self._ctx, self._setup, self._state = ctx, setup, state
        self._journal = ctx.journal
        self._directory = setup.directory
        self._post = post
        self.printed: dict[str, channel.Printed] = {}
        self._met: set[str] = set()

    def values(self, node: PlanNode) -> Values:
        """Return the values that a step may use."""
        return step_values(self._state, node, self._setup.shared.values, self._setup.env, self._setup.run)

    def _scene(self, node: PlanNode) -> Scene:
        assert node.step is not None
        name = node.name

        async def post(text: str) -> None:
            await self._post(channel.line_post(name, text))

        async def heard(text: str) -> None:
            self.printed.setdefault(name, channel.Printed(name)).add(text)

        return Scene(
            run_id=self._ctx.task_id,
            step=node.step,
            attempt=node.attempt,
            directory=self._directory,
            env=self._setup.commands,
            values=self.values(node),
            post=post,
            heard=heard,
        )

    # --- in this process ------------------------------------------------------------------------------------------

    async def execute(self, node: PlanNode) -> Result:
        """Execute a step in this process, and verify its result."""
        assert node.step is not None
        scene = self._scene(node)
        try:
            tracer = tracing.tracer
            with UNTRACED if tracer is None else tracer.around(StepSpan(key=node.name, task_id=scene.run_id)) as span:
                execute = self._setup.executors.get(node.step.kind) or executor_of(node.step.kind)
                result = await execute(scene)
                if node.step.verification is not None:
                    result = await verify(scene, result)
                span.note(error=None if result.ok else "failed")
        except (Unresolved, UnsafeCommand, OSError, ValueError) as error:
            result = Result(ok=False, error=str(error))
        except Exception as error:  # of an added executor, perhaps; the run must get a result
            log.exception("workflow.step_failed", extra={"task_id": self._ctx.task_id, "step": node.name})
            result = Result(ok=False, error=f"The step failed: {type(error).__name__}")
        return await self._with_help(node, result, node.step.command_line or "")

    # --- in members -----------------------------------------------------------------------------------------------

    def child(self, node: PlanNode) -> str:
        """Return the child task of a step's current attempt."""
        return self._journal.child(child_key(node.name, node.attempt)) or ""

    async def await_child(self, node: PlanNode, child: str) -> Task:
        """Wait until a member has ended or asks. Meanwhile post who it is and its progress."""
        async with _running_beside(self._post_introduction(node)):
            await self._post_progress(node, child)
        return await self._journal.children.settled(child)

    async def _post_introduction(self, node: PlanNode) -> None:
        """Post who executes a step remotely. An agent without a card is called all the same."""
        assert node.step is not None
        member = members.member_for(self._setup.plan, node.step)
        if member is None or not member.agent.is_a2a or node.name in self._met:
            return
        self._met.add(node.name)
        card = await agent_access.card_of(member.agent, self._setup.env, self._setup.keys)
        await self._post(channel.line_post(node.name, agent_access.introduction_line(member.agent, card)))

    async def _post_progress(self, node: PlanNode, child: str) -> None:
        chunks = 0
        async with aclosing(self._journal.children.follow(child)) as events:
            async for event in events:
                if isinstance(event.body, ArtifactUpdate):
                    chunks += 1
                    if chunks % CHUNKS == 0:
                        await self._post(channel.progress_post(node.name, chunks))

    async def conclude_child(self, node: PlanNode, task: Task) -> Result:
        """Return the verified result of a member's task."""
        step = node.step
        assert step is not None
        member = members.member_for(self._setup.plan, step)
        if member is None:
            conclude = behavior_of(step.kind).conclude
            assert conclude is not None
            return conclude(task)
        prompt = text_of(task.history[0]) if task.history else ""
        result = members.child_result(member, task)
        scene = self._scene(node)
        try:
            result = await verify(scene, result, prompt)
            files = await self._changed_files(node, member, scene.place)
            if member.is_interactive and node.last_start is not None and not isinstance(files, str):
                files = files or await permissions.changed_since(
                    scene.place, node.last_start.at, self._setup.store_files
                )
        except (Unresolved, OSError, ValueError) as error:
            return Result(ok=False, output=result.output, error=str(error))
        if isinstance(files, str):
            result = replace(result, ok=False, error=files)
        elif member.is_interactive:
            evidence = CompletionEvidence(files=len(files), has_exited=members.has_exited(task))
            result = judge_completion(step.name, result, evidence)
        return await self._with_help(node, members.require_output(step, result, task), prompt)

    async def cancel(self, node: PlanNode) -> None:
        """Cancel the child task of a step."""
        assert node.step is not None
        child = self.child(node)
        if child:
            await self._journal.children.cancel(self._child_agent(node.step), child)

    def _child_agent(self, step: Step) -> str:
        agent = behavior_of(step.kind).agent
        assert agent is not None
        return agent(self._setup, step)

    # --- files ----------------------------------------------------------------------------------------------------

    async def entries_before(self, begun: StepStarted) -> Mapping[str, str]:
        """Return the journal entry to write before a step starts: a snapshot, if its permissions are limited."""
        node = self._state.nodes[begun.step]
        step = node.step
        if step is None or (member := members.member_for(self._setup.plan, step)) is None or member.agent.is_a2a:
            return {}
        place = self._scene(node).place
        if permissions.rules_in(member.permissions, place).is_free:
            return {}
        found = await permissions.take_snapshot(place, self._setup.store_files)
        return {f"flow:{begun.step}:{begun.attempt}:before": msgspec.json.encode(found).decode()}

    async def _changed_files(self, node: PlanNode, member: members.Member, place: Path) -> list[str] | str:
        """Return the files that a member changed, or an error if it may not change one."""
        entry = self._journal.entry(f"flow:{node.name}:{node.attempt}:before")
        if entry is None:
            return []
        was = msgspec.json.decode(entry, type=permissions.Snapshot)
        files = permissions.changed_files(was, await permissions.take_snapshot(place, self._setup.store_files))
        return (
            permissions.find_violation(
                files, permissions.rules_in(member.permissions, place), self._neighbor_rules(node, place)
            )
            or files
        )

    def _neighbor_rules(self, node: PlanNode, place: Path) -> list[permissions.PermissionRules]:
        """Return the rules of steps that worked in the same directory at the same time."""
        found: list[permissions.PermissionRules] = []
        since = node.last_start.at if node.last_start is not None else 0
        for other in self._state.nodes.values():
            step, begun = other.step, other.last_start
            if other is node or step is None or begun is None or not step.row.changes_files:
                continue
            if other.last_end is not None and other.last_end.attempt >= begun.attempt and other.last_end.at < since:
                continue
            if self._scene(other).place != place:
                continue
            member = members.member_for(self._setup.plan, step)
            found.append(
                permissions.PermissionRules() if member is None else permissions.rules_in(member.permissions, place)
            )
        return found

    # --- help with failures ---------------------------------------------------------------------------------------

    async def _with_help(self, node: PlanNode, result: Result, prompt: str) -> Result:
        """Let an agent diagnose or repair a failure, if the document names one."""
        step, plan = node.step, self._setup.plan
        assert step is not None
        if result.ok:
            return result
        check = step.verification
        is_last = make_end_record(step, node.attempt, result, self._setup.now_ms()).again_at is None
        if result.reason == "failed_verification" and check is not None and check.diagnostic_agent and not is_last:
            question = diagnostic_prompt(step, result, prompt)
            advice = await self._ask(node, check.diagnostic_agent, question, "diagnosis", check.diagnostic_timeout)
            error = f"{result.error}\n\nWhat {check.diagnostic_agent} says about it:\n{advice}"
            return replace(result, reason=FAILED_WITH_DIAGNOSTIC, error=error) if advice else result
        if is_last and plan.repair_agent is not None and self._can_repair(node, step):
            question = _repair_prompt(step, result, prompt)
            await self._ask(node, plan.repair_agent, question, "repair", None)
        return result

    def _can_repair(self, node: PlanNode, step: Step) -> bool:
        attempts = (step.retries or 0) + 1
        return step.on_error in (None, "fail", "retry") and node.attempt < attempts + self._setup.plan.repair_retries

    def after_repair(self, node: PlanNode, result: Result, end: StepEnded) -> StepEnded:
        """Return the end of an attempt. After a repair, the attempt is not the last."""
        step, plan = node.step, self._setup.plan
        assert step is not None
        if end.status != "failed" or end.again_at is not None or plan.repair_agent is None:
            return end
        key = self._help_key(node, "repair")
        if not self._can_repair(node, step) or self._journal.child(key) is None:
            return end
        return replace(end, again_at=self._setup.now_ms(), cause=None, reason=REPAIRED)

    async def _ask(self, node: PlanNode, agent: str, text: str, what: str, seconds: float | None) -> str | None:
        """Let an agent handle a failed attempt; return its output, or None if it did not complete."""
        key = self._help_key(node, what)
        name = f"{self._setup.plan.name}/{agent}"
        if self._journal.child(key) is None:
            member = self._setup.hosted[name]
            message = members.child_message(
                member,
                Step(name=f"{node.name}-{what}", agent=agent),
                text,
                id=f"{self._ctx.task_id}/{key}",
                run_id=self._ctx.task_id,
                directory=self._directory,
            )
            limit = None if seconds is None else round(seconds * 1000)
            await self._journal.write({}, [ChildCall(agent=name, message=message, key=key, timeout_ms=limit)])
        await self._post(channel.line_post(node.name, f"{agent} looks at it ({what})"))
        task = await self._journal.children.settled(self._journal.child(key) or "")
        if task.status.state is not TaskState.COMPLETED:
            await self._journal.children.cancel(name, task.id)  # a question of it would get no answer
            return None
        return text_of(task)

    def _help_key(self, node: PlanNode, what: str) -> str:
        return f"flow:{node.name}:{node.attempt}:{what}"

    # --- questions ------------------------------------------------------------------------------------------------

    def question(self, node: PlanNode, unclear: int = 0) -> OpenQuestion:
        """Return the question of a step, worded differently after unclear answers."""
        assert node.step is not None
        question = behavior_of(node.step.kind).question
        assert question is not None
        return question(self._ctx, node, self.values(node), unclear)

    def passed_question(self, node: PlanNode, task: Task) -> OpenQuestion:
        """Return a member's question as a question of the run."""
        question = task.status.message
        turn = sum(message.role is Role.USER for message in task.history)
        metadata = (question.metadata if question else None) or {}
        about = metadata.get(METADATA)
        rules = {name: about[name] for name in RULES if name in about} if isinstance(about, dict) else {}
        message = Message(
            message_id=f"{task.id}/{turn}",
            role=Role.AGENT,
            parts=question.parts if question is not None else (Part(text=f"{node.name} waits for an answer"),),
            task_id=self._ctx.task_id,
            context_id=self._ctx.context_id,
            metadata={**metadata, METADATA: {"step": node.name, "task": task.id, **rules}},
        )
        return OpenQuestion(message, task.status.state)

    async def answer_child(self, node: PlanNode, answer: Message) -> None:
        """Send the answer to a member."""
        assert node.step is not None
        reply = replace(
            answer, message_id=f"{answer.message_id}/{node.name}", task_id=self.child(node), context_id=None
        )
        key = child_key(node.name, node.attempt)
        await self._journal.children.send(self._child_agent(node.step), reply, key)

    # --- shared state ---------------------------------------------------------------------------------------------

    async def values_to_set(self, end: StepEnded) -> dict[str, Any]:
        """Return the values that a completed step sets. A missing value is posted and left out."""
        node = self._state.nodes[end.step]
        if end.status != "completed" or node.step is None or not node.step.set:
            return {}
        values, to_set = self.values(node), {}
        for name, template in node.step.set.items():
            try:
                to_set[name] = values.value(template)
            except Unresolved as error:
                await self._post(channel.line_post(end.step, f"{name} is not set: {error}"))
        return to_set


@asynccontextmanager
async def _running_beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine during a block, and at most a little longer."""
    task = asyncio.create_task(work)
    try:
        yield
        await asyncio.wait([task], timeout=LONGER_SECONDS)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _repair_prompt(step: Step, result: Result, prompt: str) -> str:
    return "\n\n".join(
        (
            f"The step {step.name!r} of a workflow has failed. Repair what made it fail, so that it succeeds when it "
            "is tried again; do not do the step itself.",
            f"Its task:\n{prompt or step.command_line or ''}",
            f"What is wrong: {result.error}",
            f"The end of its output:\n{result.output[-4000:]}",
        )
    )
