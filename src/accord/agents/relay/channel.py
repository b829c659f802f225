"""A channel of a relay over HTTP: messages posted to it, and the latest of it read.

It knows two requests and a key, and nothing of tasks. What a message means is `correlation`.
"""

import logging
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from accord.agents.relay.correlation import Entry, entries
from accord.client import transports
from accord.client.wire import Outgoing, Reply, Transport, Unreachable
from accord.errors import InvalidAgentResponse
from accord.outbound import Policy

PATH = "/channels/messages"

LATEST = 20
"""Messages that are looked at each time."""

SECONDS = 30.0
"""How long a relay may take to answer."""

MAX_BYTES = 32 * 1024 * 1024
NOT_FOUND = 404

log = logging.getLogger("accord.relay")


class NoRelay(Exception):
    """The relay cannot be used: `may_pass` if that may be otherwise soon, `was_posted` if a message may be there."""

    def __init__(self, reason: str, *, may_pass: bool, was_posted: bool = False) -> None:
        """Say why, for a person."""
        super().__init__(reason)
        self.may_pass = may_pass
        self.was_posted = was_posted


class Channel:
    """One channel, for whoever has a key."""

    def __init__(self, base_url: str, api_key: str, name: str) -> None:
        """Use the relay at `base_url`; nothing is opened before the first request."""
        self._url = base_url.rstrip("/") + PATH
        self._key = api_key
        self._name = name
        self._transport: Transport | None = None

    async def post(self, text: str) -> str | None:
        """Post a message and return its id, if the relay says that."""
        body = msgspec.json.encode({"channel": self._name, "text": text})
        reply = await self._ask("POST", self._url, body)
        found = _json(reply)
        inside = found.get("message", found.get("data", found)) if isinstance(found, dict) else None
        number = inside.get("id") if isinstance(inside, dict) else None
        return None if number is None else str(number)

    async def latest(self, limit: int = LATEST, **more: Any) -> list[Entry]:
        """Read the latest messages; `more` are parameters of relays that have them."""
        asked = {"channel": self._name, "limit": limit} | more
        found = _json(await self._ask("GET", f"{self._url}?{urlencode(asked)}"))
        if isinstance(found, dict):
            found = found.get("messages", found.get("data"))
        if not isinstance(found, list):
            raise NoRelay("The relay's answer is no list of messages", may_pass=True)
        return entries(found)

    async def close(self) -> None:
        """Let go of connections."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            await transport.close()

    async def _ask(self, method: str, url: str, body: bytes | None = None) -> Reply:
        if self._transport is None:  # the operator names the relay, and it may well be on this machine
            self._transport = transports.choose("aiohttp", policy=Policy(allow_private=True), max_bytes=MAX_BYTES)
        headers = (("Authorization", f"Bearer {self._key}"), ("Accept", "application/json"), *_about(body))
        asked = Outgoing(method=method, url=url, headers=headers, body=body, seconds=SECONDS)
        try:
            opened = await self._transport.open(asked)
            reply = Reply(status=opened.status, headers=opened.headers, body=await opened.read())
        except Unreachable as error:
            sent = error.was_sent and body is not None
            raise NoRelay(f"The relay cannot be reached: {error.reason}", may_pass=True, was_posted=sent) from error
        except InvalidAgentResponse as error:
            raise NoRelay(f"The relay's answer cannot be taken: {error}", may_pass=False) from error
        if reply.status == NOT_FOUND and body is None:
            return replace(reply, body=b"[]")  # nobody has said anything in it yet
        if not 200 <= reply.status < 300:
            log.warning("relay refused", extra={"status": reply.status, "body": reply.body[:1024]})
            may_pass = reply.status >= 500 or reply.status == 429
            raise NoRelay(f"The relay refused: HTTP {reply.status}", may_pass=may_pass)
        return reply


def _about(body: bytes | None) -> tuple[tuple[str, str], ...]:
    return () if body is None else (("Content-Type", "application/json"),)


def _json(reply: Reply) -> Any:
    try:
        return msgspec.json.decode(reply.body) if reply.body.strip() else None
    except msgspec.DecodeError:
        return None
