"""The public port: names for authors of agents, agent types, steps, schemes, carriers and blob stores.

`accord.api` is the only door to the durable core for agents, workflows, the console, the CLI and other packages.
Its modules are one per concern: `queries` reads, `administration` is for operators, `access` is for authentication,
`directory` for published agents, `remote` for tasks that other servers do, `chats` and `storage` for stored state.
"""

from typing import TYPE_CHECKING

from accord.lazy import lazily

if TYPE_CHECKING:
    from accord.a2a import Call, Caller
    from accord.api.agent_types import AgentArguments, AgentType, Options, profile
    from accord.auth.authentication import BodyNeeded, Identity, Presented, Scheme, challenge
    from accord.auth.scheme_settings import Grant, MaskedSettings
    from accord.auth.schemes import Ports, SchemeType
    from accord.engine import tracing
    from accord.engine.agent import TEXT, Agent, AgentEnvironment, AgentWithMembers, Approvals, Crash, Living, Profile
    from accord.engine.child_tasks import ChildCall
    from accord.engine.clock import SYSTEM
    from accord.engine.context import APPROVAL, Context, wait_key
    from accord.engine.execution import StatusEntry
    from accord.engine.ids import RANDOM_BYTES, new_id, uuid7
    from accord.engine.messages import YES, Approval, IncomingMessage, answer_to, child_of, parts_of, text_of
    from accord.engine.node_port import ServedAgent
    from accord.engine.outcome import Failed, OverBudget, Rejected, Suspended
    from accord.engine.subscriptions import at_end
    from accord.engine.task_store import TaskStore, retry_until_available
    from accord.engine.threads import in_thread
    from accord.engine.tracing import UNTRACED, StepSpan
    from accord.entries import Plugin, installed_plugins
    from accord.errors import AuthenticationFailed
    from accord.service.host import Host
    from accord.service.service import Offers
    from accord.storage.address import CarrierType, Location, NoOptions
    from accord.storage.blobs.blob_store import BlobStoreType, Shelf
    from accord.storage.notifications import Carrier, Hear, Signals
    from accord.storage.store import BadValue, Store, StoreFull, StoreRefused, StoreUnavailable

# fmt: off
__all__ = [
    "APPROVAL",
    "RANDOM_BYTES",
    "SYSTEM",
    "TEXT",
    "UNTRACED",
    "YES",
    "Agent",
    "AgentArguments",
    "AgentEnvironment",
    "AgentType",
    "AgentWithMembers",
    "Approval",
    "Approvals",
    "AuthenticationFailed",
    "BadValue",
    "BlobStoreType",
    "BodyNeeded",
    "Call",
    "Caller",
    "Carrier",
    "CarrierType",
    "ChildCall",
    "Context",
    "Crash",
    "Failed",
    "Grant",
    "Hear",
    "Host",
    "Identity",
    "IncomingMessage",
    "Living",
    "Location",
    "MaskedSettings",
    "NoOptions",
    "Offers",
    "Options",
    "OverBudget",
    "Plugin",
    "Ports",
    "Presented",
    "Profile",
    "Rejected",
    "Scheme",
    "SchemeType",
    "ServedAgent",
    "Shelf",
    "Signals",
    "StatusEntry",
    "StepSpan",
    "Store",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "Suspended",
    "TaskStore",
    "answer_to",
    "at_end",
    "challenge",
    "child_of",
    "in_thread",
    "installed_plugins",
    "new_id",
    "parts_of",
    "profile",
    "retry_until_available",
    "text_of",
    "tracing",
    "uuid7",
    "wait_key",
]
# fmt: on

_HOMES = {
    "accord.a2a": ("Call", "Caller"),
    "accord.api.agent_types": ("AgentArguments", "AgentType", "Options", "profile"),
    "accord.auth.authentication": ("BodyNeeded", "Identity", "Presented", "Scheme", "challenge"),
    "accord.auth.scheme_settings": ("Grant", "MaskedSettings"),
    "accord.auth.schemes": ("Ports", "SchemeType"),
    "accord.engine.agent": (
        "TEXT",
        "Agent",
        "AgentEnvironment",
        "AgentWithMembers",
        "Approvals",
        "Crash",
        "Living",
        "Profile",
    ),
    "accord.engine.child_tasks": ("ChildCall",),
    "accord.engine.clock": ("SYSTEM",),
    "accord.engine.context": ("APPROVAL", "Context", "wait_key"),
    "accord.engine.execution": ("StatusEntry",),
    "accord.engine.ids": ("RANDOM_BYTES", "new_id", "uuid7"),
    "accord.engine.messages": ("YES", "Approval", "IncomingMessage", "answer_to", "child_of", "parts_of", "text_of"),
    "accord.engine.node_port": ("ServedAgent",),
    "accord.engine.outcome": ("Failed", "OverBudget", "Rejected", "Suspended"),
    "accord.engine.subscriptions": ("at_end",),
    "accord.engine.task_store": ("TaskStore", "retry_until_available"),
    "accord.engine.threads": ("in_thread",),
    "accord.engine.tracing": ("UNTRACED", "StepSpan", "tracing"),
    "accord.entries": ("Plugin", "installed_plugins"),
    "accord.errors": ("AuthenticationFailed",),
    "accord.service.host": ("Host",),
    "accord.service.service": ("Offers",),
    "accord.storage.address": ("Location", "NoOptions", "CarrierType"),
    "accord.storage.blobs.blob_store": ("BlobStoreType", "Shelf"),
    "accord.storage.notifications": ("Carrier", "Hear", "Signals"),
    "accord.storage.store": ("BadValue", "Store", "StoreFull", "StoreRefused", "StoreUnavailable"),
}
"""Module -> the public names that it defines, or its own name."""

__getattr__ = lazily(__name__, _HOMES)
"""Lazy, so that an agent, or a package with a step, does not import the databases."""
