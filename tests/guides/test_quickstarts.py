"""Quickstarts: each is served and called as its page says, and prints what its page shows."""

import asyncio
import tomllib
from pathlib import Path

import pytest

from accord.api.agent_types import AGENT_TYPES
from tests.doc_blocks import blocks
from tests.environments import ROOT
from tests.guides.showing import Surroundings, play, started
from tests.guides.surroundings import SURROUNDINGS, nothing

FOLDER = ROOT / "docs" / "quickstarts"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")
SCREEN = 60
"""Lines of a page."""


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
async def test_quickstarts_print_their_documented_output(page: Path, tmp_path: Path) -> None:
    async with SURROUNDINGS.get(page.stem, nothing)(tmp_path) as around:
        await asyncio.to_thread(_show, page, tmp_path, around)


def _show(page: Path, folder: Path, around: Surroundings) -> None:
    server = started(page, folder, around)
    try:
        play(page, server.url, folder)
    finally:
        server.stop()


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_quickstart_fits_a_screen_and_shows_its_file_whole(page: Path) -> None:
    assert len(page.read_text(encoding="utf-8").splitlines()) <= SCREEN
    for block in blocks(page):
        if block.title is not None:
            assert block.text == (ROOT / block.title).read_text(encoding="utf-8")


def test_every_quickstart_is_listed_and_every_framework_has_one() -> None:
    listed = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if f"({page.name})" not in listed] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    frameworks = set(extras) & set(AGENT_TYPES.names())
    assert frameworks
    assert [name for name in sorted(frameworks) if f"accord[{name}]" not in shown] == []
