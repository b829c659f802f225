"""A LangGraph graph as an agent: turns and streamed answer.

The progress of a turn is read from the graph's own checkpoint, which contains the id of its turn. Any execution on any
node can therefore resume it. Checkpointed steps do not run again. The answer is one artifact. A resumed execution
starts with the stored state of the graph, so that the artifact contains nothing twice.
"""

import inspect
import re
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.types import RESUME
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, StateSnapshot

from accord.agents.langchain.runnable import UsageCollector, json_value
from accord.agents.langgraph import GraphOptions, state_mapping
from accord.agents.langgraph.checkpoints import Saver
from accord.agents.langgraph.state_mapping import BREAK, GraphMap, GraphOutput
from accord.agents.messages import answer_id
from accord.api import AgentEnvironment, Context, Crash, Failed, Rejected, Store, text_of
from accord.api.agent_types import ANY_MEDIA, AgentArguments, profile
from accord.api.storage import TaskFence
from accord.model import Artifact, Part


class PendingSpeech:
    """Text of one model message that waits until an earlier message is complete."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.text = ""
        self.is_over = False


class GraphAnswer:
    """The answer so far, and the messages that models are streaming."""

    def __init__(self, ctx: Context, text_before: str = "") -> None:
        self._ctx = ctx
        self._id = answer_id(ctx)
        self._text = text_before
        self._other_parts: list[Part] = []
        self._is_begun = False
        self._last_message: str | None = None
        self._speeches: dict[str, PendingSpeech] = {}  # by message, oldest first: the first is written, the others wait

    async def add(self, message_id: str, node: str, text: str, *, is_last: bool) -> None:
        """Add text of a message; two concurrent messages are written one after the other."""
        if not text and message_id not in self._speeches:
            return
        speech = self._speeches.setdefault(message_id, PendingSpeech(node))
        speech.text += text
        speech.is_over = speech.is_over or is_last
        await self._write_speeches()

    async def node_ended(self, node: str) -> None:
        """Complete the messages of a node when the node ends. Not every model reports the end of its message."""
        for speech in self._speeches.values():
            speech.is_over = speech.is_over or speech.node == node
        await self._write_speeches()

    async def add_parts(self, parts: Sequence[Part]) -> None:
        """Add parts that are not text."""
        self._other_parts += parts
        await self._write(parts)

    async def end(self, output: GraphOutput) -> None:
        """Complete the answer. A final text that differs from the end of the streamed text replaces it."""
        for speech in self._speeches.values():
            speech.is_over = True
        await self._write_speeches()
        if output.text and not self._text.endswith(output.text):
            self._text, self._is_begun = output.text, False
        self._other_parts += output.parts
        if self._is_begun or not self._is_there():
            await self._write(output.parts)
        await self._ctx.finish(self._id)

    async def _write_speeches(self) -> None:
        """Write the pending text of the oldest message, and of later ones once it is complete."""
        while self._speeches:
            message_id, speech = next(iter(self._speeches.items()))
            if speech.text:
                piece = BREAK + speech.text if self._text and self._last_message != message_id else speech.text
                speech.text, self._last_message = "", message_id
                self._text += piece
                await self._write([Part(text=piece)])
            if not speech.is_over:
                return
            del self._speeches[message_id]

    async def _write(self, parts: Sequence[Part]) -> None:
        """Append to the artifact. The first call replaces the text that an earlier execution left."""
        if not self._is_begun:
            parts = [*([Part(text=self._text)] if self._text else []), *self._other_parts]
        if parts:
            await self._ctx.artifact(list(parts), id=self._id, append=self._is_begun, last_chunk=False)
            self._is_begun = True

    def _is_there(self) -> bool:
        written = next(
            (artifact.parts for artifact in self._ctx.task.artifacts if artifact.artifact_id == self._id), ()
        )
        files = [part for part in written if part.text is None]
        return text_of(written) == self._text and files == [part for part in self._other_parts if part.text is None]


MODES = ["messages", "updates", "custom"]

TURN = "accord_turn"
"""Metadata key of a checkpoint for the id of its turn."""

OVERTAKEN = "The conversation has gone on without this answer"


class GraphTurn:
    """One execution of a turn, which an earlier execution may have started."""

    def __init__(self, ctx: Context, graph: Any, mapping: GraphMap, options: GraphOptions, thread: str) -> None:
        self._ctx, self._graph, self._mapping, self._options = ctx, graph, mapping, options
        self._message_id = ctx.message.message_id
        self._turn = f"{ctx.task_id}/{self._message_id}"
        self._usage = UsageCollector(ctx)
        self._answer = GraphAnswer(ctx)
        self._config: dict[str, Any] = {
            "configurable": {**options.configurable, "thread_id": thread},
            "callbacks": [self._usage],
            "metadata": {TURN: self._turn, "task_id": ctx.task_id, "context_id": ctx.context_id},
        }
        if options.recursion_limit is not None:
            self._config["recursion_limit"] = options.recursion_limit

    async def run_turn(self) -> None:
        """Execute the turn from its present state to its end or next question."""
        state = await self._state()
        if (state.metadata or {}).get(TURN) == self._turn:
            self._answer = GraphAnswer(self._ctx, self._mapping.text_so_far(state.values, self._message_id))
            questions = self._count_questions()
            is_asking = questions > 0 and self._ctx.kept(self._question_key(questions - 1)) == await self._waiting_mark(
                state
            )
            if state.next and not is_asking and not self._is_gated(state):
                state = await self._advance(None)
        elif self._count_questions():
            raise Failed(OVERTAKEN)
        else:
            is_asking = False
            state = await self._advance(await self._mapping.input(self._ctx))
        while state.next:
            state = await self._advance(await self._resume_input(state, is_again=is_asking))
            is_asking = False
        await self._answer.end(self._mapping.output(state.values, self._message_id))

    # --- running the graph --------------------------------------------------------------------------------------------

    async def _advance(self, graph_input: Any) -> StateSnapshot:
        context = {} if self._options.context is None else {"context": self._options.context}
        events = self._graph.astream(
            graph_input,
            self._config,
            stream_mode=MODES,
            subgraphs=True,
            durability=self._options.durability,
            **context,
        )
        try:
            async with aclosing(events):
                async for space, mode, value in events:
                    if mode == "messages":
                        await self._handle_message(*value)
                    elif mode == "updates":
                        for node, update in value.items():
                            await self._updated(space, node, update)
                    else:
                        await self._custom(value)
                    await self._usage.count()
        except Exception as error:
            await self._usage.count()  # a failed graph has used tokens as well
            if not isinstance(error, GraphRecursionError):
                raise
            steps = re.search(r"\d+", str(error))
            raise Failed(f"The graph did not end within {steps[0] if steps else 'its limit of'} steps") from error
        await self._usage.count()
        return await self._state()

    async def _handle_message(self, message: BaseMessage, metadata: dict[str, Any]) -> None:
        """Handle a model's output: a chunk of a message, or a whole one."""
        if not isinstance(message, AIMessage):
            return
        is_whole = not isinstance(message, AIMessageChunk)
        if is_whole:
            self._usage.add(message)
        node = metadata.get("langgraph_node", "")
        if self._options.stream_nodes and node not in self._options.stream_nodes:
            return
        is_last = is_whole or getattr(message, "chunk_position", None) == "last"
        await self._answer.add(message.id or "", node, str(message.text), is_last=is_last)

    async def _updated(self, space: tuple[str, ...], node: str, update: Any) -> None:
        """Report that a node ended. Its name is metadata, because a status message joins the history."""
        if node.startswith("__"):  # an interrupt, or a cache record
            return
        await self._answer.node_ended(node)
        if self._options.updates == "off":
            return
        path = [step.partition(":")[0] for step in space] + [node]
        has_value = self._options.updates == "values" and update is not None
        value = Part(data=json_value(update), media_type=state_mapping.JSON) if has_value else None
        await self._ctx.status(value, metadata={"node": node, "path": path})

    async def _custom(self, value: Any) -> None:
        """Handle a custom value of a node: write artifacts and parts, and report other values as status."""
        match value:
            case Artifact():
                await self._ctx.artifact(value)
                await self._ctx.flush()  # or it would be lost with the process if its step has no checkpoint
            case Part():
                await self._answer.add_parts([value])
            case str():
                await self._ctx.status(value)
            case _:
                await self._ctx.status(json_value(value))

    # --- asking the caller --------------------------------------------------------------------------------------------

    async def _resume_input(self, state: StateSnapshot, *, is_again: bool) -> Any:
        """Ask the graph's question and return the input to resume with; a question that was asked is found again."""
        number = self._count_questions() - is_again
        key = f"{self._turn}/question/{number}"
        if not is_again:
            await self._ctx.keep(self._question_key(number), await self._waiting_mark(state))
        if not state.interrupts:
            if not await self._ctx.approve(f"Go on with {', '.join(state.next)}?", key=key):
                raise Rejected(f"{', '.join(state.next)} was not approved")
            return None
        question = state_mapping.question_parts(state.interrupts)
        reply = await self._ctx.ask(question, key=key, metadata=state_mapping.question_metadata(state.interrupts))
        return Command(resume=state_mapping.resume_values(state.interrupts, reply))

    def _count_questions(self) -> int:
        number = 0
        while self._ctx.kept(self._question_key(number)) is not None:
            number += 1
        return number

    def _question_key(self, number: int) -> str:
        return f"{self._turn}/question/{number}"

    async def _waiting_mark(self, state: StateSnapshot) -> str:
        """Return a mark of the place where the graph waits: its steps, and the number of answers each has received."""
        marks: list[str] = []
        saver = self._graph.checkpointer
        for config in _configs(state):
            checkpoint = await saver.aget_tuple(config)
            answers = sum(
                len(value) if isinstance(value, list) else 1
                for _, channel, value in (checkpoint.pending_writes or () if checkpoint else ())
                if channel == RESUME
            )
            marks.append(f"{config['configurable'].get('checkpoint_id')}:{answers}")
        return " ".join(marks)

    def _is_gated(self, state: StateSnapshot) -> bool:
        """Whether the graph may be at a compiled breakpoint, where it must not resume without approval."""
        if state.interrupts:  # a node has started, and runs no further than its own question
            return False
        before, after = self._graph.interrupt_before_nodes, self._graph.interrupt_after_nodes
        return bool(after) or before == "*" or not set(state.next).isdisjoint(before)

    async def _state(self) -> StateSnapshot:
        snapshot: StateSnapshot = await self._graph.aget_state(self._config, subgraphs=True)
        return snapshot


def _configs(state: StateSnapshot) -> Iterator[Any]:
    """Yield the configs of a graph and of its running subgraphs."""
    yield state.config
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot):
            yield from _configs(task.state)


WAIT_SECONDS = 1.0
"""Interval of checks whether another task of the conversation has ended, in seconds."""


class GraphAgent:
    """An agent made from a graph."""

    def __init__(self, given: AgentArguments) -> None:
        """Wrap a graph; an uncompiled one is compiled with default settings."""
        graph = given.target if hasattr(given.target, "astream") else given.target.compile()
        options: GraphOptions = given.options
        name = None if graph.name == "LangGraph" else graph.name
        self.profile = profile(
            given, crash=Crash.RESUME, name=name or "graph", description=_doc(graph), input_modes=ANY_MEDIA
        )
        self._graph = graph
        self._options = options
        self._mapping = GraphMap(graph, options)
        self._is_ours = not isinstance(graph.checkpointer, BaseCheckpointSaver)
        self._trims = self._is_ours and not options.keep_history and not _has_deltas(graph)
        self._store: Store | None = None

    async def start(self, node: AgentEnvironment) -> None:
        """Use the node's store for checkpoints."""
        self._store = node.store

    async def stop(self) -> None:
        """Release the store."""
        self._store = None

    async def run(self, ctx: Context) -> None:
        """Execute one turn, or its remaining steps."""
        if self._store is None:
            raise RuntimeError("A graph is run by a node that it was started on")
        saver = Saver(self._store, ctx.tenant, TaskFence(ctx.task_id, ctx.epoch))
        while (entered := await saver.enter()).holder is not None:
            if ctx.kept("waits") is None:
                await ctx.keep("waits", entered.holder)
                await ctx.status(f"Waits for task {entered.holder} of the same conversation")
            await ctx.pause(WAIT_SECONDS)
        graph = self._graph.copy({"checkpointer": saver}) if self._is_ours else self._graph
        try:
            await GraphTurn(ctx, graph, self._mapping, self._options, entered.thread).run_turn()
            if self._trims:
                await saver.trim(entered.thread)
        except Exception:
            await saver.flush()  # steps of a graph that failed are stored as well
            raise
        finally:
            saver.drop()


def _doc(graph: Any) -> str | None:
    """Return the docstring of the class of a graph's state, or None if it is generated."""
    schema = getattr(getattr(graph, "builder", None), "state_schema", None)
    if not isinstance(schema, type) or schema.__module__.partition(".")[0] in ("langgraph", "langchain"):
        return None
    written = vars(schema).get("__doc__") or ""
    return None if written.startswith(f"{schema.__name__}(") else inspect.cleandoc(written)  # a dataclass's default


def _has_deltas(graph: Any) -> bool:
    """Whether a graph stores only changes, which need the earlier steps to be useful."""
    return any(type(channel).__name__ == "DeltaChannel" for channel in graph.channels.values())  # not in every version
