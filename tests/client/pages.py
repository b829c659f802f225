"""Documents over HTTP, as a test says: which there are, how they may be kept, and what was asked for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from accord.model import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from accord.protocol.cards import encode_card
from accord.protocol.operations import DialectName

CARD, OLD_CARD = "/.well-known/agent-card.json", "/.well-known/agent.json"
CATALOG = "/.well-known/ai-catalog.json"


class Page(NamedTuple):
    """One answer."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed


class Pages:
    """The pages of a host; what was asked for is in `asked`, with its headers."""

    def __init__(self) -> None:
        self.pages: dict[str, Page | list[Page]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                path = lines[0].split(" ")[1]
                headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
                self.asked.append((path, headers))
                found = self.pages.get(path, Page(status=404))
                page = found.pop(0) if isinstance(found, list) else found
                if page.status == 200 and headers.get("if-none-match") == page.headers.get("ETag", ""):
                    page = Page(status=304, headers=page.headers)
                more = "".join(f"{name}: {value}\r\n" for name, value in page.headers.items())
                size = f"Content-Length: {len(page.body)}\r\n"
                writer.write(f"HTTP/1.1 {page.status} X\r\n{size}{more}\r\n".encode() + page.body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()


@asynccontextmanager
async def published(pages: Pages | None = None) -> AsyncIterator[Pages]:
    """Serve pages while the block runs."""
    pages = pages or Pages()
    server = await asyncio.start_server(pages.serve, "127.0.0.1", 0)
    pages.port = server.sockets[0].getsockname()[1]
    try:
        yield pages
    finally:
        server.close()


def card(*urls: str, name: str = "Trips", version: str = "1.0") -> AgentCard:
    return AgentCard(
        name=name,
        description="Plans trips",
        version="1",
        supported_interfaces=tuple(
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version) for url in urls
        ),
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(AgentSkill(id="s", name="S", description="", tags=()),),
    )


def written(*urls: str, dialect: DialectName = DialectName.V1, name: str = "Trips") -> bytes:
    return encode_card(card(*urls, name=name), frozenset({dialect}), dialect)


def catalog(*entries: tuple[str, str]) -> bytes:
    listed = [{"displayName": name, "type": "application/a2a-agent-card+json", "url": url} for name, url in entries]
    return msgspec.json.encode({"specVersion": "1.0", "entries": listed})
