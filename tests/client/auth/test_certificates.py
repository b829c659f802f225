"""Client certificates against a server that asks for them, in a process of its own, over TLS."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from accord.client.auth import ClientAuth, CombinedAuth, MtlsAuth, choose_auth, tls_of
from accord.client.auth.schemes import Bearer
from accord.client.credentials import Certificate, Credential
from accord.outbound import HttpSession, Unreachable
from tests.certificates import Authority
from tests.client.auth.conftest import Agent
from tests.serve.running import Server, running

SCHEMES = """
[[auth.schemes]]
type = "mtls"
clients.alice = { owner = "alice" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mtls")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder)


@pytest.fixture(scope="module")
def server(folder: Path, authority: Authority) -> Iterator[Server]:
    """A server whose callers have to show a certificate."""
    (folder / "accord.toml").write_text(SCHEMES)
    own = authority.server()
    tls = ["--tls-cert", str(own.certificate), "--tls-key", str(own.key), "--tls-client-ca", str(authority.certificate)]
    with running(folder, *tls, scheme="https") as found:
        yield found


@pytest.fixture
async def agent(server: Server, authority: Authority) -> AsyncIterator[Agent]:
    found = Agent(server.url)
    yield found
    await found.transport.close()


def mtls(authority: Authority, name: str, ca: Authority | None = None) -> MtlsAuth:
    issued = authority.client(name)
    return MtlsAuth(issued.certificate, issued.key, ca=(ca or authority).certificate)


async def asked(agent: Agent, auth: ClientAuth) -> int:
    agent.transport = HttpSession(tls=tls_of(auth))
    return await agent.ask(auth)


async def test_certificates_identify_the_client(agent: Agent, authority: Authority) -> None:
    assert await asked(agent, mtls(authority, "alice")) == 200
    await agent.transport.close()
    assert await asked(agent, CombinedAuth([mtls(authority, "bob"), Bearer("x")])) == 401


async def test_a_card_that_asks_for_one(agent: Agent, authority: Authority) -> None:
    issued = authority.client("alice")
    own = Certificate(file=str(issued.certificate), key=str(issued.key), ca=str(authority.certificate))

    class Held:
        def find(self, id: str) -> Credential | None:
            return Credential(certificate=own) if id == "localhost" else None

    agent.transport = HttpSession(tls=tls_of(mtls(authority, "carol")))
    card = await agent.card()
    await agent.transport.close()
    auth = choose_auth(card, Held())
    assert isinstance(auth, MtlsAuth)
    assert await asked(agent, auth) == 200


async def test_without_its_authority_the_server_is_not_believed(agent: Agent, authority: Authority) -> None:
    issued = authority.client("alice")
    with pytest.raises(Unreachable, match="certificate") as refused:
        await asked(agent, MtlsAuth(issued.certificate, issued.key))
    assert not refused.value.was_sent


async def test_a_certificate_of_another_authority_gets_nowhere(
    agent: Agent, authority: Authority, tmp_path: Path
) -> None:
    other = mtls(Authority(tmp_path, "other"), "alice", authority)
    with pytest.raises(Unreachable):  # the server ends the connection
        await asked(agent, other)


def test_invalid_certificate_files_are_reported(folder: Path, authority: Authority, tmp_path: Path) -> None:
    issued, other = authority.client("alice"), authority.client("bob")
    (tmp_path / "empty.pem").touch()
    for wrong in (
        MtlsAuth(tmp_path / "nowhere.pem"),
        MtlsAuth(tmp_path / "empty.pem"),
        MtlsAuth(issued.certificate, other.key),
        MtlsAuth(issued.certificate, issued.key, ca=tmp_path / "empty.pem"),
    ):
        with pytest.raises(ValueError, match=r"\.pem"):
            tls_of(wrong)
    assert tls_of(Bearer("x")) is None
