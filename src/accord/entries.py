"""Registries of plugins: named objects that settings and files refer to.

A `Group` is one registry. Accord's own entries are rows of its table. Others are entry points of installed packages. An
entry is loaded when its name is used. The package of each group defines and uses its entries.
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
"""Name of this package, which registers no entry points: its entries are in the tables."""


class Entry(NamedTuple):
    """A registered name, its target (`module:attribute`), and the package that registers it."""

    group: str
    name: str
    value: str
    package: str = OURS
    version: str = ""

    def __str__(self) -> str:
        return f"{self.group}: {self.name} = {self.value}"


FAMILIES = {
    "accord.agents": "accord.api.agent_types:KINDS",
    "accord.steps": "accord.workflows.executors:STEPS",
    "accord.auth": "accord.auth.schemes:SCHEMES",
    "accord.signals": "accord.storage.address:CARRIERS",
    "accord.blobs": "accord.storage.blobs.blob_store:BLOBS",
}
"""Entry point group -> its `Group`."""


class Plugin(NamedTuple):
    """A registered extension. `problem` is why it cannot be used, if it was checked."""

    group: str
    name: str
    value: str
    package: str
    version: str
    problem: str | None = None


class NotRegistered(ValueError):
    """Unknown name; the message suggests the nearest one."""


class Unusable(ValueError):
    """An entry of another package that cannot be used. The message names the package and its entry point."""

    def __init__(self, entry: Entry, reason: str) -> None:
        """Set the entry and the reason."""
        super().__init__(f"the package {entry.package} {entry.version} cannot be used ({entry}): {reason}")
        self.entry = entry


class Group(Generic[T]):
    """A registry of named objects of one type."""

    def __init__(
        self, name: str, what: str, kind: type[T], ours: Mapping[str, str], taken: Collection[str] = ()
    ) -> None:
        """Set the table of Accord's entries; `what` is a noun for messages.

        Entries of other packages may not use a name in `ours` or `taken`.
        """
        self.name = name
        self.what = what
        self._kind = kind
        self.ours = ours
        self._taken = frozenset({*ours, *taken})

    def __contains__(self, name: object) -> bool:
        """Whether a name is registered; loads nothing."""
        return name in self.ours or any(entry.name == name for entry in self._theirs())

    def names(self) -> list[str]:
        """Return all names."""
        return sorted({*self.ours, *(entry.name for entry in self._theirs())})

    def entries(self) -> list[Entry]:
        """Return all registered entries, including those that `take` would refuse."""
        ours = [Entry(self.name, name, value) for name, value in self.ours.items()]
        return sorted([*ours, *registered(self.name)], key=lambda one: (one.name, one.package != OURS, one.package))

    def _theirs(self) -> list[Entry]:
        return [entry for entry in registered(self.name) if entry.name not in self._taken]

    def load(self, name: str) -> T:
        """Return the object with a name; raises NotRegistered and Unusable.

        For Accord's own names, other packages are not searched.
        """
        if name in self.ours:
            return self.take(Entry(self.name, name, self.ours[name]))
        for entry in registered(self.name):
            if entry.name == name:
                return self.take(entry)
        near = difflib.get_close_matches(name, self.names(), 1)
        rest = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.names())}"
        raise NotRegistered(f"unknown {self.what} {name!r}; {rest}")

    def take(self, entry: Entry) -> T:
        """Return the target of an entry; raises Unusable."""
        if entry.package == OURS:
            found = _imported(entry.value)
        else:
            self._refuse_taken(entry)
            try:
                found = _imported(entry.value)
            except (Exception, SystemExit) as error:  # a module may raise anything
                raise Unusable(entry, f"{type(error).__name__}: {error}") from error
        if not isinstance(found, self._kind):
            raise Unusable(entry, f"it must be of type {self._kind.__name__}, not {type(found).__name__}")
        return found

    def _refuse_taken(self, entry: Entry) -> None:
        if entry.name in self._taken:
            raise Unusable(entry, f"accord itself registers this {self.what}")
        others = {one.package for one in registered(self.name) if one.name == entry.name} - {entry.package}
        if others:
            raise Unusable(entry, f"{', '.join(sorted(others))} also registers this {self.what}: uninstall one")


@cache
def registered(group: str) -> tuple[Entry, ...]:
    """Return the entries that other packages register, without importing them.

    The result is cached, because the lookup is slow and rarely changes. `registered.cache_clear()` forces a new lookup.
    """
    from importlib.metadata import entry_points  # slow to import, and most servers use only Accord's own entries

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


def installed_plugins(*, check: bool = False) -> list[Plugin]:
    """Return the extensions that other packages have registered.

    With `check` each is imported, and `problem` is set if that fails.
    """
    plugins: list[Plugin] = []
    for value in FAMILIES.values():
        group = _imported(value)
        assert isinstance(group, Group)
        for entry in group.entries():
            if entry.package == OURS:
                continue
            problem = None
            if check:
                try:
                    group.take(entry)
                except Unusable as error:
                    problem = str(error)
            plugins.append(Plugin(*entry, problem))
    return plugins
