"""One turn of a conversation with a graph: given to it, followed, answered, and gone on with after what came between.

What has happened to a turn is read from the graph's own checkpoint, which names the turn that it belongs to, so that
any run on any node can go on. Steps that are checkpointed are not run again. Above is `agent`.
"""

import re
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langgraph.checkpoint.serde.types import RESUME
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, StateSnapshot

from accord.agents.langchain_messages import Usage, plain
from accord.agents.langgraph import GraphOptions, questions
from accord.agents.langgraph.answer import Answer
from accord.agents.langgraph.mapping import GraphMap
from accord.engine.context import Context, Failed, Rejected
from accord.model import Artifact, Part

MODES = ["messages", "updates", "custom"]

TURN = "accord_turn"
"""The metadata of a checkpoint that says which turn it belongs to."""

OVERTAKEN = "The conversation has gone on without this answer"


class Turn:
    """One run of a turn; an earlier one may have begun it."""

    def __init__(self, ctx: Context, graph: Any, mapping: GraphMap, options: GraphOptions, thread: str) -> None:
        """Talk to a graph that has a checkpointer."""
        self._ctx, self._graph, self._mapping, self._options = ctx, graph, mapping, options
        self._message_id = ctx.message.message_id
        self._turn = f"{ctx.task_id}/{self._message_id}"
        self._usage = Usage(ctx)
        self._answer = Answer(ctx)
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
            self._answer = Answer(self._ctx, self._mapping.said(state.values, self._message_id))
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
        value = Part(data=plain(update), media_type=questions.JSON) if has_value else None
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
                await self._ctx.status(plain(value))

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
        asked = questions.question(state.interrupts)
        said = await self._ctx.ask(asked, key=key, metadata=questions.about(state.interrupts))
        return Command(resume=questions.answers(state.interrupts, said))

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
