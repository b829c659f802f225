"""Which variables there are: those of settings, those that other parts of accord read, and all that are refused."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_origin

import pytest

from accord.client.credentials.credential import KEY_FILE_VARIABLE
from accord.server import settings_loader
from accord.server.settings import Settings
from accord.server.settings_loader import (
    ALIASES,
    CREDENTIALS,
    OTHER_VARIABLES,
    BadSettings,
    LoadedSettings,
    load,
    path_of,
    registry_of,
)
from accord.server.settings_validation import is_struct, setting_names, type_at

ROOT = Path(__file__).resolve().parents[2]
ITSELF = Path(settings_loader.__file__)

NOBODYS = "unknown setting: " + ("unset it, or rename a variable of your own")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder without a file of settings."""
    monkeypatch.chdir(tmp_path)


def refusal(env: Mapping[str, str]) -> str:
    with pytest.raises(BadSettings) as raised:
        load(None, env)
    return str(raised.value)


# --- those that there are ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", list(setting_names(Settings)), ids=".".join)
def test_every_setting_has_a_variable(path: tuple[str, ...]) -> None:
    """What a variable says arrives under its name: as a value, or as the reason why it is none."""
    variable = "ACCORD_" + "__".join(path).upper()
    try:
        sources = load(None, {variable: "{}"}).sources
    except BadSettings as refused:
        found, name, *_ = str(refused).split(": ")
        assert (found, f"{'.'.join(path)}.".startswith(f"{name.partition('[')[0]}.")) == (variable, True)
    else:
        is_table = get_origin(type_at(Settings, path)) is dict or is_struct(type_at(Settings, path))
        assert sources == ({} if is_table else {".".join(path): variable}), "an empty table says nothing"


def mentioned() -> Iterator[str]:
    """The texts of the code that are a variable's name, as whoever reads one writes it."""
    for file in (ROOT / "hatch_build.py", *(ROOT / "src").rglob("*.py")):
        if file == ITSELF:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and re.fullmatch(r"ACCORD_[A-Z0-9_]*[A-Z0-9]", str(node.value)):
                yield str(node.value)


def test_the_table_of_other_variables_matches_the_code() -> None:
    read = {settings_loader.CONFIG_VARIABLE, KEY_FILE_VARIABLE, *mentioned()}
    known = {name for name in read if name in ALIASES or name.startswith(CREDENTIALS) or path_of(name) is not None}
    assert read - known == set(OTHER_VARIABLES)


@pytest.mark.parametrize("variable", [*OTHER_VARIABLES, "ACCORD_TOKEN_WEATHER", "ACCORDION_PORT", "ACCORD", "PORT"])
def test_variables_that_are_no_settings_are_left_alone(variable: str) -> None:
    assert load(None, {variable: "x"}) == LoadedSettings(Settings(), {})


def test_a_variable_of_any_name_may_be_referred_to() -> None:
    env = {"ACCORD_MY_KEY": "secret", "ACCORD_DATABASE": "sqlite:///x.db", "ACCORD_HERE": "http://here"}
    Path("accord.toml").write_text('[push]\nsigning_keys = ["env:ACCORD_MY_KEY"]', encoding="utf-8")
    found = load(None, env | {"ACCORD_STORE": "env:ACCORD_DATABASE"}, {"server.url": "env:ACCORD_HERE"}).settings
    assert (found.push.signing_keys, found.store, found.server.url) == (("secret",), "sqlite:///x.db", "http://here")
    assert refusal(env).startswith("ACCORD_DATABASE: unknown setting")


def test_kubernetes_service_variables_are_ignored() -> None:
    links = {
        "ACCORD_SERVICE_HOST": "10.0.0.1",
        "ACCORD_SERVICE_PORT": "8000",
        "ACCORD_PORT": "tcp://10.0.0.1:8000",
        "ACCORD_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "ACCORD_PORT_8000_TCP_ADDR": "10.0.0.1",
        "ACCORD_SERVER_SERVICE_HOST": "10.0.0.1",
        "ACCORD_SERVER_PORT": "tcp://10.0.0.1:8000",
        "ACCORD_SERVER_PORT_8000_TCP_PROTO": "tcp",
        "ACCORD_DB_SERVICE_PORT_TCP_POSTGRESQL": "5432",
        "ACCORD_DB_PORT": "tcp://10.0.0.2:5432",
    }
    assert load(None, links) == LoadedSettings(Settings(), {})


# --- those that are refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("ACCORD_SERVER__PROT", "ACCORD_SERVER__PORT"),
        ("ACCORD_SERVR__PORT", "ACCORD_SERVER__PORT"),
        ("ACCORD_SERVER_PORT", "ACCORD_SERVER__PORT"),
        ("ACCORD_server__port", "ACCORD_SERVER__PORT"),
        ("ACCORD_SERVER__PO-RT", "ACCORD_SERVER__PORT"),
        ("ACCORD_STOR", "ACCORD_STORE"),
        ("ACCORD_KEEPDAYS", "ACCORD_KEEP_DAYS"),
        ("ACCORD_PORT", "ACCORD_SERVER__PORT"),
        ("ACCORD_RATE", "ACCORD_RECEIVER__RATE or ACCORD_LIMITS__RATE"),
        ("ACCORD_LOG_FORMAT", "ACCORD_TELEMETRY__LOG_FORMAT"),
        ("ACCORD_LOGFORMAT", "ACCORD_TELEMETRY__LOG_FORMAT"),
        ("ACCORD_BEARR", "ACCORD_BEARER"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest(variable: str, meant: str) -> None:
    assert refusal({variable: "1"}) == f"{variable}: unknown setting; did you mean {meant}?"


GROUPED = {path: "ACCORD_" + path[-1].upper() for path in setting_names(Settings) if len(path) > 1}
ALONE = {
    path: name
    for path, name in GROUPED.items()
    if path_of(name) is None and name not in OTHER_VARIABLES and not name.startswith(CREDENTIALS)
}
"""Settings in groups whose last part is not itself the name of something else."""


@pytest.mark.parametrize("path", ALONE, ids=".".join)
def test_variables_without_group_get_the_full_name(path: tuple[str, ...]) -> None:
    told = refusal({ALONE[path]: "1"}).partition("did you mean ")[2].rstrip("?").split(" or ")
    assert "ACCORD_" + "__".join(path).upper() in told


@pytest.mark.parametrize("variable", ["ACCORD_NONSENSE", "ACCORD_NOTHING__LIKE_IT", "ACCORD_SERVER__PORT__DEEPER"])
def test_a_variable_like_none_is_refused_as_well(variable: str) -> None:
    assert refusal({variable: "1"}) == f"{variable}: {NOBODYS}"


def test_reading_one_group_checks_only_its_variables() -> None:
    others = {"ACCORD_NONSENSE": "1", "ACCORD_SERVER__PROT": "1"}
    assert registry_of(others | {"ACCORD_REGISTRY_URL": "http://x"}).url == "http://x"
    for variable in ("ACCORD_REGISTRY__ULR", "ACCORD_REGISTRY_NONSENSE", "ACCORD_REGISTY__URL", "ACCORD_SIGNERS"):
        with pytest.raises(BadSettings, match=variable):
            registry_of(others | {variable: "http://x"})
