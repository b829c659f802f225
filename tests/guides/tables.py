"""The tables of a page, as rows of cells."""

import re
from pathlib import Path

Row = tuple[str, ...]


def table(page: Path, heading: str) -> list[Row]:
    """Return the rows of the first table below a heading, without its own head."""
    text = page.read_text(encoding="utf-8")
    _, found, below = text.partition(f"\n## {heading}\n")
    if not found:
        _, found, below = text.partition(f"\n### {heading}\n")
    assert found, f"{page.name} has no part called {heading!r}"
    section = re.split(r"^#", below, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]]


def code(*words: str) -> str:
    """Return words as code, with commas between them."""
    return ", ".join(f"`{word}`" for word in words)
