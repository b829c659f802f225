"""TLS: the connection is encrypted, and where clients must show a certificate the gate gets to see it."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any, NamedTuple

import grpc
import pytest
from a2a.types import a2a_pb2 as new
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.http.grpc import GrpcTls
from accord.model import Task, TaskState, TaskStatus
from tests.http.grpc.conftest import STUBS, Serving, Told, failing

TASK = Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.WORKING))
GET = new.GetTaskRequest(id="t-1")


class Paper(NamedTuple):
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes

    @property
    def der(self) -> bytes:
        return x509.load_pem_x509_certificate(self.certificate).public_bytes(serialization.Encoding.DER)


def issue(name: str) -> Paper:
    """A certificate that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Paper(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


@pytest.fixture(scope="module")
def server() -> Paper:
    return issue("server")


@pytest.fixture(scope="module")
def client() -> Paper:
    return issue("client")


@pytest.mark.proves("GRPC-SVC-003", "AUTH-TLS-001")
async def test_calls_are_encrypted_and_nothing_else_is_taken(server: Paper, serving: Serving, dial: Any) -> None:
    address = await serving(Told(TASK), tls=GrpcTls(certificate=server.certificate, key=server.key))
    stub = STUBS["v1"](dial(address, grpc.ssl_channel_credentials(server.certificate)))
    assert (await stub.GetTask(GET)).id == "t-1"
    plain = STUBS["v1"](dial(address))
    assert (await failing(plain.GetTask(GET))).code == "UNAVAILABLE"
    strange = STUBS["v1"](dial(address, grpc.ssl_channel_credentials(issue("other").certificate)))
    assert (await failing(strange.GetTask(GET))).code == "UNAVAILABLE"


async def test_the_gate_sees_the_client_s_certificate(
    server: Paper, client: Paper, serving: Serving, dial: Any
) -> None:
    seen: list[bytes | None] = []

    async def admit(presented: Presented) -> Caller:
        seen.append(presented.certificate)
        return Caller(owner="client")

    tls = GrpcTls(certificate=server.certificate, key=server.key, client_ca=client.certificate)
    address = await serving(Told(TASK), tls=tls, admit=admit)
    known = grpc.ssl_channel_credentials(server.certificate, client.key, client.certificate)
    assert (await STUBS["v1"](dial(address, known)).GetTask(GET)).id == "t-1"
    assert seen == [client.der]
    for credentials in (
        grpc.ssl_channel_credentials(server.certificate),
        grpc.ssl_channel_credentials(server.certificate, *reversed(issue("stranger"))),
    ):
        assert (await failing(STUBS["v1"](dial(address, credentials)).GetTask(GET))).code == "UNAVAILABLE"
    assert len(seen) == 1
