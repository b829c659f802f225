"""Roles: operations, agents and skills that a caller may use, and whose tasks."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from accord.model import SendRequest
from accord.protocol.operations import Operation

SKILL_KEYS = ("skill", "skillId", "skill_id")
"""Where the metadata of a message or of its request names the skill that is wanted, in the spellings in use."""

ANY = ("*",)


class CallerRole(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one role allows."""

    name: str
    """What keys, tokens and users call it."""

    operations: frozenset[Operation] | None = None
    """The operations of A2A that it allows; left out, all."""

    agents: tuple[str, ...] = ANY
    """The agents that it is for: names, or patterns with `*`."""

    skills: tuple[str, ...] = ANY
    """The skills that it is for: names, or patterns with `*`."""

    sees_all: bool = False
    """Whether other owners' tasks in the tenant can be read, followed and canceled as well."""

    makes_keys: bool = False
    """Whether its holders can make API keys for themselves, which may do what they may."""


_READS = frozenset({Operation.GET, Operation.LIST, Operation.SUBSCRIBE, Operation.EXTENDED_CARD})
_CALLS = frozenset({Operation.SEND, Operation.STREAM, Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE})

BUILT_IN = (
    CallerRole(name="admin", sees_all=True, makes_keys=True),
    CallerRole(name="operator", operations=_READS | {Operation.CANCEL}, sees_all=True),
    CallerRole(name="user", makes_keys=True),
    CallerRole(name="caller", operations=_CALLS | {Operation.EXTENDED_CARD}),
    CallerRole(name="reader", operations=_READS),
)
"""The roles that there are without any setting; one of the same name in the settings replaces it."""

CROSSES = frozenset({Operation.GET, Operation.LIST, Operation.SUBSCRIBE, Operation.CANCEL})
"""What can be done with other owners' tasks. Not webhooks: they carry their owners' tokens."""

MAX_KNOWN = 10_000
"""Answers that are remembered: a server has few agents, but the names of published ones are chosen by callers."""


class Right(Struct, frozen=True, kw_only=True):
    """How far an operation is allowed: with which skills, and on other owners' tasks or not."""

    skills: tuple[str, ...] = ANY
    sees_all: bool = False

    @property
    def has_all_skills(self) -> bool:
        """Whether the skill does not matter."""
        return "*" in self.skills

    def has_skill(self, name: Any) -> bool:
        """Whether a skill may be used; what is no text is the name of none, whatever an agent makes of it."""
        return isinstance(name, str) and any(fnmatchcase(name, pattern) for pattern in self.skills)


Rights = Mapping[Operation, Right]
"""What may be done; an operation that is not in it may not."""


class Roles:
    """The roles of a server."""

    def __init__(self, roles: Iterable[CallerRole] = (), *, default: str | None = "user") -> None:
        """Know the built-in roles and `roles`; `default` is the role of whoever was given none at all."""
        self._roles = {role.name: role for role in (*BUILT_IN, *roles)}
        if default is not None and default not in self._roles:
            raise ValueError(f"There is no role {default!r} that could be the default")
        self._default = frozenset({default} if default else ())
        self._names = frozenset(self._roles)
        self._known: dict[tuple[frozenset[str], str], Rights] = {}

    def rights(self, names: frozenset[str], agent: str) -> Rights:
        """Return what somebody with these roles may do with an agent.

        Names that nobody knows here are passed over: tokens carry roles of other systems as well. Whoever has only
        such names may do nothing, so that a misspelt role grants no more than the right one would.
        """
        key = self._meant(names), agent
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            found = self._known[key] = self._joined(*key)
        return found

    def names_namespace(self, names: frozenset[str], handle: str) -> bool:
        """Whether a role of the caller names the namespace of a published agent, and not just all agents."""
        namespace = handle.partition("/")[0] + "/"
        patterns = [pattern for name in self._meant(names) for pattern in self._roles[name].agents]
        return any(pattern.startswith(namespace) and fnmatchcase(handle, pattern) for pattern in patterns)

    def has_any(self, names: frozenset[str]) -> bool:
        """Whether somebody with these roles may do anything at all."""
        return bool(self._meant(names))

    def makes_keys(self, names: frozenset[str]) -> bool:
        """Whether somebody with these roles may make keys for themselves."""
        return any(self._roles[name].makes_keys for name in self._meant(names))

    def _meant(self, names: frozenset[str]) -> frozenset[str]:
        return names & self._names if names else self._default

    def _joined(self, names: frozenset[str], agent: str) -> Rights:
        roles = [role for name in sorted(names) for role in (self._roles[name],) if _is_for(role, agent)]
        joined = {}
        for operation in Operation:
            allowing = [role for role in roles if role.operations is None or operation in role.operations]
            if allowing:
                skills = tuple(dict.fromkeys(skill for role in allowing for skill in role.skills))
                crosses = operation in CROSSES and any(role.sees_all for role in allowing)
                joined[operation] = Right(skills=skills, sees_all=crosses)
        return joined


def named_skills(request: SendRequest) -> list[Any]:
    """Return the skills that a message asks for, as it names them."""
    places = (request.metadata or {}, request.message.metadata or {})
    return [place[key] for place in places for key in SKILL_KEYS if place.get(key) is not None]


def _is_for(role: CallerRole, agent: str) -> bool:
    return any(fnmatchcase(agent, pattern) for pattern in role.agents)
