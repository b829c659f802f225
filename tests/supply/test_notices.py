"""The licences of the bundled JavaScript are in the package, and none asks for more than that."""

from pathlib import Path

import pytest

from requirements.locked import WEB, Script, bundled
from requirements.notices import NOTICES, Refused, is_permissive, notices


def test_every_package_of_the_lock_is_named_with_its_licence() -> None:
    text = NOTICES.read_text(encoding="utf-8")
    missing = [
        script.name for script in bundled() if f"{script.name} {script.version} ({script.licence})\n" not in text
    ]
    assert missing == [], "`make web` writes the notices"


def test_notices_match_the_packages() -> None:
    assert (WEB / "node_modules" / "react").is_dir(), "`make test` installs what the pages are made from"
    assert NOTICES.read_text(encoding="utf-8") == notices(bundled()), "`make web` writes the notices"


@pytest.mark.parametrize(
    ("licence", "is_one"),
    [
        ("MIT", True),
        ("(AFL-2.1 OR BSD-3-Clause)", True),
        ("MPL-2.0", False),
        ("GPL-3.0-only", False),
        ("unknown", False),
    ],
)
def test_only_permissive_ones_are(licence: str, is_one: bool) -> None:
    assert is_permissive(licence) is is_one


def test_another_licence_is_refused(tmp_path: Path) -> None:
    (tmp_path / "node_modules" / "x").mkdir(parents=True)
    (tmp_path / "node_modules" / "x" / "LICENSE").write_text("Words")
    script = Script("node_modules/x", "x", "1.0.0", "MIT", "sha512-", ())
    assert "x 1.0.0 (MIT)\n\nWords" in notices([script], tmp_path)
    with pytest.raises(Refused, match=r"x 1\.0\.0 is under MPL-2\.0"):
        notices([script._replace(licence="MPL-2.0")], tmp_path)
    with pytest.raises(Refused, match="not installed"):
        notices([script._replace(path="node_modules/y")], tmp_path)
