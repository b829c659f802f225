"""Published agents: the registry of a server, its remote API, their cards and availability."""

from typing import TYPE_CHECKING

from accord.lazy import lazily

if TYPE_CHECKING:
    from accord.registry import cards
    from accord.registry.availability import AskPort, AvailabilityChecks, ServerAnswer, UnreachableServer
    from accord.registry.cards import MAX_TAGS, CardObjection, InvalidCard, SignatureVerdict, SignedBy, TrustedKeys
    from accord.registry.directory import (
        MAX_DESCRIPTION,
        MAX_PAGE,
        AgentDirectory,
        Change,
        DeveloperKeys,
        NameTaken,
        NotListed,
        Visibility,
    )
    from accord.registry.names import is_name
    from accord.registry.remote import API, RegistryRefused, RemoteRegistry
    from accord.storage.commands.published_agents import PUBLIC, AgentQuery, FoundListing, LastCheck, Listing

# fmt: off
__all__ = [
    "API", "MAX_DESCRIPTION", "MAX_PAGE", "MAX_TAGS", "PUBLIC", "AgentDirectory", "AgentQuery", "AskPort",
    "AvailabilityChecks", "CardObjection", "Change", "DeveloperKeys", "FoundListing", "InvalidCard", "LastCheck",
    "Listing", "NameTaken", "NotListed", "RegistryRefused", "RemoteRegistry", "ServerAnswer", "SignatureVerdict",
    "SignedBy", "TrustedKeys", "UnreachableServer", "Visibility", "cards", "is_name",
]
# fmt: on

_HOMES = {
    "accord.registry.availability": ("AskPort", "AvailabilityChecks", "ServerAnswer", "UnreachableServer"),
    "accord.registry.cards": (
        "CardObjection",
        "InvalidCard",
        "MAX_TAGS",
        "SignatureVerdict",
        "SignedBy",
        "TrustedKeys",
        "cards",
    ),
    "accord.registry.directory": (
        "MAX_DESCRIPTION",
        "MAX_PAGE",
        "AgentDirectory",
        "Change",
        "DeveloperKeys",
        "NameTaken",
        "NotListed",
        "Visibility",
    ),
    "accord.registry.names": ("is_name",),
    "accord.registry.remote": ("API", "RegistryRefused", "RemoteRegistry"),
    "accord.storage.commands.published_agents": ("PUBLIC", "AgentQuery", "FoundListing", "LastCheck", "Listing"),
}
"""Module -> the public names that it defines, or its own name."""

__getattr__ = lazily(__name__, _HOMES)
