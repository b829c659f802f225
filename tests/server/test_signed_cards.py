"""Cards that are signed with a key of the settings: whoever has the public key can verify what was served."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, Key, OKPKey

from accord.protocol.card_signatures import UntrustedCard, verify_card
from tests.ports import free_port
from tests.server.conftest import CARD, echo, get, planner, serving

KEY: Key = ECKey.generate_key("P-256", {"kid": "k-1"})
PATHS = (CARD, f"/agents/echo{CARD}", f"/agents/trip-planner{CARD}", "/.well-known/agent.json")
PUBLIC = [ECKey.import_key(KEY.as_dict(private=False))]


def private(key: Key = KEY) -> str:
    return json.dumps(key.as_dict(private=True))


@pytest.mark.proves("CARD-SIGN-001", "CARD-SIGN-002", "CARD-SIGN-003")
@pytest.mark.parametrize("dialects", [["v1"], ["v1", "v03", "vault", "gen", "relay"]], ids=["v1", "all"])
@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://accord.example", "other.example:8443"),  # what is set as the address counts, whoever asks for another
        (None, "localhost:8000"),
        (None, "127.0.0.1:8000"),
        (None, "[::1]:8000"),
    ],
)
async def test_every_card_at_an_address_of_its_own_can_be_verified(
    dialects: list[str], url: str | None, host: str
) -> None:
    server = {"dialects": dialects, "url": url}
    own = (url or f"http://{host}").encode()
    async with serving(echo, planner, card={"signing_key": private()}, server=server) as app:
        for path in PATHS:
            for query in ("", "dialect=v1"):
                served = (await get(app, path, query=query, headers={"Host": host})).body
                assert own in served
                assert verify_card(served, PUBLIC, time.time()).key == "k-1"
                with pytest.raises(UntrustedCard):
                    verify_card(served.replace(own, b"https://evil.example"), PUBLIC, time.time())


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0", "::"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "0.0.0.0:8000", "localhost:9999", "localhost"])
async def test_an_address_that_only_the_caller_names_is_not_signed(bound: str, host: str) -> None:
    async with serving(echo, card={"signing_key": private()}, server={"host": bound, "grpc_port": free_port()}) as app:
        for path in (CARD, f"/agents/echo{CARD}"):
            for query in ("", "dialect=v1"):
                served = await get(app, path, query=query, headers={"Host": host})
                assert f"http://{host}/" in served.body.decode()
                assert "signatures" not in served.json()


async def test_forwarded_hosts_are_not_signed() -> None:
    proxied = {"behind_proxy": True, "trusted_proxies": ["127.0.0.1"]}
    named = {"Host": "localhost:8000", "X-Forwarded-Host": "evil.example"}
    async with serving(echo, card={"signing_key": private()}, server=proxied) as app:
        served = await get(app, CARD, headers=named)
    assert "evil.example" in served.body.decode()
    assert "signatures" not in served.json()


async def test_the_key_may_be_in_a_file_and_its_public_half_at_a_url(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    key: Key = OKPKey.generate_key("Ed25519")
    file.write_text(private(key))
    card = {"signing_key": str(file), "signing_key_url": "https://me.example/keys.json"}
    async with serving(card=card, server={"url": "https://me.example"}) as app:
        served = (await get(app, CARD)).body
    pinned = OKPKey.import_key(key.as_dict(private=False), {"kid": key.thumbprint()})
    assert verify_card(served, [pinned], time.time()).key == key.thumbprint()
    header = json.loads(base64.urlsafe_b64decode(json.loads(served)["signatures"][0]["protected"] + "=="))
    assert header["jku"] == "https://me.example/keys.json"


async def test_without_a_key_nothing_is_signed_and_other_dialects_never_are() -> None:
    async with serving() as app:
        assert b"signatures" not in (await get(app, CARD)).body
    async with serving(card={"signing_key": private()}, server={"url": "https://me.example"}) as app:
        for dialect in ("v03", "vault", "gen"):
            assert b"signatures" not in (await get(app, CARD, query=f"dialect={dialect}")).body


@pytest.mark.parametrize(
    "key", ["-----BEGIN PRIVATE KEY-----\nMHcCAQEEIDsecretsecretsecret\n", '{"kty": "EC", "d": "secretsecretsecret"}']
)
async def test_a_key_that_cannot_be_used_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(RuntimeError, match=r"card\.signing_key: ") as refused:
        async with serving(card={"signing_key": key}):
            pass
    assert "secret" not in str(refused.value)


async def test_settings_are_on_the_card() -> None:
    settings: dict[str, Any] = {
        "provider": {"organization": "Acme", "url": "https://acme.example"},
        "documentation_url": "https://acme.example/docs",
        "icon_url": "https://acme.example/icon.png",
    }
    async with serving(card=settings) as app:
        card = (await get(app, CARD, query="dialect=v1")).json()
    assert card["provider"] == settings["provider"]
    assert (card["documentationUrl"], card["iconUrl"]) == (settings["documentation_url"], settings["icon_url"])
