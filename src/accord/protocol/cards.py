"""Agent cards in all dialects at once, and the catalog of many cards.

The public card is the only document in several dialects at once (B-03). Their fields do not collide, except
`capabilities`, which is a list in the generic dialect and is therefore only in that dialect's own card. With only A2A
1.0 enabled the card is strictly 1.0. Bindings serve cards and set their caching headers.
"""

from collections.abc import Mapping, Set
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from accord.model import AgentCard, AgentProvider
from accord.protocol import codec
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName

V1, V03, VAULT, GEN, RELAY = DialectName

_SHARED = (V1, V03, VAULT)
"""The dialects whose fields fit into one document; relay reads 0.3's."""


def encode_card(card: AgentCard, enabled: Set[DialectName], only: DialectName | None = None) -> bytes:
    """Write the card for all enabled dialects together, or for the one in `only`."""
    if V1 is not only and (only is not None or enabled != {V1}):
        card = replace(card, signatures=())  # they cover the 1.0 card alone (8.4) and verify nothing else
    if only is not None:
        return codec.encode(_written(card, only))
    document: dict[str, Any] = {}
    card = _with_provider(card) if VAULT in enabled else card
    for dialect in _SHARED:
        if dialect in enabled or (dialect is V03 and RELAY in enabled):
            document = _merged(document, _written(card, dialect))
    if GEN in enabled:
        document = _with_generic(document, card)
    return codec.encode(document)


def decode_card(data: bytes) -> AgentCard:
    """Read a card of any dialect, recognized by the members that only one dialect has.

    A registry name is AgentVault's. Cards of 0.3 may contain one as well, but always have a `version`.
    """
    look = codec.decode(data, _card_look)
    if look.supported_interfaces is not None:
        return DIALECTS[V1].decode_card(data)
    if look.auth_schemes is not None or (look.human_readable_id is not None and look.version is None):
        return DIALECTS[VAULT].decode_card(data)
    if isinstance(look.capabilities, list):
        return DIALECTS[GEN].decode_card(data)
    return DIALECTS[V03].decode_card(data)


class _CardLook(Struct, rename="camel"):
    supported_interfaces: Any = None
    auth_schemes: Any = None
    human_readable_id: Any = None
    version: Any = None
    capabilities: Any = None


_card_look = Decoder(_CardLook)


# --- the public card ------------------------------------------------------------------------------------------------


def _written(card: AgentCard, dialect: DialectName) -> dict[str, Any]:
    """Write a card in a dialect; in 0.3 the extended card requires authentication (7.10), and so security schemes."""
    if dialect in (V03, RELAY) and not card.security_schemes:
        card = replace(card, capabilities=replace(card.capabilities, extended_agent_card=None))
    return DIALECTS[dialect].encode_card(card)


def _with_provider(card: AgentCard) -> AgentCard:
    """Return a card with a provider, derived if missing, for all dialects.

    AgentVault requires a provider, and an incomplete one breaks readers of other dialects.
    """
    if card.provider is not None or not card.supported_interfaces:
        return card
    owner = DIALECTS[VAULT].encode_card(card)["provider"]["name"]
    return replace(card, provider=AgentProvider(organization=owner, url=card.supported_interfaces[0].url))


def _with_generic(document: dict[str, Any], card: AgentCard) -> dict[str, Any]:
    generic = DIALECTS[GEN].encode_card(card)
    if not document:
        return generic
    generic.pop("capabilities", None)
    merged: dict[str, Any] = _merged(document, generic)
    for skill, stated in zip(merged.get("skills", ()), card.skills, strict=False):
        if stated.input_schema is not None:
            skill["inputSchema"] = stated.input_schema
    return merged


def _merged(first: Any, second: Any) -> Any:
    """Merge two documents; where both have a value that is not a container, the first is kept."""
    if isinstance(first, dict) and isinstance(second, dict):
        extra = {key: value for key, value in second.items() if key not in first}
        return {key: _merged(value, second[key]) if key in second else value for key, value in first.items()} | extra
    if isinstance(first, list) and isinstance(second, list) and _are_objects(first) and _are_objects(second):
        pairs = [_merged(one, other) for one, other in zip(first, second, strict=False)]
        return pairs + first[len(second) :] + second[len(first) :]
    return first


def _are_objects(items: list[Any]) -> bool:
    return all(isinstance(item, dict) for item in items)


# --- the catalog ----------------------------------------------------------------------------------------------------

CATALOG_TYPE = "application/ai-catalog+json"
CARD_TYPE = "application/a2a-agent-card+json"


def encode_catalog(cards: Mapping[str, AgentCard]) -> bytes:
    """Write the AI Catalog (ai-catalog.io, 1.0) of the agents whose cards are at these URLs.

    Names and descriptions repeat the cards', so that a directory need not fetch each card to show them.
    """
    hosts = [urlsplit(url).hostname or "" for url in cards]
    own = [card for card in cards.values() if _name(card) == card.name]  # others have registry names
    providers = [card.provider.organization for card in own if card.provider is not None]
    document: dict[str, Any] = {
        "specVersion": "1.0",
        "entries": [_entry(url, host, card) for (url, card), host in zip(cards.items(), hosts, strict=True)],
    }
    if hosts:
        document["host"] = {"displayName": (providers or hosts)[0], "identifier": hosts[0]}
    return codec.encode(document)


def _entry(url: str, host: str, card: AgentCard) -> dict[str, Any]:
    profile_tags = card.profile.tags if card.profile else ()
    tags = list(dict.fromkeys((*profile_tags, *(tag for skill in card.skills for tag in skill.tags))))
    entry: dict[str, Any] = {
        "identifier": f"urn:air:{quote(host, safe='')}:a2a:{quote(_name(card), safe='')}",
        "displayName": card.name,
        "type": CARD_TYPE,
        "url": url,
        "version": card.version,
    }
    if card.description:
        entry["description"] = card.description
    return entry | {"tags": tags} if tags else entry


def _name(card: AgentCard) -> str:
    """Return the name of an agent in a list: its registry name, if any, else that of its card."""
    return (card.profile and card.profile.human_readable_id) or card.name
