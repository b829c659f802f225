"""Hints over PostgreSQL's LISTEN and NOTIFY, on one connection of their own.

NOTIFY never runs inside a writing transaction: it takes a database-wide lock until that commits, so commits would queue
up behind each other's fsync. It needs a connection straight to the server: a pooler that shares sessions drops LISTEN.
"""

from functools import partial
from typing import Any

import asyncpg

from accord.storage.signals import Carrier, Hear

CHANNEL = "accord"
PATIENCE_SECONDS = 5.0
"""How long connecting, or one NOTIFY, may take before the connection counts as lost."""


class PostgresSignals(Carrier):
    """Carries hints through the database that they are about."""

    name = "postgresql"
    payload_bytes = 7_500  # NOTIFY carries less than 8,000

    def __init__(self, dsn: str, heard: Hear) -> None:
        """Connect to a database; see `Carrier`."""
        super().__init__(heard)
        self._dsn = dsn

    async def _talk(self) -> None:
        connection = await asyncpg.connect(self._dsn, timeout=PATIENCE_SECONDS, command_timeout=PATIENCE_SECONDS)
        try:
            connection.add_termination_listener(lambda _: self._wake.set())
            await connection.execute("SET synchronous_commit = off")  # a hint is not worth an fsync
            await connection.add_listener(CHANNEL, partial(self._receive, connection.get_server_pid()))
            self._is_up()
            while True:
                found = await self._next()
                for payload in found:
                    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
                if not found:
                    await connection.execute("SELECT 1")  # fails if the connection is lost
        finally:
            connection.terminate()

    def _receive(self, own: int, _connection: Any, sender: int, _channel: str, payload: object) -> None:
        if sender != own:  # our own were heard before they were sent
            self._arrived(str(payload))
