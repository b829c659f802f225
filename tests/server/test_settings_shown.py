"""Every setting with its source, as people may see it."""

from pathlib import Path
from typing import Any

import pytest

from accord.server.settings import Settings
from accord.server.settings_loader import LoadedSettings, load
from accord.server.settings_report import DEFAULT_SOURCE, ShownSetting, list_settings
from accord.server.settings_validation import setting_names


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def seen(
    text: str = "", env: dict[str, str] | None = None, flags: dict[str, Any] | None = None
) -> dict[str, ShownSetting]:
    Path("accord.toml").write_text(text, encoding="utf-8")
    return {one.name: one for one in list_settings(load(None, env or {}, flags))}


def test_every_setting_is_there_with_its_default() -> None:
    found = {one.name: one for one in list_settings(LoadedSettings(Settings(), {}))}
    leaves = {".".join(path) for path in setting_names(Settings)}
    groups = {name for name in leaves if any(other.startswith(f"{name}.") for other in leaves)}
    unset = {"card.provider"}  # a group that is left out is one value
    assert found.keys() == (leaves - groups - {"card.provider.organization", "card.provider.url"}) | unset
    assert {one.source for one in found.values()} == {DEFAULT_SOURCE}
    assert (found["server.port"].value, found["server.dialects"].value[0]) == (8000, "v1")


def test_each_value_names_its_source() -> None:
    found = seen(
        '[server]\nhost = "::1"\nport = 1\n[agents]\na = "m:a"\n[card.provider]\norganization = "o"\nurl = "u"',
        {"ACCORD_SERVER__PORT": "2", "ACCORD_AGENTS__B": "m:b"},
        {"server.workers": 3},
    )
    assert found["server.host"] == ShownSetting("server.host", "::1", "accord.toml")
    assert found["server.port"] == ShownSetting("server.port", 2, "ACCORD_SERVER__PORT")
    assert found["server.workers"] == ShownSetting("server.workers", 3, "--workers")
    assert found["agents.a"] == ShownSetting("agents.a", "m:a", "accord.toml")
    assert found["agents.b"] == ShownSetting("agents.b", "m:b", "ACCORD_AGENTS__B")
    assert found["card.provider.url"] == ShownSetting("card.provider.url", "u", "accord.toml")
    assert found["server.url"].source == DEFAULT_SOURCE


SECRET = "s3cret-of-the-test"

WITH_SECRETS = f"""
store = "postgresql://me:{SECRET}@db/accord?password={SECRET}"
[push]
signing_keys = ["{SECRET}"]
[card]
signing_key = "{SECRET}"
[credentials]
keys = ["{SECRET}"]
[remotes.a]
url = "https://me:{SECRET}@a.example"
token = "{SECRET}"
headers = {{ X-Key = "{SECRET}" }}
[agents.x]
type = "process"
command = ["run"]
env = {{ PLAIN = "{SECRET}" }}
max_tokens = 7
[[auth.schemes]]
type = "jwt"
issuer = "i"
audience = ["a"]
secret = "{SECRET}"
[[auth.schemes]]
type = "hmac"
keys.k = {{ owner = "kim", secret = "{SECRET}" }}
"""


def test_no_secret_is_shown() -> None:
    found = seen(WITH_SECRETS)
    assert SECRET not in repr(found)
    assert found["store"].value == "postgresql://me@db/accord"
    assert found["remotes.a.url"].value == "https://me:***@a.example"
    assert found["remotes.a.token"].value == "***"
    assert found["remotes.a.headers"] == ShownSetting("remotes.a.headers", "***", "accord.toml")
    assert found["agents.x"].value == {"type": "process", "command": ["run"], "env": "***", "max_tokens": 7}
    assert found["auth.schemes"].value[1]["keys"]["k"] == {"owner": "kim", "tenant": "", "roles": [], "secret": "***"}


def test_authentication_schemes_show_their_type() -> None:
    named = seen(flags={"auth.schemes": [{"type": "api-keys"}]})["auth.schemes"].value
    assert named == [{"type": "api-keys", "header": "X-API-Key", "remember_seconds": 5.0}]
    assert [one["type"] for one in seen(WITH_SECRETS)["auth.schemes"].value] == ["jwt", "hmac"]


def test_environment_references_are_shown_as_written() -> None:
    env = {"DB": f"postgresql://u:{SECRET}@h/d", "KEY": SECRET, "BODY": SECRET}
    found = seen(
        f"""
        store = "env:DB"
        [push]
        signing_keys = ["env:KEY", "{SECRET}"]
        [agents.x]
        type = "http"
        url = "env:BODY"
        [[auth.schemes]]
        type = "header"
        name = "X"
        secrets = [{{ owner = "eve", secret = "env:KEY" }}]
        """,
        env,
    )
    assert SECRET not in repr(found)
    assert found["store"].value == "env:DB"
    assert found["push.signing_keys"].value == ["env:KEY", "***"]
    assert found["agents.x"].value == {"type": "http", "url": "env:BODY"}
    assert found["auth.schemes"].value[0]["secrets"] == [{"owner": "eve", "secret": "env:KEY"}]


def test_an_address_that_cannot_be_read_is_not_shown() -> None:
    assert seen(f'store = "{SECRET}"')["store"].value == "***"
