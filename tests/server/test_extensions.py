"""Extensions of the settings: they are on the card, and one that is required must be declared by who sends."""

from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc

from accord.protocol.extensions import IDEMPOTENT_SEND, NUMBERED_EVENTS
from accord.testing import call
from tests.ports import free_port
from tests.server.conftest import V1, card_at, get, rpc, said, send, serving, text_of

NEEDED, OPTIONAL = "https://acme.example/ext/needed", "https://acme.example/ext/optional"
CARD: dict[str, Any] = {
    "extensions": [
        {"uri": NEEDED, "required": True, "description": "Say why", "params": {"level": 2}},
        {"uri": OPTIONAL},
    ]
}
BODY = {"message": said("x")}


async def test_they_are_on_the_card() -> None:
    async with serving(card=CARD) as app:
        *stated, idempotent, numbered = (await card_at(app))["capabilities"]["extensions"]
    assert stated == [
        {"uri": NEEDED, "description": "Say why", "required": True, "params": {"level": 2}},
        {"uri": OPTIONAL},
    ]
    assert (idempotent["uri"], numbered["uri"]) == (IDEMPOTENT_SEND, NUMBERED_EVENTS), "what every agent here promises"


@pytest.mark.proves("CORE-CAP-004", "BIND-EQUIV-003")
async def test_undeclared_required_extensions_are_refused() -> None:
    async with serving(card=CARD) as app:
        for headers in ({}, {"A2A-Extensions": OPTIONAL}):
            for method in ("SendMessage", "SendStreamingMessage"):
                over_rpc = await call(app, rpc(method, **BODY), headers=V1 | headers)
                assert over_rpc.json()["error"]["code"] == -32008
                assert NEEDED in over_rpc.json()["error"]["message"]
            for path in ("/message:send", "/message:stream"):
                over_rest = await call(app, BODY, path=path, headers=V1 | headers)
                assert over_rest.status == 400
                assert over_rest.json()["error"]["details"][0]["reason"] == "EXTENSION_SUPPORT_REQUIRED"
        assert (await get(app, "/tasks")).json()["tasks"] == []  # to read says nothing to the agent


async def test_declared_extensions_are_echoed() -> None:
    declared = {"A2A-Extensions": f"{OPTIONAL}, {NEEDED}, https://other.example"}
    async with serving(card=CARD) as app:
        assert text_of(await send(app, "x", **declared)) == "x "
        for body, path in [(rpc("SendMessage", **BODY), "/"), (BODY, "/message:send"), (BODY, "/message:stream")]:
            answer = await call(app, body, path=path, headers=V1 | declared)
            assert answer.headers["a2a-extensions"] == f"{NEEDED}, {OPTIONAL}"
        in_message = rpc("SendMessage", message=said("y", "other", extensions=[NEEDED]))
        assert "result" in (await call(app, in_message, headers=V1)).json()


@pytest.mark.proves("CORE-CAP-004", "GRPC-META-001", "GRPC-SVC-001")
async def test_it_is_required_over_grpc_as_well() -> None:
    port = free_port()
    async with (
        serving(card=CARD, server={"grpc_port": port}) as app,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        assert f"accord.example:{port}" in {one["url"] for one in (await card_at(app))["supportedInterfaces"]}
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        parts = [a2a_pb2.Part(text="over grpc")]
        message = a2a_pb2.Message(message_id="g", role=a2a_pb2.ROLE_USER, parts=parts)
        request = a2a_pb2.SendMessageRequest(message=message)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SendMessage(request, metadata=(("a2a-version", "1.0"),), timeout=10)
        assert NEEDED in (refused.value.details() or "")
        declared = (("a2a-version", "1.0"), ("a2a-extensions", f"{NEEDED}, {IDEMPOTENT_SEND}"))
        call = stub.SendMessage(request, metadata=declared, timeout=10)
        answer = await call
        used = dict([*await call.initial_metadata(), *await call.trailing_metadata()])["a2a-extensions"]
        assert set(used.split(", ")) == {NEEDED, IDEMPOTENT_SEND}, "what every server promises is said as well"
        assert "".join(part.text for part in answer.task.artifacts[0].parts) == "over grpc "
