"""A client for A2A agents: the same interface as for local agents.

It discovers agents, authenticates, sends messages and subscribes to tasks. It stores nothing. Agents, the console and
the command line stand above it, `protocol` and `outbound` below.
"""

from typing import TYPE_CHECKING

from accord.lazy import lazily

if TYPE_CHECKING:
    from accord.client.blocking_client import BlockingClient, BlockingTask
    from accord.client.client import Client, in_process
    from accord.client.discovery import BadCard, CardNotFound
    from accord.client.interfaces import NoUsableEndpoint
    from accord.client.peer import Unconfirmed
    from accord.client.remote_task import RemoteTask, TextStream
    from accord.client.retries import Retries
    from accord.client.text import Reply
    from accord.outbound import TimedOut, Unreachable

__all__ = [
    "BadCard",
    "BlockingClient",
    "BlockingTask",
    "CardNotFound",
    "Client",
    "NoUsableEndpoint",
    "RemoteTask",
    "Reply",
    "Retries",
    "TextStream",
    "TimedOut",
    "Unconfirmed",
    "Unreachable",
    "in_process",
]

_HOMES = {
    ".blocking_client": ("BlockingClient", "BlockingTask"),
    ".client": ("Client", "in_process"),
    ".discovery": ("BadCard", "CardNotFound"),
    ".interfaces": ("NoUsableEndpoint",),
    ".peer": ("Unconfirmed",),
    ".remote_task": ("RemoteTask", "TextStream"),
    ".retries": ("Retries",),
    ".text": ("Reply",),
    "accord.outbound": ("TimedOut", "Unreachable"),
}
"""Module -> the public names that it defines."""

__getattr__ = lazily(__name__, _HOMES)
"""Lazy, so that importing one module does not import all."""
