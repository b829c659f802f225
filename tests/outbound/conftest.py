"""Servers on loopback to ask: one that answers as a test wants, and one that speaks bytes."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Speaks = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Listening = Callable[..., Coroutine[Any, Any, "Listener"]]

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Listener:
    """A port that says the same to everybody, and keeps what it was told."""

    def __init__(self, speaks: Speaks | bytes) -> None:
        self._speaks = speaks
        self.port = 0
        self.connections = 0
        self.heads: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            if isinstance(self._speaks, bytes):
                await self._answer(reader, writer, self._speaks)
            else:
                await self._speaks(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # whoever asked has had enough
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes) -> None:
        while True:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))
            writer.write(said)
            await writer.drain()


@pytest.fixture
async def listening() -> AsyncIterator[Listening]:
    """A function that listens on a loopback port."""
    async with AsyncExitStack() as stack:

        async def listen(speaks: Speaks | bytes = OK, tls: ssl.SSLContext | None = None) -> Listener:
            found = Listener(speaks)
            running: set[asyncio.Task[None]] = set()

            def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                running.add(asyncio.ensure_future(found(reader, writer)))

            async def stop() -> None:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

            server = await asyncio.start_server(serve, "127.0.0.1", ssl=tls)
            found.port = server.sockets[0].getsockname()[1]
            stack.callback(server.close)
            stack.push_async_callback(stop)
            return found

        yield listen


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS for a server that calls itself hooks.test, and for clients that believe it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hooks.test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("hooks.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server, ssl.create_default_context(cafile=str(folder / "cert.pem"))
