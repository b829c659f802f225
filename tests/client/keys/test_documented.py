"""What the documentation says about credentials is so."""

import json
import re
from pathlib import Path

from accord.cli.credentials import CREDENTIAL_TYPES
from accord.client.credentials import Credential, KeyManager
from accord.client.credentials.credential import OWN_NAMES, OWN_OAUTH, kinds_of
from accord.server.settings_loader import CREDENTIALS, load

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "credentials.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_the_key_file_is_one_and_has_every_part(tmp_path: Path) -> None:
    (shown,) = blocks("json")
    (tmp_path / "keys.json").write_text(shown)
    keys = KeyManager(tmp_path / "keys.json", env={})
    assert keys.ids() == sorted(json.loads(shown))
    found = {part for id in keys.ids() for part in kinds_of(keys.find(id) or Credential())}
    assert found == set(Credential.__struct_fields__)


def test_every_variable_and_every_kind_is_named() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("|")]
    variables = set(re.findall(r"`(ACCORD_[A-Z]+_)<ID>", "\n".join(rows)))
    assert variables == {*OWN_NAMES, OWN_OAUTH}
    assert {row.split("|")[2].strip(" `") for row in rows if row.count("|") == 4} - {"type", "---"} == set(
        CREDENTIAL_TYPES
    )


def test_the_settings_are_settings(tmp_path: Path) -> None:
    (shown,) = blocks("toml")
    (tmp_path / "accord.toml").write_text(shown)
    settings = load(tmp_path / "accord.toml", {"CREDENTIAL_KEY": "k"}).settings.credentials
    assert (settings.keys, settings.key_file) == (("k",), "/run/secrets/accord-credential-keys")
    assert "'k'" not in repr(settings)


def test_credentials_in_variables_are_no_settings() -> None:
    assert set(CREDENTIALS) == {*OWN_NAMES, OWN_OAUTH}
    # Each of these would be refused as a misspelled setting, or as one that does not exist.
    env = {
        "ACCORD_KEY_KEEP_DAYS": "s",
        "ACCORD_KEY_A__B": "s",
        "ACCORD_TOKEN_SERVER__HOST": "s",
        "ACCORD_KEY_DAYS": "s",
    }
    assert load(None, env).sources == {}
