"""What is wrong or remarkable about a card, for people; and which of its addresses may be used.

Whoever can put a card somewhere could send a caller, and its credentials, anywhere. So an address counts only if the
host that served the card may speak for it:

- the same host on any port, and hosts below its name, but never http in a card that came over https;
- any host that the caller allows, and, with a card signed by a key that the caller has pinned, any host: over https.

All names and addresses of the loopback are one host. Nothing is fetched here; `discovery` is above.
"""

from collections.abc import Iterable, Iterator
from urllib.parse import SplitResult, urljoin, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from accord.client.selection import dialect_of
from accord.model import AgentCard, AgentInterface
from accord.protocol import hosts
from accord.protocol.operations import DialectName

PROFILES = ("0.2", "1.0")
"""Versions of AgentVault's profile that are known here: that of its document, and what its library writes."""

FOREIGN = "does not speak for"
"""What is said of a host whose card names an address that a caller could allow."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing about a card: where, by its path in the document, and what."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


def told(findings: Iterable[Finding]) -> list[str]:
    """Return findings for a person, each thing once: a card may have it in several places."""
    places: dict[str, list[str]] = {}
    for finding in findings:
        places.setdefault(finding.what, []).append(finding.where)
    return [str(Finding(where=_listed(where), what=what)) for what, where in places.items()]


def _listed(places: list[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"


class Trust(Struct, frozen=True, kw_only=True):
    """Whom a card may name: the hosts that the caller allows besides, as names or `*.name`.

    `is_signed` if the card is by a pinned key, which then speaks for all its addresses.
    """

    allow_hosts: frozenset[str] = frozenset()
    is_signed: bool = False


def usable(card: AgentCard, served: str, trust: Trust) -> tuple[AgentCard, tuple[Finding, ...]]:
    """Return a card with those of its interfaces that may be used, and what was found; `served` is where it was."""
    findings = list(_about(card))
    kept = []
    for at, stated in enumerate(card.supported_interfaces):
        where = f"supportedInterfaces[{at}].url"
        interface = _placed(stated, served, where, findings)
        if (objection := _objection(interface.url, served, trust)) is not None:
            findings.append(Finding(where=where, what=f"{objection}; it is not used"))
        else:
            kept.append(interface)
    return replace(card, supported_interfaces=tuple(kept)), tuple(findings)


def at_home(card: AgentCard, served: str) -> AgentCard:
    """Return a card of the generic dialect, which need not name an address, with that of the place where it was."""
    base = served.partition("/.well-known/")[0].removesuffix("/") + "/"
    home = AgentInterface(url=base, protocol_binding="JSONRPC", protocol_version=DialectName.GEN.value)
    return replace(card, supported_interfaces=(home,))


def _about(card: AgentCard) -> Iterator[Finding]:
    if not card.skills:
        yield Finding(where="skills", what="The card names no skill")
    stated = card.profile.a2a_version if card.profile is not None else None
    if stated is not None and ".".join(stated.split(".")[:2]) not in PROFILES:
        what = f"Version {stated!r} is not known here; it is spoken to as {PROFILES[0]}"
        yield Finding(where="capabilities.a2aVersion", what=what)
    for at, interface in enumerate(card.supported_interfaces):
        if dialect_of(card, interface) is None:
            what = f"Version {interface.protocol_version!r} is not known here"
            yield Finding(where=f"supportedInterfaces[{at}].protocolVersion", what=what)
    for at, requirement in enumerate(card.security_requirements):
        for name in requirement.schemes.keys() - card.security_schemes.keys():
            where = f"securityRequirements[{at}]"
            yield Finding(where=where, what=f"Scheme {name!r} is required, but not described in securitySchemes")


def _placed(interface: AgentInterface, served: str, where: str, findings: list[Finding]) -> AgentInterface:
    """Return an interface with an address that can be used from here, if what it states means only one thing."""
    url = interface.url
    if url.startswith("/"):
        findings.append(Finding(where=where, what=f"{url!r} has no host; it is read as relative to the card"))
        return replace(interface, url=urljoin(served, url))
    parts, own = hosts.split(url), hosts.split(served)
    if hosts.is_unspecified(parts.hostname or ""):
        host = f"[{own.hostname}]" if ":" in (own.hostname or "") else own.hostname
        netloc = f"{host}:{parts.port}" if parts.port else str(host)
        findings.append(Finding(where=where, what=f"{parts.hostname} is no address to call; {netloc} is used instead"))
        moved = urlunsplit(parts._replace(netloc=netloc)) if parts.scheme else netloc
        return replace(interface, url=moved)
    return interface


def _objection(url: str, served: str, trust: Trust) -> str | None:
    """Return why an address may not be used, or None."""
    parts, own = hosts.split(url), hosts.split(served)
    host, home = _host(parts), _host(own)
    if parts.scheme not in ("http", "https", "") or not host:
        return f"{url!r} is no http or https address"
    if parts.username is not None:
        return "The address has a user in it; credentials do not belong on a card"
    if host == home or host.endswith(f".{home}"):
        if parts.scheme == "http" and own.scheme == "https" and host != hosts.LOCALHOST:
            return f"{url!r} is not encrypted, but the card was"
        return None
    if not (trust.is_signed or _is_allowed(host, trust.allow_hosts)):
        return f"The card was served by {home}, which {FOREIGN} {host} (allow that host, or pin a signing key)"
    if parts.scheme == "http" and host != hosts.LOCALHOST:
        return f"{url!r} is on another host than the card and not encrypted"
    return None


def _is_allowed(host: str, allowed: Iterable[str]) -> bool:
    return any(
        _host(hosts.split(name)) == host or (name[:2] == "*." and host.endswith(name[1:].lower())) for name in allowed
    )


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").removesuffix(".")
    return hosts.LOCALHOST if hosts.is_loopback(host) else host
