"""Roles: the operations, agents and skills that a caller may use, and access to other owners' tasks."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from accord.model import SendRequest
from accord.protocol.operations import Operation

SKILL_KEYS = ("skill", "skillId", "skill_id")
"""Metadata keys of a message or request that name the requested skill, in all common spellings."""

ANY = ("*",)


class CallerRole(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The permissions of one role."""

    name: str
    """Name of the role in keys, tokens and users."""

    operations: frozenset[Operation] | None = None
    """Allowed A2A operations. All by default."""

    agents: tuple[str, ...] = ANY
    """Allowed agents: names, or patterns with `*`."""

    skills: tuple[str, ...] = ANY
    """Allowed skills: names, or patterns with `*`."""

    sees_all: bool = False
    """Whether other owners' tasks in the tenant can be read, subscribed to and canceled."""

    makes_keys: bool = False
    """Whether callers can create API keys for themselves, with their own permissions."""


_READS = frozenset({Operation.GET, Operation.LIST, Operation.SUBSCRIBE, Operation.EXTENDED_CARD})
_CALLS = frozenset({Operation.SEND, Operation.STREAM, Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE})

BUILT_IN = (
    CallerRole(name="admin", sees_all=True, makes_keys=True),
    CallerRole(name="operator", operations=_READS | {Operation.CANCEL}, sees_all=True),
    CallerRole(name="user", makes_keys=True),
    CallerRole(name="caller", operations=_CALLS | {Operation.EXTENDED_CARD}),
    CallerRole(name="reader", operations=_READS),
)
"""Built-in roles. A role of the same name in the settings replaces one."""

CROSSES = frozenset({Operation.GET, Operation.LIST, Operation.SUBSCRIBE, Operation.CANCEL})
"""Operations on other owners' tasks. Webhooks are excluded because they contain their owners' tokens."""

MAX_KNOWN = 10_000
"""Cached results. A server has few agents, but callers choose the names of published ones."""


class Right(Struct, frozen=True, kw_only=True):
    """The extent of an allowed operation: its skills, and whether it includes other owners' tasks."""

    skills: tuple[str, ...] = ANY
    sees_all: bool = False

    @property
    def has_all_skills(self) -> bool:
        """Whether all skills are allowed."""
        return "*" in self.skills

    def has_skill(self, name: Any) -> bool:
        """Whether a skill is allowed. A value other than text matches no pattern."""
        return isinstance(name, str) and any(fnmatchcase(name, pattern) for pattern in self.skills)


Rights = Mapping[Operation, Right]
"""Allowed operations. Missing ones are forbidden."""


class Roles:
    """The roles of a server."""

    def __init__(self, roles: Iterable[CallerRole] = (), *, default: str | None = "user") -> None:
        """Combine the built-in roles with `roles`. `default` is the role of callers without any role."""
        self._roles = {role.name: role for role in (*BUILT_IN, *roles)}
        if default is not None and default not in self._roles:
            raise ValueError(f"There is no role {default!r} that could be the default")
        self._default = frozenset({default} if default else ())
        self._names = frozenset(self._roles)
        self._known: dict[tuple[frozenset[str], str], Rights] = {}

    def rights(self, names: frozenset[str], agent: str) -> Rights:
        """Return the operations that callers with these roles may perform on an agent.

        Unknown names are ignored, because tokens contain roles of other systems as well. A caller with unknown names
        only has no rights, so that a misspelled role does not grant the default one.
        """
        key = self._meant(names), agent
        rights = self._known.get(key)
        if rights is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            rights = self._known[key] = self._joined(*key)
        return rights

    def names_namespace(self, names: frozenset[str], handle: str) -> bool:
        """Whether a role of the caller names the namespace of a published agent, not just all agents."""
        namespace = handle.partition("/")[0] + "/"
        patterns = [pattern for name in self._meant(names) for pattern in self._roles[name].agents]
        return any(pattern.startswith(namespace) and fnmatchcase(handle, pattern) for pattern in patterns)

    def has_any(self, names: frozenset[str]) -> bool:
        """Whether callers with these roles have any rights."""
        return bool(self._meant(names))

    def makes_keys(self, names: frozenset[str]) -> bool:
        """Whether callers with these roles may create API keys for themselves."""
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
    """Return the skills that a message requests, in the spelling of the message."""
    places = (request.metadata or {}, request.message.metadata or {})
    return [place[key] for place in places for key in SKILL_KEYS if place.get(key) is not None]


def _is_for(role: CallerRole, agent: str) -> bool:
    return any(fnmatchcase(agent, pattern) for pattern in role.agents)
