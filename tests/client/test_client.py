"""The client over real sockets: what it sends, which way it goes, and what it does where that way is closed."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from accord.client import CardNotFound, Client, Unreachable
from accord.client.auth import Bearer
from accord.client.credentials import KeyManager
from accord.errors import MethodNotFound
from accord.model import (
    AgentCard,
    AgentInterface,
    GetRequest,
    HttpAuthScheme,
    PushConfig,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
    TaskFilter,
)
from accord.outbound import HttpRequest, OpenReply
from accord.protocol.cards import decode_card, encode_card
from accord.protocol.operations import DialectName, Operation
from accord.registry.names import UnknownName
from tests.client.conftest import no_time
from tests.client.faulty import TEXT, Faulty, answer, refusal, served
from tests.ports import free_port


@pytest.mark.proves("1-14", "1-07", "B-01")
async def test_the_founding_form_of_a_message() -> None:
    """Seed 001's JSON: `type` in the parts, a message and nothing else."""
    faulty = Faulty(dialect=DialectName.V03)
    async with served(faulty), Client.connect(faulty.url, dialect="relay", headers={"X-Team": "blue"}) as client:
        assert (await client.send_text("do it", context_id="c-1")).text == TEXT
        (asked,) = faulty.asked
        assert asked.operation is Operation.SEND
        assert asked.headers["x-team"] == "blue"
        message = asked.params["message"]
        assert asked.params == {"message": message}
        assert {name: message[name] for name in ("role", "parts", "contextId")} == {
            "role": "user",
            "parts": [{"type": "text", "text": "do it"}],
            "contextId": "c-1",
        }
        assert len(message["messageId"]) == 36


async def test_headers_go_to_the_card_as_well() -> None:
    faulty = Faulty()
    async with served(faulty), Client.connect(faulty.url, headers={"X-Team": "blue"}) as client:
        assert client.card.name == "Faulty"
        assert client.discovered.url == f"{faulty.url}/.well-known/agent-card.json"
        assert faulty.paths == ["/.well-known/agent-card.json"]


def offering(faulty: Faulty, *interfaces: tuple[str, str, str]) -> AgentCard:
    stated = tuple(
        AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
        for url, binding, version in interfaces
    )
    return replace(decode_card(faulty.card()), supported_interfaces=stated)


async def test_a_way_that_leads_nowhere_is_left_for_the_next() -> None:
    faulty = Faulty()
    async with served(faulty):
        nowhere = f"http://127.0.0.1:{free_port()}/rpc"
        card = offering(faulty, (nowhere, "JSONRPC", "1.0"), (f"{faulty.url}/rpc", "JSONRPC", "1.0"))
        for say in ("send", "stream"):
            async with Client.connect(card) as client:
                client.peer.sleep = no_time
                if say == "send":
                    assert (await client.send_text("hi")).text == TEXT
                else:
                    assert "".join([piece async for piece in client.stream_text("hi")]) == TEXT
                assert client.peer.endpoint.url == f"{faulty.url}/rpc"
        assert len(faulty.runs) == 2


async def test_a_version_that_is_refused_is_left_for_the_next() -> None:
    class Choosy(Faulty):
        async def _call(self, call: dict[str, Any], headers: dict[str, str], writer: Any) -> bool:
            if headers.get("a2a-version") == "1.0":
                answer(writer, 200, refusal(call["id"], -32009, "Version not supported"))
                return True
            return await super()._call(call, headers, writer)

    faulty = Choosy(dialect=DialectName.V03)
    async with served(faulty):
        url = f"{faulty.url}/rpc"
        card = offering(faulty, (url, "JSONRPC", "1.0"), (url, "JSONRPC", "0.3"))
        async with Client.connect(card) as client:
            assert (await client.send_text("hi")).text == TEXT
            assert client.peer.endpoint.dialect is DialectName.V03


async def test_a_way_that_works_is_kept() -> None:
    faulty = Faulty(lists=False)
    async with served(faulty):
        card = offering(faulty, (f"{faulty.url}/rpc", "JSONRPC", "1.0"), (f"{faulty.url}/other", "JSONRPC", "1.0"))
        async with Client.connect(card) as client:
            await client.send_text("hi")
            with pytest.raises(MethodNotFound):
                await client.list(TaskFilter())
            assert client.peer.endpoint.url == f"{faulty.url}/rpc"


class Nowhere:
    """A transport that leads nowhere, and says where it was to lead."""

    async def open(self, request: HttpRequest) -> OpenReply:
        raise Unreachable(request.url, was_sent=False)

    async def close(self) -> None:
        raise AssertionError("whoever made it closes it")


async def test_names_are_looked_up_and_hosts_are_not() -> None:
    faulty = Faulty()
    async with served(faulty):

        async def resolve(name: str) -> str:
            assert name == "acme/faulty"
            return faulty.url

        async with Client.connect("acme/faulty", resolve=resolve) as client:
            assert client.card.name == "Faulty"
        async with Client.connect(f"localhost:{faulty.port}", resolve=resolve) as client:
            assert client.card.name == "Faulty"

        async def card_of(_name: str) -> AgentCard:
            return decode_card(faulty.card())

        async with Client.connect("acme/faulty", resolve=card_of) as client:
            assert (await client.send_text("hi")).text == TEXT
        with pytest.raises(Unreachable, match=r"https://acme\.example/faulty/"):
            await Client.connect("acme.example/faulty", resolve=resolve, transport=Nowhere())
        for here in ("127.0.0.1:1/x", "a.localhost/x", "localhost.:1/x", "[::ffff:127.0.0.1]:1/x"):
            with pytest.raises(Unreachable, match=re.escape(f"http://{here}/")):
                await Client.connect(here, resolve=resolve, transport=Nowhere())
        with pytest.raises(CardNotFound, match="name of an agent"):
            await Client.connect("faulty", resolve=resolve)


async def test_a_name_that_is_unknown_is_a_card_that_was_not_found() -> None:
    async def resolve(name: str) -> str:
        raise UnknownName(f"{name}: https://r.example: There is no such agent")

    with pytest.raises(CardNotFound) as missing:
        await Client.connect("acme/nobody", resolve=resolve)
    assert missing.value.tried == {"acme/nobody": "https://r.example: There is no such agent"}


async def test_credentials_match_the_card(tmp_path: Path) -> None:
    class Guarded(Faulty):
        def card(self) -> bytes:
            scheme = SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="Bearer"))
            asked = SecurityRequirement(schemes={"token": Scopes()})
            stated = replace(
                decode_card(super().card()), security_schemes={"token": scheme}, security_requirements=(asked,)
            )
            return encode_card(stated, frozenset({DialectName.V1}))

    file = tmp_path / "keys.json"
    file.write_text('{"faulty": {"bearer": "s3cret"}}')
    faulty = Guarded()
    async with served(faulty):
        keys = KeyManager(key_file_path=file)
        async with Client.connect(faulty.url, keys=keys, service="faulty") as client:
            await client.send_text("hi")
        assert faulty.asked[-1].headers["authorization"] == "bearer s3cret"
        async with Client.connect(faulty.url, auth=Bearer("mine")) as client:
            await client.send_text("hi")
        assert faulty.asked[-1].headers["authorization"] == "bearer mine"
        async with Client.connect(faulty.url) as client:
            await client.send_text("hi")
        assert "authorization" not in faulty.asked[-1].headers, "the agent says what it wants, if it wants it"


@pytest.mark.parametrize("transport", ["aiohttp", "httpx2"])
async def test_every_transport_carries_it(transport: str) -> None:
    faulty = Faulty(promises=True)
    faulty.cuts = [3]
    async with served(faulty), Client.connect(faulty.url, transport=transport) as client:
        client.peer.sleep = no_time
        assert (await client.send_text("hi")).text == TEXT
        assert "".join([piece async for piece in client.stream_text("hi")]) == TEXT
        assert len(faulty.runs) == 2


class Calling(Faulty):
    """An agent whose card says that it calls webhooks, whether it takes them or not."""

    def __init__(self, *, takes: bool) -> None:
        super().__init__()
        self.takes = takes

    def card(self) -> bytes:
        stated = decode_card(super().card())
        able = replace(stated.capabilities, push_notifications=True)
        return encode_card(replace(stated, capabilities=able), frozenset({DialectName.V1}))

    async def _call(self, call: dict[str, Any], headers: dict[str, str], writer: Any) -> bool:
        told = call["params"].get("configuration", {})
        if "taskPushNotificationConfig" in told and not self.takes:
            answer(writer, 200, refusal(call["id"], -32003, "No webhooks after all"))
            return True
        return await super()._call(call, headers, writer)


@pytest.mark.proves("0-20", "4-53")
async def test_webhooks_are_set_where_supported() -> None:
    push = PushConfig(url="https://hooks.example/", token="t")
    for faulty in (Calling(takes=True), Calling(takes=False), Faulty()):
        async with served(faulty), Client.connect(faulty.url) as client:
            client.peer.sleep = no_time
            task = await client.start("hi", push=push, modes=["text/plain"])
            assert task.is_pushed is (isinstance(faulty, Calling) and faulty.takes)
            assert (await task).text == TEXT
            assert len(faulty.runs) == 1
            told = faulty.asked[0].params["configuration"]
            assert told["acceptedOutputModes"] == ["text/plain"]
            assert told["returnImmediately"] is True
            if task.is_pushed:
                assert told["taskPushNotificationConfig"] == {"url": "https://hooks.example/", "token": "t"}


async def test_requests_name_the_tenant_of_their_interface() -> None:
    faulty = Faulty()
    async with served(faulty):
        stated = offering(faulty, (f"{faulty.url}/rpc", "JSONRPC", "1.0"))
        (interface,) = stated.supported_interfaces
        card = replace(stated, supported_interfaces=(replace(interface, tenant="acme"),))
        async with Client.connect(card) as client:
            await client.send_text("hi")
            assert "".join([piece async for piece in client.stream_text("hi")]) == TEXT
            await client.get(GetRequest(id="t-1", tenant="other"))
        assert [one.params["tenant"] for one in faulty.asked] == ["acme", "acme", "other"]


async def test_closing_a_stream_leaves_nothing_open() -> None:
    faulty = Faulty(promises=True)
    async with served(faulty), Client.connect(faulty.url) as client:
        speech = client.stream_text("hi")
        async for _ in speech:
            break
        await speech.aclose()
        assert (await client.task("t-1")).text == TEXT
    assert len(faulty.runs) == 1


async def test_many_may_talk_at_once() -> None:
    faulty = Faulty()
    async with served(faulty), Client.connect(faulty.url) as client:
        answers = await asyncio.gather(*(client.send_text(str(number)) for number in range(50)))
        assert {said.text for said in answers} == {TEXT}
        assert len(faulty.runs) == 50
