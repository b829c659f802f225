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
    from accord.client.interfaces import NoWay
    from accord.client.peer import Unconfirmed
    from accord.client.remote_task import RemoteTask, Speech
    from accord.client.retries import Retries
    from accord.client.text import Said
    from accord.outbound import TimedOut, Unreachable

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
    ".blocking_client": ("BlockingClient", "BlockingTask"),
    ".client": ("Client", "in_process"),
    ".discovery": ("BadCard", "CardNotFound"),
    ".interfaces": ("NoWay",),
    ".peer": ("Unconfirmed",),
    ".remote_task": ("RemoteTask", "Speech"),
    ".retries": ("Retries",),
    ".text": ("Said",),
    "accord.outbound": ("TimedOut", "Unreachable"),
}
"""Module -> the public names that it defines."""

__getattr__ = lazily(__name__, _HOMES)
"""Lazy, so that importing one module does not import all."""
