"""LangGraph's server, `langgraph-api`, with its in-memory runtime, around a graph that needs no model."""

import asyncio
import json
import os
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID, uuid5

from langchain_core.messages import AIMessage
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import interrupt

from interop.servers import agent

ENVIRONMENT = {
    "LANGGRAPH_NO_VERSION_CHECK": "true",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_ENDPOINT": "http://127.0.0.1:9",
    "LANGGRAPH_CLI_NO_ANALYTICS": "1",
}
"""So that it talks to nobody but its callers."""

GRAPHS = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""Under which it makes the ids of its graphs' assistants; its own module cannot be asked before it is configured."""

AT_ONCE = 100
"""Runs at a time: those that hold would keep others waiting."""


async def answer(state: MessagesState) -> dict[str, Any]:
    """Answer the last message."""
    text = str(state["messages"][-1].text)
    if text == "hold":
        await asyncio.Event().wait()
    if text == "ask":
        text = str(interrupt(agent.QUESTION))
    return {"messages": [AIMessage("".join(agent.pieces(text)))]}


builder = StateGraph(MessagesState)
builder.add_node("answer", answer)
builder.set_entry_point("answer")
builder.set_finish_point("answer")
graph = builder.compile()


def main() -> None:
    """Serve until stopped; what the server prints is for its log."""
    os.environ.update(ENVIRONMENT)
    from langgraph_api import cli

    cli._resolve_port = lambda _host, port: port  # it would look for another one: this one is in use, by us
    listener, url = agent.listening()
    print(json.dumps({"url": f"{url}/a2a/{uuid5(GRAPHS, agent.NAME)}"}), flush=True)
    os.dup2(2, 1)
    with TemporaryDirectory() as folder:
        os.chdir(folder)  # where it keeps what it calls in-memory
        cli.run_server(
            "localhost",
            listener.getsockname()[1],
            graphs={agent.NAME: f"{__file__}:graph"},
            n_jobs_per_worker=AT_ONCE,
            disable_persistence=True,
            fd=listener.fileno(),
            timeout_graceful_shutdown=1,
        )


if __name__ == "__main__":
    main()
