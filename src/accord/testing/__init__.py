"""What we ship for users' tests: agents run in process, ASGI answers read as they come, the conformance agent."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accord.testing.asgi import Response, call, lifespan, stream
    from accord.testing.inprocess import Running, running, text_in

__all__ = ["Response", "Running", "call", "lifespan", "running", "stream", "text_in"]

_HOMES = {
    "Response": "accord.testing.asgi",
    "call": "accord.testing.asgi",
    "lifespan": "accord.testing.asgi",
    "stream": "accord.testing.asgi",
    "Running": "accord.testing.inprocess",
    "running": "accord.testing.inprocess",
    "text_in": "accord.testing.inprocess",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is used: who serves the conformance agent needs nothing else of this."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
