"""Which dialects are on is a setting: the card names no others, and others are refused."""

import json
import re
from collections.abc import AsyncIterator

import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format

from accord import Context, agent
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName
from accord.testing import call
from tests.server.conftest import CARD, V1, get, rpc, said, send, serving, text_of

SENDS = {
    "v1": ("SendMessage", {"message": said("hi", "a")}),
    "v03": (
        "message/send",
        {"message": {"kind": "message", "messageId": "b", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}},
    ),
    "vault": ("tasks/send", {"message": {"role": "user", "parts": [{"type": "text", "content": "hi"}]}}),
    "gen": ("message/send", {"message": {"id": "d", "parts": [{"type": "text", "content": "hi"}]}}),
    "relay": (
        "message/send",
        {"message": {"messageId": "e", "role": "user", "parts": [{"type": "text", "text": "hi"}]}},
    ),
}
REST = {
    "v1": ("/message:send", SENDS["v1"][1]),
    "v03": ("/v1/message:send", {"message": {"messageId": "f", "role": "ROLE_USER", "content": [{"text": "hi"}]}}),
}


@pytest.mark.proves("4-51", "VER-SERVER-002")
@pytest.mark.parametrize("enabled", list(SENDS))
async def test_one_dialect_alone_answers_and_all_others_are_refused(enabled: str) -> None:
    async with serving(server={"dialects": [enabled]}) as app:
        for dialect, (method, params) in SENDS.items():
            answer = await call(app, rpc(method, **params), headers={"X-A2A-Dialect": dialect})
            if dialect == enabled:
                assert answer.status == 200
                assert "result" in answer.json()
            else:
                assert "error" in answer.json(), answer.body
                assert f"Dialect {dialect} is not enabled here; enabled: {enabled}" in answer.json()["error"]["message"]
            stated = await get(app, CARD, query=f"dialect={dialect}")
            assert stated.status == (200 if dialect == enabled else 400)
        for dialect, (path, body) in REST.items():
            answer = await call(app, body, path=path, headers={"A2A-Version": ""})
            assert (answer.status == 200) == (dialect == enabled), answer.body


@pytest.mark.proves("CARD-PROTO-001", "B-03")
async def test_with_1_0_alone_the_card_is_strictly_1_0() -> None:
    async with serving(server={"dialects": ["v1"]}) as app:
        card = (await get(app, CARD)).json()
        json_format.Parse(json.dumps(card), a2a_pb2.AgentCard())  # which refuses every field that 1.0 does not have
        assert {one["protocolVersion"] for one in card["supportedInterfaces"]} == {"1.0"}
        openapi = (await get(app, "/openapi.json")).json()
        assert not [path for path in openapi["paths"] if path.startswith("/v1/")]
        assert text_of(await send(app, "hi")) == "hi "


async def test_all_dialects_are_on_the_card() -> None:
    async with serving() as app:
        card = (await get(app, CARD)).json()
        for dialect in (DialectName.V1, DialectName.V03, DialectName.VAULT):
            assert DIALECTS[dialect].decode_card(json.dumps(card).encode()).name == "Echo"
        assert card["url"] == card["supportedInterfaces"][0]["url"] == "http://accord.example/"
        assert card["humanReadableId"]


@pytest.mark.parametrize("enabled", [["v03"], ["vault"], ["relay"], ["gen"], ["v03", "relay"]], ids=str)
async def test_a_card_without_1_0_names_no_1_0(enabled: list[str]) -> None:
    async with serving(server={"dialects": enabled}) as app:
        text = (await get(app, CARD)).body.decode()
        assert "supportedInterfaces" not in text
        stated = ["0.3.0"] if {"v03", "relay"} & set(enabled) else []
        assert re.findall(r'"protocolVersion":\s*"([^"]*)"', text) == stated, "vault and gen state none"


async def test_disabled_versions_list_enabled_ones() -> None:
    async with serving(server={"dialects": ["v03"]}) as app:
        answer = await call(app, rpc("SendMessage", message=said("x")), headers=V1)
        assert answer.json()["error"]["code"] == -32009


LATER = {
    "v1": ("GetTask", "CancelTask", "SubscribeToTask"),
    "v03": ("tasks/get", "tasks/cancel", "tasks/resubscribe"),
    "vault": ("tasks/get", "tasks/cancel", "tasks/sendSubscribe"),
    "gen": ("tasks/get", "tasks/cancel", "tasks/resubscribe"),
    "relay": ("tasks/get", "tasks/cancel", "tasks/resubscribe"),
}
"""What callers of a dialect ask about a task that they have."""


@pytest.mark.proves("4-51", "B-00")
@pytest.mark.parametrize("beside", [[], ["v1"]], ids=["alone", "beside v1"])
@pytest.mark.parametrize("enabled", list(SENDS))
async def test_senders_can_read_the_task_at_the_same_address(enabled: str, beside: list[str]) -> None:
    method, params = SENDS[enabled]
    async with serving(server={"dialects": sorted({enabled, *beside})}) as app:
        sent = (await call(app, rpc(method, **params))).json()["result"]
        task = sent.get("task", sent)
        identifier = task.get("id") or task.get("task_id")
        for asked in LATER[enabled]:
            answer = await call(app, rpc(asked, id=identifier))
            assert dict(answer.headers)["x-a2a-dialect"] == enabled, answer.body
            assert b"not enabled" not in answer.body
            assert b"nvalid" not in answer.body


@agent(name="Broken", description="Raises an exception after its first chunk")
async def broken(ctx: Context) -> AsyncIterator[str]:
    yield "one "
    raise LookupError("a secret of the agent")


@pytest.mark.proves("2-23", "2-26")
async def test_vault_stream_of_a_broken_agent_ends_with_a_processing_error() -> None:
    async with serving(broken) as app:
        sent = await call(app, rpc("tasks/send", **SENDS["vault"][1]), path="/a2a")
        answer = await call(app, rpc("tasks/sendSubscribe", id=sent.json()["result"]["id"]), path="/a2a")
        frames = [dict(line.split(": ", 1) for line in frame.splitlines()) for frame in _frames(answer.body)]
        assert [frame["event"] for frame in frames[-2:]] == ["task_status", "error"]
        assert json.loads(frames[-2]["data"])["state"] == "FAILED"
        assert "id" not in frames[-1]  # a subscriber that comes back names the status before it
        assert json.loads(frames[-1]["data"]) == {
            "code": "AGENT_PROCESSING_ERROR",
            "message": "The agent failed",
            "details": {"taskId": sent.json()["result"]["id"]},
        }


def _frames(body: bytes) -> list[str]:
    return [frame for frame in body.decode().split("\n\n") if frame and not frame.startswith(":")]


@pytest.mark.proves("4-35", "4-40")
async def test_gen_errors_name_the_agent_and_have_details() -> None:
    async with serving(broken) as app:
        answer = await call(app, rpc("tasks/get", task_id="t-0"), path="/gen")
        data = answer.json()["error"]["data"]
        assert (data["agent_id"], data["details"]) == ("Broken", "Task not found")
