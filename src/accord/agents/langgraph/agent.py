"""A LangGraph graph as an agent: turns and streamed answer.

The progress of a turn is read from the graph's own checkpoint, which names the turn that it belongs to, so that any
execution on any node can resume it. Steps that are checkpointed do not run again. The answer is one artifact; a resumed
execution begins with what the graph has stored, so that nothing is in it twice.
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

from accord.agents.agent_types import JSON, Given, profile
from accord.agents.langchain.messages import UsageCollector, json_value
from accord.agents.langgraph import GraphOptions, state_mapping
from accord.agents.langgraph.checkpoints import Saver
from accord.agents.langgraph.state_mapping import BREAK, GraphMap, GraphOutput
from accord.agents.messages import answer_id
from accord.engine.agent import TEXT, Crash, Node
from accord.engine.context import Context, Failed, Rejected
from accord.engine.messages import text_of
from accord.model import Artifact, Part
from accord.storage.commands.conversation_state import TaskFence
from accord.storage.store import Store


class PendingSpeech:
    """What a model says in one message, as far as it has to wait until another is done."""

    def __init__(self, node: str) -> None:
        """Wait for what is said in `node`."""
        self.node = node
        self.text = ""
        self.is_over = False


class GraphAnswer:
    """What has been said, and who talks."""

    def __init__(self, ctx: Context, kept: str = "") -> None:
        """Go on after `kept`."""
        self._ctx = ctx
        self._id = answer_id(ctx)
        self._text = kept
        self._given: list[Part] = []
        self._is_begun = False
        self._heard: str | None = None
        self._talking: dict[str, PendingSpeech] = {}  # by message, the oldest first: that one is heard, the others wait

    async def add(self, message_id: str, node: str, text: str, *, is_last: bool) -> None:
        """Add what a model says in a message; two that talk at the same time are heard one after the other."""
        if not text and message_id not in self._talking:
            return
        speech = self._talking.setdefault(message_id, PendingSpeech(node))
        speech.text += text
        speech.is_over = speech.is_over or is_last
        await self._hear()

    async def node_ended(self, node: str) -> None:
        """What was said in a node is over when the node is: not every model says so itself."""
        for speech in self._talking.values():
            speech.is_over = speech.is_over or speech.node == node
        await self._hear()

    async def give(self, parts: Sequence[Part]) -> None:
        """Add parts that are no text."""
        self._given += parts
        await self._write(parts)

    async def end(self, output: GraphOutput) -> None:
        """Say what has not been said: a text that is not what models said last takes the place of all of it."""
        for speech in self._talking.values():
            speech.is_over = True
        await self._hear()
        if output.text and not self._text.endswith(output.text):
            self._text, self._is_begun = output.text, False
        self._given += output.parts
        if self._is_begun or not self._is_there():
            await self._write(output.parts)
        await self._ctx.finish(self._id)

    async def _hear(self) -> None:
        """Say what is to be heard now: of the oldest message, and of those after it if it is over."""
        while self._talking:
            message_id, speech = next(iter(self._talking.items()))
            if speech.text:
                piece = BREAK + speech.text if self._text and self._heard != message_id else speech.text
                speech.text, self._heard = "", message_id
                self._text += piece
                await self._write([Part(text=piece)])
            if not speech.is_over:
                return
            del self._talking[message_id]

    async def _write(self, parts: Sequence[Part]) -> None:
        """Append to the artifact; the first time, put all that it is so far in place of what an earlier run left."""
        if not self._is_begun:
            parts = self._whole()
        if parts:
            await self._ctx.artifact(list(parts), id=self._id, append=self._is_begun, last_chunk=False)
            self._is_begun = True

    def _whole(self) -> list[Part]:
        return ([Part(text=self._text)] if self._text else []) + self._given

    def _is_there(self) -> bool:
        """Whether an earlier run has said all of it."""
        found = next((one.parts for one in self._ctx.task.artifacts if one.artifact_id == self._id), ())
        files = [part for part in found if part.text is None]
        return text_of(found) == self._text and files == [part for part in self._given if part.text is None]


MODES = ["messages", "updates", "custom"]

TURN = "accord_turn"
"""The metadata of a checkpoint that says which turn it belongs to."""

OVERTAKEN = "The conversation has gone on without this answer"


class GraphTurn:
    """One run of a turn; an earlier one may have begun it."""

    def __init__(self, ctx: Context, graph: Any, mapping: GraphMap, options: GraphOptions, thread: str) -> None:
        """Talk to a graph that has a checkpointer."""
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

    async def go_on(self) -> None:
        """Take the turn from where it is to its end, or to the next question."""
        state = await self._state()
        if (state.metadata or {}).get(TURN) == self._turn:
            self._answer = GraphAnswer(self._ctx, self._mapping.said(state.values, self._message_id))
            asked = self._asked()
            is_asking = asked > 0 and self._ctx.kept(self._note(asked - 1)) == await self._mark(state)
            if state.next and not is_asking and not self._is_gated(state):
                state = await self._advance(None)
        elif self._asked():
            raise Failed(OVERTAKEN)
        else:
            is_asking = False
            state = await self._advance(await self._mapping.input(self._ctx))
        while state.next:
            state = await self._advance(await self._ask(state, is_again=is_asking))
            is_asking = False
        await self._answer.end(self._mapping.output(state.values, self._message_id))

    # --- following the graph ------------------------------------------------------------------------------------------

    async def _advance(self, given: Any) -> StateSnapshot:
        """Let the graph run until it ends or waits, and return where it is then."""
        context = {} if self._options.context is None else {"context": self._options.context}
        events = self._graph.astream(
            given,
            self._config,
            stream_mode=MODES,
            subgraphs=True,
            durability=self._options.durability,
            **context,
        )
        try:
            async with aclosing(events):
                async for space, mode, value in events:
                    await self._tell(mode, space, value)
                    await self._usage.count()
        except Exception as error:
            await self._usage.count()  # what has failed has cost something as well
            if not isinstance(error, GraphRecursionError):
                raise
            steps = re.search(r"\d+", str(error))
            raise Failed(f"The graph did not end within {steps[0] if steps else 'its limit of'} steps") from error
        await self._usage.count()
        return await self._state()

    async def _tell(self, mode: str, space: tuple[str, ...], value: Any) -> None:
        if mode == "messages":
            await self._hear(*value)
        elif mode == "updates":
            for node, update in value.items():
                await self._updated(space, node, update)
        else:
            await self._custom(value)

    async def _hear(self, message: BaseMessage, about: dict[str, Any]) -> None:
        """Take in what a model says: a piece of a message, or one that comes whole."""
        if not isinstance(message, AIMessage):
            return
        is_whole = not isinstance(message, AIMessageChunk)
        if is_whole:
            self._usage.note(message)
        node = about.get("langgraph_node", "")
        if self._options.stream_nodes and node not in self._options.stream_nodes:
            return
        is_last = is_whole or getattr(message, "chunk_position", None) == "last"
        await self._answer.add(message.id or "", node, str(message.text), is_last=is_last)

    async def _updated(self, space: tuple[str, ...], node: str, update: Any) -> None:
        """Report that a node ended: its name is metadata, because a status message joins the history."""
        if node.startswith("__"):  # an interrupt, or a note about the cache
            return
        await self._answer.node_ended(node)
        if self._options.updates == "off":
            return
        path = [one.partition(":")[0] for one in space] + [node]
        has_value = self._options.updates == "values" and update is not None
        value = Part(data=json_value(update), media_type=state_mapping.JSON) if has_value else None
        await self._ctx.status(value, metadata={"node": node, "path": path})

    async def _custom(self, value: Any) -> None:
        """Pass on what a node writes itself: artifacts and parts as they are, anything else as a report."""
        match value:
            case Artifact():
                await self._ctx.artifact(value)
                await self._ctx.flush()  # or it would be lost with the process if the checkpoint of its step were not
            case Part():
                await self._answer.give([value])
            case str():
                await self._ctx.status(value)
            case _:
                await self._ctx.status(json_value(value))

    # --- asking the caller --------------------------------------------------------------------------------------------

    async def _ask(self, state: StateSnapshot, *, is_again: bool) -> Any:
        """Ask what the graph waits for, and return what it goes on with; a question that was asked is found again."""
        number = self._asked() - is_again
        key = f"{self._turn}/question/{number}"
        if not is_again:
            await self._ctx.keep(self._note(number), await self._mark(state))
        if not state.interrupts:
            if not await self._ctx.approve(f"Go on with {', '.join(state.next)}?", key=key):
                raise Rejected(f"{', '.join(state.next)} was not approved")
            return None
        asked = state_mapping.question_parts(state.interrupts)
        said = await self._ctx.ask(asked, key=key, metadata=state_mapping.question_metadata(state.interrupts))
        return Command(resume=state_mapping.resume_values(state.interrupts, said))

    def _asked(self) -> int:
        """Return how many questions this turn has asked."""
        number = 0
        while self._ctx.kept(self._note(number)) is not None:
            number += 1
        return number

    def _note(self, number: int) -> str:
        return f"{self._turn}/question/{number}"

    async def _mark(self, state: StateSnapshot) -> str:
        """Return what tells one place where the graph waits from the next: its steps, and how many answers they had."""
        marks: list[str] = []
        saver = self._graph.checkpointer
        for config in _configs(state):
            found = await saver.aget_tuple(config)
            taken = sum(
                len(value) if isinstance(value, list) else 1
                for _, channel, value in (found.pending_writes or () if found else ())
                if channel == RESUME
            )
            marks.append(f"{config['configurable'].get('checkpoint_id')}:{taken}")
        return " ".join(marks)

    def _is_gated(self, state: StateSnapshot) -> bool:
        """Whether the graph may be where it was compiled to wait, so that it must not go on by itself."""
        if state.interrupts:  # a node has begun, and goes no further than to its own question
            return False
        before, after = self._graph.interrupt_before_nodes, self._graph.interrupt_after_nodes
        return bool(after) or before == "*" or not set(state.next).isdisjoint(before)

    async def _state(self) -> StateSnapshot:
        found: StateSnapshot = await self._graph.aget_state(self._config, subgraphs=True)
        return found


def _configs(state: StateSnapshot) -> Iterator[Any]:
    """Yield where a graph is, and where the graphs are that run within it."""
    yield state.config
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot):
            yield from _configs(task.state)


ANY = (TEXT, JSON, "*/*")
"""What a graph takes: which files make sense to it is its own to say."""

WAIT_SECONDS = 1.0
"""How long a task waits before it looks again whether another of its conversation has ended."""


class GraphAgent:
    """A graph."""

    def __init__(self, given: Given) -> None:
        """Host a graph; one that is not compiled is compiled without further ado."""
        graph = given.target if hasattr(given.target, "astream") else given.target.compile()
        options: GraphOptions = given.options
        name = None if graph.name == "LangGraph" else graph.name
        self.profile = profile(
            given, crash=Crash.RESUME, name=name or "graph", description=_doc(graph), input_modes=ANY
        )
        self._graph = graph
        self._options = options
        self._mapping = GraphMap(graph, options)
        self._is_ours = not isinstance(graph.checkpointer, BaseCheckpointSaver)
        self._trims = self._is_ours and not options.keep_history and not _has_deltas(graph)
        self._store: Store | None = None

    async def start(self, node: Node) -> None:
        """Keep checkpoints where the node keeps tasks."""
        self._store = node.store

    async def stop(self) -> None:
        """Let go of the store."""
        self._store = None

    async def run(self, ctx: Context) -> None:
        """Do the work of one turn, or what is left of it."""
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
            await GraphTurn(ctx, graph, self._mapping, self._options, entered.thread).go_on()
            if self._trims:
                await saver.trim(entered.thread)
        except Exception:
            await saver.flush()  # what a graph that failed had done by then
            raise
        finally:
            saver.drop()


def _doc(graph: Any) -> str | None:
    """Return what the schema of a graph's state says about it, if somebody wrote that."""
    schema = getattr(getattr(graph, "builder", None), "state_schema", None)
    if not isinstance(schema, type) or schema.__module__.partition(".")[0] in ("langgraph", "langchain"):
        return None
    written = vars(schema).get("__doc__") or ""
    return None if written.startswith(f"{schema.__name__}(") else inspect.cleandoc(written)  # as dataclasses say it


def _has_deltas(graph: Any) -> bool:
    """Whether a graph keeps changes only, which are worth nothing without the steps before them."""
    return any(type(channel).__name__ == "DeltaChannel" for channel in graph.channels.values())  # not in every version
