"""The generated pages of the reference are what the code says."""

import pytest

from accord.cli.failures import Exit
from accord.errors import TABLE
from accord.server.settings import Settings
from accord.server.settings_loader import variable_of
from accord.server.settings_validation import setting_names
from docs.reference import commands, errors
from docs.reference.generate import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run: python -m docs.reference.generate"


def test_every_setting_has_a_row() -> None:
    page = (FOLDER / "configuration.md").read_text(encoding="utf-8")
    leaves = [".".join(path) for path in setting_names(Settings)]
    groups = {name.rpartition(".")[0] for name in leaves}
    for name in leaves:
        assert f"| `{variable_of(name)}`" in page or name in groups


def test_errors_have_a_fix_and_exit_codes_a_meaning() -> None:
    assert set(errors.ADVICE) == set(TABLE)
    assert set(commands.EXITS) == set(Exit)
