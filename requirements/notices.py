"""THIRD-PARTY.txt: the licences of the JavaScript in the console's pages, from the lock and the packages themselves.

A licence that asks more of those who pass the pages on than to name it is refused. `make web` writes the file, and it
is in every wheel beside our own licence.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from requirements.locked import ROOT, WEB, Script, bundled

NOTICES = ROOT / "THIRD-PARTY.txt"

PERMISSIVE = {"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "Unlicense"}
TEXT = re.compile(r"(licen[sc]e|copying|notice)(\..*|-.*)?$", re.I)

ABOUT = (
    "The console's pages, which are part of this package, are made from the JavaScript packages below. Each is under\n"
    "its own licence, and its words follow.\n"
)
RULE = "-" * 100


class Refused(Exception):
    """A licence that does not go with ours, or none at all."""


def is_permissive(licence: str) -> bool:
    """Whether one of the licences that somebody may choose from is."""
    return bool(PERMISSIVE.intersection(licence.strip("()").split(" OR ")))


def notices(scripts: Iterable[Script], web: Path = WEB) -> str:
    """Return the text; packages of one licence with the same words are under one heading."""
    grouped: dict[str, list[Script]] = {}
    for script in scripts:
        if not is_permissive(script.licence):
            raise Refused(f"{script.name} {script.version} is under {script.licence}")
        grouped.setdefault(_words(web / script.path), []).append(script)
    parts = [ABOUT]
    for words, same in grouped.items():
        names = "\n".join(f"{one.name} {one.version} ({one.licence})" for one in same)
        parts.append(f"{RULE}\n{names}\n\n{words}\n" if words else f"{RULE}\n{names}\n")
    return "\n".join(parts)


def _words(folder: Path) -> str:
    """The licence as a package has it; a few name it in their `package.json` and nowhere else."""
    if not folder.is_dir():
        raise Refused(f"{folder} is not installed: `make web` installs it")
    files = sorted(path for path in folder.iterdir() if path.is_file() and TEXT.match(path.name))
    return "\n\n".join("\n".join(path.read_text(encoding="utf-8").split("\r\n")).strip() for path in files)


def main() -> int:
    """Write the file."""
    try:
        NOTICES.write_text(notices(bundled()), encoding="utf-8")
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
