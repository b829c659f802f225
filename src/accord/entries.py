"""Families of plugins: things that settings and files name, ours or from other packages.

A `Group` is one family. Our things are rows of its table, other things are entry points of installed packages. A thing
is loaded when its name is used. Each family defines its things and uses them.
"""

import difflib
from collections.abc import Collection, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

OURS = "accord"
"""The package that registers nothing: what is ours is in the tables."""


class Entry(NamedTuple):
    """A name, what it stands for (`module:attribute`), and the package that says so."""

    group: str
    name: str
    value: str
    package: str = OURS
    version: str = ""

    def __str__(self) -> str:
        return f"{self.group}: {self.name} = {self.value}"


class NotRegistered(ValueError):
    """Nothing goes by this name; the message has the nearest one."""


class Unusable(ValueError):
    """What another package has registered cannot be used: the message names the package and its entry point."""

    def __init__(self, entry: Entry, reason: str) -> None:
        """Say why."""
        super().__init__(f"the package {entry.package} {entry.version} cannot be used ({entry}): {reason}")
        self.entry = entry


class Group(Generic[T]):
    """One family of things that have names."""

    def __init__(
        self, name: str, what: str, kind: type[T], ours: Mapping[str, str], taken: Collection[str] = ()
    ) -> None:
        """Have things of one type, of which `what` says what they are; others may not be called as ours or `taken`."""
        self.name = name
        self.what = what
        self._kind = kind
        self.ours = ours
        self._taken = frozenset({*ours, *taken})

    def __contains__(self, name: object) -> bool:
        """Whether something goes by a name; nothing is loaded for that."""
        return name in self.ours or any(entry.name == name for entry in self._theirs())

    def names(self) -> list[str]:
        """Return all names."""
        return sorted({*self.ours, *(entry.name for entry in self._theirs())})

    def entries(self) -> list[Entry]:
        """Return everything that is registered, also what `take` would refuse."""
        ours = [Entry(self.name, name, value) for name, value in self.ours.items()]
        return sorted([*ours, *registered(self.name)], key=lambda one: (one.name, one.package != OURS, one.package))

    def _theirs(self) -> list[Entry]:
        return [entry for entry in registered(self.name) if entry.name not in self._taken]

    def load(self, name: str) -> T:
        """Return what goes by a name; raises NotRegistered and Unusable. For what is ours nobody else is looked at."""
        if name in self.ours:
            return self.take(Entry(self.name, name, self.ours[name]))
        for entry in registered(self.name):
            if entry.name == name:
                return self.take(entry)
        near = difflib.get_close_matches(name, self.names(), 1)
        rest = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.names())}"
        raise NotRegistered(f"there is no {self.what} called {name!r}; {rest}")

    def take(self, entry: Entry) -> T:
        """Return what an entry stands for; raises Unusable."""
        if entry.package == OURS:
            found = _imported(entry.value)
        else:
            self._refuse_taken(entry)
            try:
                found = _imported(entry.value)
            except (Exception, SystemExit) as error:  # a module may raise anything
                raise Unusable(entry, f"{type(error).__name__}: {error}") from error
        if not isinstance(found, self._kind):
            raise Unusable(entry, f"it is no {self._kind.__name__} but {type(found).__name__}")
        return found

    def _refuse_taken(self, entry: Entry) -> None:
        if entry.name in self._taken:
            raise Unusable(entry, f"accord has a {self.what} of that name itself")
        others = {one.package for one in registered(self.name) if one.name == entry.name} - {entry.package}
        if others:
            raise Unusable(entry, f"{', '.join(sorted(others))} has a {self.what} of that name as well: uninstall one")


@cache
def registered(group: str) -> tuple[Entry, ...]:
    """Return what the packages beside us have registered, without importing any of it.

    It is looked at once, as that takes time and hardly ever changes; `registered.cache_clear()` is to look again.
    """
    from importlib.metadata import entry_points  # slow to import, and most servers use nothing but what is ours

    found = {_entry(point) for point in entry_points(group=group)}
    return tuple(sorted(entry for entry in found if entry.package != OURS))


def _entry(point: "EntryPoint") -> Entry:
    dist = point.dist
    package, version = ("?", "?") if dist is None else (dist.name, dist.version)
    return Entry(point.group, point.name, point.value, package, version)


def _imported(value: str) -> object:
    module, _, path = value.partition(":")
    found: object = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found
