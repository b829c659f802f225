"""What is installed is what was looked at: every requirement is pinned and hashed, and no index is named."""

import tomllib
from pathlib import Path

import pytest

from requirements.locked import ROOT, bundled, pins

PINNED = sorted((ROOT / "requirements").rglob("*.txt"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

MOST_DIRECT = 16
MOST_OF_AN_EXTRA = 2
"""Somebody who wants one thing gets that thing and what it stands on."""


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.relative_to(ROOT / "requirements").as_posix())
def test_every_requirement_is_pinned_and_hashed(path: Path) -> None:
    found = pins(path)
    assert found
    assert [pin.name for pin in found if not pin.hashes] == []


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.relative_to(ROOT / "requirements").as_posix())
def test_no_index_is_named(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "://" not in text
    assert not [line for line in text.splitlines() if line.startswith("-")]  # no options: they choose where from


@pytest.mark.parametrize("line", ["aiohttp>=3", "-r other.txt", "--find-links=x", "x @ file:///x", "./local"])
def test_a_line_that_pins_nothing_is_found(tmp_path: Path, line: str) -> None:
    path = tmp_path / "x.txt"
    path.write_text(f"# comment\napsw==3.51.3 \\\n    --hash=sha256:{'0' * 64}\n{line}\n")
    with pytest.raises(ValueError, match="pins nothing"):
        pins(path)


def test_extras_are_small() -> None:
    assert len(PROJECT["dependencies"]) <= MOST_DIRECT
    sizes = {name: len(needs) for name, needs in PROJECT["optional-dependencies"].items()}
    assert {name: size for name, size in sizes.items() if size > MOST_OF_AN_EXTRA} == {}


def test_every_direct_requirement_is_pinned() -> None:
    pinned = {pin.name for pin in pins(ROOT / "requirements" / "runtime.txt")}
    direct = {need.partition(">")[0].partition(";")[0].strip() for need in PROJECT["dependencies"]}
    assert direct <= pinned


def test_javascript_in_the_pages_is_found_and_its_tools_are_not() -> None:
    names = {script.name for script in bundled()}
    assert {"react", "react-dom", "scheduler", "ai", "@xyflow/react", "d3-zoom", "tailwindcss"} <= names
    assert names.isdisjoint({"vite", "lightningcss", "rolldown", "vitest", "typescript", "jsdom"})
    assert [script.name for script in bundled() if not script.integrity.startswith("sha512-")] == []
