"""Temporal workflows: the agent type and its options.

Each task is one workflow, with the task's id as its own. Nothing of Temporal is imported here. The agent is in `agent`.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from accord.api.agent_types import Given, Kind, Options, Seconds

if TYPE_CHECKING:
    from temporalio.client import Client

    from accord.agents.temporal.agent import TemporalAgent


__all__ = ["KIND", "TemporalOptions", "workflow_agent"]


class TemporalOptions(Options, frozen=True, kw_only=True):
    """Options of a workflow; docs/agents/temporal.md explains each."""

    SECRET = frozenset({"api_key"})

    workflow: str
    task_queue: str
    address: str = "localhost:7233"
    namespace: str = "default"
    api_key: str | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    input: Literal["auto", "text", "data", "message", "conversation"] = "auto"
    signal: str = "message"
    status: str | None = None
    progress_query: str | None = None
    heartbeats: bool = False
    execution_timeout: Seconds | None = None
    grace_seconds: Seconds = 30.0
    poll_seconds: Seconds = 15.0
    progress_seconds: Seconds = 1.0
    watched: Annotated[int, Meta(ge=0)] = 100


def make(given: Given, connect: "Callable[[], Awaitable[Client]] | None" = None) -> "TemporalAgent":
    """Return the agent of a workflow, with the client that `connect` returns or one made from its options."""
    try:
        import temporalio.client  # noqa: F401
    except ImportError as error:
        raise ImportError("Temporal agents need temporalio: pip install 'accord[temporal]'") from error
    from accord.agents.temporal.agent import TemporalAgent

    return TemporalAgent(given, connect)


def workflow_agent(
    workflow: str,
    task_queue: str,
    *,
    name: str | None = None,
    connect: "Callable[[], Awaitable[Client]] | None" = None,
    **options: Any,
) -> "TemporalAgent":
    """Return a workflow as an agent, for programs. A custom client may encrypt, trace and authenticate."""
    said = msgspec.convert({"workflow": workflow, "task_queue": task_queue, **options}, TemporalOptions)
    return make(Given(options=said, name=name), connect)


KIND = Kind(name="temporal", options=TemporalOptions, make=make)
