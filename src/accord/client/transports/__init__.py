"""What sends HTTP requests: aiohttp, or httpx2 for HTTP/2 and for clients that somebody else made.

Each file is one library behind `wire.Transport` and translates its exceptions; nothing here knows A2A. `choose` turns a
name into one, and loads only that library.
"""

from importlib import import_module
from typing import Any

from accord.client.wire import Transport

TRANSPORTS = {
    "aiohttp": ("accord.client.transports.aiohttp", "AiohttpTransport"),
    "httpx2": ("accord.client.transports.httpx2", "Httpx2Transport"),
}


def choose(transport: str | Transport, **options: Any) -> Transport:
    """Return a transport by its name, made with these options, or the one that was given."""
    if not isinstance(transport, str):
        return transport
    if transport not in TRANSPORTS:
        raise ValueError(f"There is no transport {transport!r}; there are {', '.join(TRANSPORTS)}")
    module, name = TRANSPORTS[transport]
    made: Transport = getattr(import_module(module), name)(**options)
    return made
