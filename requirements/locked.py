"""What the locks say: which Python packages are pinned in a file, and which JavaScript is bundled into the package.

It reads and judges nothing. `sbom`, `notices` and the tests stand on it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "requirements" / "runtime.txt"
WEB = ROOT / "web"

TOOLS = {"vite", "@vitejs/plugin-react", "@tailwindcss/vite"}
"""They build the pages and are not in them; they are no `devDependencies`, because a build from source needs them."""

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^ ;\\]+)")


class Pin(NamedTuple):
    """A Python package of one version, and what its files may be."""

    name: str
    version: str
    hashes: tuple[str, ...]


def pins(path: Path) -> list[Pin]:
    """Return what a file pins; a line that pins nothing is an error."""
    found = []
    for line in _lines(path):
        match = _PIN.match(line)
        if match is None:
            raise ValueError(f"{path.name} has a line that pins nothing: {line[:80]}")
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
        found.append(Pin(match["name"], match["version"], hashes))
    return found


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file, joined where they go on, without comments."""
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            yield line


class Script(NamedTuple):
    """A JavaScript package in the pages."""

    path: str
    name: str
    version: str
    licence: str
    integrity: str
    needs: tuple[str, ...]
    """The paths of those that it needs."""


def bundled(web: Path = WEB) -> list[Script]:
    """Return the packages that the pages are made from, by their path in the lock: what is imported, and its needs."""
    packages: Mapping[str, Mapping[str, Any]] = json.loads((web / "package-lock.json").read_text())["packages"]
    wanted = [name for name in packages[""]["dependencies"] if name not in TOOLS]
    todo = [_resolved(packages, "", name) for name in wanted]
    found: dict[str, Script] = {}
    while todo:
        path = todo.pop()
        if path not in found:
            entry = packages[path]
            needs = tuple(_resolved(packages, path, name) for name in entry.get("dependencies", ()))
            name = path.rpartition("node_modules/")[2]
            licence = entry.get("license", "unknown")
            found[path] = Script(path, name, entry["version"], licence, entry["integrity"], needs)
            todo += needs
    return sorted(found.values())


def _resolved(packages: Mapping[str, Any], start: str, name: str) -> str:
    """Return where Node finds a package: beside who asks, or further up."""
    place = start
    while (path := f"{place}/node_modules/{name}".lstrip("/")) not in packages:
        if not place:
            raise KeyError(f"{name}, which {start or 'the pages'} need, is not in the lock")
        place = place.rpartition("node_modules/")[0].rstrip("/")
    return path
