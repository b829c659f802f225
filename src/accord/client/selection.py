"""From a card to the ways to talk to its agent: binding, dialect and address, the best first.

The card's own order is the agent's preference (A2A 1.0, 8.3.2) and is kept; what this client cannot speak is left out.
It opens nothing: the client makes a link of the first way, and of the next if that leads nowhere.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from msgspec import Struct

from accord.model import AgentCard, AgentInterface
from accord.protocol.operations import DialectName

JSONRPC, REST, GRPC = "JSONRPC", "HTTP+JSON", "GRPC"

_BINDINGS: Mapping[str, str] = {
    "JSONRPC": JSONRPC,
    "JSON-RPC": JSONRPC,
    "HTTP+JSON": REST,
    "REST": REST,
    "GRPC": GRPC,
}
"""What cards, and people, call the bindings, in capitals."""

_WITH_REST = frozenset({DialectName.V1, DialectName.V03})
"""The dialects that have other bindings than JSON-RPC."""


class Way(Struct, frozen=True, kw_only=True):
    """One way to talk to an agent; `tenant` is what requests over it have to name."""

    binding: str
    dialect: DialectName
    url: str
    tenant: str | None = None

    def __str__(self) -> str:
        return f"{self.binding} {self.dialect.value} at {self.url}"


class NoWay(Exception):
    """The agent speaks nothing that this client, as it was asked to, can speak."""


def ways(card: AgentCard, *, binding: str | None = None, dialect: DialectName | None = None) -> tuple[Way, ...]:
    """Return the ways to talk to an agent, those it prefers first, or raise `NoWay`.

    Asking for a `binding` leaves the others out. Asking for a `dialect` does so too, unless no interface states it:
    then it is spoken over JSON-RPC wherever the card has that, since not every dialect has a version to state.
    """
    wanted = None if binding is None else named(binding)
    known = list(dict.fromkeys(_known(card)))
    found = [way for way in known if wanted in (None, way.binding) and dialect in (None, way.dialect)]
    if not found and dialect is not None and wanted in (None, JSONRPC):
        over_rpc = [way for way in known if way.binding == JSONRPC]
        found = list(dict.fromkeys(Way(binding=JSONRPC, dialect=dialect, url=way.url) for way in over_rpc))
    if wanted is None and not _has_grpc():
        found = [way for way in found if way.binding != GRPC] or found  # the last gets the ImportError that helps
    if not found:
        raise NoWay(_refusal(card, wanted, dialect))
    return tuple(found)


def named(binding: str) -> str:
    """Return a binding by any of its names, or raise `NoWay`."""
    found = _BINDINGS.get(binding.upper())
    if found is None:
        raise NoWay(f"There is no binding {binding!r}; known are {JSONRPC}, {REST} and {GRPC}")
    return found


def dialect_of(card: AgentCard, interface: AgentInterface) -> DialectName | None:
    """Return the dialect that an interface states, or None for a version that is not known here."""
    if card.profile is not None and card.profile.a2a_version is not None:
        return DialectName.VAULT  # its cards state versions of their own numbering, 1.0 among them
    if interface.protocol_version == DialectName.GEN.value:
        return DialectName.GEN
    major = interface.protocol_version.strip().removeprefix("v").partition(".")[0]
    return {"1": DialectName.V1, "0": DialectName.V03}.get(major)


def _known(card: AgentCard) -> Iterator[Way]:
    for interface in card.supported_interfaces:
        binding = _BINDINGS.get(interface.protocol_binding.upper())
        dialect = dialect_of(card, interface)
        if binding is not None and dialect is not None and (binding == JSONRPC or dialect in _WITH_REST):
            yield Way(binding=binding, dialect=dialect, url=interface.url, tenant=interface.tenant or None)


def _has_grpc() -> bool:
    return find_spec("grpc") is not None and find_spec("a2a") is not None


def _refusal(card: AgentCard, binding: str | None, dialect: DialectName | None) -> str:
    asked = " ".join(one for one in (binding, dialect and dialect.value) if one)
    offered = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
    what = f"does not speak {asked}" if asked else "speaks nothing that is known here"
    return f"Agent {card.name!r} {what}; its card offers {offered or 'no interface at all'}"
