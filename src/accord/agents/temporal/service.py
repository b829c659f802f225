"""Temporal as one agent reaches it: its client, made when it is first needed, and what its errors mean.

What is asked of it is said in `agent` and `cancels`, above.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from accord.agents.temporal import TemporalOptions
from accord.agents.temporal.content import ANSWER

PASSING = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.UNKNOWN,
    }
)
"""Answers that may be others later."""


class NotThere(Exception):
    """Temporal cannot be reached; the text says why."""


class Service:
    """The way to Temporal; `name` tells it from others, to whom cancels of its workflows mean nothing."""

    def __init__(self, name: str, options: TemporalOptions, connect: Callable[[], Awaitable[Client]] | None) -> None:
        """Go there as the options say, or have `connect` make the client for the agent called `name`."""
        self.name = f"temporal:{name}" if connect else f"temporal://{options.address}/{options.namespace}"
        self._options = options
        self._connect = connect or self._by_options
        self._lock = asyncio.Lock()
        self._client: Client | None = None

    async def client(self) -> Client:
        """Return the client; once connected it connects again by itself."""
        async with self._lock:
            if self._client is None:
                try:
                    self._client = await self._connect()
                except (RuntimeError, OSError) as error:  # what the SDK raises, and what a file that is not there does
                    raise NotThere(str(error)) from error
            return self._client

    async def _by_options(self) -> Client:
        options = self._options
        tls: bool | TLSConfig = options.tls
        if options.tls_ca or options.tls_cert:
            tls = TLSConfig(
                server_root_ca_cert=_read(options.tls_ca),
                client_cert=_read(options.tls_cert),
                client_private_key=_read(options.tls_key),
            )
        return await Client.connect(
            options.address, namespace=options.namespace, api_key=options.api_key, tls=tls, connect_timeout=ANSWER
        )


NO_ANSWER = (RPCError, NotThere)
"""Everything that may come instead of an answer."""


async def heartbeat(client: Client, seen: WorkflowExecutionDescription) -> Any:
    """Return what an activity of a workflow said with its latest heartbeat; None if none has said anything."""
    said = [one for one in seen.raw_description.pending_activities if one.heartbeat_details.payloads]
    if not said:
        return None
    latest = max(said, key=lambda one: one.last_heartbeat_time.ToNanoseconds())
    found = await client.data_converter.decode(latest.heartbeat_details.payloads)
    return found[0] if len(found) == 1 else found


def may_pass(error: Exception) -> bool:
    """Whether Temporal may give another answer later."""
    return not isinstance(error, RPCError) or error.status in PASSING


def _read(path: str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
