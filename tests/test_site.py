"""The documentation as a site, as `make docs` builds it, and what language models are given of it."""

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from accord.cli.failures import Exit
from docs import check_links, llms

ROOT = check_links.ROOT
BOUND_SECONDS = 180


def build(into: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Build a site as strictly as `make docs` does."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(into), *arguments],
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )


def test_the_site_builds_and_loads_no_external_files(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")
    }
    assert {"index.html", "architecture.html", "tutorial/kill9.html"} <= set(pages)
    loaded = re.compile(
        r"<(?:script|img|source|iframe)\b[^>]*\b(?:src|srcset)=\"(?:https?:)?//|<link\b[^>]*href=\"https?://"
    )
    assert [name for name, text in pages.items() if loaded.search(text)] == []
    assert [f"{name}: {target}" for name, text in pages.items() for target in dead(tmp_path / name, text)] == []
    assert 'href="source/src/accord/errors.py.html"' in pages["architecture.html"], "a file outside docs/ is a page too"
    assert (tmp_path / "llms.txt").read_text(encoding="utf-8") == llms.made()
    assert (tmp_path / "tutorial" / "index.md").is_file(), "what llms.txt names is there"


def dead(page: Path, text: str) -> list[str]:
    """What a page shows or links to that is not there, raw HTML included, which MkDocs does not look at."""
    targets = set(re.findall(r"\b(?:src|srcset|href)=\"([^\"#?]+)", text))
    ours = {target for target in targets if not re.match(r"[a-z]+:|//|/", target)}
    return sorted(target for target in ours if not (page.parent / unquote(unescape(target))).exists())


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ({"index.md": "# A\n\n[b](gone.md)\n"}, "gone.md"),
        ({"index.md": "# A\n\n[b](#gone)\n"}, "#gone"),
        ({"index.md": "# A\n", "orphan.md": "# B\n"}, "orphan.md"),
    ],
    ids=["dead link", "dead anchor", "no place in the navigation"],
)
def test_site_errors_fail_the_build(tmp_path: Path, pages: dict[str, str], reason: str) -> None:
    (tmp_path / "docs").mkdir()
    for name, text in pages.items():
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    settings = tmp_path / "mkdocs.yml"
    settings.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nhooks: []\nnav: [index.md]\n", encoding="utf-8"
    )
    done = build(tmp_path / "site", "--config-file", str(settings))
    assert done.returncode == 1
    assert reason in done.stdout + done.stderr


def test_the_index_for_language_models_is_up_to_date() -> None:
    assert llms.FILE.read_text(encoding="utf-8") == llms.made(), "run `python docs/llms.py`"


def test_every_heading_of_that_index_has_pages() -> None:
    lines = [line for line in llms.made().splitlines() if line]
    headings = [place for place, line in enumerate(lines) if line.startswith("## ")]
    assert "## How-to: Agents" in lines
    assert [lines[place] for place in headings if not lines[place + 1].startswith("- [")] == []


def test_the_skill_is_short_and_lists_exit_codes() -> None:
    text = (ROOT / "skills" / "accord" / "SKILL.md").read_text(encoding="utf-8")
    head = re.match(r"---\nname: accord\ndescription: (.+)\n---\n", text)
    assert head is not None
    assert len(head[1]) < 1024
    assert text.count("\n") < 120
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.M)} == {int(code) for code in Exit}
