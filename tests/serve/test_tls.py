"""TLS that ends in the server itself: HTTPS, its ciphers, and client certificates that say who calls."""

import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc

from tests.certificates import Authority, Issued
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, V1, Server, rpc, running, said

MTLS = """
[[auth.schemes]]
type = "mtls"
clients.alice = { owner = "alice" }
clients.bob = { owner = "bob" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def own(authority: Authority) -> Issued:
    return authority.server()


@pytest.fixture(scope="module")
def server(folder: Path, authority: Authority, own: Issued) -> Iterator[Server]:
    """A server that listens to everybody, who all have to show a certificate; over gRPC as well."""
    (folder / "accord.toml").write_text(MTLS)
    tls = ["--tls-cert", str(own.certificate), "--tls-key", str(own.key), "--tls-client-ca", str(authority.certificate)]
    grpc_port = free_port()
    with running(folder, "--host", "0.0.0.0", *tls, "--grpc-port", str(grpc_port), scheme="https") as found:
        found.grpc_port = grpc_port  # type: ignore[attr-defined]
        yield found


def client(authority: Authority, who: Issued | None = None) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if who is not None:
        context.load_cert_chain(who.certificate, who.key)
    return httpx.Client(verify=context, timeout=BOUND_SECONDS, headers=V1)


@pytest.mark.proves("4-01", "4-22", "AUTH-TLS-001")
def test_the_card_has_https_addresses(server: Server, authority: Authority) -> None:
    with client(authority) as http:
        card = http.get(f"{server.url}/.well-known/agent-card.json", params={"dialect": "v1"}).json()
        assert card["supportedInterfaces"][0]["url"] == f"{server.url}/"
        assert card["securitySchemes"] == {"mtls": {"mtlsSecurityScheme": {}}}
        assert http.get(f"https://127.0.0.1:{server.port}/healthz").status_code == 200
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://localhost:{server.port}/healthz", timeout=BOUND_SECONDS)


@pytest.mark.proves("AUTH-TLS-002", "AUTH-SERVER-002")
def test_certificates_authenticate_callers(server: Server, authority: Authority, folder: Path) -> None:
    alice, bob = authority.client("alice"), authority.client("bob")
    send = rpc("SendMessage", message=said("hello"))
    with client(authority) as nobody:
        refused = nobody.post(f"{server.url}/", json=send)
        assert (refused.status_code, "www-authenticate" in refused.headers) == (401, True)
    with client(authority, alice) as http:
        task = http.post(f"{server.url}/", json=send).json()["result"]["task"]["id"]
        assert http.get(f"{server.url}/tasks/{task}").status_code == 200
    with client(authority, bob) as http:
        assert http.get(f"{server.url}/tasks/{task}").status_code == 404
    with client(authority, authority.client("mallory")) as http:
        assert http.get(f"{server.url}/tasks").status_code == 401
    stranger = Authority(folder, "another-authority").client("alice")
    with client(authority, stranger) as http, pytest.raises(httpx.HTTPError):
        http.get(f"{server.url}/tasks")


def test_the_line_to_try_works_with_the_files_that_it_names(server: Server, authority: Authority) -> None:
    alice = authority.client("alice")
    env = {"CERTIFICATE": str(alice.certificate), "KEY": str(alice.key), "PATH": "/usr/bin:/bin"}
    line = server.says("curl ")
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=BOUND_SECONDS, env=env, check=False
    )
    assert "TASK_STATE_COMPLETED" in done.stdout, done.stderr


@pytest.mark.proves("AUTH-TLS-002")
def test_old_versions_and_weak_ciphers_are_not_spoken(server: Server, authority: Authority) -> None:
    def spoken(version: ssl.TLSVersion, ciphers: str | None = None) -> tuple[str | None, str]:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        context.minimum_version = context.maximum_version = version
        if ciphers:
            context.set_ciphers(ciphers)
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            found = connection.cipher()
            assert found is not None
            return connection.version(), found[0]

    assert spoken(ssl.TLSVersion.TLSv1_3)[0] == "TLSv1.3"
    version, cipher = spoken(ssl.TLSVersion.TLSv1_2)
    assert (version, cipher.startswith("ECDHE-")) == ("TLSv1.2", True)
    assert "GCM" in cipher or "CHACHA20" in cipher
    with pytest.raises(ssl.SSLError):
        spoken(ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA")


@pytest.mark.proves("GRPC-SVC-003")
async def test_grpc_has_the_same_certificates_and_the_same_callers(server: Server, authority: Authority) -> None:
    alice = authority.client("alice")
    credentials = grpc.ssl_channel_credentials(
        authority.certificate.read_bytes(), alice.key.read_bytes(), alice.certificate.read_bytes()
    )
    port = server.grpc_port  # type: ignore[attr-defined]
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        message = a2a_pb2.Message(message_id="g", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(text="over grpc")])
        sent = await stub.SendMessage(a2a_pb2.SendMessageRequest(message=message), timeout=BOUND_SECONDS)
    with client(authority, alice) as http:
        assert http.get(f"{server.url}/tasks/{sent.task.id}").status_code == 200
    with client(authority, authority.client("bob")) as http:
        assert http.get(f"{server.url}/tasks/{sent.task.id}").status_code == 404


async def test_grpc_requires_a_certificate_and_warns(tmp_path: Path, authority: Authority, own: Issued) -> None:
    secret = 'type = "header"\nname = "X-Key"\nsecrets = [{ secret = "0123456789abcdef", owner = "carol" }]\n'
    (tmp_path / "accord.toml").write_text(f"{MTLS}\n[[auth.schemes]]\n{secret}")
    tls = ["--tls-cert", str(own.certificate), "--tls-key", str(own.key), "--tls-client-ca", str(authority.certificate)]
    port = free_port()
    with running(tmp_path, *tls, "--grpc-port", str(port), scheme="https") as server:
        server.says("grpc.demands_certificates")
        with client(authority) as http:
            known = http.get(f"{server.url}/tasks", headers={"X-Key": "0123456789abcdef"})
            assert known.status_code == 200
        credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            call = a2a_pb2_grpc.A2AServiceStub(channel).ListTasks(
                a2a_pb2.ListTasksRequest(), metadata=(("x-key", "0123456789abcdef"),), timeout=BOUND_SECONDS
            )
            assert await call.code() is grpc.StatusCode.UNAVAILABLE


def test_grpc_does_not_warn_with_mtls_only(server: Server) -> None:
    assert "gRPC takes nobody" not in server.all_shown
