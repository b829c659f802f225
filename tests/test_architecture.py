"""The page about the architecture against the tree: its layers are those that are enforced, its modules exist."""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(?:text)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

STANDS_FOR = {"protocol/dialects/x", "agents/<type>", "web/"}
"""What the page says for many, or for what is not Python."""


def layer(line: str) -> list[str]:
    """The modules of a layer, as the page and the contract write them."""
    return [name.strip(" ()") for name in line.split("|")]


def contract(start: str) -> dict[str, Any]:
    """The contract of import-linter whose name starts so."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (found,) = [one for one in settings["tool"]["importlinter"]["contracts"] if one["name"].startswith(start)]
    return dict(found)


def test_drawn_layers_match_the_contracts() -> None:
    enforced = contract("Layers: ")["layers"]
    drawn = [re.split(r"\s{2,}", line)[0] for line in BLOCKS[0].splitlines()]
    assert [layer(line) for line in drawn] == [layer(line) for line in enforced if line != "(__main__)"]


def test_the_port_has_no_exceptions() -> None:
    port = contract("Port: ")
    assert "ignore_imports" not in port
    assert port["source_modules"] == [f"accord.{name}" for name in ("agents", "cli", "console", "workflows")]
    core = ("auth", "engine", "registry", "remote", "service", "storage")
    assert port["forbidden_modules"] == [f"accord.{name}" for name in core]


def test_every_module_that_a_path_leads_through_exists() -> None:
    named = []
    for block in BLOCKS[1:]:
        for line in block.splitlines():
            place = re.match(r"\s*([\w<>]+/[\w<>/]*(?:, \w+)*)(?:\s{2,}|$)", line)
            if place and place[1] not in STANDS_FOR:
                first, *siblings = place[1].split(", ")
                named += [first, *(f"{first.rpartition('/')[0]}/{sibling}" for sibling in siblings)]
    assert len(named) > 40
    missing = [
        name for name in named if not any((ROOT / "src" / "accord" / path).exists() for path in (name, f"{name}.py"))
    ]
    assert missing == []
