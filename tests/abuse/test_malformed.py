"""Requests that are none, or not what they say, byte by byte over real connections.

Whatever comes, the answer is a refusal in a few words or none at all, the server lives, and the next one is answered.
What the parser already refuses is here as well: it is somebody else's code, and may change its mind.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.abuse.server import Server
from tests.abuse.wire import Answer, HungUp

SECRET = "this-is-in-a-header-and-nowhere-else"
HEAD = f"Host: localhost\r\nContent-Type: application/json\r\nX-Secret: {SECRET}\r\n".encode()
CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "nothing"}}).encode()
CHUNKED = b"Transfer-Encoding: chunked\r\n"
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
BOMB = 60_000_000
Pack = Callable[[bytes], bytes]

INSIDES = re.compile(rb"Traceback|\.py\b|File \"|Exception|INTERNAL_ERROR|-32603|" + SECRET.encode())


def post(body: bytes = CALL, more: bytes = b"", *, target: bytes = b"/", version: bytes = b"HTTP/1.1") -> bytes:
    """A call, as it should be but for what is said here."""
    return get(b"Content-Length: %d\r\n" % len(body) + more, target=target, method=b"POST", version=version) + body


def chunked(body: bytes, more: bytes = b"") -> bytes:
    return get(CHUNKED + more, method=b"POST") + body


def get(more: bytes = b"", *, target: bytes = b"/", method: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    return b"%b %b %b\r\n%b%b\r\n" % (method, target, version, HEAD, more)


REFUSED = {
    # the length of a body
    "two lengths": post(more=b"Content-Length: 3\r\n"),
    "one length twice": post(more=b"Content-Length: %d\r\n" % len(CALL)),
    "lengths in a list": get(b"Content-Length: 5, 5\r\n", method=b"POST") + CALL,
    "a negative length": get(b"Content-Length: -1\r\n", method=b"POST") + CALL,
    "a length with a sign": get(b"Content-Length: +2\r\n", method=b"POST") + b"{}",
    "a hexadecimal length": get(b"Content-Length: 0x10\r\n", method=b"POST") + CALL,
    "an astronomic length": get(b"Content-Length: 99999999999999999999999\r\n", method=b"POST") + CALL,
    "an empty length": get(b"Content-Length: \r\n", method=b"POST") + CALL,
    "length and chunks": chunked(b"0\r\n\r\n", b"Content-Length: 5\r\n"),
    "chunks and length": post(b"0\r\n\r\n", CHUNKED),
    # the coding of a body
    "an unknown coding": get(b"Transfer-Encoding: xchunked\r\n", method=b"POST") + CALL,
    "chunks that are not last": get(b"Transfer-Encoding: chunked, gzip\r\n", method=b"POST") + b"0\r\n\r\n",
    "two codings": chunked(b"0\r\n\r\n", b"Transfer-Encoding: identity\r\n"),
    "a coding with a space": get(b"Transfer-Encoding : chunked\r\n", method=b"POST") + b"0\r\n\r\n",
    "a folded coding": get(b"Transfer-Encoding:\r\n chunked\r\n", method=b"POST") + b"0\r\n\r\n",
    "a coding after a tab": get(b"Transfer-Encoding:\tchunked\r\nContent-Length: 4\r\n", method=b"POST") + b"0\r\n\r\n",
    # chunks
    "a size that is none": chunked(b"zz\r\n{}\r\n0\r\n\r\n"),
    "a negative size": chunked(b"-2\r\n{}\r\n0\r\n\r\n"),
    "an astronomic size": chunked(b"f" * 17 + b"\r\n{}\r\n0\r\n\r\n"),
    "a size with a prefix": chunked(b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a chunk without an end": chunked(b"2\r\n{}0\r\n\r\n"),
    "a chunk longer than its size": chunked(b"1\r\n{}\r\n0\r\n\r\n"),
    "chunks that end with LF": chunked(b"2\n{}\n0\n\n"),
    "a trailer that is none": chunked(b"2\r\n{}\r\n0\r\nnothing\r\n\r\n"),
    # headers
    "a NUL in a header": get(b"X: a\0b\r\n"),
    "a CR in a header": get(b"X: a\rb\r\n"),
    "a header without a name": get(b": a\r\n"),
    "a space in a name": get(b"X Y: a\r\n"),
    "a folded header": get(b"X: a\r\n b\r\n"),
    "a header without a colon": get(b"nothing\r\n"),
    "lines that end with LF": b"GET / HTTP/1.1\nHost: localhost\n\n",
    # request lines
    "a space in an address": get(target=b"/a b"),
    "a NUL in an address": get(target=b"/a\0b"),
    "a byte above ASCII in an address": get(target=b"/\xff"),
    "UTF-8 in an address": get(target="/ä".encode()),
    "no address": get(target=b""),
    "a relative address": get(target=b"tasks"),
    "a query alone": get(target=b"?x"),
    "a method in small letters": get(method=b"get"),
    "an unknown method": get(method=b"FROB"),
    "another version": get(version=b"HTTP/9.9"),
    "another protocol": get(version=b"ICY/1.1"),
    "the beginning of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "the beginning of TLS": bytes.fromhex("16030100a5010000a10303") + bytes(160),
    "all bytes": bytes(range(256)) * 4,
    "text": b"Hello, is this where the agents are?\r\n\r\n",
}
"""What is no HTTP/1.1: 400."""


@pytest.fixture
def server(guarded: Server) -> Iterator[Server]:
    """The shared server, looked at after each test."""
    yield guarded
    guarded.check()


def exchange(server: Server, sent: bytes) -> Answer | None:
    """What is answered, or None if the server hangs up."""
    with server.connect() as wire, suppress(HungUp, ConnectionError):
        wire.say(sent)
        return wire.answer()
    return None


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_requests_are_400_and_close_the_connection(server: Server, name: str) -> None:
    with server.connect() as wire:
        wire.say(REFUSED[name])
        answer = wire.answer()
        assert (answer.status, answer.header("connection")) == (400, "close")
        assert wire.rest() == b""
    assert not INSIDES.search(answer.said)


ODD = {
    "HTTP/1.0": (post(version=b"HTTP/1.0"), 401),
    "HTTP/0.9": (b"GET /\r\n\r\n", 405),
    "empty lines in front": (b"\r\n" * 100 + post(), 401),
    "another host's address": (post(target=b"http://evil.example/"), 401),
    "another scheme's address": (get(target=b"ftp://evil.example/tasks"), 401),
    "an address with a user": (get(target=b"http://a:b@evil.example/tasks"), 401),
    "no host": (b"GET /healthz HTTP/1.1\r\n\r\n", 200),
    "two hosts": (get(b"Host: evil.example\r\n", target=b"/healthz"), 200),
    "an odd host": (get(b"Host: <script>\r\n", target=b"/healthz"), 200),
    "two types": (post(more=b"Content-Type: text/plain\r\n"), 401),
    "two keys": (post(more=b"X-API-Key: a\r\nX-API-Key: b\r\n"), 401),
    "two authorizations": (post(more=b"Authorization: Bearer a\r\nAuthorization: Basic b\r\n"), 401),
    "bytes above ASCII in a header": (post(more=b"X-API-Key: \xff\xfe\r\n"), 401),
    "a fragment": (get(target=b"/healthz#x"), 200),
    "two slashes": (get(target=b"//evil.example/x"), 404),
    "dots": (get(target=b"/../../etc/passwd"), 404),
    "encoded dots": (get(target=b"/%2e%2e/%2e%2e/healthz"), 404),
    "dots below an agent": (get(target=b"/agents/victim/../../healthz"), 404),
    "an encoded slash below the agents": (get(target=b"/agents%2fvictim%2ftasks"), 404),
    "dots among the schemas": (get(target=b"/schemas/../../../etc/passwd"), 404),
    "encoded dots among the schemas": (get(target=b"/schemas/%2e%2e%2f%2e%2e%2fetc%2fpasswd"), 404),
    "a backslash": (get(target=b"/..\\..\\windows"), 404),
    "half an escape": (get(target=b"/tasks/%"), 401),
    "an escape that is none": (get(target=b"/tasks/%zz"), 401),
    "a very long address": (get(target=b"/tasks/" + b"a" * 31_000), 401),
    "a very long query": (get(target=b"/tasks?a=" + b"%20" * 10_000), 401),
    "TRACE": (get(method=b"TRACE"), 405),
    "OPTIONS of everything": (get(method=b"OPTIONS", target=b"*"), 404),
    "a tunnel": (get(method=b"CONNECT", target=b"evil.example:443"), 501),
    "a tunnel to a path": (get(method=b"CONNECT", target=b"/"), 501),
    "a wish for WebSocket": (get(b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"), 405),
    "a wish for HTTP/2": (post(more=H2C), 401),
    "an unknown expectation": (post(more=b"Expect: miracles\r\n"), 401),
    "an unknown compression": (post(more=b"Content-Encoding: br\r\n"), 415),
    "twice compressed": (post(more=b"Content-Encoding: gzip, gzip\r\n"), 415),
    "gzip that is none": (post(more=b"Content-Encoding: gzip\r\n"), 401),
    "gzip that is cut": (post(gzip.compress(CALL)[:20], more=b"Content-Encoding: gzip\r\n"), 200),
    "gzip with something after it": (post(gzip.compress(CALL) + b"x", more=b"Content-Encoding: gzip\r\n"), 200),
    "deflate that is none": (post(b"\x78\x9c" + b"\xff" * 50, more=b"Content-Encoding: deflate\r\n"), 200),
    "a bomb in gzip": (post(gzip.compress(bytes(BOMB)), more=b"Content-Encoding: gzip\r\n"), 401),
    "a bomb in deflate": (post(zlib.compress(bytes(BOMB)), more=b"Content-Encoding: deflate\r\n"), 401),
    "a chunk with an extension": (chunked(b'%x;a="b"\r\n%b\r\n0\r\n\r\n' % (len(CALL), CALL)), 401),
    "an empty body": (post(b""), 200),
    "a body of empty chunks": (chunked(b"0\r\n\r\n"), 200),
    "a body where none belongs": (get(b"Content-Length: 5\r\n", target=b"/healthz") + b"hello", 200),
}
"""What is HTTP/1.1, if only just -> the status of its answer; 200 is JSON-RPC's for a body that is no request."""


@pytest.mark.parametrize("name", ODD)
def test_unusual_valid_requests_are_answered(server: Server, name: str) -> None:
    sent, status = ODD[name]
    answer = exchange(server, sent)
    assert answer is not None
    assert answer.status == status, answer
    assert not INSIDES.search(answer.said), answer
    if status == 200 and b"jsonrpc" in answer.body:
        assert answer.json()["error"]["code"] == -32700


@pytest.mark.parametrize(("coding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
def test_compressed_bomb_of_a_caller_is_too_large(server: Server, coding: bytes, pack: Pack) -> None:
    """A stranger's is refused as unauthenticated, before more of it is inflated (`ODD`)."""
    answer = exchange(server, post(pack(bytes(BOMB)), keyed(server) + b"Content-Encoding: %b\r\n" % coding))
    assert answer is not None
    assert answer.status == 413, answer


def test_two_hosts_are_none_to_the_card(server: Server) -> None:
    for more in (b"Host: evil.example\r\n", b"Host: localhost\r\n"):
        answer = exchange(server, get(more, target=b"/.well-known/agent-card.json"))
        assert answer is not None
        assert f"http://localhost:{server.port}/".encode() in answer.body
        assert b"evil" not in answer.body


# --- bytes that are counted as one thing and mean another -----------------------------------------------------------


def keyed(server: Server) -> bytes:
    return b"X-API-Key: %b\r\n" % server.keys["alice"].encode()


@pytest.mark.proves("4-43")
def test_upgrade_requests_keep_their_body(server: Server) -> None:
    """What Java's client sends first: its body must be read as one, whole or in pieces, and never as a request."""
    inner = get(target=b"/smuggled")
    for body in (CALL, inner):
        for wish in (
            H2C,
            b"Connection: upgrade\r\nUpgrade: websocket\r\n",
            b"Connection: upgrade\r\nUpgrade: x, y\r\n",
        ):
            head, _, _ = post(body, keyed(server) + wish).partition(body)
            with server.connect() as wire:
                for sent in (head + body, head, body, chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body), wish)):
                    wire.say(sent)
                answers = [wire.answer() for _ in range(3)]
                assert [answer.status for answer in answers] == [200, 200, 401 if body is CALL else 200]
                assert [b"nothing" in answer.body for answer in answers] == [body is CALL, body is CALL, False]
                wire.say(get(target=b"/healthz"))
                assert wire.answer().status == 200, "and the connection is where it should be"


def test_many_wishes_in_one_packet_are_as_many_requests(server: Server) -> None:
    with server.connect() as wire:
        wire.say(get(H2C, target=b"/healthz") * 500)
        assert {wire.answer().status for _ in range(500)} == {200}


def test_nothing_after_a_tunnel_is_a_request(server: Server) -> None:
    with server.connect() as wire:
        wire.say(get(method=b"CONNECT", target=b"evil.example:443") + get(target=b"/healthz"))
        assert wire.answer().status == 501
        assert wire.rest() == b""


def test_trailers_are_not_headers(server: Server) -> None:
    """A proxy that takes credentials out of headers does not look for them there."""
    body = b"%x\r\n%b\r\n0\r\n" % (len(CALL), CALL)
    for trailer in (keyed(server), b"X-A2A-Dialect: gen\r\n", b"Host: evil.example\r\n"):
        answer = exchange(server, chunked(body + trailer + b"\r\n"))
        assert answer is not None
        assert (answer.status, answer.header("x-a2a-dialect")) == (401, "v1")


def test_requests_one_behind_the_other_are_answered_in_order(server: Server) -> None:
    calls = [CALL.replace(b'"id": 1', b'"id": %d' % number) for number in range(20)]
    with server.connect() as wire:
        wire.say(b"".join(post(call, keyed(server)) for call in calls))
        assert [wire.answer().json()["id"] for _ in calls] == list(range(20))
        wire.say(post(CALL, keyed(server)) + b"NONSENSE\r\n\r\n")
        assert b"HTTP/1.1 400" in wire.rest()


CONTEXT = "of-what-breaks-off"


def saying(text: str) -> bytes:
    message = {"messageId": text, "contextId": CONTEXT, "role": "ROLE_USER", "parts": [{"text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}).encode()


def test_truncated_bodies_are_not_requests(server: Server) -> None:
    """Not even if what came could be one: a whole one after them shows that, and that they have had their turn."""
    known = keyed(server) + b"A2A-Version: 1.0\r\n"
    cut = post(saying("cut") + b" " * 5, known)[:-5]
    unended = chunked(b"%x\r\n%b\r\n" % (len(saying("unended")), saying("unended")), known)
    for sent in (cut, unended, get(b"Content-Length: 10\r\nExpect: 100-continue\r\n" + known, method=b"POST")):
        with server.connect() as wire:
            wire.say(sent)
        server.check()
    key = server.keys["alice"]
    task = server.ask("POST", "/", saying("whole"), X_API_Key=key, A2A_Version="1.0").json()["result"]["task"]
    there = server.ask("GET", f"/tasks?contextId={CONTEXT}", X_API_Key=key, A2A_Version="1.0").json()["tasks"]
    assert [one["id"] for one in there] == [task["id"]]


def test_expect_continue_is_answered_once_if_the_body_is_wanted(server: Server) -> None:
    expecting = b"Expect: 100-continue\r\n" + keyed(server)
    with server.connect() as wire:
        wire.say(get(expecting + b"Content-Length: %d\r\n" % len(CALL), method=b"POST"))
        assert wire.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        wire.say(CALL)
        assert wire.answer().json()["error"]["code"] == -32001
    with server.connect() as wire:
        wire.say(get(expecting + b"Content-Length: 1000\r\n", method=b"PUT"))
        assert wire.until(b"\r\n").startswith(b"HTTP/1.1 405")


# --- what comes back ------------------------------------------------------------------------------------------------

BREAKS = ["%0d%0aX-Injected:%20yes", "%0aX-Injected:%20yes", "%00", "%e2%80%a8", "%c4%8a%c4%8d", "%ff", "%ed%a0%80"]


@pytest.mark.parametrize("text", BREAKS)
def test_nothing_that_is_sent_begins_a_header_of_the_answer(server: Server, text: str) -> None:
    """Line breaks in everything that an answer might repeat: paths, names, versions, extensions, origins."""
    key = server.keys["alice"]
    raw = "a" + re.sub("%([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), text)
    for target, headers in (
        (f"/tasks/{text}", {}),
        (f"/tasks/x{text}:cancel", {}),
        (f"/{text}/tasks", {}),
        (f"/tasks?pageToken={text}&contextId={text}&after={text}", {}),
        (f"/tasks/x:subscribe?after={text}", {}),
        (f"/agents/{text}/tasks", {}),
        (f"/.well-known/agent-card.json?dialect={text}", {}),
        (f"/schemas/{text}.json", {}),
        (f"/?dialect={text}&A2A-Version={text}", {}),
        ("/tasks", {"A2A-Version": text, "A2A-Extensions": text, "Accept": text, "Origin": text}),
        ("/tasks", {"Accept-Encoding": text, "If-None-Match": text, "If-Modified-Since": text, "Last-Event-ID": text}),
    ):
        for method in ("GET", "HEAD", "POST", "DELETE"):
            answer = server.ask(
                method, target, b"", X_API_Key=key, **{k.replace("-", "_"): v for k, v in headers.items()}
            )
            assert answer.status < 500, (target, answer)
            names = {name for name, _ in answer.headers}
            assert not any(name.startswith("x-injected") for name in names)
            assert all(value.isprintable() for _, value in answer.headers), answer.headers
            assert not INSIDES.search(answer.said)
    for body in (
        {"jsonrpc": "2.0", "id": raw, "method": "GetTask", "params": {"id": raw}},
        {"jsonrpc": "2.0", "id": 1, "method": raw, "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": raw}},
    ):
        answer = server.ask("POST", "/", json.dumps(body).encode(), X_API_Key=key, Accept="text/event-stream")
        assert answer.status < 500
        assert all(value.isprintable() for _, value in answer.headers), answer.headers
