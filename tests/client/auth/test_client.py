"""Authenticated from end to end: the client finds the card, chooses, asks and streams, in every dialect and binding."""

from typing import Any

import pytest

from accord.client import Client
from accord.client.auth import NoCredentials
from accord.errors import AuthenticationFailed, TaskNotFound
from accord.model import GetRequest, TaskFilter
from accord.outbound.httpx2 import Httpx2Transport
from tests.cases import each
from tests.client.auth.conftest import TokenEndpoint, serving
from tests.client.auth.test_served import BASIC, HEADER, HMAC, SECRET, keys

HELD: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "header": (HEADER, {"ACCORD_KEY_127_0_0_1": SECRET}),
    "basic": (BASIC, {"ACCORD_BASIC_127_0_0_1": "alice:pass:word ü"}),
    "hmac": (HMAC, {"ACCORD_HMAC_127_0_0_1": f"partner:{SECRET}"}),
}


@pytest.mark.proves("2-06", "2-08", "2-11")
@each(
    ("dialect", "binding"),
    [
        ("v1", "JSONRPC"),
        ("v1", "HTTP+JSON"),
        ("v03", "JSONRPC"),
        ("v03", "HTTP+JSON"),
        ("vault", None),
        ("gen", None),
        ("relay", None),
    ],
)
@each("way", HELD)
async def test_a_conversation_with_credentials(way: str, dialect: str, binding: str | None) -> None:
    scheme, env = HELD[way]
    async with (
        serving(scheme) as agent,
        Client.connect(agent.url, keys=keys(**env), dialect=dialect, binding=binding) as client,
    ):
        said = await client.send_text("one two")
        assert said.text.split() == ["one", "two"]
        assert "".join([text async for text in client.stream_text("three four")]).split() == ["three", "four"]
        assert said.task_id is not None
        assert (await client.task(said.task_id).refresh()).id == said.task_id


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_signatures_cover_the_sent_bytes_in_both_transports(binding: str) -> None:
    scheme, env = HELD["hmac"]
    other = Httpx2Transport()
    async with serving(scheme) as agent:
        for transport in ("aiohttp", other):
            async with Client.connect(agent.url, keys=keys(**env), binding=binding, transport=transport) as client:
                with pytest.raises(TaskNotFound):
                    await client.get(GetRequest(id="no such/task? %41+é"))
                assert (await client.list(TaskFilter(context_id="a b+c&d=%41é"))).tasks == ()
    await other.close()


async def test_missing_credentials_are_reported() -> None:
    async with serving(HEADER) as agent:
        with pytest.raises(NoCredentials, match="X-Secret"):
            await Client.connect(agent.url, keys=keys())
        async with Client.connect(agent.url) as client:
            with pytest.raises(AuthenticationFailed):
                await client.send_text("hi")


@pytest.mark.proves("2-10")
async def test_tokens_refused_mid_stream_are_refreshed(
    endpoint: TokenEndpoint,
) -> None:
    scheme = endpoint.scheme(jwks_url=f"{endpoint.url}/keys", token_url=endpoint.token_url)
    id, secret = endpoint.client
    held = keys(ACCORD_OAUTH_127_0_0_1_CLIENT_ID=id, ACCORD_OAUTH_127_0_0_1_CLIENT_SECRET=secret)
    endpoint.ends = [1_700_000_000]
    async with (
        serving(scheme, push={"allow_private": True}) as agent,
        Client.connect(agent.url, keys=held) as client,
    ):
        said = await client.send_text("hi")
        assert said.text.strip() == "hi"
        assert len(endpoint.asked) == 2
        assert "".join([text async for text in client.stream_text("a b")]).split() == ["a", "b"]
        assert len(endpoint.asked) == 2
        assert len((await client.list(TaskFilter())).tasks) == 2
