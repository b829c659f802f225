"""Whatever happens to credentials, right or wrong, nothing of them is in a log, an error or a `repr`."""

import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from accord.client.auth import (
    ApiKey,
    AuthDriver,
    BasicAuth,
    Bearer,
    ClientAuth,
    ClientCredentials,
    CustomHeader,
    HmacAuth,
    OpenIdConnect,
)
from accord.client.credentials import Credential, KeyManagementError, KeyManager
from accord.errors import AccordError
from accord.outbound import HttpReply, HttpRequest, Unreachable
from tests.client.auth.conftest import Agent, TokenEndpoint, serving
from tests.client.auth.test_served import HEADER, HMAC, SECRET

KEY, TOKEN, PASSWORD, CLIENT = "key-s3cret-1", "token-s3cret-2", "password-s3cret-3", "client-s3cret-4"
REQUEST = HttpRequest(method="POST", url="http://agent.example/")
SECRETS = (SECRET, KEY, TOKEN, PASSWORD, CLIENT)


def ways(endpoint: TokenEndpoint) -> list[ClientAuth]:
    id, secret = endpoint.client
    return [
        ApiKey(KEY),
        ApiKey(KEY, location="query", name="k"),
        Bearer(TOKEN),
        BasicAuth("alice", PASSWORD),
        CustomHeader({"X-Secret": SECRET}),
        CustomHeader({"X-Secret": KEY}),
        HmacAuth(SECRET, key_id="partner"),
        HmacAuth(CLIENT, key_id="partner"),
        ClientCredentials(endpoint.token_url, id, secret),
        ClientCredentials(endpoint.token_url, id, CLIENT),
        ClientCredentials("http://127.0.0.1:1/token", id, CLIENT),
        OpenIdConnect(endpoint.discovery_url, id, CLIENT),
        OpenIdConnect(f"{endpoint.url}/nowhere", id, CLIENT),
    ]


async def test_secrets_are_never_logged_or_returned(
    endpoint: TokenEndpoint, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    tried = ways(endpoint)
    told: list[str] = [repr(tried)]
    outcomes: list[Any] = []
    async with serving(HEADER, HMAC, endpoint.scheme(), push={"allow_private": True}) as agent:
        for auth in tried:
            try:
                reply = await agent.said(auth)
                outcomes.append(reply.status)
                told += [str(reply.body), str(dict(reply.headers))]
            except (AccordError, Unreachable) as error:
                outcomes.append(type(error).__name__)
                told += [str(error), repr(error), str(error.__cause__), str(error.__context__)]
        away = Agent("http://127.0.0.1:1")
        for auth in (ApiKey(KEY, location="query", name="k"), Bearer(TOKEN)):
            with pytest.raises(Unreachable) as gone:
                await away.ask(auth)
            told += [str(gone.value), repr(gone.value), str(gone.value.__cause__)]
        await away.transport.close()
        endpoint.answers = [web.Response(status=200, body=f'{{"access_token": "{TOKEN}" oops'.encode())]
        with pytest.raises(AccordError) as odd:
            await AuthDriver(ClientCredentials(endpoint.token_url, "i", CLIENT), agent.transport).prepare(REQUEST)
        told += [str(odd.value), str(odd.value.__context__)]
    assert outcomes.count(200) == 3
    assert outcomes.count(401) == 6
    assert outcomes.count("AuthenticationFailed") == 3
    assert outcomes.count("Unreachable") == 1
    shown = "\n".join([*told, caplog.text, *(str(one.__dict__) for one in caplog.records), *capfd.readouterr()])
    assert [secret for secret in (*SECRETS, endpoint.client[1]) if secret in shown] == []


def test_requests_and_answers_are_not_shown_by_accident() -> None:
    request = HttpRequest(
        method="POST", url=f"http://a.example/x?k={KEY}", headers=(("X", TOKEN),), body=PASSWORD.encode()
    )
    reply = HttpReply(status=200, headers={"X": TOKEN}, body=PASSWORD.encode())
    assert repr([request, reply]) == "[HttpRequest(POST http://a.example/x), HttpReply(200)]"


def test_key_files_that_are_wrong_are_not_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = []
    for name, text in {
        "a.json": f'{{"svc": "{KEY}" oops',
        "b.json": f'["{KEY}"]',
        "c.env": f"svc={KEY}\n{TOKEN}\n",
        "d.env": f"svc='{KEY}\n",
        "e.txt": KEY,
    }.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(KeyManagementError) as refused:
            KeyManager(tmp_path / name, use_env_vars=False)
        told += [str(refused.value), str(refused.value.__cause__)]
        assert name in str(refused.value)
    (tmp_path / "f.json").write_text(f'{{"svc": {{"apiKey": ["{KEY}"]}}, "b": {{"oauth": "{CLIENT}"}}, "c": "{KEY}"}}')
    found = KeyManager(tmp_path / "f.json", env={"ACCORD_TOKEN_X": TOKEN})
    assert found.ids() == ["c", "x"]
    told += [repr(found), repr(found.find("c")), repr(Credential(api_key=KEY))]
    shown = "\n".join([*told, caplog.text, *(str(record.__dict__) for record in caplog.records)])
    assert shown.count("entry_skipped") >= 2
    assert [secret for secret in SECRETS if secret in shown] == []
