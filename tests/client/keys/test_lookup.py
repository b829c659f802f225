"""Where credentials are found, and which place counts when several have one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from accord.client.credentials import (
    Certificate,
    Credential,
    HmacKey,
    KeyManagementError,
    KeyManager,
    OAuthClient,
    UserPassword,
    files,
)
from tests.client.keys.backend import MemoryKeyring
from tests.environments import interpreter

pytestmark = pytest.mark.proves("2-11")

ENV = {
    "AGENTVAULT_KEY_ENV_SVC": "env-key",
    "AGENTVAULT_KEY_BOTH": "env-key",
    "AGENTVAULT_KEY_EMPTY": "",
    "AGENTVAULT_KEY_": "nameless",
    "AGENTVAULT_OAUTH_ENV_SVC_CLIENT_ID": "env-id",
    "AGENTVAULT_OAUTH_ENV_SVC_CLIENT_SECRET": "env-secret",
    "AGENTVAULT_OAUTH_HALF_CLIENT_ID": "env-id",
    "AGENTVAULT_OAUTH_BOTH_CLIENT_ID": "env-id",
    "AGENTVAULT_OAUTH_BOTH_CLIENT_SECRET": "env-secret",
    "AGENTVAULT_OAUTH__CLIENT_ID": "nameless",
    "PATH": "/bin",
}
DOTENV = """
# a comment
file-svc=file-key
BOTH = "file key # not a comment"   # a comment
export quoted='it''s'
org/agent=slashed   # a comment
bare=a#b
empty=
multi="one
two\\n\\"three\\""
single='no \\n escape \\' here'
AGENTVAULT_OAUTH_file-svc_CLIENT_ID=file-id
AGENTVAULT_OAUTH_file-svc_CLIENT_SECRET=file-secret
AGENTVAULT_OAUTH_BOTH_CLIENT_ID=file-id
AGENTVAULT_OAUTH_BOTH_CLIENT_SECRET=file-secret
"""
JSON = {
    "File-Svc": "file-key",
    "both": {"apiKey": "file-key", "oauth": {"clientId": "file-id", "clientSecret": "file-secret"}},
    "half": {"oauth": {"clientSecret": "file-secret"}},
    "empty": "",
    "wrong": 5,
    "worse": {"apiKey": 5},
    "only-oauth": {"oauth": {"clientId": "i", "clientSecret": "s"}, "unknown": True},
}


def written(folder: Path, name: str) -> Path:
    text = DOTENV.replace("'it''s'", "'its'") if name.endswith(".env") else json.dumps(JSON)
    (folder / name).write_text(text)
    return folder / name


# --- the same as AgentVault's -----------------------------------------------------------------------------------------

IDS = [
    "ENV_SVC",
    "env_svc",
    "both",
    "BOTH",
    "empty",
    "half",
    "file-svc",
    "FILE-SVC",
    "quoted",
    "org/agent",
    "bare",
    "multi",
    "single",
    "wrong",
    "worse",
    "only-oauth",
    "nowhere",
]

THEIRS = """
import json, logging, sys
logging.disable(logging.CRITICAL)
if sys.argv[1] == "agentvault":
    from agentvault.key_manager import KeyManager
else:
    from accord.client.credentials import KeyManager
asked = json.load(sys.stdin)
found = []
for given in asked["made"]:
    keys = KeyManager(**given)
    for id in asked["ids"]:
        found.append([keys.get_key(id), keys.get_key_source(id), keys.get_oauth_client_id(id),
                      keys.get_oauth_client_secret(id), keys.get_oauth_config_status(id)])
json.dump(found, sys.stdout)
"""


def told(python: Path | str, whose: str, asked: object, env: dict[str, str]) -> list[object]:
    """What a KeyManager in a process of its own answers."""
    done = subprocess.run(
        [python, "-c", THEIRS, whose],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[object] = json.loads(done.stdout)
    return found


def test_every_answer_is_agentvaults(tmp_path: Path) -> None:
    made = [
        {},
        {"use_env_vars": False},
        {"env_prefix": "MY_KEY_", "oauth_env_prefix": "MY_OAUTH_"},
        *({"key_file_path": str(written(tmp_path, name))} for name in ("keys.env", "keys.json")),
        {"key_file_path": str(tmp_path / "keys.json"), "use_env_vars": False},
        {"key_file_path": str(tmp_path / "nowhere.json")},
    ]
    env = ENV | {"MY_KEY_ENV_SVC": "my-key", "MY_OAUTH_HALF_CLIENT_SECRET": "mine"}
    asked = {"made": made, "ids": IDS}
    theirs = told(interpreter("agentvault"), "agentvault", asked, env)
    ours = told(sys.executable, "accord", asked, env)
    for at, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one == other, (made[at // len(IDS)], IDS[at % len(IDS)])
    assert sum(answer != [None, None, None, None, "Not Configured"] for answer in ours) > 25


LINES = [
    "x=plain",
    "x = spaced ",
    "x=a b c",
    "x=a#b",
    "x=a #b",
    "x=#b",
    "x='a #b' # c",
    'x="a #b" # c',
    'x="a\\nb"',
    "x='a\\nb'",
    "x='a\\'b'",
    'x="a\\"b"',
    'x="a\\tb\\\\c"',
    "x=a=b==",
    "x='multi\nline'",
    'x="multi\nline"',
    "export x=y",
    "  x=y",
    "x=",
    "x=''",
    "X=y",
    "x=1\nx=2",
    "x=ünï",
    "x='a'\r\ny=b\r\n",
    "# x=no\nx=yes",
    "\n\nx=y\n\n",
    "x=`a`",
    "x=$y",
    "x=a\\nb",
    'x="a\\qb"',
    "x=\ta\t",
    'x="a"\ny=b',
]


def test_dotenv_files_are_read_as_agentvault_reads_them(tmp_path: Path) -> None:
    made = []
    for at, text in enumerate(LINES):
        (tmp_path / f"{at}.env").write_bytes(text.encode())
        made.append({"key_file_path": str(tmp_path / f"{at}.env"), "use_env_vars": False})
    asked = {"made": made, "ids": ["x"]}
    theirs, ours = told(interpreter("agentvault"), "agentvault", asked, {}), told(sys.executable, "accord", asked, {})
    assert dict(zip(LINES, ours, strict=True)) == dict(zip(LINES, theirs, strict=True))


def test_a_file_may_be_called_env_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("\ufeffsvc=k\n")
    assert KeyManager(tmp_path / ".env", env={}).get_key("svc") == "k"


# --- places -----------------------------------------------------------------------------------------------------------


def test_files_precede_variables_and_the_keyring(tmp_path: Path, memory: MemoryKeyring) -> None:
    memory.kept = {("agentvault:both", "both"): "ring", ("agentvault:ring", "ring"): "ring"}
    memory.kept |= {("agentvault:env_svc", "env_svc"): "ring"}
    keys = KeyManager(written(tmp_path, "keys.json"), True, True, env=ENV)
    assert memory.asked == []  # not before it is needed
    assert [keys.get_key(id) for id in ("Both", "env_svc", "ring")] == ["file-key", "env-key", "ring"]
    assert [keys.get_key_source(id) for id in ("Both", "env_svc", "ring")] == ["file", "env", "keyring"]
    assert keys.get_oauth_config_status("both") == "Configured (Source: FILE)"
    assert keys.get_oauth_config_status("half") == "Partially Configured (Source: FILE)"
    assert keys.sources("ring") == {"api_key": "keyring"}
    before = len(memory.asked)
    assert keys.get_key("ring") == "ring"
    assert keys.find("nowhere") is None
    assert keys.find("nowhere") is None
    assert len(memory.asked) == before + 5  # each is asked for once, also what is not there


def test_the_keyring_is_off_by_default(memory: MemoryKeyring) -> None:
    keys = KeyManager(env={})
    assert keys.get_key("x") is None
    assert memory.asked == []
    for put in (
        lambda: keys.set_key_in_keyring("x", "k"),
        lambda: keys.set_token_in_keyring("x", "k"),
        lambda: keys.set_oauth_creds_in_keyring("x", "i", "s"),
    ):
        with pytest.raises(KeyManagementError, match="use_keyring"):
            put()


def test_keyring_is_imported_only_when_used() -> None:
    script = """
import sys
from accord.client.credentials import KeyManager
keys = KeyManager(use_keyring=True, env={"ACCORD_KEY_A": "k"})
assert keys.get_key("a") == "k"
assert "keyring" not in sys.modules
sys.modules["keyring"] = None  # as if it was not installed
assert keys.get_key("b") is None
try:
    keys.set_key_in_keyring("b", "k")
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "KeyManagementError The keyring needs an extra: pip install 'accord[keyring]'\n"


def test_keyring_entries_match_agentvault(memory: MemoryKeyring) -> None:
    keys = KeyManager(use_keyring=True, env={})
    assert keys.find("svc") is None  # and that is not remembered against what follows
    keys.set_key_in_keyring("SVC", "k")
    keys.set_oauth_creds_in_keyring("Svc", "i", "s")
    keys.set_token_in_keyring("svc", "t")
    assert memory.kept == {
        ("agentvault:svc", "svc"): "k",
        ("agentvault:oauth:svc", "clientId"): "i",
        ("agentvault:oauth:svc", "clientSecret"): "s",
        ("agentvault:bearer:svc", "svc"): "t",
    }
    assert keys.find("sVc") == Credential(api_key="k", bearer="t", oauth=OAuthClient(client_id="i", client_secret="s"))
    assert keys.get_oauth_config_status("svc") == "Configured (Source: KEYRING)"
    assert keys.get_token_source("svc") == "keyring"
    del memory.kept["agentvault:oauth:svc", "clientId"]
    assert KeyManager(use_keyring=True, env={}).get_oauth_config_status("svc") == "Not Configured"
    for wrong in ("", None):
        with pytest.raises(ValueError, match="non-empty"):
            keys.set_key_in_keyring("svc", wrong)  # type: ignore[arg-type]


def test_a_keyring_that_does_not_work_has_nothing_and_takes_nothing(
    memory: MemoryKeyring, caplog: pytest.LogCaptureFixture
) -> None:
    memory.is_broken = True
    keys = KeyManager(use_keyring=True, env={"ACCORD_KEY_A": "k"})
    assert keys.get_key("a") == "k"
    assert keys.get_key("b") is None
    assert "keys.keyring_failed" in caplog.text
    with pytest.raises(KeyManagementError, match="RuntimeError"):
        keys.set_key_in_keyring("b", "k")


@pytest.mark.proves("C-14")
@pytest.mark.parametrize("brand", ["ACCORD", "AGENTVAULT"])
def test_bearer_tokens_have_names_of_their_own(tmp_path: Path, brand: str) -> None:
    assert KeyManager(env={f"{brand}_TOKEN_SVC": "t"}).get_token("svc") == "t"
    (tmp_path / "keys.env").write_text(f"{brand}_TOKEN_svc=t\n")
    keys = KeyManager(tmp_path / "keys.env", env={f"{brand}_TOKEN_SVC": "other"})
    assert (keys.get_token("SVC"), keys.get_token_source("svc"), keys.get_key("svc")) == ("t", "file", None)
    (tmp_path / "keys.json").write_text('{"svc": {"bearer": "t"}}')
    assert KeyManager(tmp_path / "keys.json", env={}).get_token("svc") == "t"
    assert KeyManager(env={"MY_TOKEN_SVC": "t"}, env_prefix="MY_KEY_").get_token("svc") == "t"


def test_our_names_count_more_than_agentvaults() -> None:
    env = {"AGENTVAULT_KEY_A": "theirs", "ACCORD_KEY_A": "ours", "AGENTVAULT_KEY_B": "theirs"}
    env |= {"AGENTVAULT_OAUTH_A_CLIENT_ID": "theirs", "ACCORD_OAUTH_A_CLIENT_ID": "ours"}
    keys = KeyManager(env=env)
    assert [keys.get_key("a"), keys.get_key("b"), keys.get_oauth_client_id("a")] == ["ours", "theirs", "ours"]


def test_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_KEY_SOME_SVC", "k")
    assert KeyManager().get_key("some_svc") == "k"
    assert KeyManager(use_env_vars=False).get_key("some_svc") is None


@pytest.mark.parametrize("id", ["org/some-agent", "Org.Some:Agent", "org_some_agent"])
def test_a_variable_can_name_an_id_that_no_shell_takes(id: str) -> None:
    assert KeyManager(env={"ACCORD_KEY_ORG_SOME_AGENT": "k"}).get_key(id) == "k"


def test_all_variables_and_file_fields_are_read(tmp_path: Path) -> None:
    env = {
        "ACCORD_BASIC_A": "user:pass:word",
        "ACCORD_HMAC_A": "partner:secret",
        "ACCORD_HMAC_B": "secret",
        "ACCORD_HOSTS_A": "a.example, b.example:8443 ,",
    }
    keys = KeyManager(env=env)
    assert keys.find("a") == Credential(
        basic=UserPassword(username="user", password="pass:word"),
        hmac=HmacKey(key_id="partner", secret="secret"),
        hosts=("a.example", "b.example:8443"),
    )
    assert keys.find("b") == Credential(hmac=HmacKey(secret="secret"))
    everything = Credential(
        api_key="k",
        bearer="t",
        oauth=OAuthClient(client_id="i", client_secret="s", parameters={"audience": "x"}),
        basic=UserPassword(username="u", password="p"),
        hmac=HmacKey(secret="s", key_id="k"),
        headers={"X-A": "b"},
        certificate=Certificate(file="c.pem", key="k.pem", password="p", ca="ca.pem"),
        hosts=("a.example",),
    )
    path = tmp_path / "deep" / "keys.json"
    files.write_entry(path, "Svc", everything)
    assert KeyManager(path, env={}).find("svc") == everything
    assert path.stat().st_mode & 0o777 == 0o600


def test_writing_leaves_everything_else_in_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, "keys.json")
    files.write_entry(path, "FILE-SVC", Credential(api_key="new"))
    assert json.loads(path.read_text()) == {name: JSON[name] for name in JSON if name != "File-Svc"} | {
        "file-svc": {"apiKey": "new"}
    }
    files.write_entry(path, "file-svc", None)
    assert "file-svc" not in json.loads(path.read_text())
    assert os.listdir(tmp_path) == ["keys.json"]
    for wrong in (tmp_path / "keys.env", written(tmp_path, "keys.env") / "x.json"):
        with pytest.raises(KeyManagementError):
            files.write_entry(wrong, "x", None)
    path.write_text("{")
    with pytest.raises(KeyManagementError, match="is not a valid key file"):
        files.write_entry(path, "x", Credential(api_key="k"))
    assert path.read_text() == "{"
