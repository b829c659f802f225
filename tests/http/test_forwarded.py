"""What proxies say about requests, and when it is believed."""

from collections.abc import Mapping
from typing import Any

import pytest

from accord.http.asgi import Receive, Scope, Send
from accord.http.proxy_headers import ProxyHeaders
from accord.protocol.urls import parse_networks
from tests.cases import each

TRUSTED = parse_networks(("10.0.0.0/8", "127.0.0.1", "::1"))


async def seen(headers: Mapping[str, str | list[str]], peer: str = "127.0.0.1", **more: Any) -> Scope:
    """Return what an application behind a proxy gets to see; a header that is a list has a line for each member."""
    lines = [(name, line) for name, said in headers.items() for line in ([said] if isinstance(said, str) else said)]
    found: list[Scope] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(scope)

    scope = {
        "type": "http",
        "scheme": "http",
        "path": "/tasks",
        "raw_path": b"/tasks",
        "root_path": "",
        "client": (peer, 5000),
        "headers": [(b"host", b"inside:8000"), *((k.lower().encode(), v.encode()) for k, v in lines)],
        **more,
    }
    await ProxyHeaders(inner, TRUSTED)(scope, None, None)  # type: ignore[arg-type]  # neither is used
    return found[0]


def host(scope: Scope) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == b"host"]


async def test_a_trusted_proxy_is_believed() -> None:
    scope = await seen(
        {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "agents.example", "X-Forwarded-For": "203.0.113.9"}
    )
    assert (scope["scheme"], host(scope), scope["client"][0]) == ("https", [b"agents.example"], "203.0.113.9")


async def test_a_trusted_proxy_is_believed_by_either_form_of_its_address() -> None:
    scope = await seen({"X-Forwarded-Proto": "https"}, peer="::ffff:127.0.0.1")
    assert scope["scheme"] == "https"


async def test_anybody_else_is_not() -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example", "X-Forwarded-For": "1.1.1.1"}
    scope = await seen(headers | {"X-Forwarded-Prefix": "/x"}, peer="203.0.113.5")
    assert (scope["scheme"], host(scope), scope["client"][0]) == ("http", [b"inside:8000"], "203.0.113.5")
    assert (scope["path"], scope["root_path"]) == ("/tasks", "")


@pytest.mark.parametrize(
    ("chain", "caller"),
    [
        ("1.1.1.1, 203.0.113.9, 10.1.2.3", "203.0.113.9"),  # the first was invented by the caller
        ("10.9.9.9, 10.1.2.3", "127.0.0.1"),
        ("203.0.113.9, nonsense", "127.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("203.0.113.9, ::ffff:10.1.2.3", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("", "127.0.0.1"),
    ],
)
async def test_the_caller_is_the_last_stranger_in_the_chain(chain: str, caller: str) -> None:
    assert (await seen({"X-Forwarded-For": chain}))["client"][0] == caller


async def test_a_prefix_that_the_proxy_took_off_is_put_back() -> None:
    scope = await seen({"X-Forwarded-Prefix": "/team/"})
    assert (scope["root_path"], scope["path"], scope["raw_path"]) == ("/team", "/team/tasks", b"/team/tasks")


TWO_PROXIES = {"X-Forwarded-For": "1.1.1.1, 203.0.113.9, 10.1.2.3"}
"""What a caller has invented, its address, and the proxy that it came to; the peer is another."""


@pytest.mark.parametrize("lines", [["1.1.1.1", "203.0.113.9", "10.1.2.3"], ["1.1.1.1, 203.0.113.9", "10.1.2.3"]])
async def test_all_lines_of_a_chain_count(lines: list[str]) -> None:
    """HAProxy adds its address in a second line, and leaves the first as the caller sent it."""
    assert (await seen({"X-Forwarded-For": lines}))["client"][0] == "203.0.113.9"


@pytest.mark.parametrize("member", ["203.0.113.9:50123", "[2001:db8::9]:50123", "2001:db8::9", "[2001:db8::9]"])
async def test_an_address_may_have_a_port(member: str) -> None:
    """Azure Application Gateway adds one; without the address all callers would share the limits of the proxy's."""
    address = (await seen({"X-Forwarded-For": f"1.1.1.1, {member}"}))["client"][0]
    assert address in ("203.0.113.9", "2001:db8::9")


@pytest.mark.parametrize(
    "stated",
    [
        ("gopher, https, http", "evil.example, agents.example, inner", "1, 8443, 80", "/evil, /team, /inner"),
        (["gopher", "https", "http"], ["evil.example", "agents.example, inner"], ["1", "8443", "80"], ["/team", "/in"]),
        ("https", "agents.example", "8443", "/team"),
        (["https, http"], ["agents.example", "inner"], ["8443", "80"], ["/team, /in"]),
    ],
)
async def test_the_proxy_nearest_to_the_caller_counts_of_every_header(stated: tuple[str | list[str], ...]) -> None:
    names = ("X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Prefix")
    scope = await seen(TWO_PROXIES | dict(zip(names, stated, strict=True)))
    found = (scope["scheme"], host(scope), scope["root_path"])
    assert found == ("https", [b"agents.example:8443"], "/team")


async def test_one_proxy_counts_by_its_own_header_entry() -> None:
    headers = {"X-Forwarded-For": ["1.1.1.1", "203.0.113.9"], "X-Forwarded-Host": ["evil.example", "agents.example"]}
    assert host(await seen(headers)) == [b"agents.example"]


BAD_PREFIXES = ["//evil.example", "/\\evil.example", "/team//evil", "/team/..", "/./team", "/a b", "/a?b", "team", ""]


@each("prefix", BAD_PREFIXES)
async def test_invalid_prefixes_are_ignored(prefix: str) -> None:
    scope = await seen({"X-Forwarded-Prefix": prefix})
    assert (scope["root_path"], scope["path"]) == ("", "/tasks")


async def test_invalid_schemes_are_ignored() -> None:
    assert (await seen({"X-Forwarded-Proto": "gopher"}))["scheme"] == "http"


@each(
    ("said", "port", "stated"),
    [
        ("a.example", "8443", "a.example:8443"),
        ("a.example", "443", "a.example"),
        ("a.example", "80", "a.example"),  # said by a proxy behind the one that ends TLS: nobody has https there
        ("a.example:9000", "8443", "a.example:9000"),
        ("[2001:db8::1]", "8443", "[2001:db8::1]:8443"),
        ("[2001:db8::1]:9000", "8443", "[2001:db8::1]:9000"),
        ("a.example", "9000, 8443", "a.example:8443"),
        ("a.example", "0", "a.example"),
        ("a.example", "65536", "a.example"),
        ("a.example", "8443 ", "a.example:8443"),
        ("a.example", "²", "a.example"),
        ("a.example", "-1", "a.example"),
        ("a.example", "80/x@evil", "a.example"),
        ("a.example", "9" * 5000, "a.example"),
        ("", "8443", "inside:8000"),
    ],
)
async def test_a_port_that_is_not_the_usual_one_belongs_to_the_host(said: str, port: str, stated: str) -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": said, "X-Forwarded-Port": port}
    assert host(await seen(headers)) == [stated.encode()]


async def test_all_peers_can_be_trusted() -> None:
    found: list[Scope] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        found.append(scope)

    scope = {
        "type": "http",
        "client": ("203.0.113.5", 1),
        "scheme": "http",
        "path": "/",
        "headers": [(b"x-forwarded-proto", b"https")],
    }
    await ProxyHeaders(inner, parse_networks(("*",)))(scope, None, None)  # type: ignore[arg-type]
    assert found[0]["scheme"] == "https"


async def test_peers_without_an_address_are_untrusted() -> None:
    scope = await seen({"X-Forwarded-Proto": "https"}, client=None)
    assert scope["scheme"] == "http"
