"""Whose tasks somebody gets to see: their own, or by a role those of others, agent by agent.

It only answers from roles, as `core.guard` does for single requests; lists and the live feed span agents, so that they
have to know it beforehand. What it says in SQL is `storage.commands.browsing`.
"""

from collections.abc import Mapping

from accord.a2a import Caller
from accord.auth.roles import Roles
from accord.protocol.operations import Operation
from accord.protocol.urls import is_loopback
from accord.storage.commands.browsing import Seen

ELSEWHERE = ""
"""For agents that are not served here any more: their tasks are still there."""


class Sight:
    """Says who sees what."""

    def __init__(self, roles: Roles, slugs: Mapping[str, str]) -> None:
        """Know agents by their own names, with the name that each has in paths and roles."""
        self._roles = roles
        self._slugs = slugs

    def slug(self, agent: str) -> str:
        """Return the name of an agent in paths; one that is not served has none."""
        return self._slugs.get(agent, ELSEWHERE)

    def seen(self, caller: Caller, operation: Operation = Operation.LIST) -> Seen:
        """Return which tasks somebody may list, or do something else with."""
        if caller.roles is None:
            return Seen(owner=caller.owner, sees_all=caller.sees_all)
        rest = self._roles.rights(caller.roles, ELSEWHERE).get(operation)
        sees_all = rest is not None and rest.sees_all
        hidden, others = [], []
        for agent, slug in self._slugs.items():
            right = self._roles.rights(caller.roles, slug).get(operation)
            if right is None:
                hidden.append(agent)
            elif right.sees_all != sees_all:
                others.append(agent)
        return Seen(owner=caller.owner, sees_all=sees_all, others=tuple(others), hidden=tuple(hidden))

    def may(self, caller: Caller, agent: str, operation: Operation) -> bool:
        """Whether somebody may do something with an agent, at least with tasks of their own."""
        return caller.roles is None or operation in self._roles.rights(caller.roles, self.slug(agent))

    def operates(self, caller: Caller) -> bool:
        """Whether the caller operates the server: by a role, or from the machine of an open server."""
        if caller.roles is None:
            return caller.peer is not None and is_loopback(caller.peer)
        seen = self.seen(caller)
        return caller.is_of_server and seen.sees_all and not seen.others and not seen.hidden
