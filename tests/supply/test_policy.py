"""SECURITY.md names what is there."""

import re

from requirements.locked import ROOT

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_referenced_files_exist() -> None:
    named = re.findall(r"`((?:tests|docs|deploy)[/\w-]*)`", TEXT) + re.findall(r"\]\(([\w./-]+)\)", TEXT)
    assert {"tests/abuse", "tests/supply", "docs/how-to/security.md", "THIRD-PARTY.txt"} <= {*named}
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_it_names_commands_that_there_are() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"`make (\w+)`", TEXT)) <= targets
