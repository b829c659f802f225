"""What a name means to this system: its addresses, looked up in threads of their own.

Whether one of them may be connected to is `checked`.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

Resolve = Callable[[str], Awaitable[list[str]]]
"""Returns the addresses of a name, or raises OSError."""

AddressInfo = tuple[Any, ...]
"""Family, type, protocol, name and socket address, as `socket.getaddrinfo` gives them."""

THREADS = 256
"""Names looked up at once: as many as there are deliveries of webhooks (`core.push.CLAIM`), so that slow names of one
caller take no thread from another. They start as needed, apart from the threads that agents and files share."""


class SystemNames:
    """Looks names up as the system does."""

    def __init__(self) -> None:
        """Start nothing yet: threads are made as they are needed."""
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="accord-names")

    async def __call__(self, name: str) -> list[str]:
        """Return the addresses of a name."""
        look_up = partial(socket.getaddrinfo, name, None, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    def close(self) -> None:
        """Stop, without waiting for answers that nobody wants any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
