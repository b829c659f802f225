"""The documentation's relative links resolve, and the checker behind `make docs` notices when they do not."""

from pathlib import Path

from docs import check_links


def test_every_relative_link_resolves():
    assert check_links.check(check_links.ROOT)[1] == []


def test_broken_files_and_headings_are_reported(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "guide.md").write_text("# The guide\n\n## Set up: `make`\n", encoding="utf-8")
    (tmp_path / "README.md").write_text(
        "[a](docs/guide.md) [b](docs/guide.md#set-up-make) [c](https://example.com/x.md) `[d](no.md)`\n"
        "```\n[e](no.md)\n```\n"
        "[f](gone.md) [g](docs/guide.md#gone) [h](#gone)\n\n[i]: gone-too.md\n",
        encoding="utf-8",
    )

    checked, broken = check_links.check(tmp_path)

    assert checked == 6
    assert broken == [
        "README.md: gone.md: no such file",
        "README.md: docs/guide.md#gone: no such heading",
        "README.md: #gone: no such heading",
        "README.md: gone-too.md: no such file",
    ]
