"""What is to be said about an agent's card: what its readers would object to, and where it and the server differ.

It only judges, one function for each thing that can be wrong; a card is read here as a client reads it, and nobody is
asked. Where the document comes from is `agents`, what clients and registries object to is theirs.
"""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from msgspec import Struct

from accord.client.interfaces import CardHostTrust as Naming
from accord.client.interfaces import keep_usable_interfaces
from accord.console.views import Finding
from accord.errors import AccordError
from accord.model import AgentCard
from accord.protocol.cards import decode_card
from accord.registry import cards as publishing
from accord.registry.trust import SignedBy, TrustedKeys
from accord.remote.tasks import RemoteContact
from accord.service.service import Offers


class Doing(Struct, frozen=True, kw_only=True):
    """What a server really does: what it offers, the schemes that it enforces, by the names that cards have for them.

    `asked` is the origin by which whoever looks reaches it. With `has_extended` the agent has skills for those who say
    who they are; `contact` is the last one with an agent elsewhere.
    """

    offers: Offers
    asked: str = ""
    has_extended: bool = False
    schemes: frozenset[str] = frozenset()
    is_open: bool = True
    trust: TrustedKeys
    contact: RemoteContact | None = None


class Read(Struct, frozen=True, kw_only=True):
    """A card: the document, where it is served, and what it says."""

    document: bytes
    url: str
    card: AgentCard


def findings(document: bytes, url: str, doing: Doing) -> list[Finding]:
    """Return what is to be said about the card that is served at `url`, the gravest first."""
    try:
        card = decode_card(document)
    except AccordError as error:
        stated = [_error(field, problem) for field, problem in error.violations]
        return stated or [_error("", f"The card cannot be read: {error.message}")]
    read = Read(document=document, url=url, card=card)
    every = [finding for look in LOOKS for finding in look(read, doing)]
    once = dict.fromkeys((one.severity, one.where, one.text) for one in every)
    found = [Finding(severity=severity, where=where, text=text) for severity, where, text in once]
    return sorted(found, key=lambda one: _ORDER.index(one.severity))


# --- what its readers object to ---------------------------------------------------------------------------------------


def _as_clients(read: Read, _doing: Doing) -> Iterator[Finding]:
    """Yield what a client finds; an address that it would not use is as good as none."""
    kept, found = keep_usable_interfaces(read.card, read.url, Naming())
    lost = len(read.card.supported_interfaces) - len(kept.supported_interfaces)
    for one in found:
        yield _error(one.where, one.what) if one.what.endswith("it is not used") else _warning(one.where, one.what)
    if lost and not kept.supported_interfaces:
        yield _error("supportedInterfaces", "Clients that read the card at this address find no way to the agent")


def _as_asked(read: Read, doing: Doing) -> Iterator[Finding]:
    """Yield that a server is reached by another name than it gives out: clients do not follow a card to other hosts."""
    here, there = urlsplit(doing.asked).hostname, urlsplit(read.url).hostname
    if here and here != there:
        text = f"You reach the server as {here}, but the card leads to {there}: clients that read it here refuse that"
        yield _warning("supportedInterfaces", f"{text}, and everybody should be given the address at {there}")


def _as_registries(read: Read, _doing: Doing) -> Iterator[Finding]:
    try:
        publishing.read(read.document)
    except publishing.InvalidCard as error:
        for field, problem in error.findings:
            yield _info(field, f"Not to be published in a registry as it is: {problem}")


def _as_people(read: Read, _doing: Doing) -> Iterator[Finding]:
    """Yield what is missing for those who look for an agent, and for models that choose one."""
    card = read.card
    if not card.description.strip():
        yield _warning("description", "There is no description: nobody can tell what the agent is for")
    for at, skill in enumerate(card.skills):
        where = f"skills[{at}]"
        if not skill.description.strip():
            yield _warning(f"{where}.description", f"The skill {skill.name!r} has no description")
        elif skill.description.strip() == card.description.strip() and len(card.skills) > 1:
            yield _info(f"{where}.description", f"The skill {skill.name!r} is described like the agent as a whole")
        if not skill.tags:
            yield _info(f"{where}.tags", f"The skill {skill.name!r} has no tags: searches by topic do not find it")
        if not skill.examples:
            yield _info(f"{where}.examples", f"The skill {skill.name!r} has no examples: people have to guess")
    if card.provider is None:
        yield _info("provider", "The card does not say who offers the agent")


def _signed(read: Read, doing: Doing) -> Iterator[Finding]:
    verdict = doing.trust.judge(read.document)
    if verdict.state is SignedBy.UNSIGNED:
        yield _info("signatures", "The card is not signed: readers cannot tell whether somebody changed it")
    else:
        yield _info("signatures", verdict.detail)


# --- card says one thing, server does another -------------------------------------------------------------------------


def _capabilities(read: Read, doing: Doing) -> Iterator[Finding]:
    stated, offers = read.card.capabilities, doing.offers
    for member, says, does in (
        ("streaming", stated.streaming, offers.streaming),
        ("pushNotifications", stated.push_notifications, offers.push),
        ("extendedAgentCard", stated.extended_agent_card, offers.extended_card),
    ):
        if says and not does:
            yield _error(f"capabilities.{member}", "The card offers it, and the server refuses it")
        elif does and not says:
            yield _warning(f"capabilities.{member}", "The server does it, but the card does not say so: few will ask")
    if offers.extended_card and not doing.has_extended:
        yield _info("capabilities.extendedAgentCard", "The extended card has nothing that the public one has not")


def _security(read: Read, doing: Doing) -> Iterator[Finding]:
    stated = frozenset(read.card.security_schemes)
    for name in sorted(stated - doing.schemes):
        yield _error(f"securitySchemes.{name}", "The card names it, but the server does not take it")
    for name in sorted(doing.schemes - stated):
        yield _warning(f"securitySchemes.{name}", "The server takes it, but the card does not name it")
    if doing.is_open:
        yield _info("securityRequirements", "Whoever reaches the server may use the agent: it asks nobody who they are")


def _elsewhere(_read: Read, doing: Doing) -> Iterator[Finding]:
    contact = doing.contact
    if contact is not None:
        if not contact.is_up:
            yield _error("", f"The card describes an agent elsewhere that is not there: {contact.detail}")
        for finding in contact.findings:
            yield _warning("", f"Its own card: {finding}")


def _error(where: str, text: str) -> Finding:
    return Finding(severity="error", where=where, text=text)


def _warning(where: str, text: str) -> Finding:
    return Finding(severity="warning", where=where, text=text)


def _info(where: str, text: str) -> Finding:
    return Finding(severity="info", where=where, text=text)


LOOKS: tuple[Callable[[Read, Doing], Iterator[Finding]], ...] = (
    _elsewhere,
    _capabilities,
    _security,
    _as_clients,
    _as_asked,
    _as_registries,
    _as_people,
    _signed,
)

_ORDER = ("error", "warning", "info")
