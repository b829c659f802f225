"""A command while it runs: what is seen in its output, and how long it may be silent, how much it may say.

It lives longer than a run of its task where it waits for an answer in its terminal. What becomes of what is seen is
decided in `talk`; the process itself is `spawn`.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping

from accord.agents.process.options import ProcessOptions
from accord.agents.process.output import Events, Output, Text
from accord.agents.process.presets import Mode, Preset, Way
from accord.agents.process.seen import Asked, Broke, Seen
from accord.agents.process.spawn import Process
from accord.agents.process.terminal import MAX_LINE, typed
from accord.agents.regexes import Regex

SETTLE_SECONDS = 0.4
"""How long nothing may come before what is shown counts as all: a question is looked for then."""

BRIEF_BYTES = 2000
"""More than a program says of a session that it does not know, less than it says of what it does."""

TYPE_SECONDS = 2.0
"""How long a command that shows nothing, or never stops to show something, may take until the prompt is typed."""


class Live:
    """A running command."""

    def __init__(
        self, process: Process, preset: Preset, mode: Mode, options: ProcessOptions, *, is_resumed: bool = False
    ) -> None:
        """Listen to a process that was just started, to go on with a session if `is_resumed`."""
        self.process = process
        self.is_resumed = is_resumed
        self.is_done = self.fell_silent = False
        self._options = options
        self._answers: Mapping[str, str] = preset.answers
        self._questions = [Regex(pattern, is_case_sensitive=False) for pattern in preset.questions]
        self._done = None if options.done is None else Regex(options.done)
        self._output: Output = Text() if mode.form is None else Events(mode.form)
        self._to_type: str | None = None
        self._bytes = 0
        self._began = self._heard = asyncio.get_running_loop().time()
        self._has_said = False
        self._is_settled = False
        self._nudged = 0

    async def tell(self, prompt: str, way: Way) -> None:
        """Give it the prompt, unless that is an argument."""
        match way:
            case Way.STDIN:
                self.process.feed(prompt.encode(errors="replace"))
            case Way.TYPED:
                self._to_type = prompt
            case Way.ARGUMENT if self.process.terminal is None:
                self.process.feed(b"")

    async def answer(self, text: str) -> None:
        """Type the answer to what it asked; for a yes or a no, what stands for it here."""
        mapped = self._answers.get(text.strip().lower())
        if mapped is None:
            keys = typed(text, pastes=self._pastes)
        else:
            keys = (mapped if mapped and mapped[-1] < " " else mapped + "\r").encode()
        self._forget_screen()
        await self.process.type(keys)

    @property
    def is_brief(self) -> bool:
        """Whether it has said next to nothing: a complaint, and no work."""
        return self._bytes < BRIEF_BYTES

    @property
    def noise(self) -> str:
        """What it printed beside its answer, on its standard error above all; if there is nothing, the answer's end."""
        beside = "\n".join(filter(None, (self._output.noise.strip(), self.process.tail.strip())))
        return beside or (self._output.screen if isinstance(self._output, Text) else "")

    # --- listening ------------------------------------------------------------------------------------------------

    async def listen(self) -> AsyncGenerator[Seen, None]:
        """Yield what is seen until it ends, gives up or asks something in its terminal."""
        while not self.is_done:
            try:
                async with asyncio.timeout_at(self._due()):
                    data = await self.process.read()
            except TimeoutError:
                for seen in await self._silent():
                    yield seen
                    if isinstance(seen, Asked | Broke):
                        return
                continue
            if not data:
                break
            for seen in self._heard_of(data):
                yield seen
            if isinstance(self._output, Text) and self.process.terminal is not None:
                await self.process.type(self._output.replies())
            if self._bytes > self._options.output_limit:
                yield Broke(f"It said more than {self._options.output_limit} bytes")
                return
        for seen in self._output.end():
            yield seen

    def _heard_of(self, data: bytes) -> list[Seen]:
        self._heard = asyncio.get_running_loop().time()
        self._bytes += len(data)
        self._has_said, self._is_settled = True, False
        seen = self._output.feed(data)
        if self._done is not None and isinstance(self._output, Text) and self._done.search(self._output.screen):
            self.is_done = True
        return seen

    def _due(self) -> float | None:
        """Return when its silence means something, at the latest."""
        options = self._options
        dues = [
            (self._heard, None if self._is_settled or not self._has_said else SETTLE_SECONDS),
            (self._began, None if self._to_type is None else TYPE_SECONDS),
            (self._began, None if self._has_said else options.first_output),
            (self._heard, options.idle_timeout if self._has_said else None),
            (self._heard, self._patience if self._may_nudge else None),
        ]
        return min((since + wait for since, wait in dues if wait is not None), default=None)

    async def _silent(self) -> list[Seen]:
        """Do what is due after a silence."""
        now = asyncio.get_running_loop().time()
        quiet = now - self._heard
        if limit := self._over(now):
            return [Broke(limit)]
        if self._to_type is not None:
            keys, self._to_type = typed(self._to_type, pastes=self._pastes), None
            self._forget_screen()
            terminal = self.process.terminal
            if terminal is not None and terminal.edits_lines and len(keys) > MAX_LINE:
                return [Broke(f"What was said is too long to be typed: it takes lines of {MAX_LINE} bytes")]
            await self.process.type(keys)
            return []
        if not self._is_settled and self._has_said:
            return self._settle()
        if self._may_nudge and self._patience is not None and quiet >= self._patience:
            return await self._nudge()
        return []

    def _over(self, now: float) -> str | None:
        """Return which of the limits of its silence is reached."""
        first, idle = self._options.first_output, self._options.idle_timeout
        if not self._has_said and first is not None and now >= self._began + first:
            return f"It said nothing within {first:g} seconds"
        if self._has_said and idle is not None and now >= self._heard + idle:
            return f"It said nothing for {idle:g} seconds"
        return None

    def _settle(self) -> list[Seen]:
        self._is_settled = True
        seen = self._output.settle()
        output, has_terminal = self._output, self.process.terminal is not None
        if has_terminal and isinstance(output, Text) and output.is_question(self._questions):
            return [*seen, Asked(output.question())]
        return seen

    async def _nudge(self) -> list[Seen]:
        """Remind it, or have enough of it."""
        self._heard = asyncio.get_running_loop().time()
        if self._nudged < self._options.nudges:
            self._nudged += 1
            await self.process.type(typed(self._options.nudge, pastes=self._pastes))
            return []
        if self._options.on_idle == "fail":
            return [Broke(f"It said nothing any more, after {self._nudged} reminders")]
        self.is_done = self.fell_silent = True
        return []

    @property
    def _patience(self) -> float | None:
        """How long it may say nothing: before it is reminded, or after."""
        options = self._options
        return (options.escalate_after or options.nudge_after) if self._nudged else options.nudge_after

    @property
    def _may_nudge(self) -> bool:
        return self._options.nudge_after is not None and self.process.terminal is not None

    @property
    def _pastes(self) -> bool:
        return isinstance(self._output, Text) and self._output.pastes

    def _forget_screen(self) -> None:
        self._heard, self._is_settled = asyncio.get_running_loop().time(), True
        if isinstance(self._output, Text):
            self._output.answered()
