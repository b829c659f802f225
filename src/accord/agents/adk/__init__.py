"""Google's Agent Development Kit: an agent, app or runner.

A turn is an invocation in the conversation's session. The session is durable, unless a runner is given, which has its
own services. Pending calls (long-running tools, confirmations, credentials) are questions of the task. Tools that are
plain functions are called in threads. The module with Google's types (`agent`) is imported when an agent is made.
"""

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from accord.agents.turns import external_context
from accord.api import Context
from accord.api.agent_types import ANY_MEDIA, AgentArguments, AgentType, Count, Options, is_instance_of, needs, profile

if TYPE_CHECKING:
    from accord.agents.adk.agent import AdkAgent

__all__ = ["AGENT_TYPE"]


AGENT, APP, RUNNER = "google.adk.agents.base_agent:BaseAgent", "google.adk.apps.app:App", "google.adk.runners:Runner"

ANONYMOUS_USER = "anybody"
"""User ID where callers are not authenticated."""

TOOL_THREADS = 32
"""As many as the event loop has for its own work. Threads that wait cost little."""


class AdkOptions(Options, frozen=True, kw_only=True):
    """Options of an ADK agent. At most `tool_threads` calls of plain functions are under way at a time."""

    tool_threads: Count = TOOL_THREADS


def runner_ids(ctx: Context) -> tuple[str, str]:
    """Return user and session IDs for a runner whose services are shared by all callers and tenants.

    A user is `tenant/owner`, or the owner alone without a tenant.
    """
    user = "/".join(quote(name, safe="@:") for name in (ctx.tenant, ctx.caller.owner or ANONYMOUS_USER) if name)
    return user, external_context(ctx)


def is_app(thing: Any) -> bool:
    """Whether an object is an ADK app."""
    return is_instance_of(thing, APP)


def is_runner(thing: Any) -> bool:
    """Whether an object is an ADK runner."""
    return is_instance_of(thing, RUNNER)


def make(given: AgentArguments) -> "AdkAgent":
    """Make an agent from an ADK agent, app or runner."""
    with needs("google-adk", "adk"):
        from accord.agents.adk.agent import AdkAgent
    thing = given.target
    root = thing.agent if is_runner(thing) else thing.root_agent if is_app(thing) else thing
    own = profile(
        given,
        name=root.name,
        description=getattr(root, "description", None),
        input_modes=ANY_MEDIA,
        output_modes=ANY_MEDIA,
    )
    if is_runner(thing):
        thing.auto_create_session = True  # create the session of a new conversation
    return AdkAgent(thing, own, given.options)


AGENT_TYPE = AgentType(
    name="adk",
    options=AdkOptions,
    make=make,
    recognizes=lambda thing: is_instance_of(thing, AGENT, APP, RUNNER),
)
