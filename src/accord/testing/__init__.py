"""Test kit for users: agents in process and behind sockets, scripts, a clock, webhooks, cassettes.

`accord.testing.plugin` has them as fixtures for pytest; `accord.testing.conformance` is the agent that public
conformance kits talk to. Each name is imported when it is used.
"""

from typing import TYPE_CHECKING

from accord.lazy import lazily

if TYPE_CHECKING:
    from accord.testing.asgi import AsgiTransport, Response, call, lifespan, stream
    from accord.testing.cassettes import UnknownRequest, cassette
    from accord.testing.clock import MovableClock
    from accord.testing.inprocess import Running, assert_task, running, text_in
    from accord.testing.scripts import Move, ScriptedAgent, scripted
    from accord.testing.sockets import Delivery, Webhooks, catching, serving

__all__ = [
    "AsgiTransport",
    "Delivery",
    "MovableClock",
    "Move",
    "Response",
    "Running",
    "ScriptedAgent",
    "UnknownRequest",
    "Webhooks",
    "assert_task",
    "call",
    "cassette",
    "catching",
    "lifespan",
    "running",
    "scripted",
    "serving",
    "stream",
    "text_in",
]

_HOMES = {
    ".asgi": ("AsgiTransport", "Response", "call", "lifespan", "stream"),
    ".cassettes": ("UnknownRequest", "cassette"),
    ".clock": ("MovableClock",),
    ".inprocess": ("Running", "assert_task", "running", "text_in"),
    ".scripts": ("Move", "ScriptedAgent", "scripted"),
    ".sockets": ("Delivery", "Webhooks", "catching", "serving"),
}
"""Module -> the public names that it defines."""

__getattr__ = lazily(__name__, _HOMES)
"""Lazy, so that serving the conformance agent imports nothing else."""
