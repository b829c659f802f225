"""Webhooks that point inside: set in every dialect and binding of a real server, they are refused or lead nowhere.

`tests/outbound` proves which addresses are public; here is the way from a request to a connection, and a listener on
this very machine that must never see one.
"""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from uuid import uuid4

import pytest
from msgspec.structs import replace

from accord.model import Message, Part, PushConfig, PushGetRequest, Role, SendConfiguration, SendRequest
from accord.outbound.session import NO_ADDRESS, SystemResolver
from accord.protocol.operations import Operation
from accord.server.application import Application, to_a2a
from accord.storage.address import open_store
from accord.storage.store import Row, Store
from accord.testing.asgi import call, lifespan
from tests.abuse.agents import victim
from tests.abuse.server import Server, serving
from tests.abuse.ways import V1, WAYS, Caller, Way
from tests.engine.doubles import rows, until
from tests.outbound.test_policy import HOSTILE

BOUND_SECONDS = 30.0
MINE = Way("jsonrpc", V1)
HAS_INLINE = [way for way in WAYS if way.dialect.value != "gen"]
"""The ways in which a webhook can come with a message."""

LOOPBACK = [
    *("127.0.0.1", "localhost", "LocalHost", "localhost.", "127.1", "127.0.1", "0", "0.0.0.0", "0x7f.1", "0x7f000001"),
    *("0177.0.0.1", "017700000001", "2130706433", "127.0.0.1.", "127.9.9.9", "[::1]", "[::]", "[::ffff:127.0.0.1]"),
    *("[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[0:0:0:0:0:0:0:1]", "a.localhost", "①②⑦.0.0.1"),
    *("127。0。0。1", "good@127.0.0.1", "good:pass@localhost", "example.com\\@127.0.0.1", "127.0.0.1%2f@example.com"),
]
"""This machine, as many ways as it can be written."""


class Listener:
    """A port of this machine that counts who connects, and answers everybody the same."""

    def __init__(self, host: str = "127.0.0.1", answer: bytes = b"") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family)
        self.port: int = self._socket.getsockname()[1]
        self.answer = answer
        self.heads: list[bytes] = []
        self.connections = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(BOUND_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                connection.settimeout(BOUND_SECONDS)
                self.heads.append(connection.recv(65536))
                connection.sendall(self.answer)


@pytest.fixture(scope="module")
def listeners() -> Iterator[list[Listener]]:
    """One for each family of addresses; nobody may have come in the end."""
    with ExitStack() as stack:
        found = [stack.enter_context(Listener(host)) for host in ("127.0.0.1", "::1")]
        yield found
        assert [listener.connections for listener in found] == [0, 0]


def hooked(hook: PushConfig, text: str = "hello") -> SendRequest:
    """A message with a webhook."""
    message = Message(message_id=str(uuid4()), role=Role.USER, parts=(Part(text=text),))
    return SendRequest(message=message, configuration=SendConfiguration(task_push_notification_config=hook))


@pytest.mark.proves("B-18")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_hostile_address_is_taken(guarded: Server, listeners: list[Listener], way: Way) -> None:
    alice = Caller(guarded, guarded.keys["alice"])
    task = alice.ask(MINE, Operation.SEND, hooked(PushConfig(url="https://hooks.invalid/"))).result
    spelled = [
        f"{scheme}://{host}:{listener.port}/"
        for scheme in ("https", "http")
        for host in LOOPBACK
        for listener in listeners
    ]
    for url in [*HOSTILE, *spelled]:
        hook = PushConfig(url=url, id="h")
        told = [alice.ask(way, Operation.PUSH_SET, replace(hook, task_id=task.id))]
        if way in HAS_INLINE and url:
            told += [alice.ask(way, operation, hooked(hook)) for operation in (Operation.SEND, Operation.STREAM)]
        assert {one.reason for one in told} <= {"INVALID_PARAMS", "REQUEST_TOO_LARGE"}, url
    assert alice.ask(MINE, Operation.PUSH_GET, PushGetRequest(task_id=task.id, id="h")).reason == "TASK_NOT_FOUND"


# --- names, whose meaning shows only when they are called -----------------------------------------------------------


class Names:
    """What names mean, in the place of the system's."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.asked: list[str] = []

    async def look_up(self, name: str) -> list[str]:
        self.asked.append(name)
        return self.addresses


@pytest.fixture
async def app() -> AsyncIterator[Application]:
    found = to_a2a(victim, server={"grace_seconds": 0})
    async with lifespan(found), asyncio.timeout(BOUND_SECONDS):
        yield found


async def failed(store: Store) -> list[str]:
    """Wait until no webhook could be delivered, and return why."""
    found: list[Row] = []

    async def has_failed() -> bool:
        found[:] = await rows(store, "push", "last_error")
        return bool(found) and all(error is not None for (error,) in found)

    await until(has_failed)
    return [str(error) for (error,) in found]


@pytest.mark.proves("B-18")
@pytest.mark.parametrize(
    "addresses",
    [
        ("127.0.0.1",),
        ("::1",),
        ("::ffff:127.0.0.1",),
        ("10.0.0.1",),
        ("169.254.169.254",),
        ("0.0.0.0",),
        ("64:ff9b::7f00:1",),
        ("93.184.216.34", "127.0.0.1"),
        ("2606:4700::1111", "::1"),
    ],
    ids=" ".join,
)
async def test_a_name_that_leads_inside_is_looked_up_and_not_called(
    app: Application, listeners: list[Listener], addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(*addresses)
    monkeypatch.setattr(SystemResolver, "__call__", lambda _, name: names.look_up(name))
    hooks = [f"https://inside.example:{listener.port}/{at}" for at, listener in enumerate(listeners)]
    for url in hooks:
        config = {"taskPushNotificationConfig": {"url": url, "token": "s3cret"}}
        message = {"messageId": url, "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        params = {"message": message, "configuration": config}
        answer = await call(app, {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params})
        assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    reasons = await failed(app.host.node.store)
    assert len(reasons) == len(hooks)
    assert set(reasons) == {NO_ADDRESS}
    assert set(names.asked) == {"inside.example"}


async def test_names_that_this_machine_gives_itself_lead_nowhere(listeners: list[Listener], tmp_path: Path) -> None:
    """Without a resolver of a test, in a process of its own: what the hosts file here calls loopback or private."""
    asked = ["ip6-localhost", "ip6-loopback", "localhost.localdomain", socket.gethostname()]
    names = [name for name in asked if _means(name)]
    if not names:
        pytest.skip("This machine has no name for itself but localhost")
    with serving(tmp_path) as server:
        for name in names:
            for listener in listeners:
                hook = PushConfig(url=f"https://{name}:{listener.port}/")
                assert Caller(server).ask(MINE, Operation.SEND, hooked(hook)).reason is None
        async with open_store(server.store) as store, asyncio.timeout(BOUND_SECONDS):
            reasons = await failed(store)
    assert len(reasons) == len(names) * len(listeners)
    assert set(reasons) == {NO_ADDRESS}


def _means(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


# --- a receiver that may be called, and points elsewhere ------------------------------------------------------------


@pytest.mark.proves("B-18")
def test_no_redirect_of_an_allowed_receiver_is_followed(trusting: Server, listeners: list[Listener]) -> None:
    inside, inside_6 = listeners
    places = [
        f"http://127.0.0.1:{inside.port}/",
        f"http://[::1]:{inside_6.port}/",
        f"//localhost:{inside.port}/",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
    ]
    said = [_moved(status, place) for status in (301, 302, 303, 307, 308) for place in places]
    with ExitStack() as stack:
        receivers = [stack.enter_context(Listener(answer=answer)) for answer in said]
        for receiver in receivers:
            hook = PushConfig(url=f"http://127.0.0.1:{receiver.port}/hook", token="s3cret")
            assert Caller(trusting).ask(MINE, Operation.SEND, hooked(hook)).reason is None
        end = time.monotonic() + BOUND_SECONDS
        while min(receiver.connections for receiver in receivers) < 2:  # each was taken for a failure and tried again
            assert time.monotonic() < end
            time.sleep(0.01)
        heads = [head for receiver in receivers for head in receiver.heads]
    assert all(head.startswith(b"POST /hook HTTP/1.1\r\n") for head in heads)


def _moved(status: int, location: str) -> bytes:
    head = f"HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    return head.encode()


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose operator lets webhooks go to this machine."""
    folder: Path = tmp_path_factory.mktemp("trusting")
    with serving(folder, {"push": {"allow_hosts": ["127.0.0.1"]}}) as server:
        yield server


def test_trust_in_one_host_is_trust_in_no_other(trusting: Server, listeners: list[Listener]) -> None:
    caller = Caller(trusting)
    for host in ("localhost", "127.0.0.2", "[::1]", "0.0.0.0", "2130706433", "169.254.169.254", "10.0.0.1"):
        for scheme in ("http", "https"):
            url = f"{scheme}://{host}:{listeners[0].port}/"
            assert caller.ask(MINE, Operation.SEND, hooked(PushConfig(url=url))).reason == "INVALID_PARAMS", url
