"""A graph as an agent: who it is, where its states are kept, and whose turn it is in a conversation.

What happens in a turn is `turn`, how states are kept `checkpoints`. The engine is above.
"""

import inspect
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from accord.agents.kinds import JSON, Given, profile
from accord.agents.langgraph import GraphOptions
from accord.agents.langgraph.checkpoints import Saver
from accord.agents.langgraph.mapping import GraphMap
from accord.agents.langgraph.turn import Turn
from accord.engine.agent import TEXT, Crash, Node
from accord.engine.context import Context
from accord.storage.commands.checkpoints import Fence
from accord.storage.store import Store

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
        saver = Saver(self._store, ctx.tenant, Fence(ctx.task_id, ctx.epoch))
        while (entered := await saver.enter()).holder is not None:
            if ctx.kept("waits") is None:
                await ctx.keep("waits", entered.holder)
                await ctx.status(f"Waits for task {entered.holder} of the same conversation")
            await ctx.pause(WAIT_SECONDS)
        graph = self._graph.copy({"checkpointer": saver}) if self._is_ours else self._graph
        try:
            await Turn(ctx, graph, self._mapping, self._options, entered.thread).go_on()
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
