"""Which file of settings counts: accord.toml, or the project's table; and in which line a value is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.server.settings_loader import BadSettings, SettingsFile, find_file, load, setting_lines, store_of

PROJECT = """
[project]
name = "accord-agents"

[tool.accord]
store = "sqlite:///project.db"

[tool.accord.server]
port = 9000
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_pyproject_settings_are_the_fallback() -> None:
    Path("pyproject.toml").write_text(PROJECT, encoding="utf-8")
    found = load()
    assert (found.settings.store, found.settings.server.port) == ("sqlite:///project.db", 9000)
    assert set(found.sources.values()) == {"pyproject.toml [tool.accord]"}
    assert store_of({}) == "sqlite:///project.db"


def test_variables_and_flags_count_more_than_a_project_s_table() -> None:
    Path("pyproject.toml").write_text(PROJECT, encoding="utf-8")
    found = load(None, {"ACCORD_STORE": "sqlite:///variable.db"}, {"server.port": 1}).settings
    assert (found.store, found.server.port) == ("sqlite:///variable.db", 1)


def test_two_files_with_settings_are_one_too_many() -> None:
    Path("pyproject.toml").write_text(PROJECT, encoding="utf-8")
    Path("accord.toml").write_text("keep_days = 1", encoding="utf-8")
    with pytest.raises(BadSettings) as refused:
        load()
    assert str(refused.value) == (
        "Both accord.toml and [tool.accord] of pyproject.toml have settings: keep one of them, or name one with"
        " --config or ACCORD_CONFIG"
    )
    assert load(Path("accord.toml")).settings.keep_days == 1
    assert load(Path("pyproject.toml")).settings.server.port == 9000
    with pytest.raises(BadSettings, match="Both accord"):
        store_of({})
    assert store_of({"ACCORD_CONFIG": "pyproject.toml"}) == "sqlite:///project.db"


@pytest.mark.parametrize(
    "text",
    ["[project]\nname = 'x'", "this is no TOML", "[tool.other]\naccord = 1", "[tool]\naccord = 'x'", "# accord\n"],
)
def test_a_project_without_our_table_has_no_settings(text: str) -> None:
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    assert find_file() is None
    Path("accord.toml").write_text("keep_days = 1", encoding="utf-8")
    assert load().settings.keep_days == 1


def test_a_project_s_file_that_is_named_must_have_our_table() -> None:
    Path("pyproject.toml").write_text("[project]\nname = 'x'", encoding="utf-8")
    with pytest.raises(BadSettings, match=r"^pyproject\.toml has no settings: they are in its table \[tool\.accord\]$"):
        load(Path("pyproject.toml"))


def test_a_broken_project_that_mentions_us_is_refused() -> None:
    Path("pyproject.toml").write_text("[tool.accord\n", encoding="utf-8")
    with pytest.raises(BadSettings, match=r"^pyproject\.toml is not TOML: "):
        load()


def test_unknown_pyproject_settings_get_a_suggestion() -> None:
    Path("pyproject.toml").write_text("[tool.accord.server]\nprot = 1", encoding="utf-8")
    with pytest.raises(BadSettings) as refused:
        load()
    assert str(refused.value) == (
        "pyproject.toml [tool.accord]: unknown setting server.prot; did you mean server.port?"
    )


# --- lines ------------------------------------------------------------------------------------------------------------


def test_every_value_has_a_line() -> None:
    text = (
        "# a comment\n"
        'store = "x"  # another\n'
        'blobs = """\n'
        "keep_days = 5\n"
        '"""\n'
        'agents.first = "m:a"\n'
        "\n"
        "[server]\n"
        "dialects = [\n"
        '  "v1",  # ]\n'
        "]\n"
        "port = 1\n"
        "[[auth.schemes]]\n"
        'type = "api-keys"\n'
        "[[auth.schemes]]\n"
        'type = "basic"\n'
        "[card]\n"
        'provider = { organization = "a", url = "b" }\n'
    )
    assert setting_lines(text) == {
        "store": 2,
        "blobs": 3,
        "agents": 6,
        "agents.first": 6,
        "server": 8,
        "server.dialects": 9,
        "server.port": 12,
        "auth.schemes": 13,
        "auth.schemes.type": 14,
        "card": 17,
        "card.provider": 18,
        "card.provider.organization": 18,
        "card.provider.url": 18,
    }


def test_pyproject_lines_are_found_by_setting() -> None:
    found = SettingsFile(Path("pyproject.toml"), {}, PROJECT)
    assert (found.line("store"), found.line("server.port"), found.line("server.host")) == (6, 9, None)


NAMES = st.text("abc", min_size=1, max_size=3)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.integers(), min_size=1), min_size=1))
def test_value_lines_are_exact(tables: dict[str, dict[str, int]]) -> None:
    text = "".join(
        f"# {name}\n[{name}]\n" + "".join(f"{key} = {value}\n" for key, value in table.items())
        for name, table in tables.items()
    )
    found, written = setting_lines(text), text.splitlines()
    for name, table in tables.items():
        for key, value in table.items():
            assert written[found[f"{name}.{key}"] - 1] == f"{key} = {value}"
