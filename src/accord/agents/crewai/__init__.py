"""CrewAI: a crew, one of its agents alone, or a flow.

The task of a crew is a kickoff, with the caller's message as values of the crew's variables. Outputs of crew tasks are
stored, so an execution that was lost, or waited for feedback, resumes with the next crew task. Flows are in `flows`.
The framework is imported when an agent is made.
"""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from accord.agents.crewai.flows import FlowAgent, new_flow
from accord.agents.crewai.kickoffs import (
    InputNeeded,
    LoopBridge,
    WrittenFiles,
    input_files,
    run_with_questions,
    takes_files,
)
from accord.agents.messages import answer_id, conversation_history, prompt
from accord.api import YES, Context, Crash, IncomingMessage, Profile, Rejected, text_of
from accord.api.agent_types import (
    ANY_MEDIA,
    AgentArguments,
    AgentType,
    Count,
    Options,
    is_instance_of,
    is_subclass_of,
    needs,
    profile,
)
from accord.model import Part, Role

__all__ = ["AGENT_TYPE"]


class FeedbackRequest(Struct, frozen=True, kw_only=True):
    """An answer for a person to review, with its crew task and the model's messages so far."""

    task: int
    answer: str
    messages: list[dict[str, Any]]


class Feedback(Struct, frozen=True):
    """A request and the person's change request, or None if the answer is accepted."""

    asked: FeedbackRequest
    wish: str | None


class FeedbackProvider:
    """CrewAI's feedback provider: raises `InputNeeded` instead of asking."""

    def __init__(self, feedback: Feedback | None, index: Callable[[Any], int]) -> None:
        """Resume with `feedback`; `index` returns the index of a crew task."""
        self._feedback = feedback
        self._index = index

    def setup_messages(self, context: Any) -> bool:
        """Give the model the messages and feedback of the crew task that was reviewed."""
        feedback = self._feedback
        if feedback is None or feedback.wish is None or self._index(context.task) != feedback.asked.task:
            return False
        context.messages = [*feedback.asked.messages, context._format_feedback_message(feedback.wish)]
        return True

    def post_setup_messages(self, context: Any) -> None:
        """Leave the messages as they are."""

    def handle_feedback(self, answer: Any, context: Any) -> Any:
        """Request feedback, which ends the kickoff."""
        conversation = [*context.messages, {"role": "assistant", "content": str(answer.output)}]
        plain = [{"role": str(message["role"]), "content": message.get("content")} for message in conversation]
        raise InputNeeded(FeedbackRequest(task=self._index(context.task), answer=str(answer.output), messages=plain))

    async def handle_feedback_async(self, answer: Any, context: Any) -> Any:
        """Request feedback."""
        return self.handle_feedback(answer, context)


def parse_feedback(reply: IncomingMessage) -> str | None:
    """Return the changes that a person requests, or None if the answer is accepted."""
    if isinstance(reply.data, dict) and reply.data.get("approved") is True:
        return None
    text = reply.text.strip()
    return None if not text or text.strip(".,!").lower() in YES else text


class StoredOutput(Struct, frozen=True, kw_only=True):
    """The stored output of a crew task."""

    agent: str
    raw: str
    data: Any = None
    is_pydantic: bool = False


def stored_output(output: Any) -> StoredOutput:
    """Return a crew task's output in its stored form."""
    data = output.json_dict if output.pydantic is None else output.pydantic.model_dump(mode="json")
    return StoredOutput(agent=output.agent, raw=output.raw, data=data, is_pydantic=output.pydantic is not None)


def restore_output(task: Any, output: StoredOutput) -> Any:
    """Return the output of a crew task that finished in an earlier execution."""
    model = task.output_pydantic if output.is_pydantic else None
    return _output(task, output, None if model is None else model.model_validate(output.data))


def accept_answer(task: Any, answer: str) -> Any:
    """Return the output of a crew task whose answer a person has accepted."""
    pydantic, data = task._export_output(answer)
    role = task.agent.role if task.agent is not None else ""
    return _output(task, StoredOutput(agent=role, raw=answer, data=data), pydantic)


def _output(task: Any, output: StoredOutput, pydantic: Any) -> Any:
    from crewai.tasks.task_output import TaskOutput

    return TaskOutput(
        name=task.name,
        description=task.description,
        expected_output=task.expected_output,
        raw=output.raw,
        agent=output.agent,
        pydantic=pydantic,
        json_dict=output.data if pydantic is None else None,
        output_format=task._get_output_format(),
    )


class Kickoff:
    """One kickoff in its own thread. Calls of the context run in the event loop, and the thread waits for them."""

    def __init__(
        self, ctx: Context, crew: Any, feedback: Feedback | None, *, task_artifacts: bool, max_file_bytes: int
    ) -> None:
        self._ctx = ctx
        self._crew = crew
        self._feedback = feedback
        self._task_artifacts = task_artifacts
        self._max_file_bytes = max_file_bytes
        self._bridge = LoopBridge(ctx, self._usage)
        self._written = WrittenFiles()
        self._streamed = ""

    def _usage(self) -> Any:
        return self._crew.calculate_usage_metrics()  # of the copy that runs

    async def done(self, inputs: dict[str, Any], files: dict[str, Any]) -> None:
        """Run the crew, and write its output to the task."""
        output, written, skipped = await self._bridge.run(lambda: self._kickoff(inputs, files))
        for name, part in written.items():
            await self._ctx.artifact(part, id=f"file/{name}", name=name)
        if skipped:
            await self._ctx.status(f"These files are too large and stay behind: {', '.join(skipped)}")
        await self._answer(output)

    # --- in the thread ---

    def _kickoff(self, inputs: dict[str, Any], files: dict[str, Any]) -> tuple[Any, dict[str, Part], list[str]]:
        from crewai.core.providers.human_input import set_provider

        self._crew = self._crew.copy()
        self._restore()
        _subscribe_to_models()
        _RUN.set(self)
        set_provider(FeedbackProvider(self._feedback, self._index))
        more = {"input_files": files} if files else {}
        with self._bridge.hooks(), self._written:
            output = self._crew.kickoff(inputs=inputs, **more)
            return output, *self._written.collect(self._crew.tasks, self._max_file_bytes)

    def _restore(self) -> None:
        """Prepare the copy for this execution: earlier outputs, callbacks, and token counts of zero."""
        crew = self._crew
        if crew.tracing is None:
            crew.tracing = False  # or CrewAI would ask at the server's terminal
        for at, task in enumerate(crew.tasks):
            if (stored := self._ctx.kept(f"crewai/task/{at}")) is not None:
                self._skip(task, restore_output(task, msgspec.json.decode(stored, type=StoredOutput)))
            task.callback = self._callback_of(at, task.callback)
        if (feedback := self._feedback) is not None and feedback.wish is None:
            task = crew.tasks[feedback.asked.task]
            self._skip(task, accept_answer(task, feedback.asked.answer))
            self._done(feedback.asked.task, task.output)
        for agent in (*crew.agents, *([crew.manager_agent] if crew.manager_agent else ())):
            usage = getattr(agent.llm, "_token_usage", None)
            if usage is not None:
                agent.llm._token_usage = dict.fromkeys(usage, 0)

    def _skip(self, task: Any, output: Any) -> None:
        task.output = output
        self._crew.checkpoint_kickoff_event_id = self._ctx.task_id  # so it starts with the first task without an output

    def _callback_of(self, at: int, callback: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        def then(output: Any) -> Any:
            if (file := self._crew.tasks[at].output_file) is not None:
                self._written.expect(file)  # it is written when this has returned
            self._done(at, output)
            return None if callback is None else callback(output)

        return then

    def _done(self, at: int, output: Any) -> None:
        self._bridge.do(self._keep(at, stored_output(output)))

    def _index(self, task: Any) -> int:
        return next(at for at, crew_task in enumerate(self._crew.tasks) if crew_task.id == task.id)

    def chunk(self, task_id: str | None, text: str) -> None:
        """Stream a chunk of the model's text if it belongs to the last crew task."""
        if task_id in (None, str(self._crew.tasks[-1].id)):
            self._bridge.do(self._stream(text))

    # --- in the loop ---

    async def _stream(self, text: str) -> None:
        await self._ctx.artifact(text, id=answer_id(self._ctx), append=bool(self._streamed), last_chunk=False)
        self._streamed += text

    async def _keep(self, at: int, output: StoredOutput) -> None:
        ctx, is_last = self._ctx, at == len(self._crew.tasks) - 1
        if not is_last:
            content = output.raw if output.data is None else output.data
            if self._task_artifacts:
                await ctx.artifact(content, id=f"task-{at + 1}", name=self._crew.tasks[at].name)
            await ctx.status(f"{output.agent.strip()} has finished task {at + 1} of {len(self._crew.tasks)}")
        await ctx.keep(f"crewai/task/{at}", msgspec.json.encode(output).decode())
        await self._bridge.count()

    async def _answer(self, output: Any) -> None:
        answer = answer_id(self._ctx)
        data = output.json_dict if output.pydantic is None else output.pydantic
        if data is not None:
            await self._ctx.artifact(data, id=answer)
        elif self._streamed and self._streamed.strip() == output.raw.strip():
            await self._ctx.finish(answer)
        else:
            await self._ctx.artifact(output.raw, id=answer)


_RUN: ContextVar[Kickoff | None] = ContextVar("kickoff", default=None)
"""The kickoff of this thread, and of threads that the crew starts from it."""


@cache
def _subscribe_to_models() -> None:
    """Subscribe to the chunks of all models, once for all crews."""
    from crewai.events import LLMStreamChunkEvent, crewai_event_bus

    def stream_chunk(_source: Any, event: Any) -> None:
        if (run := _RUN.get()) is not None and event.chunk and event.tool_call is None:
            run.chunk(event.task_id, event.chunk)

    crewai_event_bus.register_handler(LLMStreamChunkEvent, stream_chunk)


TEXT_KEY = "input"
"""Variable for the text if no variable of the crew is the obvious one."""

CHAT_KEY = "crew_chat_messages"
"""Variable of crews for the conversation so far; they add it to their tasks."""

ROLES = {Role.USER: "user", Role.AGENT: "assistant"}

CHAT_MESSAGES = 20
"""Maximum number of earlier messages in it."""

FLOW = "crewai.flow.flow:Flow"


class CrewOptions(Options, frozen=True, kw_only=True):
    """Options of a crew.

    The caller's text is the variable `inputs_key`. With `task_artifacts`, each crew task's output is an artifact, not
    only the last one's. Files that tasks write are artifacts up to `max_file_bytes`. With `keep_state`, a flow starts
    with its last state in the conversation.
    """

    inputs_key: str | None = None
    task_artifacts: bool = False
    max_file_bytes: Count = 10 * 1024 * 1024
    keep_state: bool = True


class CrewAgent:
    """An agent made from a crew."""

    def __init__(self, crew: Any, profile: Profile, options: CrewOptions) -> None:
        self.profile = profile
        self._crew = crew
        self._options = options

    async def run(self, ctx: Context) -> None:
        """Kick off the crew, and again after each feedback."""
        inputs, files = await self._inputs(ctx), input_files(ctx.message.parts)
        options = self._options
        feedback: Feedback | None = None

        async def kickoff() -> None:
            run = Kickoff(
                ctx,
                self._crew,
                feedback,
                task_artifacts=options.task_artifacts,
                max_file_bytes=options.max_file_bytes,
            )
            await run.done(inputs, files)

        async for asked, answer in run_with_questions(ctx, kickoff, FeedbackRequest, lambda asked: asked.answer):
            feedback = Feedback(asked, parse_feedback(answer))

    async def _inputs(self, ctx: Context) -> dict[str, Any]:
        """Return the values of the crew's variables: the data, and the text for the only missing one."""
        inputs = dict(ctx.data) if isinstance(ctx.data, dict) else {}
        text = prompt(part for part in ctx.message.parts if part.data is msgspec.UNSET or not inputs)
        missing = sorted(self._crew.fetch_inputs() - inputs.keys())
        key = self._options.inputs_key or (missing[0] if len(missing) == 1 else TEXT_KEY)
        if text:
            inputs.setdefault(key, text)
        if unset := [name for name in missing if name not in inputs]:
            raise Rejected(f"The crew needs {', '.join(unset)}: send them as data, by name")
        if len(history := await conversation_history(ctx, CHAT_MESSAGES)) > 1:
            inputs[CHAT_KEY] = msgspec.json.encode(
                [{"role": ROLES[message.role], "content": text_of(message.parts)} for message in history[:-1]]
            ).decode()
        return inputs


def make(given: AgentArguments) -> CrewAgent | FlowAgent:
    """Make an agent from a crew, a single CrewAI agent, or a flow."""
    with needs("crewai", "crewai"):
        from crewai import Agent, Crew, Task
    thing = given.target
    if _is_flow(thing):
        return _flow(given)
    name, description = getattr(thing, "name", None), None
    if isinstance(thing, Agent):
        name, description = thing.role, thing.goal
        alone = Task(description=f"{{{TEXT_KEY}}}", expected_output="What was asked for", agent=thing)
        thing = Crew(agents=[thing], tasks=[alone])
    return CrewAgent(thing, _profile(given, name or "crew", description), given.options)


def _flow(given: AgentArguments) -> FlowAgent:
    thing, options = given.target, given.options
    kind = thing if inspect.isclass(thing) else type(thing)
    try:
        new_flow(thing)
    except (TypeError, ValueError) as error:
        reason = f"each task has a flow of its own, and {kind.__name__} cannot be made again: {error}"
        raise ValueError(reason) from error
    name = (None if thing is kind else thing.name) or kind.__name__
    own = _profile(given, name, None if kind.__doc__ is None else inspect.getdoc(kind))
    return FlowAgent(thing, own, inputs_key=options.inputs_key, keep_state=options.keep_state)


def _profile(given: AgentArguments, name: str, description: str | None) -> Profile:
    return profile(
        given,
        crash=Crash.RESUME,
        name=name,
        description=description,
        input_modes=ANY_MEDIA if takes_files() else None,
        output_modes=ANY_MEDIA,
    )


def _is_flow(thing: Any) -> bool:
    return is_instance_of(thing, FLOW) or (inspect.isclass(thing) and is_subclass_of(thing, FLOW))


AGENT_TYPE = AgentType(
    name="crewai",
    options=CrewOptions,
    make=make,
    recognizes=lambda thing: is_instance_of(thing, "crewai.crew:Crew", "crewai.agent.core:Agent") or _is_flow(thing),
)
