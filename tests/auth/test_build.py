"""From settings to schemes: as they are written in a file, in their order, and nothing half set up."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accord.auth.authentication import Access
from accord.auth.scheme_settings import AnyScheme, ApiKeys, Grant, Jwt
from accord.auth.schemes import Ports, build_scheme, card_security
from accord.errors import AuthenticationFailed
from accord.storage.sqlite.driver import SqliteStore
from tests.auth.conftest import bringing
from tests.passwords import cheap_hash

SECRET = "sixteen characters and more"
HASH = cheap_hash("password")
WRITTEN: list[dict[str, Any]] = [
    {"type": "api-keys", "header": "X-Api-Key"},
    {
        "type": "jwt",
        "issuer": "https://id.example.com",
        "audience": ["accord"],
        "token_url": "https://id.example.com/t",
    },
    {"type": "jwt", "issuer": "https://two.example.com", "audience": ["accord"], "owner_prefix": "two:"},
    {"type": "basic", "users": {"alice": {"password": HASH, "roles": ["user"], "tenant": "acme"}}},
    {"type": "header", "name": "X-Acme", "secrets": [{"secret": SECRET, "owner": "acme"}]},
    {"type": "hmac", "keys": {"partner": {"secret": SECRET}}},
    {"type": "mtls", "header": "X-SSL-Client-Cert", "trusted_proxies": ["127.0.0.1"], "names": ["common-name"]},
]


async def fetch(url: str) -> bytes:
    raise AssertionError(url)


def read(written: list[dict[str, Any]]) -> list[AnyScheme]:
    return msgspec.convert(written, list[AnyScheme])


@pytest.fixture
async def ports() -> Any:
    store = SqliteStore(None)
    yield Ports(store=store, fetch=fetch)
    await store.close()


@pytest.mark.proves("4-24", "3-13", "2-06")
async def test_all_schemes_at_once(ports: Ports) -> None:
    access = Access(build_scheme(read(WRITTEN), ports))
    assert [scheme.name for scheme in access.schemes] == [
        "api-keys",
        "jwt",
        "jwt",
        "basic",
        "header",
        "hmac",
        "mtls",
    ]
    security, requirements = card_security(access.schemes)
    names = ["apiKey", "openIdConnect", "oauth2", "openIdConnect2", "basic", "header", "signature", "mtls"]
    assert list(security) == names
    assert [list(requirement.schemes) for requirement in requirements] == [[name] for name in security]
    with pytest.raises(AuthenticationFailed) as refused:
        await access.admit(bringing())
    assert refused.value.challenges == (
        'Bearer realm="accord"',
        'Basic realm="accord", charset="UTF-8"',
        'ApiKey realm="accord", header="X-Acme"',
        'X-A2A-Signature realm="accord"',
        'ClientCertificate realm="accord"',
    )
    caller = await access.admit(bringing(X_Acme=SECRET))
    assert (caller.owner, caller.scheme, caller.roams) == ("acme", "header", False)


@pytest.mark.parametrize(
    "written",
    [
        {"type": "nonsense"},
        {"type": "api-keys", "heder": "X"},
        {"type": "jwt", "issuer": "https://id.example.com"},
        {"type": "jwt", "issuer": "https://id.example.com", "audience": []},
        {"type": "hmac", "keys": {"a": {"secret": "short"}}},
        {"type": "mtls", "header": "X"},
        {"type": "mtls", "names": ["serial"]},
    ],
)
def test_settings_that_are_wrong_are_refused_when_they_are_read(written: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read([written])


def test_the_documentation_s_example_is_one() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "authentication.md").read_text(encoding="utf-8")
    block, _ = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    written = tomllib.loads(block.replace("env:PARTNER_SECRET", SECRET))["auth"]["schemes"]
    assert [type(one).__name__ for one in read(written)] == ["ApiKeys", "Jwt", "Hmac", "Mtls"]


def test_two_issuers_may_not_share_their_subjects() -> None:
    one, two = (Jwt(issuer=f"https://{name}.example.com", audience=("a",)) for name in ("one", "two"))
    with pytest.raises(ValueError, match="owner_prefix"):
        build_scheme([one, two], Ports(fetch=fetch))


def test_incomplete_schemes_are_refused() -> None:
    with pytest.raises(ValueError, match="store"):
        build_scheme([ApiKeys()], Ports())
    with pytest.raises(ValueError, match="fetch"):
        build_scheme([Jwt(issuer="https://id.example.com", audience=("a",))], Ports())


def test_only_a_setting_s_star_is_any_tenant() -> None:
    assert Grant(owner="a", tenant="*").identity().tenant is None
    assert Grant(owner="a").identity().tenant == ""
    assert Grant(tenant="**").identity("a").tenant == "**"


@pytest.mark.proves("4-33")
def test_settings_can_be_shown(ports: Ports) -> None:
    shown = repr(read(WRITTEN)) + repr(Jwt(issuer="x", audience=("a",), secret=SECRET))
    assert SECRET not in shown
    assert HASH not in shown
    assert "***" in shown
    assert "X-Acme" in shown


def test_slow_imports_are_deferred() -> None:
    program = "import sys, accord.auth.schemes, accord.auth.schemes; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
