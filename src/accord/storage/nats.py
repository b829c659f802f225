"""Notifications over NATS core, for fleets that would overload the database; needs the extra `nats`.

NATS stores nothing here: no JetStream, no acknowledgements. The client's own reconnection is off because it gives up
permanently on some errors. `Carrier` reconnects instead.
"""

import asyncio
import logging
from collections.abc import Sequence

from accord.storage.address import CarrierType
from accord.storage.notifications import RECONNECT_SECONDS, Carrier, Hear

try:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.errors import NoServersError
except ImportError as error:
    raise ImportError("Hints over NATS need nats-py: pip install 'accord[nats]'") from error

SUBJECT = "accord.hints"
TIMEOUT_SECONDS = 5
"""Timeout for connecting and for a reply to a ping. After it the connection counts as lost."""

log = logging.getLogger("accord.signals")


class NatsSignals(Carrier):
    """Carries notifications through NATS. One reachable server is enough."""

    name = "nats"
    payload_bytes = 64_000  # far below the server's default limit of 1 MB

    def __init__(self, servers: Sequence[str], heard: Hear) -> None:
        """Connect to one of the servers, each `nats://host:port`; see `Carrier`."""
        super().__init__(heard)
        self._servers = list(servers)
        self._refusal: Exception | None = None

    async def _talk(self) -> None:
        client = Client()
        self._refusal = None
        try:
            await self._connect(client)
            self._refusal = None
            await client.subscribe(SUBJECT, cb=self._receive)
            await self._settle(client)
            await self._settle(client)  # the client's first ping may overtake the subscription
            self._is_up()
            while True:
                for payload in await self._next():
                    await client.publish(SUBJECT, payload.encode())
                await self._settle(client)
        finally:
            await self._hang_up(client)

    async def _connect(self, client: Client) -> None:
        try:
            await client.connect(
                self._servers,
                name="accord",
                no_echo=True,  # local topics were handled before they were sent
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=RECONNECT_SECONDS,
                connect_timeout=TIMEOUT_SECONDS,
                error_cb=self._report,
                closed_cb=self._closed,
            )
        except NoServersError as error:  # it has no details, unlike the last attempt's error
            raise self._refusal or error from None

    async def _settle(self, client: Client) -> None:
        """Wait for a reply from the server. Topics published meanwhile go into the next payload."""
        await client.flush(TIMEOUT_SECONDS)
        if self._refusal is not None:
            raise self._refusal

    async def _hang_up(self, client: Client) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await client.close()
        except Exception as error:
            log.debug("signals.not_closed", extra={"carrier": self.name, "reason": str(error)})

    async def _receive(self, message: Msg) -> None:
        self._arrived(message.data.decode(errors="replace"))

    async def _report(self, error: Exception) -> None:
        """Record an asynchronous client error, such as missing permission for the subject."""
        self._refusal = error

    async def _closed(self) -> None:
        self._wake.set()


SIGNALS = CarrierType(make=lambda where, heard: NatsSignals([f"{one.scheme}://{one.host}" for one in where], heard))
