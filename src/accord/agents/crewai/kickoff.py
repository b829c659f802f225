"""One kickoff of a crew, in a thread: what it says goes over to the run's loop, and is waited for there.

`agent` stands above; the thread is `thread`, what tasks gave `outputs`, what they write `files`, what a person says to
them `feedback`.
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any

import msgspec

from accord.agents.content import answer_id
from accord.agents.crewai import outputs
from accord.agents.crewai.feedback import Feedback, Provider
from accord.agents.crewai.files import Written
from accord.agents.crewai.outputs import Output
from accord.agents.crewai.thread import Bridge, in_thread
from accord.engine.context import Context
from accord.model import Part


class Kickoff:
    """One kickoff. What is said to the context goes over to its loop and is waited for; the thread is its own."""

    def __init__(
        self, ctx: Context, crew: Any, feedback: Feedback | None, *, task_artifacts: bool, max_file_bytes: int
    ) -> None:
        """Kick off a copy of `crew`."""
        self._ctx = ctx
        self._crew = crew
        self._feedback = feedback
        self._task_artifacts = task_artifacts
        self._max_file_bytes = max_file_bytes
        self._bridge = Bridge(ctx)
        self._written = Written()
        self._said = ""
        self._used = (0, 0)

    async def done(self, inputs: dict[str, Any], files: dict[str, Any]) -> None:
        """Run the crew, and say what it gave."""
        try:
            output, made, left = await in_thread(lambda: self._kickoff(inputs, files))
        finally:
            self._bridge.is_over = True
        await self._count()
        await self._hand_in(made, left)
        await self._answer(output)

    # --- in the thread ---

    def _kickoff(self, inputs: dict[str, Any], files: dict[str, Any]) -> tuple[Any, dict[str, Part], list[str]]:
        from crewai.core.providers.human_input import set_provider

        self._crew = self._crew.copy()
        self._restore()
        _listen()
        _RUN.set(self)
        set_provider(Provider(self._feedback, self._index))
        more = {"input_files": files} if files else {}
        with self._bridge.hooks(self._count), self._written:
            output = self._crew.kickoff(inputs=inputs, **more)
            return output, *self._written.taken(self._crew.tasks, self._max_file_bytes)

    def _restore(self) -> None:
        """Make the copy this run's own: its outputs so far, its callbacks, its count of tokens."""
        crew = self._crew
        if crew.tracing is None:
            crew.tracing = False  # which asks whoever sits at the terminal
        for at, task in enumerate(crew.tasks):
            if (found := self._ctx.kept(f"crewai/task/{at}")) is not None:
                self._skip(task, outputs.restored(task, msgspec.json.decode(found, type=Output)))
            task.callback = self._then(at, task.callback)
        if (given := self._feedback) is not None and given.wish is None:
            task = crew.tasks[given.asked.task]
            self._skip(task, outputs.accepted(task, given.asked.answer))
            self._done(given.asked.task, task.output)
        for agent in (*crew.agents, *([crew.manager_agent] if crew.manager_agent else ())):
            usage = getattr(agent.llm, "_token_usage", None)
            if usage is not None:
                agent.llm._token_usage = dict.fromkeys(usage, 0)

    def _skip(self, task: Any, output: Any) -> None:
        task.output = output
        self._crew.checkpoint_kickoff_event_id = self._ctx.task_id  # so it begins with the first that has no output

    def _then(self, at: int, callback: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        def then(output: Any) -> Any:
            if (file := self._crew.tasks[at].output_file) is not None:
                self._written.expect(file)  # it is written when this has returned
            self._done(at, output)
            return None if callback is None else callback(output)

        return then

    def _done(self, at: int, output: Any) -> None:
        """Keep what a crew task gave."""
        self._bridge.do(self._keep(at, outputs.kept(output)))

    def _index(self, task: Any) -> int:
        return next(at for at, one in enumerate(self._crew.tasks) if one.id == task.id)

    def chunk(self, task_id: str | None, text: str) -> None:
        """Say what a model says, if that is the answer: what earlier crew tasks say is not."""
        if task_id in (None, str(self._crew.tasks[-1].id)):
            self._bridge.do(self._stream(text))

    # --- in the loop ---

    async def _stream(self, text: str) -> None:
        await self._ctx.artifact(text, id=answer_id(self._ctx), append=bool(self._said), last_chunk=False)
        self._said += text

    async def _keep(self, at: int, made: Output) -> None:
        ctx, is_last = self._ctx, at == len(self._crew.tasks) - 1
        if not is_last:
            content = made.raw if made.data is None else made.data
            if self._task_artifacts:
                await ctx.artifact(content, id=f"task-{at + 1}", name=self._crew.tasks[at].name)
            await ctx.status(f"{made.agent.strip()} has finished task {at + 1} of {len(self._crew.tasks)}")
        await ctx.keep(f"crewai/task/{at}", msgspec.json.encode(made).decode())
        await self._count()

    async def _count(self) -> None:
        """Count what the models have used since the last time."""
        used = self._crew.calculate_usage_metrics()
        now = (used.prompt_tokens, used.completion_tokens)
        before, self._used = self._used, now
        if now != before:
            await self._ctx.usage(input_tokens=now[0] - before[0], output_tokens=now[1] - before[1])

    async def _hand_in(self, made: dict[str, Part], left: list[str]) -> None:
        """Give the files that the crew has written."""
        for name, part in made.items():
            await self._ctx.artifact(part, id=f"file/{name}", name=name)
        if left:
            await self._ctx.status(f"These files are too large and stay behind: {', '.join(left)}")

    async def _answer(self, output: Any) -> None:
        """Say what the crew gave, unless that has been streamed."""
        answer = answer_id(self._ctx)
        data = output.json_dict if output.pydantic is None else output.pydantic
        if data is not None:
            await self._ctx.artifact(data, id=answer)
        elif self._said and self._said.strip() == output.raw.strip():
            await self._ctx.finish(answer)
        else:
            await self._ctx.artifact(output.raw, id=answer)


_RUN: ContextVar[Kickoff | None] = ContextVar("kickoff", default=None)
"""The run of this thread, and of those that the crew starts from it."""


@cache
def _listen() -> None:
    """Hear what models say as they say it, once for all crews."""
    from crewai.events import LLMStreamChunkEvent, crewai_event_bus

    def heard(_source: Any, event: Any) -> None:
        if (run := _RUN.get()) is not None and event.chunk and event.tool_call is None:
            run.chunk(event.task_id, event.chunk)

    crewai_event_bus.register_handler(LLMStreamChunkEvent, heard)
