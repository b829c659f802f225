"""The other side of the wire: A2A agents anywhere, called the way local ones are.

It discovers, negotiates, authenticates, sends and follows; it hosts nothing and keeps nothing but connections. Agents,
the console and the command line stand above it, `protocol` and `outbound` below.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accord.client.blocking import BlockingClient, BlockingTask
    from accord.client.client import Client
    from accord.client.discovery import BadCard, CardNotFound
    from accord.client.handle import RemoteTask
    from accord.client.local import in_process
    from accord.client.retries import Retries
    from accord.client.selection import NoWay
    from accord.client.sending import Unconfirmed
    from accord.client.speech import Speech
    from accord.client.text import Said
    from accord.client.wire import TimedOut, Unreachable

__all__ = [
    "BadCard",
    "BlockingClient",
    "BlockingTask",
    "CardNotFound",
    "Client",
    "NoWay",
    "RemoteTask",
    "Retries",
    "Said",
    "Speech",
    "TimedOut",
    "Unconfirmed",
    "Unreachable",
    "in_process",
]

_HOMES = {
    "BadCard": "discovery",
    "BlockingClient": "blocking",
    "BlockingTask": "blocking",
    "CardNotFound": "discovery",
    "Client": "client",
    "NoWay": "selection",
    "RemoteTask": "handle",
    "Retries": "retries",
    "Said": "text",
    "Speech": "speech",
    "TimedOut": "wire",
    "Unconfirmed": "sending",
    "Unreachable": "wire",
    "in_process": "local",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: who needs one module does not pay for all."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
