"""Applications made of others: one that is put together when somebody first asks it something, one by the method.

A server that only agents talk to never needs what its console is made of, and starts sooner without it.
"""

import asyncio
from collections.abc import Awaitable, Callable

from accord.bindings.http import App, Receive, Scope, Send


class Later:
    """Such an application."""

    def __init__(self, make: Callable[[], Awaitable[App]]) -> None:
        """Make it with `make`, once; if that fails, so does the request, and the next one tries again."""
        self._make = make
        self._making = asyncio.Lock()
        self._made: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await (self._made or await self._ready())(scope, receive, send)

    async def _ready(self) -> App:
        async with self._making:
            if self._made is None:
                self._made = await self._make()
            return self._made


def by_method(*, rest: App, **apps: App) -> App:
    """Return what answers by the method of a request."""

    def chosen(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return apps.get(scope["method"], rest)(scope, receive, send)

    return chosen
