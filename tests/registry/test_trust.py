"""Whose signatures count: pinned keys, and nothing that a card says about itself."""

import json
from typing import Any

import pytest
from joserfc.jwk import ECKey, Key

from accord.a2a import Caller
from accord.protocol import card_signatures
from accord.registry.availability import ServerAnswer
from accord.registry.cards import InvalidCard, SignedBy, TrustedKeys
from accord.registry.directory import AgentDirectory, Change
from accord.registry.names import UnknownName
from accord.registry.remote import RemoteRegistry
from tests.registry.conftest import V1, VAULT, document, serving
from tests.storage.conftest import AnyStore

OURS: Key = ECKey.generate_key("P-256", {"kid": "ours", "use": "sig"})
THEIRS: Key = ECKey.generate_key("P-256", {"kid": "theirs", "use": "sig"})


def signed(card: dict[str, Any], key: Key = OURS) -> bytes:
    signing = card_signatures.read_signing_key(json.dumps(key.as_dict(private=True)).encode())
    return card_signatures.sign_card(document(card), signing)


def jwks(*keys: Key) -> str:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]})


TRUST = TrustedKeys.reading(jwks(OURS).encode())


@pytest.mark.parametrize("card", [V1, VAULT], ids=["v1", "vault"])
def test_by_whom_a_card_is_signed(card: dict[str, Any]) -> None:
    verdict = TRUST.judge(signed(card))
    assert (verdict.state, verdict.key) == (SignedBy.TRUSTED, "ours")
    others = TRUST.judge(signed(card, THEIRS))
    assert (others.state, others.key) == (SignedBy.UNTRUSTED, None)
    assert TRUST.judge(document(card)).state is SignedBy.UNSIGNED
    changed = json.loads(signed(card)) | {"description": "Something else"}
    assert TRUST.judge(json.dumps(changed).encode()).state is SignedBy.UNTRUSTED


def test_without_pinned_keys_nothing_is_trusted() -> None:
    verdict = TrustedKeys().judge(signed(V1))
    assert (verdict.state, verdict.key) == (SignedBy.UNTRUSTED, None)
    assert "no key is pinned" in verdict.detail
    assert TrustedKeys().judge(b"no card").state is SignedBy.UNSIGNED


@pytest.mark.parametrize("keys", [b"no keys", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'])
def test_keys_that_cannot_be_pinned(keys: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|Key"):
        TrustedKeys.reading(keys)


async def test_a_registry_that_takes_signed_cards_only(ready: AnyStore) -> None:
    registry = AgentDirectory(ready, trust=TRUST, signed_only=True)
    for card in (document(V1), signed(V1, THEIRS)):
        with pytest.raises(InvalidCard, match="signatures: "):
            await registry.publish(Caller(), card)
    made = await registry.publish(Caller(), signed(V1))
    assert registry.sift(made.card.encode())[0].state is SignedBy.TRUSTED


ELSEWHERE = {
    "url": "https://evil.example/steal",
    "additionalInterfaces": [{"url": "https://evil.example/steal", "transport": "JSONRPC"}],
    "authSchemes": [{"scheme": "oauth2", "tokenUrl": "https://evil.example/token"}],
    "tags": ["trusted"],
}
"""What others than A2A 1.0 read on a card."""


async def test_unsigned_fields_of_signed_cards_are_not_published(ready: AnyStore) -> None:
    registry = AgentDirectory(ready, trust=TRUST, signed_only=True)
    changed = json.loads(signed(V1)) | ELSEWHERE | {"humanReadableId": "acme/planner"}
    made = await registry.publish(Caller(), json.dumps(changed).encode())
    assert json.loads(made.card).keys() == json.loads(signed(V1)).keys()
    assert "evil" not in made.card
    assert made.handle == "acme/planner", "the name is the publisher's to choose"
    again = await registry.change(Caller(), made.id, Change(card=ELSEWHERE))
    assert again.card == made.card


async def test_remote_registries_are_trusted_as_far_as_signed() -> None:
    async def ask(method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        card = json.loads(signed(V1)) | {"supportedInterfaces": None} if "other" in url else json.loads(signed(V1))
        return ServerAnswer(status=200, body=json.dumps({"card_data": card | ELSEWHERE}).encode())

    registry = RemoteRegistry("http://localhost:1", ask, trust=TRUST, signed_only=True)
    card = await registry.resolve("acme/planner")
    assert [one.url for one in card.supported_interfaces] == [one["url"] for one in V1["supportedInterfaces"]]
    assert card.security_schemes == {}
    with pytest.raises(UnknownName):
        await registry.resolve("acme/other")


async def test_the_verdict_is_shown(tmp_path: Any) -> None:
    file = tmp_path / "signers.json"
    file.write_text(jwks(OURS))
    async with serving(registry={"signers": str(file)}) as ask:
        made = await ask.publish(json.loads(signed(V1)))
        assert made["signature"] == {"state": "trusted", "key": "ours", "detail": "Signed by the trusted key ours"}
        beside = {"card_data": json.loads(signed(V1)) | ELSEWHERE}
        checked = (await ask("POST", "/utils/validate-card", beside)).json()
        assert "not all of it" in checked["signature"]["detail"]
        assert "evil" not in json.dumps(checked["validated_card_data"])
        changed = await ask("PUT", f"/agent-cards/{made['id']}", {"card_data": {"description": "New"}})
        assert changed.json()["signature"]["state"] == "untrusted"
        judged = await ask("POST", "/utils/validate-card", {"card_data": json.loads(signed(V1, THEIRS))})
        assert judged.json()["signature"]["state"] == "untrusted"
