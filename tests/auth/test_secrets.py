"""Whatever is brought, right or wrong, nothing of it is in a log, an error or a challenge."""

import base64
import logging
from typing import Any

import pytest

from accord.auth import api_keys as keys
from accord.auth.authentication import Access, Presented
from accord.auth.scheme_settings import ApiKeys, Basic, Header, Hmac, Jwt, Secret, User
from accord.auth.schemes import Ports, build_scheme
from accord.errors import AccordError
from accord.protocol import http_headers
from accord.storage import schema
from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewApiKey
from accord.storage.sqlite.driver import SqliteStore
from tests.auth.conftest import Clock, presenting
from tests.auth.issuer import AT, URL, Issuer
from tests.passwords import cheap_hash

PASSWORD, SHARED, SIGNING = "hunter-two-hundred", "a shared secret of the test", "a signing secret of the test"
HASH = cheap_hash(PASSWORD)
KEY = keys.new_key()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def signed(secret: str) -> str:
    return http_headers.sign_body(
        b"", AT, [secret.encode()], request=http_headers.SignedRequest(method="POST", target="/"), key_id="k"
    )


def requests(issuer: Issuer) -> list[dict[str, str]]:
    expired, good = issuer.token({"exp": AT - 1000}), issuer.token()
    wrong = KEY.key[:-1] + ("A" if KEY.key[-1] != "A" else "B")
    return [
        *({"Authorization": f"Bearer {token}"} for token in (good, expired, good[:-8] + "AAAAAAAA", KEY.key, wrong)),
        *({"X-API-Key": key} for key in (KEY.key, wrong, "ak_short", keys.new_key().key)),
        *({"Authorization": basic(*user)} for user in (("u", PASSWORD), ("u", PASSWORD + "!"), ("nobody", PASSWORD))),
        *({"X-Shared": secret} for secret in (SHARED, SHARED + "!")),
        *({"X-A2A-Signature": value} for value in (signed(SIGNING), signed(SIGNING), signed(SHARED), "t=1,v1=x")),
    ]


@pytest.mark.proves("4-33")
async def test_secrets_are_never_logged_or_returned(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store, issuer = SqliteStore(None), Issuer()
    await schema.upgrade_schema(store)
    await store.do(authentication.create_api_key, NewApiKey(id=KEY.id, hash=KEY.hash, name="", owner="o"))
    settings: list[Any] = [
        ApiKeys(),
        Jwt(issuer=URL, audience=("accord",)),
        Basic(users={"u": User(password=HASH)}),
        Header(name="X-Shared", secrets=(Secret(secret=SHARED, owner="s"),)),
        Hmac(keys={"k": Secret(secret=SIGNING)}),
    ]
    access = Access(build_scheme(settings, Ports(store=store, fetch=issuer.fetch, now=clock, clock=clock)))
    said: list[str] = [repr(settings)]
    outcomes: list[bool] = []
    brought = requests(issuer)
    for headers in brought:
        try:
            said.append(repr(await access.admit(presenting(headers, body=b"", target="/"))))
            outcomes.append(True)
        except AccordError as error:
            said += [str(error), repr(error), str(error.metadata), str(getattr(error, "challenges", ""))]
            outcomes.append(False)
    await store.close()
    assert outcomes.count(True) == 6
    assert outcomes.count(False) == len(brought) - 6
    told = "\n".join([*said, caplog.text, *(str(record.__dict__) for record in caplog.records)])
    assert "refused" in told
    secrets = {value.removeprefix("Bearer ").removeprefix("Basic ") for one in brought for value in one.values()}
    secrets |= {PASSWORD, SHARED, SIGNING, HASH, KEY.key[-43:], KEY.hash}
    assert [secret for secret in secrets if secret in told] == []


def test_credentials_have_no_readable_repr() -> None:
    assert "hunter2" not in repr(Presented(headers=[(b"authorization", b"hunter2")], body=b"hunter2"))
