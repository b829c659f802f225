"""What only the httpx2 transport has: HTTP/2, and clients that somebody else made."""

import builtins
import importlib
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from accord.client.http_link import JsonRpcLink
from accord.model import ArtifactUpdate, Task
from accord.outbound import HttpRequest, Policy, open_transport
from accord.outbound.httpx2 import Httpx2Transport
from accord.protocol.operations import DialectName, Operation
from tests.certificates import Authority
from tests.client.links.conftest import AGENTS, all_of, saying
from tests.serve.running import running


@pytest.mark.proves("4-43")
async def test_http_2_is_spoken_where_the_server_does(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.server()
    tls = ["--tls-cert", str(own.certificate), "--tls-key", str(own.key)]
    with running(tmp_path, f"{AGENTS}:words", "--server", "granian", *tls, scheme="https") as server:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        transport = Httpx2Transport(tls=context)
        opened = await transport.open(HttpRequest(method="GET", url=f"{server.url}/.well-known/agent-card.json"))
        assert opened._response.http_version == "HTTP/2"
        assert (opened.status, b"supportedInterfaces" in await opened.read()) == (200, True)
        link = JsonRpcLink(transport, f"{server.url}/", DialectName.V1)
        assert isinstance(await link.ask(Operation.SEND, saying("hello")), Task)
        events = await all_of(link.follow(Operation.STREAM, saying("chunks")))
        assert sum(isinstance(event.body, ArtifactUpdate) for event in events) >= 3
        await transport.close()


async def test_injected_clients_stay_open() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"x-seen": request.headers["x-mine"]}, content=request.content)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer), headers={"X-Mine": "1"}) as client:
        transport = Httpx2Transport(client=client)
        opened = await transport.open(HttpRequest(method="POST", url="http://agent.example/", body=b"hi"))
        assert (opened.headers["X-Seen"], await opened.read()) == ("1", b"hi")
        await transport.close()
        assert not client.is_closed


async def test_a_promise_that_it_cannot_keep_is_not_made() -> None:
    with pytest.raises(ValueError, match="Only the aiohttp transport"):
        open_transport("httpx2", policy=Policy())
    await open_transport("httpx2", policy=None).close()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "httpx2":
            raise ModuleNotFoundError("No module named 'httpx2'")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "accord.outbound.httpx2")
    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(ImportError, match=r"pip install 'accord\[http2\]'"):
        importlib.import_module("accord.outbound.httpx2")
