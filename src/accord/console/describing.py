"""`/api/openapi.json`: what the console answers, described from its own table of routes.

The document is made when it is first asked for. What is in it is `console.openapi`.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from accord.console import openapi
from accord.console.paths import CONSOLE
from accord.console.routing import Asked, Reply, Route

TITLE = "Accord console"


class Describing:
    """The handler."""

    def __init__(self, routes: Sequence[Route], version: str) -> None:
        """Describe `routes`, and this one."""
        self._routes = routes
        self._version = version

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        return (Route("GET", f"{CONSOLE}openapi.json", self.described, is_open=True, gives=dict[str, Any]),)

    async def described(self, _asked: Asked) -> Reply:
        """Describe this API."""
        return Reply(200, document=self.document)

    @cached_property
    def document(self) -> bytes:
        """The document, as OpenAPI 3.1."""
        found = openapi.describe(TITLE, self._version, CONSOLE.rstrip("/"), [*self._routes, *self.routes()])
        return msgspec.json.encode(found)
