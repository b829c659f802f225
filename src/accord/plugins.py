"""Extension points for other packages, in one place to import from.

    [project.entry-points."accord.steps"]
    digest = "acme_accord.steps:DIGEST"

Each family is a `Group`. Each member is a small struct that describes how to create it. This module defines only the
list of families and imports nothing before it is used. The family's own module documents its members.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from accord.lazy import lazily

if TYPE_CHECKING:
    from accord.agents.agent_types import Given, Kind, Options, profile
    from accord.auth.authentication import BodyNeeded, Identity, Presented, Scheme, challenge
    from accord.auth.scheme_settings import Grant, Settings
    from accord.auth.schemes import Ports, SchemeKind
    from accord.engine.agent import Agent, Crash, Living, Node, Profile
    from accord.engine.context import Context, Failed, Rejected
    from accord.errors import AuthenticationFailed
    from accord.storage.address import Location, NoOptions, SignalsKind
    from accord.storage.blobs.blob_store import BlobsKind, Shelf
    from accord.storage.notifications import Carrier, Hear, Signals
    from accord.storage.store import StoreFull, StoreRefused, StoreUnavailable
    from accord.workflows.executors import Executor, Result, Scene, StepKind

__all__ = [
    "Agent",
    "AuthenticationFailed",
    "BlobsKind",
    "BodyNeeded",
    "Carrier",
    "Context",
    "Crash",
    "Executor",
    "Failed",
    "Given",
    "Grant",
    "Hear",
    "Identity",
    "Kind",
    "Living",
    "Location",
    "NoOptions",
    "Node",
    "Options",
    "Ports",
    "Presented",
    "Profile",
    "Rejected",
    "Result",
    "Scene",
    "Scheme",
    "SchemeKind",
    "Settings",
    "Shelf",
    "Signals",
    "SignalsKind",
    "StepKind",
    "StoreFull",
    "StoreRefused",
    "StoreUnavailable",
    "challenge",
    "profile",
]

_HOMES = {
    "accord.agents.agent_types": ("Given", "Kind", "Options", "profile"),
    "accord.auth.authentication": ("BodyNeeded", "Identity", "Presented", "Scheme", "challenge"),
    "accord.engine.agent": ("Agent", "Crash", "Living", "Node", "Profile"),
    "accord.engine.context": ("Context", "Failed", "Rejected"),
    "accord.auth.schemes": ("Ports", "SchemeKind"),
    "accord.auth.scheme_settings": ("Grant", "Settings"),
    "accord.errors": ("AuthenticationFailed",),
    "accord.storage.blobs.blob_store": ("BlobsKind", "Shelf"),
    "accord.storage.address": ("Location", "NoOptions", "SignalsKind"),
    "accord.storage.notifications": ("Carrier", "Hear", "Signals"),
    "accord.storage.store": ("StoreFull", "StoreRefused", "StoreUnavailable"),
    "accord.workflows.executors": ("Executor", "Result", "Scene", "StepKind"),
}
"""Module -> the public names that it defines."""

__getattr__ = lazily(__name__, _HOMES)
"""Lazy, so that a package with a step does not import the databases."""

FAMILIES = {
    "accord.agents": "accord.agents.agent_types:KINDS",
    "accord.steps": "accord.workflows.executors:STEPS",
    "accord.auth": "accord.auth.schemes:SCHEMES",
    "accord.signals": "accord.storage.address:CARRIERS",
    "accord.blobs": "accord.storage.blobs.blob_store:BLOBS",
}
"""Entry point group -> the family that reads it."""


class Plugin(NamedTuple):
    """A registered extension. `problem` is why it cannot be used, if it was checked."""

    group: str
    name: str
    value: str
    package: str
    version: str
    problem: str | None = None


def listed(*, check: bool = False) -> list[Plugin]:
    """Return the extensions that other packages have registered.

    With `check` each is imported, and `problem` is set if that fails.
    """
    from accord.entries import OURS, Unusable

    found: list[Plugin] = []
    for value in FAMILIES.values():
        module, _, name = value.partition(":")
        group = getattr(import_module(module), name)
        for entry in group.entries():
            if entry.package == OURS:
                continue
            problem = None
            if check:
                try:
                    group.take(entry)
                except Unusable as error:
                    problem = str(error)
            found.append(Plugin(entry.group, entry.name, entry.value, entry.package, entry.version, problem))
    return found
