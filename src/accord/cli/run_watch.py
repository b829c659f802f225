"""Watch a run in this process, and answer its questions.

The watch ends with the run, or when the run waits for input that this command cannot give. The run continues without a
watch.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from accord.a2a import Caller
from accord.api import YES, at_end, new_id, queries
from accord.cli import agent_output
from accord.cli.run_display import RunDisplay, RunEvent, run_events
from accord.client.text import StreamedText
from accord.errors import TaskNotFound
from accord.model import Event, Message, Part, Role, SendConfiguration, SendRequest, StatusUpdate, Task, TaskState
from accord.model.base import timestamp_ms
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.states import LOWER
from accord.workflows import stored_run
from accord.workflows.attempts import child_key
from accord.workflows.channel import QuestionOrigin
from accord.workflows.members import RESULT, workflow_failure
from accord.workflows.signals import NotWaiting, RunSignals

if TYPE_CHECKING:
    from accord.api import Host
    from accord.workflows.stored_run import StoredRun


NO = frozenset({"no", "n", "reject", "rejected", "false", "0"})


class Keyboard:
    """The lines of a terminal."""

    def __init__(self) -> None:
        """Start reading."""
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._rest = b""
        self._is_over = False
        self._file = sys.stdin.fileno()
        asyncio.get_running_loop().add_reader(self._file, self._read)

    def close(self) -> None:
        """Stop reading."""
        asyncio.get_running_loop().remove_reader(self._file)

    def _read(self) -> None:
        piece = os.read(self._file, 4096)
        if not piece:
            self._is_over = True
            self.close()
            self._lines.put_nowait(None)
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._lines.put_nowait(line.decode(errors="replace").strip())

    async def decision(self, step: str, question: Message) -> tuple[bool, str] | None:
        """Prompt for yes or no and a comment. Returns None at the end of input."""
        self._ask(step, question)
        while (line := await self._line("y or n, optionally with a comment: ")) is not None:
            word, _, comment = line.partition(" ")
            said = word.strip(".,!").lower()
            if said in YES | NO:
                return said in YES, comment.strip()
        return None

    async def answer(self, step: str, question: Message) -> str | None:
        """Prompt for a non-empty answer. Returns None at the end of input."""
        self._ask(step, question)
        while (line := await self._line("answer: ")) is not None:
            if line:
                return line
        return None

    def _ask(self, step: str, question: Message) -> None:
        while not self._lines.empty():
            self._lines.get_nowait()
        agent_output.notice(f"\n? {agent_output.line(step)}: {agent_output.safe(agent_output.text_of(question.parts))}")

    async def _line(self, prompt: str) -> str | None:
        print(f"  {prompt}", end="", file=sys.stderr, flush=True)
        line = None if self._is_over and self._lines.empty() else await self._lines.get()
        if line is None:
            agent_output.notice("")
        return line


TEXT_LENGTH = 2000
"""Characters of streamed text that are kept. Only its last line is shown."""

QUIET_SECONDS = 0.25
"""Seconds without events after which to check whether the run waits for input."""


class RunWatch:
    """A watch of one run."""

    def __init__(
        self,
        host: "Host",
        tenant: str,
        run_id: str,
        display: RunDisplay,
        keyboard: Keyboard | None,
        waits: Callable[[str], None],
    ) -> None:
        """Watch a run of `host`.

        Without a keyboard it answers no questions. `waits` prints the events that the run waits for.
        """
        self._host, self._tenant, self._id = host, tenant, run_id
        self._display, self._keyboard, self._waits = display, keyboard, waits
        self._reported: set[str] = set()
        self._moved = True
        self._question: Message | None = None
        self._asked: set[str] = set()
        self._open: str | None = None
        self._answering: asyncio.Task[bool] | None = None
        self._listeners: set[asyncio.Task[None]] = set()
        self._begun: Counter[str] = Counter()
        self._since = timestamp_ms(host.node.now_ms())
        self._has_steps = self._has_reported_lease = False

    async def wait(self) -> Task:
        """Show events until the run has ended, or waits for input without a keyboard. Returns its task."""
        async with self._host.hub.follow(self._tenant, self._id, 0) as follower:
            events = follower.events(at_end)
            coming = asyncio.ensure_future(anext(events, None))
            try:
                while True:
                    waited = {coming} if self._answering is None else {coming, self._answering}
                    done, _ = await asyncio.wait(waited, timeout=QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                    if coming in done:
                        if (event := coming.result()) is None:
                            return await self._task()
                        await self._show(event)
                        coming = asyncio.ensure_future(anext(events, None))
                    elif await self._is_unanswered():
                        return await self._task()
            finally:
                await self._stop(coming)

    async def _stop(self, *more: "asyncio.Future[Any]") -> None:
        held = [*more, *self._listeners, *([self._answering] if self._answering is not None else [])]
        for one in held:
            one.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    async def _task(self) -> Task:
        found = await self._host.tasks.read(self._tenant, self._id)
        if found is None:
            raise TaskNotFound(metadata={"taskId": self._id})
        return found[1]

    # --- events ---------------------------------------------------------------------------------------------------

    async def _show(self, event: Event) -> None:
        """Show an event."""
        self._moved = True
        body = event.body
        if isinstance(body, StatusUpdate):
            state, said = body.status.state, body.status.message
            self._question = said if state in INTERRUPTED else None
            if said is not None and state in INTERRUPTED:
                if said.message_id in self._asked:
                    return  # still the same question
                self._asked.add(said.message_id)
        for run_event in run_events(event):
            if not self._has_steps:
                self._has_steps = True  # a run reports nothing about steps that it reuses
                if (run := await stored_run.load_stored_run(self._host.store, self._id)) is not None:
                    self._display.show_steps(run.lines())
            self._display.show_event(run_event)
            if run_event.event == "started" and self._display.shows_text:
                self._listen(run_event)

    def _listen(self, run_event: RunEvent) -> None:
        """Subscribe to the child task of a step, if it has one."""
        step = run_event.step or ""
        self._begun[step] += 1
        key = child_key(step, self._begun[step])
        task = asyncio.create_task(
            self._show_text(step, key, is_old=(run_event.at or "") < self._since), name=f"hear {step}"
        )
        self._listeners.add(task)
        task.add_done_callback(self._listeners.discard)

    async def _show_text(self, step: str, key: str, *, is_old: bool) -> None:
        """Show the streamed text of a step's agent. A child task that ended earlier is skipped."""
        host = self._host
        noted = await queries.find_step(host.store, self._tenant, self._id, key)
        if noted is None:
            return
        child = msgspec.json.decode(noted, type=str)
        head = await queries.read_task_head(host.store, self._tenant, child)
        if head is None or (is_old and head.task_state in ENDED):
            return
        growing, said = StreamedText(), ""
        async with host.hub.follow(self._tenant, child, 0) as follower:
            async for event in follower.events(at_end):
                said = (said + "".join(growing.add(event.body)))[-TEXT_LENGTH:]
                self._display.show_text(step, said)

    # --- questions ------------------------------------------------------------------------------------------------

    async def _is_unanswered(self) -> bool:
        """Whether the run waits for input that this command cannot give. Otherwise prompt for it."""
        asked = None if self._question is None else self._question.message_id
        if self._answering is not None:
            if self._answering.done():
                self._keyboard = self._keyboard if self._answering.result() else None
                self._answering = None
                self._display.resume()
            elif asked != self._open:
                await self._withdraw(self._answering)
            return False
        if self._question is None or (asked == self._open and self._keyboard is not None):
            await self._report_lease()
            await self._report_signals()
            return False  # no question, or one just answered
        if (await self._task()).status.message != self._question:
            return False  # an earlier question
        if self._keyboard is None:
            found = await queries.job_status(self._host.store, self._tenant, self._id)
            return found is not None and found.rests
        self._open = asked
        self._display.pause()
        self._answering = asyncio.create_task(self._ask(self._keyboard, self._question), name="ask")
        return False

    async def _report_lease(self) -> None:
        """Report once that another node has claimed the run: it resumes here when the lease of that node ends."""
        if self._has_reported_lease:
            return
        node = self._host.node
        holder = await queries.job_status(self._host.store, self._tenant, self._id)
        if holder is None or not (holder.is_parked or holder.is_held):
            return  # it is claimed within a moment
        self._has_reported_lease = True
        if holder.is_held and holder.node != node.node_id:
            seconds = node.limits.lease_seconds
            self._display.pause()
            agent_output.notice(
                "The run waits for the lease of another node. It resumes here when that node ends, at most"
                f" {seconds:g} s after its last heartbeat."
            )
            self._display.resume()

    async def _report_signals(self) -> None:
        """Print each awaited signal a single time, without a keyboard."""
        if self._keyboard is not None or not self._moved:
            return
        self._moved = False
        found = await stored_run.load_stored_run(self._host.store, self._id)
        open_ = [] if found is None else [wait.event for wait in found.waits() if wait.event is not None]
        for event in dict.fromkeys(open_):
            if event not in self._reported:
                self._reported.add(event)
                self._display.pause()
                self._waits(event)
                self._display.resume()

    async def _withdraw(self, answering: "asyncio.Task[bool]") -> None:
        """Withdraw a prompt that was answered by another client."""
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        self._answering = None
        self._display.resume()

    async def _ask(self, keyboard: Keyboard, question: Message) -> bool:
        """Prompt for an answer, and deliver it. Returns False at the end of input."""
        origin = QuestionOrigin.of(question)
        step = origin.step or ""
        if not origin.is_approval:
            answer = await keyboard.answer(step, question)
            if answer is not None:
                await self._answer(Part(text=answer))
            return answer is not None
        decided = await keyboard.decision(step, question)
        if decided is not None:
            if origin.task is None:
                await self._decide(step, *decided)
            else:  # a child task of the run asks
                await self._answer(Part(data=stored_run.encode_decision(is_approved=decided[0], comment=decided[1])))
        return decided is not None

    async def _decide(self, step: str, is_approved: bool, comment: str) -> None:
        """Decide an approval. Another client may have decided it meanwhile."""
        host = self._host
        signals = RunSignals(host.store, host.default.wake, host.services)
        try:
            run = await signals.find(self._tenant, self._id)
            await signals.decide(run, step, approved=is_approved, comment=comment)
        except NotWaiting as error:
            agent_output.notice(f"  {agent_output.line(error)}")

    async def _answer(self, part: Part) -> None:
        """Send a message to the run, as its owner."""
        found = await stored_run.load_stored_run(self._host.store, self._id)
        if found is None:
            return
        message = Message(message_id=new_id(), role=Role.USER, parts=(part,), task_id=self._id)
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        caller = Caller(tenant=self._tenant, owner=found.task.owner, origin="v1")
        await self._host.services[found.task.agent].send(request, caller)


def run_summary(task: Task, found: "StoredRun | None") -> dict[str, Any]:
    """Return the result of a run as a JSON object."""
    result = next((one for one in task.artifacts if one.artifact_id == RESULT), None)
    text = "" if result is None else agent_output.text_of(result.parts)
    told: dict[str, Any] = {"event": "run", "run": task.id, "state": LOWER[task.status.state], "output": text}
    if found is not None:
        told |= {"workflow": found.origin.name, "steps": found.lines()}
        if task.status.state not in ENDED and (waits := found.waits()):
            told["waits"] = [msgspec.structs.asdict(one) for one in waits]
    if task.status.state in ENDED and task.status.state is not TaskState.COMPLETED:
        told["error"] = workflow_failure(task) or f"The run is {LOWER[task.status.state]}"
    return told
