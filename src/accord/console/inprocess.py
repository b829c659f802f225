"""An API asked without a network: the in-process twin of asking it over HTTP.

For commands that work on a store directly, so that they go the same way, and mean the same, as over the wire. It
carries requests and whole answers; streams need a server.
"""

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote, urlsplit

from accord.bindings.http import App
from accord.registry.availability import AskPort, ServerAnswer


def asking(app: App) -> AskPort:
    """Return what asks an application; of a URL only path and query matter."""

    async def ask(method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        parts = urlsplit(url)
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "headers": [] if body is None else [(b"content-type", b"application/json")],
        }
        said: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": body or b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            said.append(message)

        await app(scope, receive, send)
        whole = b"".join(message.get("body", b"") for message in said[1:])
        return ServerAnswer(status=said[0]["status"], body=whole)

    return ask
