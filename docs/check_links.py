"""Checks that the relative links of the Markdown documentation lead to a file and a heading that exist.

Addresses on other hosts are not visited: whether they answer says nothing about our documentation.
`make docs` runs this file; it needs nothing but Python.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATTERNS = ("*.md", *(f"{folder}/**/*.md" for folder in ("docs", "examples", "skills", "bench", "interop", "deploy")))

CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*<?(\S+?)>?\s*$", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"^([a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def documents(root: Path) -> list[Path]:
    """The Markdown files of the documentation below `root`."""
    return sorted({path for pattern in PATTERNS for path in root.glob(pattern)})


def links(document: Path) -> list[str]:
    """The relative link targets in `document`, code left out."""
    text = CODE.sub("", document.read_text(encoding="utf-8"))
    targets = [inline or reference for inline, reference in LINK.findall(text)]
    return [target for target in targets if not ELSEWHERE.match(target)]


def anchors(document: Path) -> set[str]:
    """The heading anchors of `document`, made the way code hosts make them."""
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    found: set[str] = set()
    for heading in HEADING.findall(text):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        repeats = (f"{slug}-{n}" for n in range(1, len(found) + 1))
        found.add(slug if slug not in found else next(name for name in repeats if name not in found))
    return found


def problem(document: Path, target: str) -> str | None:
    """What is wrong with a link from `document` to `target`, or None."""
    name, _, anchor = target.partition("#")
    file = document.parent / name if name else document
    if not file.exists():
        return "no such file"
    if anchor and file.suffix == ".md" and anchor.lower() not in anchors(file):
        return "no such heading"
    return None


def check(root: Path) -> tuple[int, list[str]]:
    """How many links were checked below `root`, and a line for each broken one."""
    checked, broken = 0, []
    for document in documents(root):
        for target in links(document):
            checked += 1
            if wrong := problem(document, target):
                broken.append(f"{document.relative_to(root)}: {target}: {wrong}")
    return checked, broken


def main() -> int:
    """Check this repository and print the outcome."""
    checked, broken = check(ROOT)
    print(*broken, sep="\n", end="\n" if broken else "")
    print(f"{len(documents(ROOT))} Markdown files, {checked} relative links, {len(broken)} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
