"""The interfaces of an agent card that this client may and can use.

The order of a card is the agent's preference (A2A 1.0, 8.3.2) and is kept. An author of a card could send a caller,
and its credentials, anywhere. So an address counts only if the host that served the card may speak for it:

- the same host on any port, and hosts below its name, but never http in a card that was served over https
- any host that the caller allows, and any host of a card signed by a pinned key: over https

All names and addresses of the loopback are one host. Nothing is fetched or opened here.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from urllib.parse import SplitResult, urljoin, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from accord.model import AgentCard, AgentInterface
from accord.protocol import urls
from accord.protocol.operations import DialectName

JSONRPC, REST, GRPC = "JSONRPC", "HTTP+JSON", "GRPC"

_BINDINGS: Mapping[str, str] = {
    "JSONRPC": JSONRPC,
    "JSON-RPC": JSONRPC,
    "HTTP+JSON": REST,
    "REST": REST,
    "GRPC": GRPC,
}
"""Names of the bindings in cards and options, in capitals."""

_WITH_REST = frozenset({DialectName.V1, DialectName.V03})
"""The dialects with other bindings than JSON-RPC."""


class AgentEndpoint(Struct, frozen=True, kw_only=True):
    """An endpoint of an agent. Requests to it must name its `tenant`, if it has one."""

    binding: str
    dialect: DialectName
    url: str
    tenant: str | None = None

    def __str__(self) -> str:
        return f"{self.binding} {self.dialect.value} at {self.url}"


class NoUsableEndpoint(Exception):
    """The agent has no endpoint that this client can use with the requested options."""


def usable_endpoints(
    card: AgentCard, *, binding: str | None = None, dialect: DialectName | None = None
) -> tuple[AgentEndpoint, ...]:
    """Return the usable endpoints of an agent in its order of preference, or raise `NoUsableEndpoint`.

    `binding` excludes the other bindings. `dialect` excludes the other dialects, unless no interface states it. Then
    it is used with the card's JSON-RPC endpoints, because not every dialect has a version to state.
    """
    wanted = None if binding is None else parse_binding(binding)
    endpoints = list(dict.fromkeys(_parse_endpoints(card)))
    usable = [one for one in endpoints if wanted in (None, one.binding) and dialect in (None, one.dialect)]
    if not usable and dialect is not None and wanted in (None, JSONRPC):
        addresses = dict.fromkeys(endpoint.url for endpoint in endpoints if endpoint.binding == JSONRPC)
        usable = [AgentEndpoint(binding=JSONRPC, dialect=dialect, url=url) for url in addresses]
    if wanted is None and not _has_grpc():
        # gRPC's ImportError names the missing extra.
        usable = [endpoint for endpoint in usable if endpoint.binding != GRPC] or usable
    if not usable:
        raise NoUsableEndpoint(_refusal(card, wanted, dialect))
    return tuple(usable)


def parse_binding(binding: str) -> str:
    """Return a binding by any of its names, or raise `NoUsableEndpoint`."""
    parsed = _BINDINGS.get(binding.upper())
    if parsed is None:
        raise NoUsableEndpoint(f"There is no binding {binding!r}; known are {JSONRPC}, {REST} and {GRPC}")
    return parsed


def dialect_of(card: AgentCard, interface: AgentInterface) -> DialectName | None:
    """Return the dialect of an interface, or None if its version is unknown."""
    if card.profile is not None and card.profile.a2a_version is not None:
        return DialectName.VAULT  # AgentVault's cards have version numbers of their own, 1.0 among them
    if interface.protocol_version == DialectName.GEN.value:
        return DialectName.GEN
    major = interface.protocol_version.strip().removeprefix("v").partition(".")[0]
    return {"1": DialectName.V1, "0": DialectName.V03}.get(major)


def _parse_endpoints(card: AgentCard) -> Iterator[AgentEndpoint]:
    for interface in card.supported_interfaces:
        binding = _BINDINGS.get(interface.protocol_binding.upper())
        dialect = dialect_of(card, interface)
        if binding is not None and dialect is not None and (binding == JSONRPC or dialect in _WITH_REST):
            yield AgentEndpoint(binding=binding, dialect=dialect, url=interface.url, tenant=interface.tenant or None)


def _has_grpc() -> bool:
    return find_spec("grpc") is not None and find_spec("a2a") is not None


def _refusal(card: AgentCard, binding: str | None, dialect: DialectName | None) -> str:
    asked = " ".join(one for one in (binding, dialect and dialect.value) if one)
    offered = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
    what = f"does not support {asked}" if asked else "supports no known protocol"
    return f"Agent {card.name!r} {what}; its card offers {offered or 'no interface at all'}"


PROFILES = ("0.2", "1.0")
"""Known versions of AgentVault's profile: its document's, and the one its library writes."""

UNTRUSTED_HOST = "may not name"
"""Part of the finding about an address that a caller could allow."""


class CardFinding(Struct, frozen=True, kw_only=True):
    """A finding about a card: its path in the document, and the problem."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


def describe_findings(findings: Iterable[CardFinding]) -> list[str]:
    """Return findings as readable lines. A problem in several places is listed once."""
    places: dict[str, list[str]] = {}
    for finding in findings:
        places.setdefault(finding.what, []).append(finding.where)
    return [
        str(CardFinding(where=where[0] if len(where) == 1 else f"{where[0]} and {len(where) - 1} more", what=what))
        for what, where in places.items()
    ]


class CardHostTrust(Struct, frozen=True, kw_only=True):
    """The further hosts that a card may name: those that the caller allows, as names or `*.name`.

    `is_signed` means that a pinned key signed the card, which may then name any address.
    """

    allow_hosts: frozenset[str] = frozenset()
    is_signed: bool = False


def keep_usable_interfaces(
    card: AgentCard, served: str, trust: CardHostTrust
) -> tuple[AgentCard, tuple[CardFinding, ...]]:
    """Return a card with its usable interfaces, and the findings. `served` is the card's address."""
    findings = list(_find_problems(card))
    usable = []
    for at, stated in enumerate(card.supported_interfaces):
        where = f"supportedInterfaces[{at}].url"
        interface = _with_usable_url(stated, served, where, findings)
        if (objection := _refusal_of_url(interface.url, served, trust)) is not None:
            findings.append(CardFinding(where=where, what=f"{objection}; it is not used"))
        else:
            usable.append(interface)
    return replace(card, supported_interfaces=tuple(usable)), tuple(findings)


def with_home_interface(card: AgentCard, served: str) -> AgentCard:
    """Return a card of the generic dialect with the address that served it, because such a card need not name one."""
    base = served.partition("/.well-known/")[0].removesuffix("/") + "/"
    home = AgentInterface(url=base, protocol_binding="JSONRPC", protocol_version=DialectName.GEN.value)
    return replace(card, supported_interfaces=(home,))


def _find_problems(card: AgentCard) -> Iterator[CardFinding]:
    if not card.skills:
        yield CardFinding(where="skills", what="The card names no skill")
    stated = card.profile.a2a_version if card.profile is not None else None
    if stated is not None and ".".join(stated.split(".")[:2]) not in PROFILES:
        what = f"Unknown version {stated!r}; {PROFILES[0]} is used"
        yield CardFinding(where="capabilities.a2aVersion", what=what)
    for at, interface in enumerate(card.supported_interfaces):
        if dialect_of(card, interface) is None:
            what = f"Unknown version {interface.protocol_version!r}"
            yield CardFinding(where=f"supportedInterfaces[{at}].protocolVersion", what=what)
    for at, requirement in enumerate(card.security_requirements):
        for name in requirement.schemes.keys() - card.security_schemes.keys():
            where = f"securityRequirements[{at}]"
            yield CardFinding(where=where, what=f"Scheme {name!r} is required, but not described in securitySchemes")


def _with_usable_url(interface: AgentInterface, served: str, where: str, findings: list[CardFinding]) -> AgentInterface:
    """Return an interface with a usable address, if its stated address has only one meaning."""
    url = interface.url
    if url.startswith("/"):
        findings.append(CardFinding(where=where, what=f"{url!r} has no host; it is read as relative to the card"))
        return replace(interface, url=urljoin(served, url))
    parts, own = urls.split_url(url), urls.split_url(served)
    if urls.is_unspecified(parts.hostname or ""):
        host = f"[{own.hostname}]" if ":" in (own.hostname or "") else own.hostname
        netloc = f"{host}:{parts.port}" if parts.port else str(host)
        findings.append(
            CardFinding(
                where=where, what=f"{parts.hostname} is not an address that can be called; {netloc} is used instead"
            )
        )
        moved = urlunsplit(parts._replace(netloc=netloc)) if parts.scheme else netloc
        return replace(interface, url=moved)
    return interface


def _refusal_of_url(url: str, served: str, trust: CardHostTrust) -> str | None:
    """Return why an address may not be used, or None."""
    parts, own = urls.split_url(url), urls.split_url(served)
    host, home = _host(parts), _host(own)
    if parts.scheme not in ("http", "https", "") or not host:
        return f"{url!r} is not an http or https address"
    if parts.username is not None:
        return "The address contains a user name; credentials do not belong on a card"
    if host == home or host.endswith(f".{home}"):
        if parts.scheme == "http" and own.scheme == "https" and host != urls.LOCALHOST:
            return f"{url!r} is not encrypted, but the card was"
        return None
    if not (trust.is_signed or _is_allowed(host, trust.allow_hosts)):
        return f"The card was served by {home}, which {UNTRUSTED_HOST} {host} (allow that host, or pin a signing key)"
    if parts.scheme == "http" and host != urls.LOCALHOST:
        return f"{url!r} is on another host than the card and not encrypted"
    return None


def _is_allowed(host: str, allowed: Iterable[str]) -> bool:
    return any(
        _host(urls.split_url(name)) == host or (name[:2] == "*." and host.endswith(name[1:].lower()))
        for name in allowed
    )


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").removesuffix(".")
    return urls.LOCALHOST if urls.is_loopback(host) else host
