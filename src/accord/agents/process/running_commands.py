"""Running commands: their output and silences, and those parked for an answer.

A command that waits for an answer in its terminal outlives the execution of its task. It is parked in this process. It
is stopped when its task ends, continues on another node, or is not answered in time.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Mapping

from msgspec import Struct

from accord.agents.process.formats import CommandFailure, Observation, ObservedQuestion
from accord.agents.process.options import CommandMode, Preset, ProcessOptions, PromptInput
from accord.agents.process.output import EventReader, OutputReader, TextReader
from accord.agents.safe_regexes import Regex
from accord.agents.subprocesses import MAX_LINE, Subprocess
from accord.api import AgentEnvironment, StoreUnavailable, queries
from accord.api.queries import state_of
from accord.errors import AccordError
from accord.model import TaskState
from accord.protocol import lifecycle

SETTLE_SECONDS = 0.4
"""Pause after which output counts as complete, in seconds; it is then checked for a question."""

BRIEF_BYTES = 2000
"""More than a program prints about an unknown session, and less than it prints about its work."""

TYPE_SECONDS = 2.0
"""Maximum time before the prompt is typed, in seconds, if a command shows nothing or never pauses."""


PASTE = "\x1b[200~", "\x1b[201~"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def keystrokes(text: str, *, pastes: bool) -> bytes:
    """Return the keys to type for a text, with the key that submits it.

    Control characters are left out, because callers must not press Ctrl-C. A text of several lines is pasted if the
    command takes that as one piece (`pastes`). Otherwise it becomes one line, or its second line would answer the
    command's reaction to the first.
    """
    clean = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    if pastes and "\n" in clean:
        return (PASTE[0] + clean + PASTE[1] + "\r").encode()
    return (" ".join(clean.split("\n")) + "\r").encode()


class RunningCommand:
    """A running command."""

    def __init__(
        self,
        process: Subprocess,
        preset: Preset,
        mode: CommandMode,
        options: ProcessOptions,
        *,
        is_resumed: bool = False,
    ) -> None:
        """Observe a process that was just started; `is_resumed` if it resumes a session."""
        self.process = process
        self.is_resumed = is_resumed
        self.is_done = self.fell_silent = False
        self._options = options
        self._answers: Mapping[str, str] = preset.answers
        self._questions = [Regex(pattern, is_case_sensitive=False) for pattern in preset.questions]
        self._done = None if options.done is None else Regex(options.done)
        self._output: OutputReader = TextReader() if mode.events is None else EventReader(mode.events)
        self._to_type: str | None = None
        self._bytes = 0
        self._started_at = self._last_output_at = asyncio.get_running_loop().time()
        self._has_output = False
        self._is_settled = False
        self._nudged = 0

    async def send_prompt(self, prompt: str, way: PromptInput) -> None:
        """Pass the prompt to the command, unless it is an argument."""
        match way:
            case PromptInput.STDIN:
                self.process.feed(prompt.encode(errors="replace"))
            case PromptInput.TYPED:
                self._to_type = prompt
            case PromptInput.ARGUMENT if self.process.terminal is None:
                self.process.feed(b"")

    async def answer(self, text: str) -> None:
        """Type the answer to a question. A yes or a no is mapped to the command's keys."""
        mapped = self._answers.get(text.strip().lower())
        if mapped is None:
            keys = keystrokes(text, pastes=self._pastes)
        else:
            keys = (mapped if mapped and mapped[-1] < " " else mapped + "\r").encode()
        self._clear_screen()
        await self.process.type(keys)

    @property
    def is_brief(self) -> bool:
        """Whether the output is too short to be work, such as an error message."""
        return self._bytes < BRIEF_BYTES

    @property
    def noise(self) -> str:
        """Output beside the answer, mostly standard error, or else the end of the answer."""
        beside = "\n".join(filter(None, (self._output.noise.strip(), self.process.tail.strip())))
        return beside or (self._output.screen if isinstance(self._output, TextReader) else "")

    # --- output -------------------------------------------------------------------------------------------------------

    async def observations(self) -> AsyncGenerator[Observation, None]:
        """Yield observations until the command ends, fails or asks a question in its terminal."""
        while not self.is_done:
            try:
                async with asyncio.timeout_at(self._due()):
                    data = await self.process.read()
            except TimeoutError:
                for observation in await self._handle_silence():
                    yield observation
                    if isinstance(observation, ObservedQuestion | CommandFailure):
                        return
                continue
            if not data:
                break
            for observation in self._receive(data):
                yield observation
            if isinstance(self._output, TextReader) and self.process.terminal is not None:
                await self.process.type(self._output.replies())
            if self._bytes > self._options.output_limit:
                yield CommandFailure(f"It printed more than {self._options.output_limit} bytes")
                return
        for observation in self._output.end():
            yield observation

    def _receive(self, data: bytes) -> list[Observation]:
        self._last_output_at = asyncio.get_running_loop().time()
        self._bytes += len(data)
        self._has_output, self._is_settled = True, False
        observation = self._output.feed(data)
        if self._done is not None and isinstance(self._output, TextReader) and self._done.search(self._output.screen):
            self.is_done = True
        return observation

    def _due(self) -> float | None:
        """Return the time of the next action after a silence, or None."""
        options = self._options
        dues = [
            (self._last_output_at, None if self._is_settled or not self._has_output else SETTLE_SECONDS),
            (self._started_at, None if self._to_type is None else TYPE_SECONDS),
            (self._started_at, None if self._has_output else options.first_output),
            (self._last_output_at, options.idle_timeout if self._has_output else None),
            (self._last_output_at, self._nudge_delay if self._may_nudge else None),
        ]
        return min((since + wait for since, wait in dues if wait is not None), default=None)

    async def _handle_silence(self) -> list[Observation]:
        """Act on a silence that has lasted long enough."""
        now = asyncio.get_running_loop().time()
        quiet = now - self._last_output_at
        if limit := self._exceeded_limit(now):
            return [CommandFailure(limit)]
        if self._to_type is not None:
            keys, self._to_type = keystrokes(self._to_type, pastes=self._pastes), None
            self._clear_screen()
            terminal = self.process.terminal
            if terminal is not None and terminal.edits_lines and len(keys) > MAX_LINE:
                return [CommandFailure(f"The prompt is too long to be typed: lines may have {MAX_LINE} bytes")]
            await self.process.type(keys)
            return []
        if not self._is_settled and self._has_output:
            return self._settle()
        if self._may_nudge and self._nudge_delay is not None and quiet >= self._nudge_delay:
            return await self._nudge()
        return []

    def _exceeded_limit(self, now: float) -> str | None:
        """Return the error for the limit of silence that is reached, or None."""
        first, idle = self._options.first_output, self._options.idle_timeout
        if not self._has_output and first is not None and now >= self._started_at + first:
            return f"It printed nothing within {first:g} seconds"
        if self._has_output and idle is not None and now >= self._last_output_at + idle:
            return f"It printed nothing for {idle:g} seconds"
        return None

    def _settle(self) -> list[Observation]:
        self._is_settled = True
        observation = self._output.settle()
        output, has_terminal = self._output, self.process.terminal is not None
        if has_terminal and isinstance(output, TextReader) and output.is_question(self._questions):
            return [*observation, ObservedQuestion(output.question())]
        return observation

    async def _nudge(self) -> list[Observation]:
        """Type a reminder, or end the command after the last one."""
        self._last_output_at = asyncio.get_running_loop().time()
        if self._nudged < self._options.nudges:
            self._nudged += 1
            await self.process.type(keystrokes(self._options.nudge, pastes=self._pastes))
            return []
        if self._options.on_idle == "fail":
            return [CommandFailure(f"It stayed silent after {self._nudged} reminders")]
        self.is_done = self.fell_silent = True
        return []

    @property
    def _nudge_delay(self) -> float | None:
        """Maximum silence before the next reminder, in seconds."""
        options = self._options
        return (options.escalate_after or options.nudge_after) if self._nudged else options.nudge_after

    @property
    def _may_nudge(self) -> bool:
        return self._options.nudge_after is not None and self.process.terminal is not None

    @property
    def _pastes(self) -> bool:
        return isinstance(self._output, TextReader) and self._output.pastes

    def _clear_screen(self) -> None:
        self._last_output_at, self._is_settled = asyncio.get_running_loop().time(), True
        if isinstance(self._output, TextReader):
            self._output.clear()


LOOK_SECONDS = 0.5
"""Interval of checks of a parked command's task, in seconds; as often as a node checks its claims."""

OTHER_NODE_SECONDS = 5.0
"""Maximum time for an answered task to resume on this node, in seconds; later it runs on another node."""

EXPIRED = "expired"
"""Signal to a task whose command waited too long."""

log = logging.getLogger("accord.process")

Key = tuple[str, str]


class ParkedCommand(Struct, frozen=True):
    """A parked command and the task that watches it."""

    live: RunningCommand
    watch: asyncio.Task[None]


class ParkedCommands:
    """The parked commands of one agent, by tenant and task."""

    def __init__(self, node: AgentEnvironment) -> None:
        self._node = node
        self._parked: dict[Key, ParkedCommand] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def park(self, key: Key, live: RunningCommand, seconds: float, question: str | None) -> None:
        """Park a command for `seconds`. At the end, a task that waits under the key `question` receives a signal."""
        watch = asyncio.create_task(self._watch(key, live, seconds, question), name=f"held {key[1]}")
        self._parked[key] = ParkedCommand(live, watch)

    def unpark(self, key: Key) -> RunningCommand | None:
        """Return a parked command to the execution that resumes it, or None."""
        entry = self._parked.pop(key, None)
        if entry is None:
            return None
        entry.watch.cancel()
        return entry.live

    async def close(self) -> None:
        """Stop all parked commands; their tasks remain suspended."""
        parked, self._parked = self._parked, {}
        for entry in parked.values():
            entry.watch.cancel()
        await asyncio.gather(*(entry.live.process.stop() for entry in parked.values()), *self._leaving)

    async def _watch(self, key: Key, live: RunningCommand, seconds: float, question: str | None) -> None:
        """Stop a parked command when there is a reason to."""
        try:
            async with asyncio.timeout(seconds):
                reason = await self._reason(key)
        except TimeoutError:
            reason = EXPIRED
        leaving = self._parked.pop(key).watch  # this very task, which `close` must wait for
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        log.info("process.let_go", extra={"task_id": key[1], "pid": live.process.pid, "reason": reason})
        await live.process.stop()
        if reason == EXPIRED and question is not None:
            await self._signal_expiry(key, question)

    async def _reason(self, key: Key) -> str:
        """Wait until the task has ended or was answered on another node, and return the reason."""
        has_asked, unasked = False, 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                head = await queries.read_task_head(self._node.store, *key)
            except StoreUnavailable:
                continue
            state = None if head is None else state_of(head.state)
            if state is None or state in lifecycle.ENDED:
                return "its task is over"
            has_asked = has_asked or state is TaskState.INPUT_REQUIRED
            unasked = unasked + 1 if has_asked and state is not TaskState.INPUT_REQUIRED else 0
            if unasked * LOOK_SECONDS > OTHER_NODE_SECONDS:
                return "its task continues on another node"

    async def _signal_expiry(self, key: Key, question: str) -> None:
        """Signal to the task that its command is gone, and retry until the store accepts it."""
        while True:
            try:
                await self._node.wake(*key, question, EXPIRED)
                return
            except (StoreUnavailable, AccordError) as error:
                log.warning("process.task_not_told", extra={"task_id": key[1], "reason": str(error)})
                await asyncio.sleep(LOOK_SECONDS)
