"""The other side of the wire: A2A agents anywhere, called the way local ones are.

It discovers, negotiates, authenticates, sends and follows; it hosts nothing and keeps nothing but connections. Agents,
the console and the command line stand above it, `protocol` and `outbound` below.
"""

from typing import TYPE_CHECKING

from accord.lazy import lazily

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
    ".blocking": ("BlockingClient", "BlockingTask"),
    ".client": ("Client",),
    ".discovery": ("BadCard", "CardNotFound"),
    ".handle": ("RemoteTask",),
    ".local": ("in_process",),
    ".retries": ("Retries",),
    ".selection": ("NoWay",),
    ".sending": ("Unconfirmed",),
    ".speech": ("Speech",),
    ".text": ("Said",),
    ".wire": ("TimedOut", "Unreachable"),
}
"""Module -> the public names that are at home there."""

__getattr__ = lazily(__name__, _HOMES)
"""Who needs one module does not pay for all."""
