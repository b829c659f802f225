"""Client certificates: of the connection itself, or as a trusted proxy passes them on."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from accord.a2a import Admission
from accord.auth.authentication import Identity, Presented
from accord.auth.mtls import MtlsAccess
from accord.auth.scheme_settings import Grant, Mtls
from accord.errors import AuthenticationFailed
from tests.auth.conftest import Clock, presenting, whom

AT = datetime.fromtimestamp(1_700_000_000, UTC)
KEY = ec.generate_private_key(ec.SECP256R1())
PROXY, STRANGER = "10.1.2.3", "192.0.2.9"
HEADER = "X-Forwarded-Client-Cert"


def certificate(
    common_name: str = "alice", *names: x509.GeneralName, days: int = 1, since: int = -1
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)] if common_name else [])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(AT + timedelta(days=since))
        .not_valid_after(AT + timedelta(days=days))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, SHA256())


def der(found: x509.Certificate) -> bytes:
    return found.public_bytes(Encoding.DER)


ALICE = certificate()
URI, DNS, EMAIL = (
    x509.UniformResourceIdentifier("spiffe://acme/agent"),
    x509.DNSName("agent.acme.example"),
    x509.RFC822Name("alice@acme.example"),
)


def access(clock: Clock, **settings: Any) -> MtlsAccess:
    return MtlsAccess(Mtls(**settings), clock)


@pytest.fixture
def behind(clock: Clock) -> MtlsAccess:
    """Behind a proxy that is trusted."""
    return access(clock, header=HEADER, trusted_proxies=("10.0.0.0/8", "::1"))


async def refuse(scheme: MtlsAccess, presented: Presented) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        await scheme.identify(presented)
    assert refused.value.message == "The credentials are missing or invalid"


# --- of the connection itself -----------------------------------------------------------------------------------------


async def test_a_certificate_names_its_owner(clock: Clock) -> None:
    scheme = access(clock, tenant="acme", roles=("user",))
    assert await whom(scheme, Presented(certificate=der(ALICE))) == Identity(
        owner="alice", tenant="acme", roles=frozenset({"user"})
    )
    assert await whom(scheme, Presented()) is None
    assert scheme.security["mtls"].mtls_security_scheme is not None
    assert scheme.challenge == 'ClientCertificate realm="accord"'


@pytest.mark.parametrize(
    ("order", "names", "owner"),
    [
        (None, (EMAIL, DNS, URI), "spiffe://acme/agent"),
        (None, (EMAIL, DNS), "agent.acme.example"),
        (None, (EMAIL,), "alice@acme.example"),
        (None, (x509.DNSName("first"), x509.DNSName("second")), "first"),
        (None, (x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),), "alice"),
        (("common-name",), (URI, DNS), "alice"),
        (("email", "uri"), (URI, EMAIL), "alice@acme.example"),
    ],
)
async def test_settings_choose_the_certificate_name(
    order: tuple[str, ...] | None, names: tuple[x509.GeneralName, ...], owner: str, clock: Clock
) -> None:
    scheme = access(clock, **({"names": order} if order else {}))
    found = await whom(scheme, Presented(certificate=der(certificate("alice", *names))))
    assert found == Identity(owner=owner)


async def test_client_lists_restrict_certificates(clock: Clock) -> None:
    scheme = access(clock, clients={"alice": Grant(owner="a", tenant="*", roles=("admin",)), "bob": Grant()})
    assert await whom(scheme, Presented(certificate=der(ALICE))) == Identity(
        owner="a", tenant=None, roles=frozenset({"admin"})
    )
    assert await whom(scheme, Presented(certificate=der(certificate("bob")))) == Identity(owner="bob")
    await refuse(scheme, Presented(certificate=der(certificate("carol"))))
    await refuse(scheme, Presented(certificate=der(certificate("carol", x509.DNSName("carol")))))


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"nonsense",
        der(ALICE)[:-1],
        der(ALICE) + b"x",
        der(certificate(days=0, since=-2)),
        der(certificate(days=3, since=1)),
        der(certificate("")),
        der(certificate("", x509.UniformResourceIdentifier("x:" + "a" * 300))),
    ],
)
async def test_expired_and_nameless_certificates_are_refused(bad: bytes, clock: Clock) -> None:
    clock.at += 60
    await refuse(access(clock), Presented(certificate=bad))


# --- from a proxy -----------------------------------------------------------------------------------------------------


def pem(found: x509.Certificate = ALICE) -> str:
    return found.public_bytes(Encoding.PEM).decode()


def envoy(cert: str | None = None, **more: str) -> str:
    pairs = {"By": "spiffe://mesh/accord", "Hash": "ab" * 32, "Cert": f'"{cert or quote(pem(), safe="")}"', **more}
    return ";".join(f"{name}={value}" for name, value in pairs.items())


def rfc9440() -> str:
    return f":{base64.b64encode(der(ALICE)).decode()}:"


FORMS = [
    quote(pem(), safe=""),  # nginx's $ssl_client_escaped_cert
    pem().replace("\n", " "),
    pem().replace("\n", "\t"),
    quote("".join(pem().splitlines()[1:-1]), safe=""),  # Traefik
    rfc9440(),
    envoy(),
    envoy(Subject='"CN=alice,O=\\"Acme; Inc\\""', URI="spiffe://acme/agent", DNS="a.example"),
]


@pytest.mark.parametrize("stated", FORMS)
@pytest.mark.parametrize(
    "proxy",
    [{"peer": PROXY}, {"peer": "::1"}, {"peer": f"::ffff:{PROXY}"}, {"peer": STRANGER, "proxy": PROXY}],
)
async def test_a_trusted_proxy_passes_a_certificate_on(stated: str, proxy: dict[str, str], behind: MtlsAccess) -> None:
    assert await whom(behind, presenting({HEADER: stated}, **proxy)) == Identity(owner="alice")


@pytest.mark.parametrize("stated", FORMS)
@pytest.mark.parametrize("peer", [STRANGER, "", "unix:", "11.0.0.1", "::2", f"::ffff:{STRANGER}", "10.1.2.3.evil"])
async def test_anybody_else_s_header_is_as_if_it_was_not_there(stated: str, peer: str, behind: MtlsAccess) -> None:
    assert await whom(behind, presenting({HEADER: stated}, peer=peer)) is None


async def test_the_proxy_s_own_certificate_is_not_the_caller_s(behind: MtlsAccess) -> None:
    own = der(certificate("the proxy"))
    assert await whom(behind, presenting({}, peer=PROXY, certificate=own)) is None
    assert await whom(behind, presenting({HEADER: rfc9440()}, peer=PROXY, certificate=own)) == Identity(owner="alice")
    direct = presenting({HEADER: rfc9440()}, peer=STRANGER, certificate=der(certificate("bob")))
    assert await whom(behind, direct) == Identity(owner="bob")


async def test_without_the_setting_no_header_is_read(clock: Clock) -> None:
    assert await access(clock).identify(presenting({HEADER: rfc9440()}, peer=PROXY)) is None


@pytest.mark.parametrize(
    "stated",
    [
        "nonsense",
        "::",
        ":!:",
        quote(pem(), safe="") + "," + quote(pem(), safe=""),
        envoy() + "," + envoy(),
        envoy(DNS="a.example") + ',By=spiffe://mesh/other;Subject="CN=other"',
        envoy(cert="nonsense"),
        envoy() + f';Cert="{quote(pem(certificate("root")), safe="")}"',
        'By=x;Subject="CN=a"',
        envoy(Subject=f'"CN=x;Cert=\\"{quote(pem(certificate("root")), safe="")}"', Cert=""),
        envoy(URI=f'x"y;Cert="{quote(pem(certificate("root")), safe="")}"'),
        pem().replace("\n", " ") + pem().replace("\n", " "),
        quote(pem(certificate(days=0, since=-2)), safe=""),
        "x" * 40_000,
    ],
)
async def test_a_header_that_names_no_one_certificate_is_refused(stated: str, behind: MtlsAccess, clock: Clock) -> None:
    clock.at += 60
    await refuse(behind, presenting({HEADER: stated}, peer=PROXY))


async def test_text_in_quotes_is_not_taken_for_a_certificate(behind: MtlsAccess) -> None:
    root = quote(pem(certificate("root")), safe="")
    stated = envoy(Subject=f'"CN=x\\";Cert=\\"{root}\\""')
    assert await whom(behind, presenting({HEADER: stated}, peer=PROXY)) == Identity(owner="alice")


async def test_certificates_unverified_by_the_proxy_are_refused(clock: Clock) -> None:
    scheme = access(clock, header=HEADER, trusted_proxies=(PROXY,), verified_header="X-SSL-Client-Verify")
    for said, is_good in (("SUCCESS", True), ("FAILED:expired", False), ("NONE", False), (None, False)):
        headers = {HEADER: rfc9440()} | ({"X-SSL-Client-Verify": said} if said else {})
        if is_good:
            assert await whom(scheme, presenting(headers, peer=PROXY)) == Identity(owner="alice")
        else:
            await refuse(scheme, presenting(headers, peer=PROXY))


@pytest.mark.parametrize("settings", [{"header": HEADER}, {"header": HEADER, "trusted_proxies": ("proxy.example",)}])
def test_a_header_that_anybody_could_send_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"trusted_proxies|proxy\.example"):
        Mtls(**settings)


async def test_certificate_admissions_carry_their_expiry(clock: Clock) -> None:
    found = await access(clock).identify(Presented(certificate=der(certificate("alice", days=3))))
    assert found is not None
    assert found.ticket == Admission(kind="mtls", until=int((AT + timedelta(days=3)).timestamp()) * 1000)
