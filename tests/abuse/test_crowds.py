"""Thousands who connect and say nothing, a little at a time, or never listen: the others are served all the same.

`tests/http/test_connections.py` proves of one connection when it ends; here they are many, against a real process.
Only bounds are waited for: nothing asserts how long something takes.
"""

import base64
import gzip
import json
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from accord.auth.passwords import hash_password
from tests.abuse.launch import KEEP_ALIVE
from tests.abuse.server import Holder, Server, serving
from tests.abuse.wire import Answer, Wire

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at through /proc")

BOUND_SECONDS = 40.0
CROWD = 10_000
SPARE = 500
"""Files that a process needs besides its connections, generously."""

PER_ADDRESS = 4_000
"""Connections from one address of this machine: each has some 28,000 ports for all its connections of a minute."""

SLACK = 5
"""Files that come and go by themselves: connections that end, readers of the store."""

WAVE = 1_000
"""Connections that wait to be accepted."""

PER_CONNECTION = 24 * 1024
"""Bytes of memory that one silent connection may cost; it is about a quarter of that."""

STREAMS = 500
LOOKS = 5
HURRIED = {"head_seconds": 5, "body_seconds": 1, "body_rate": 10_000, "unread_seconds": 1}


def message(text: str) -> bytes:
    said = {"messageId": f"{text} {time.monotonic_ns()}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return json.dumps({"message": said, "configuration": {"returnImmediately": True}}).encode()


def until(check: Callable[[], bool]) -> None:
    """Look until something is so."""
    end = time.monotonic() + BOUND_SECONDS
    while not check():
        assert time.monotonic() < end
        time.sleep(0.02)


def files(server: Server) -> int:
    """How many files and sockets the server has open."""
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def memory(server: Server) -> int:
    """How many bytes of memory the server has: the least of some looks, as what is in use for a moment is no cost."""
    found = []
    for _ in range(LOOKS):
        found.append(server.status("VmRSS"))
        time.sleep(0.1)
    return min(found)


@contextmanager
def many_files() -> Iterator[None]:
    """Let this process and those that it starts have as many files as the crowd needs, if the system allows them."""
    needed = CROWD + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"the system allows {hard:,} files, and {CROWD:,} connections need {needed:,}")
    most = hard if hard != resource.RLIM_INFINITY else needed + SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def crowd(server: Server, size: int) -> Iterator[list[socket.socket]]:
    """So many connections that say nothing."""
    with ExitStack() as stack:
        found, before = list[socket.socket](), files(server)
        for number in range(size):
            one = stack.enter_context(socket.socket())
            one.settimeout(BOUND_SECONDS)
            one.bind((f"127.0.0.{2 + number // PER_ADDRESS}", 0))
            one.connect(("127.0.0.1", server.port))
            found.append(one)
            if number % WAVE == WAVE - 1:  # or the system drops what nobody has accepted yet
                until(partial(_has, server, before + number - SLACK))
        yield found


def _has(server: Server, count: int) -> bool:
    return files(server) >= count


def check_service(server: Server) -> None:
    """Raise unless newcomers are served: a document, a message that is stored and answered, and a look at it."""
    server.check()
    assert server.ask("GET", "/.well-known/agent-card.json").status == 200
    sent = server.ask("POST", "/message:send", message("hello").replace(b"true", b"false"))
    task = sent.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert server.ask("GET", f"/tasks/{task['id']}").json()["id"] == task["id"]


def test_ten_thousand_silent_connections_cost_little(tmp_path: Path) -> None:
    with many_files(), serving(tmp_path, {"limits": {"head_seconds": 600}}) as server:
        check_service(server)
        before, used = files(server), memory(server)
        with crowd(server, CROWD):
            until(lambda: files(server) >= before + CROWD - SLACK)
            assert (memory(server) - used) / CROWD < PER_CONNECTION
            check_service(server)
        until(lambda: files(server) <= before + SLACK)
        check_service(server)


def test_connections_beyond_the_file_limit_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, {"limits": {"head_seconds": 600}}) as server:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (150, 150))
        with crowd(server, 400) as connections:
            turned_away = 0
            end = time.monotonic() + BOUND_SECONDS
            while turned_away < 200 and time.monotonic() < end:
                turned_away = sum(_has_ended(one) for one in connections)
            assert 200 <= turned_away < 400
        until(lambda: _answers(server))
        check_service(server)


def _has_ended(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def _answers(server: Server) -> bool:
    try:
        return server.ask("GET", "/healthz").status == 200
    except Exception:  # there is no file left for it yet
        return False


# --- whoever does not get on ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits for nobody, and whose streams are never silent for long."""
    folder = tmp_path_factory.mktemp("hurried")
    with serving(folder, {"limits": HURRIED}, start="tests.abuse.launch", env={KEEP_ALIVE: "0.5"}) as server:
        yield server


def test_silent_connections_are_closed_in_time(hurried: Server) -> None:
    with crowd(hurried, 1_000) as connections:
        check_service(hurried)
        assert {one.recv(1) for one in connections} == {b""}
    check_service(hurried)


POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
DRIPS = {
    "a head": (b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
    "one header": (b"GET / HTTP/1.1\r\nx: ", b"y"),
    "a request line": (b"GET /", b"y"),
    "a body": (POST + b"Content-Length: 1000000\r\n\r\n", b" "),
    "chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "the extension of a chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\n1;", b"y"),
    "trailers": (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n \r\n0\r\n", b"x: y\r\n"),
    "a compressed body": (POST + b"Content-Encoding: gzip\r\nContent-Length: 1000000\r\n\r\n\x1f\x8b\x08", b"\0"),
    "a body that nobody reads": (POST.replace(b"/", b"/healthz", 1) + b"Content-Length: 1000000\r\n\r\n", b" "),
}
"""What comes drop by drop: how it begins, and a drop."""


def test_drops_buy_no_time(hurried: Server) -> None:
    with crowd(hurried, 20 * len(DRIPS)) as connections:  # few enough for `select`
        ways = list(DRIPS) * 20
        answers = _dripping(dict(zip(connections, ways, strict=True)))
    for way, answer in answers:
        assert answer == b"" or answer.startswith(b"HTTP/1.1 408 ") or way == "a body that nobody reads", (way, answer)
        assert b"Traceback" not in answer
    check_service(hurried)


def _dripping(connections: dict[socket.socket, str]) -> list[tuple[str, bytes]]:
    """Send drops on all connections until all have been closed; what was answered."""
    said = dict.fromkeys(connections, b"")
    for one, way in connections.items():
        one.sendall(DRIPS[way][0])
    left, end = list(connections), time.monotonic() + BOUND_SECONDS
    while left:
        assert time.monotonic() < end, [connections[one] for one in left]
        for one in left:
            with suppress(ConnectionError):
                one.send(DRIPS[connections[one]][1])
        for one in select.select(left, (), (), 0.02)[0]:
            more = _more(one)
            said[one] += more
            if not more:
                left.remove(one)
    return [(way, said[one]) for one, way in connections.items()]


def _more(one: socket.socket) -> bytes:
    try:
        return one.recv(65536)
    except ConnectionError:
        return b""


# --- streams --------------------------------------------------------------------------------------------------------


def test_hundreds_of_silent_streams_are_kept_alive_and_let_go(hurried: Server) -> None:
    task = hurried.ask("POST", "/message:send", message("wait")).json()["task"]
    before = files(hurried)
    with ExitStack() as stack:
        wires = [stack.enter_context(hurried.connect()) for _ in range(STREAMS)]
        for wire in wires:
            wire.ask("GET", f"/tasks/{task['id']}:subscribe")
        for wire in wires:
            assert wire.head().status == 200
        check_service(hurried)
        for wire in wires:
            assert b'"id":"%b"' % task["id"].encode() in wire.chunk()
            assert _comments(wire, 3) == [b": keep-alive\n\n"] * 3
    until(lambda: files(hurried) <= before + SLACK)
    assert hurried.ask("POST", f"/tasks/{task['id']}:cancel", b"{}").status == 200
    check_service(hurried)


def _comments(wire: Wire, count: int) -> list[bytes]:
    """The next comments of a stream; a task that begins to wait may say so in between."""
    found: list[bytes] = []
    while len(found) < count:
        piece = wire.chunk()
        if piece.startswith(b":"):
            found.append(piece)
    return found


def test_clients_that_never_read_are_disconnected(hurried: Server) -> None:
    """A stream of 13 MB, and then the whole task in one answer, to clients whose windows stay shut."""
    before, used = files(hurried), memory(hurried)
    whole = hurried.ask("POST", "/message:send", message("pour 200").replace(b"true", b"false")).json()["task"]
    assert sum(len(part["text"]) for part in whole["artifacts"][0]["parts"]) > 12_000_000
    with ExitStack() as stack:
        for _ in range(SLACK):
            stream, answer = (stack.enter_context(hurried.connect(receive_buffer=4096)) for _ in range(2))
            stream.ask("POST", "/message:stream", message("pour 200"))
            answer.ask("GET", f"/tasks/{whole['id']}")
            assert (stream.head().status, answer.head().status) == (200, 200)
        until(lambda: files(hurried) <= before + SLACK)
        check_service(hurried)
    assert memory(hurried) - used < 400_000_000
    check_service(hurried)


def test_unread_streams_of_one_large_task_cost_it_once(tmp_path: Path) -> None:
    """60 of them held 45 MB each: what was read, what it was decoded to, what was written, and that once more."""
    with serving(tmp_path) as server, ExitStack() as stack:
        id = server.ask("POST", "/message:send", message("pile 8")).json()["task"]["id"]
        until(lambda: len(server.ask("GET", f"/tasks/{id}").body) > 8_000_000)
        used = memory(server)
        for _ in range(STREAMS // 10):
            wire = stack.enter_context(server.connect(receive_buffer=4096))
            wire.ask("GET", f"/tasks/{id}:subscribe")
            assert wire.head().status == 200
        assert memory(server) - used < 150_000_000, "of 1.2 GB"
        with server.connect() as reading:
            reading.ask("GET", f"/tasks/{id}:subscribe")
            assert reading.head().status == 200
            assert sum(len(reading.chunk()) for _ in range(8_000_000 // 65536)) > 7_900_000
        check_service(server)


def test_unread_answers_are_refused_beyond_a_limit_in_each_binding(tmp_path: Path) -> None:
    limits = {"caller_answers": 20_000_000, "answers": 30_000_000}
    holders = {name: Holder(name) for name in ("alice", "bob")}
    with serving(tmp_path, {"limits": limits}, holders=holders) as server, ExitStack() as stack:
        alice, bob = ({"X-API-Key": server.keys[name]} for name in holders)

        def ask(method: str, path: str, body: bytes, who: dict[str, str]) -> Answer:
            wire = stack.enter_context(server.connect(receive_buffer=4096))
            wire.ask(method, path, body, {"A2A-Version": "1.0", **who})
            head = wire.head()
            return head if head.status == 200 and body != batch else head._replace(body=wire.body(head))

        batch, paths = b"", []
        for who in (alice, bob):
            with server.connect() as wire:
                wire.ask("POST", "/message:send", message("pile 8"), who)
                paths.append(f"/tasks/{wire.answer().json()['task']['id']}")
        mine, theirs = paths
        until(lambda: len(server.ask("GET", mine, X_API_Key=server.keys["alice"]).body) > 8_000_000)
        until(lambda: len(server.ask("GET", theirs, X_API_Key=server.keys["bob"]).body) > 8_000_000)
        call = b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"%b"}}' % mine.split("/")[-1].encode()
        batch = b"[%b]" % call
        assert [ask("GET", mine, b"", alice).status for _ in range(2)] == [200, 200]
        refused = [
            ask("GET", mine, b"", alice),
            ask("GET", mine + ":subscribe", b"", alice),
            ask("POST", "/", call, alice),
        ]
        assert [(one.status, one.header("retry-after")) for one in refused] == [(429, "2")] * 3
        assert all(b"RATE_LIMITED" in one.body for one in refused)
        assert b"RATE_LIMITED" in ask("POST", "/", batch, alice).body
        assert ask("GET", theirs, b"", bob).status == 200
        full = ask("GET", theirs, b"", bob)
        assert (full.status, full.header("retry-after")) == (503, "2")
        assert server.ask("GET", "/.well-known/agent-card.json").status == 200


def test_slow_readers_get_everything(hurried: Server) -> None:
    """A long answer is written at once: what counts is that it becomes less, not that it is read in a second."""
    task = hurried.ask("POST", "/message:send", message("pour 300").replace(b"true", b"false")).json()["task"]
    with hurried.connect(receive_buffer=256 * 1024) as wire:
        wire.ask("GET", f"/tasks/{task['id']}")
        length = int(wire.head().header("content-length") or 0)
        assert length > 19_000_000
        left = length
        while left:
            left -= len(wire.exactly(min(left, 500_000)))
            time.sleep(0.05)  # which is what makes it slow


def test_compressed_stream_requests_wait_without_cost(hurried: Server) -> None:
    """It once asked for more of its body without end, which took all of a core and outlived its client."""
    before = files(hurried)
    with ExitStack() as stack:
        wires = [stack.enter_context(hurried.connect()) for _ in range(3 * SLACK)]
        for wire in wires:
            wire.ask("POST", "/message:stream", gzip.compress(message("wait")), {"Content-Encoding": "gzip"})
            assert wire.head().status == 200
            wire.chunk()
        used = hurried.cpu_seconds()
        assert len(_comments(wires[0], 4)) == 4
        assert hurried.cpu_seconds() - used < 1.0, "of the two seconds that this takes"
    until(lambda: files(hurried) <= before + SLACK)


def test_password_guesses_are_throttled_per_address(tmp_path: Path) -> None:
    users = {name: {"password": hash_password(f"password of {name}")} for name in ("alice", "bob")}
    basic = {"type": "basic", "users": users}

    def brings(name: str, password: str) -> dict[str, str]:
        return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}

    with serving(tmp_path, {"auth": {"schemes": [basic]}}) as server, ExitStack() as stack:
        guesses = [stack.enter_context(server.connect(source="127.0.0.1")) for _ in range(90)]
        for number, wire in enumerate(guesses):
            wire.ask("GET", "/tasks", b"", brings("alice", f"guess {number}") | {"A2A-Version": "1.0"})
        with server.connect(source="127.0.0.2") as right:
            right.ask("GET", "/tasks", b"", brings("alice", "password of alice") | {"A2A-Version": "1.0"})
            assert right.answer().status == 200
        found = [wire.answer() for wire in guesses]
        assert {answer.status for answer in found} == {401, 429}
        assert [answer.status for answer in found].count(401) <= 10
        with server.connect(source="127.0.0.1") as other:
            other.ask("GET", "/tasks", b"", brings("bob", "password of bob") | {"A2A-Version": "1.0"})
            assert other.answer().status == 200


@pytest.mark.parametrize("behind_proxy", [False, True])
def test_one_address_cannot_take_the_connections_of_all(tmp_path: Path, behind_proxy: bool) -> None:
    auth = {"schemes": [{"type": "api-keys"}]}  # which nobody needs for /healthz
    settings = {"limits": {"connections": 2}, "server": {"behind_proxy": behind_proxy}, "auth": auth}
    with serving(tmp_path, settings) as server, ExitStack() as stack:
        found = []
        for number in range(4):
            wire = stack.enter_context(server.connect(source="127.0.0.2"))
            wire.ask("GET", "/healthz", b"", {})
            found.append(wire.answer().status)
            assert number < 2 or found[-1] == (200 if behind_proxy else 429)
        assert server.ask("GET", "/healthz").status == 200, "of another address"
