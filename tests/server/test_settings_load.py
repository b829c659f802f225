"""Where settings come from: a flag before a variable, a variable before the file, the file before the default."""

import os
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from accord.agents.remote import ReportMode
from accord.auth.audit import Audited
from accord.auth.scheme_settings import ApiKeys, Header, Jwt
from accord.protocol.operations import DialectName
from accord.server.settings import INVALID_URL, Capability, HttpServer, Settings
from accord.server.settings_loader import BadSettings, LoadedSettings, load, settings_of, store_of
from accord.server.settings_validation import is_struct, setting_names, setting_types


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder without a file of settings."""
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "accord.toml") -> Path:
    file = Path(name)
    file.write_text(text, encoding="utf-8")
    return file


def refusal(*given: Any, **named: Any) -> str:
    with pytest.raises(BadSettings) as raised:
        load(*given, **named)
    return str(raised.value)


class Flow(Struct):
    """The options of some agent type."""

    type: str
    mode: Literal["answer", "callback"] = "answer"


# --- precedence -------------------------------------------------------------------------------------------------------


def test_every_setting_has_a_default() -> None:
    assert load() == LoadedSettings(Settings(), {})


def test_each_source_wins_over_the_next_and_is_named() -> None:
    file = written('[server]\nhost = "a"\nport = 1\nurl = "http://file"\nworkers = 2')
    env = {"ACCORD_SERVER__PORT": "2", "ACCORD_SERVER__URL": "http://variable", "ACCORD_KEEP_DAYS": "7.5"}
    found = load(file, env, {"server.url": "http://flag", "store": None})
    server = found.settings.server
    assert (server.host, server.port, server.url, server.workers) == ("a", 2, "http://flag", 2)
    assert found.settings.keep_days == 7.5
    assert found.sources == {
        "server.host": "accord.toml",
        "server.port": "ACCORD_SERVER__PORT",
        "server.url": "--url",
        "server.workers": "accord.toml",
        "keep_days": "ACCORD_KEEP_DAYS",
    }


def test_the_local_settings_file_is_the_default() -> None:
    written('store = "sqlite:///here.db"')
    other = written('store = "sqlite:///there.db"', "other.toml")
    assert load().settings.store == "sqlite:///here.db"
    assert load(other).settings.store == "sqlite:///there.db"
    assert load(other).sources == {"store": "other.toml"}


def test_a_file_that_was_named_must_be_there() -> None:
    assert refusal(Path("nowhere.toml")) == "nowhere.toml cannot be read: No such file or directory"
    Path("folder").mkdir()
    assert refusal(Path("folder")) == "folder cannot be read: Is a directory"


def test_invalid_toml_names_the_line() -> None:
    assert refusal(written("store = sqlite")).startswith("accord.toml is not TOML: Invalid value (at line 1, column 9)")
    Path("latin.toml").write_bytes(b'store = "caf\xe9"')
    assert refusal(Path("latin.toml")).startswith("latin.toml is not TOML: 'utf-8' codec")


def test_a_list_is_replaced_and_not_added_to() -> None:
    file = written('[auth]\nschemes = [{ type = "api-keys", header = "X-Key" }]')
    found = load(file, {}, {"auth.schemes": [{"type": "api-keys"}]})
    assert found.settings.auth.schemes == (ApiKeys(),)
    assert found.sources == {"auth.schemes": "--auth"}


def test_a_table_of_agents_is_added_to() -> None:
    file = written('[agents]\na = "m:a"\nb = "m:b"')
    found = load(file, {"ACCORD_AGENTS__B": "m:other", "ACCORD_AGENTS__C": "m:c"})
    assert found.settings.agents == {"a": "m:a", "b": "m:other", "c": "m:c"}
    assert found.sources == {"agents.a": "accord.toml", "agents.b": "ACCORD_AGENTS__B", "agents.c": "ACCORD_AGENTS__C"}


def test_table_variables_merge() -> None:
    file = written('[server]\nhost = "a"\nport = 1\n[agents]\na = "m:a"')
    found = load(file, {"ACCORD_SERVER": '{"port": 9}', "ACCORD_AGENTS": '{"b": "m:b"}'})
    assert (found.settings.server.host, found.settings.server.port) == ("a", 9)
    assert found.settings.agents == {"a": "m:a", "b": "m:b"}


# --- variables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "dialects"),
    [("v1", ("v1",)), ("v1,gen", ("v1", "gen")), (" v1 , gen ,", ("v1", "gen")), ('["v03"]', ("v03",))],
)
def test_a_list_is_written_with_commas_or_as_json(text: str, dialects: tuple[str, ...]) -> None:
    found = load(None, {"ACCORD_SERVER__DIALECTS": text}).settings.server.dialects
    assert found == tuple(DialectName(name) for name in dialects)


def test_a_variable_has_the_type_of_its_setting() -> None:
    variables = {
        "ACCORD_SERVER__BEHIND_PROXY": "true",
        "ACCORD_SERVER__CAPABILITIES": "",
        "ACCORD_SERVER__SERVER": "granian",
        "ACCORD_LIMITS__RATE": "null",
        "ACCORD_LIMITS__BURST": "17",
        "ACCORD_ENGINE__LEASE_SECONDS": "2.5",
        "ACCORD_AUDIT": "none",
        "ACCORD_PUSH__ALLOW_HOSTS": "a.example, *.b.example",
        "ACCORD_AUTH__SCHEMES": '[{"type": "api-keys"}]',
        "ACCORD_CARD__PROVIDER__ORGANIZATION": "Acme",
        "ACCORD_CARD__PROVIDER__URL": "https://acme.example",
    }
    found = load(None, variables).settings
    assert found.server.behind_proxy is True
    assert found.server.capabilities == ()
    assert found.server.server is HttpServer.GRANIAN
    assert (found.limits.rate, found.limits.burst, found.engine.lease_seconds) == (None, 17, 2.5)
    assert found.audit is Audited.NONE
    assert found.push.allow_hosts == ("a.example", "*.b.example")
    assert found.auth.schemes == (ApiKeys(),)
    assert found.card.provider is not None
    assert (found.card.provider.organization, found.card.provider.url) == ("Acme", "https://acme.example")


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        *(("SERVER__BEHIND_PROXY", text, True) for text in ("true", "1", "True", "TRUE")),
        *(("SERVER__BEHIND_PROXY", text, False) for text in ("false", "0", "False")),
        ("SERVER__GRACE_SECONDS", "5", 5.0),
        ("SERVER__GRACE_SECONDS", "0.5", 0.5),
        ("SERVER__URL", "", ""),
        ("SERVER__TLS_CERT", "env:ELSEWHERE", "7"),
        ("SERVER__PORT", "env:ELSEWHERE", 7),
        ("SERVER__GRACE_SECONDS", "env:ELSEWHERE", 7.0),
        ("AUTH__SCHEMES", "", ()),
        ("PUSH__ALLOW_HOSTS", '["a,b"]', ("a,b",)),
        ("PUSH__SIGNING_KEYS", "env:ELSEWHERE,other", ("7", "other")),
        ("REMOTES__MY_AGENT__URL", "http://x", "http://x"),
    ],
)
def test_variables_are_typed_by_their_setting(variable: str, text: str, value: Any) -> None:
    if variable.startswith("REMOTES"):
        assert load(None, {f"ACCORD_{variable}": text}).settings.remotes["my_agent"].url == value
        return
    found: Any = load(None, {f"ACCORD_{variable}": text, "ELSEWHERE": "7"}).settings
    for part in variable.lower().split("__"):
        found = getattr(found, part)
    assert found == value


@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        *(("SERVER__BEHIND_PROXY", text, "Expected `bool`, got `str`") for text in ("yes", "on", "", "null", "2")),
        *(("SERVER__GRACE_SECONDS", text, "Expected `float`, got `str`") for text in ("5s", "", " 5 ", "soon")),
        *(("SERVER__GRACE_SECONDS", text, "Expected `float` >= 0.0") for text in ("-1", "nan")),
        ("ENGINE__LEASE_SECONDS", "0", "Expected `float` > 0.0"),
        ("ENGINE__SLOTS", "0", "Expected `int` >= 1"),
        ("LIMITS__RATE", "-1", "Expected `float` >= 0.0"),
        ("LIMITS__BURST", "1.5", "Expected `int`, got `str`"),
        ("SERVER__PORT", "", "Expected `int`, got `str`"),
    ],
)
def test_invalid_variable_values_are_refused(variable: str, text: str, reason: str) -> None:
    name = variable.lower().replace("__", ".")
    assert refusal(None, {f"ACCORD_{variable}": text}) == f"ACCORD_{variable}: {name}: {reason}"


@pytest.mark.parametrize("text", ['{"kty": "OKP"}', "[not a list", "a,b", "{"])
def test_the_text_of_a_text_setting_is_taken_as_it_is(text: str) -> None:
    """A key for signing is JSON, and must not be taken apart."""
    assert load(None, {"ACCORD_CARD__SIGNING_KEY": text}).settings.card.signing_key == text


@pytest.mark.parametrize(("variable", "text"), [("SERVER__DIALECTS", "[v1"), ("AGENTS", "m:a"), ("SERVER", "x")])
def test_invalid_json_variables_are_refused(variable: str, text: str) -> None:
    assert refusal(None, {f"ACCORD_{variable}": text}).startswith(f"ACCORD_{variable} is not JSON: ")


# --- names that are none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('stroe = "x"', "unknown setting stroe; did you mean store?"),
        ("[server]\nprot = 1", "unknown setting server.prot; did you mean server.port?"),
        ("[sever]\nport = 1", "unknown setting sever; did you mean server?"),
        ("[engine]\nlease = 1", "unknown setting engine.lease"),
        ("[limits]\nstreems = 1", "unknown setting limits.streems; did you mean limits.streams?"),
        ("port = 1", "unknown setting port"),
        ("server = 1", "server must be a table of settings, not one value"),
        ('agents = "m:a"', "agents must be a table of settings, not one value"),
        ("[card.provider]\norganisation = 1", "card.provider.organisation; did you mean card.provider.organization?"),
        (
            '[[auth.schemes]]\ntype = "api-keys"\nhedaer = "X"',
            "unknown setting auth.schemes[0].hedaer; did you mean auth.schemes[0].header?",
        ),
        (
            '[[auth.schemes]]\ntype = "basic"\nusers.bob = { pasword = "x" }',
            "unknown setting auth.schemes[0].users.bob.pasword; did you mean auth.schemes[0].users.bob.password?",
        ),
        ('[[auth.roles]]\nname = "x"\nskils = []', "auth.roles[0].skils; did you mean auth.roles[0].skills?"),
    ],
)
def test_an_unknown_name_in_a_file_is_refused_with_the_nearest(text: str, reason: str) -> None:
    found = refusal(written(text))
    assert found.startswith("accord.toml: ")
    assert reason in found


# --- values that do not fit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[server]\nport = "http"', "server.port: Expected `int`, got `str`"),
        ("[server]\nport = 65536", "server.port: Expected `int` <= 65535"),
        ("[server]\nport = 0", "server.port: Expected `int` >= 1"),
        ("[server]\ngrpc_port = 0", "server.grpc_port: Expected `int` >= 1"),
        ("[server]\nworkers = 0", "server.workers: Expected `int` >= 1"),
        ("[server]\ndialects = []", "server.dialects: Expected `array` of length >= 1"),
        ('[server]\ndialects = ["v1", "v9"]', "server.dialects[1]: 'v9' is not one of v1, v03, vault, gen, relay"),
        (
            '[server]\ndialects = ["v0.3"]',
            "server.dialects[0]: 'v0.3' is not one of v1, v03, vault, gen, relay; did you mean v03?",
        ),
        (
            '[server]\nserver = "Uvicorn"',
            "server.server: 'Uvicorn' is not one of uvicorn, granian; did you mean uvicorn?",
        ),
        ("[server]\nserver = 1", "server.server: Expected `str`, got `int`; it is one of uvicorn, granian"),
        (
            '[server]\ncapabilities = ["pus"]',
            "server.capabilities[0]: 'pus' is not one of streaming, push, extended-card; did you mean push?",
        ),
        (
            '[remotes.a]\nurl = "http://x"\n[remotes.b]\nurl = "http://x"\nmode = "pol"',
            f"remotes.b.mode: 'pol' is not one of {', '.join(mode.value for mode in ReportMode)}; did you mean poll?",
        ),
        ('[remotes.a]\nurl = "http://x"\nstreams = -1', "remotes.a.streams: Expected `int` >= 0"),
        ("keep_days = -1", "keep_days: Expected `float` >= 0.0"),
        ("store = 5", "store: Expected `str | null`, got `int`"),
        ('[agents."a.b"]\ntarget = "m:x"', "agents: 'a.b' has a dot, and names have none"),
        ("[agents]\na = 1", "agents.a: Expected `str | object`, got `int`"),
        ('[server]\nurl = "http://[::1"', f"server.url: {INVALID_URL}"),
        ('[server]\nurl = "nonsense"', f"server.url: {INVALID_URL}"),
        ('[receiver]\nurl = "https://x:y"', f"receiver.url: {INVALID_URL}"),
        ('[registry]\nurl = "r.example"', f"registry.url: {INVALID_URL}"),
        ('[remotes.a]\nurl = "x.example"\n[remotes.b]\nurl = "http://[::1"', f"remotes.b.url: {INVALID_URL}"),
        ('[remotes.a]\nurl = "[::1"', f"remotes.a.url: {INVALID_URL}"),
        ('[card.provider]\nurl = "x"', "card.provider: Object missing required field `organization`"),
        (
            '[[auth.schemes]]\ntype = "api-kes"',
            "auth.schemes[0].type: 'api-kes' is not one of api-keys, jwt, basic, header, hmac, mtls, plugin;"
            " did you mean api-keys?",
        ),
        ('[[auth.schemes]]\ntype = "jwt"\nissuer = "x"', "auth.schemes[0]: Object missing required field `audience`"),
        (
            '[[auth.schemes]]\ntype = "header"\nname = "X"\nsecrets = [{ secret = "short" }]',
            "auth.schemes[0].secrets[0]: `secret` needs at least 16 characters",
        ),
    ],
)
def test_wrong_types_name_setting_and_location(text: str, reason: str) -> None:
    assert refusal(written(text)) == f"accord.toml: {reason}"


def test_a_remote_agent_may_be_a_host_or_a_name() -> None:
    for url in ("https://x.example/a", "x.example:8000", "localhost:8000", "org/agent"):
        assert load(written(f'[remotes.a]\nurl = "{url}"')).settings.remotes["a"].url == url


def test_wrong_values_name_their_source() -> None:
    file = written('[card]\nsigning_key = "x"\nsigning_key_url = "y"\n[server]\nport = 1')
    wrong = {"card.signing_key_url": 5}
    assert refusal(file, {}, wrong) == "--signing-key-url: card.signing_key_url: Expected `str | null`, got `int`"
    assert refusal(file, {"ACCORD_SERVER__PORT": "x"}).startswith("ACCORD_SERVER__PORT: server.port: ")
    assert refusal(file, {"ACCORD_SERVER__URL": "x"}) == f"ACCORD_SERVER__URL: server.url: {INVALID_URL}"
    assert refusal(file, {}, {"auth.schemes": [{"type": "jwt"}]}).startswith("--auth: auth.schemes[0]: ")


def test_wrong_choices_are_explained_in_every_source() -> None:
    assert refusal(None, {"ACCORD_AUDIT": "writs"}) == (
        "ACCORD_AUDIT: audit: 'writs' is not one of all, writes, none; did you mean writes?"
    )
    assert refusal(None, {}, {"server.dialects": ["v2"]}).startswith(
        "--dialects: server.dialects[0]: 'v2' is not one of v1"
    )
    referred = written('audit = "env:HOW"')
    assert refusal(referred, {"HOW": "al"}).endswith("did you mean all?")
    mtls = written('[[auth.schemes]]\ntype = "mtls"\nnames = ["dnss"]')
    assert refusal(mtls) == (
        "accord.toml: auth.schemes[0].names[0]: 'dnss' is not one of uri, dns, email, common-name; did you mean dns?"
    )
    flow = load(written('[agents.x]\ntype = "http"\nmode = "calback"'))
    with pytest.raises(BadSettings) as raised:
        flow.read("agents.x", Flow)
    assert str(raised.value) == (
        "accord.toml: agents.x.mode: 'calback' is not one of answer, callback; did you mean callback?"
    )


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_a_text_may_refer_to_a_variable() -> None:
    file = written("""
        store = "env:DATABASE"
        [push]
        signing_keys = ["env:NEW", "old-key"]
        [[auth.schemes]]
        type = "jwt"
        issuer = "me"
        audience = ["us"]
        secret = "env:TOKENS"
        [[auth.schemes]]
        type = "header"
        name = "X-Secret"
        secrets = [{ owner = "bob", secret = "env:BOB" }]
    """)
    env = {"DATABASE": "postgresql://u:p@h/d", "NEW": "new-key", "TOKENS": "t" * 32, "BOB": "b" * 16}
    found = load(file, env).settings
    assert found.store == "postgresql://u:p@h/d"
    assert found.push.signing_keys == ("new-key", "old-key")
    jwt, header = found.auth.schemes
    assert isinstance(jwt, Jwt)
    assert isinstance(header, Header)
    assert jwt.secret == "t" * 32
    assert header.secrets[0].secret == "b" * 16


def test_unset_references_name_the_setting() -> None:
    file = written('[push]\nsigning_keys = ["env:NOWHERE"]')
    assert refusal(file, {}) == "accord.toml: push.signing_keys refers to NOWHERE, which is not set"
    file.unlink()
    assert refusal(None, {"ACCORD_STORE": "env:NO"}) == "ACCORD_STORE: store refers to NO, which is not set"


SECRETS = st.text("abcdefghijkLMNOP0123456789-_", min_size=20, max_size=40)


@given(st.lists(SECRETS, min_size=6, max_size=6, unique=True))
def test_settings_are_shown_without_secrets(secrets: list[str]) -> None:
    database, webhook, signing, token, password, shared = secrets
    found = settings_of(
        {
            "store": f"postgresql://user:{database}@host/db",
            "push": {"signing_keys": [webhook]},
            "card": {"signing_key": signing},
            "auth": {
                "schemes": [
                    {"type": "jwt", "issuer": "i", "audience": ["a"], "secret": token},
                    {"type": "basic", "users": {"bob": {"password": password}}},
                    {"type": "header", "name": "X", "secrets": [{"owner": "eve", "secret": shared}]},
                    {"type": "hmac", "keys": {"k": {"owner": "kim", "secret": shared}}},
                ]
            },
        },
        "test",
    )
    shown = repr(found) + str(found) + repr(found.push) + repr(found.card) + repr(found.auth)
    assert not [secret for secret in secrets if secret in shown]
    assert "eve" in shown


def test_no_setting_with_a_secret_name_is_shown() -> None:
    """Whoever adds a setting that sounds like a secret has to say whether it is one."""
    # An address, names of files, and a time.
    harmless = {"card.signing_key_url", "server.tls_key", "credentials.key_file", "receiver.token_seconds"}
    telling = [
        path
        for path in setting_names(Settings)
        if any(word in path[-1] for word in ("key", "secret", "password", "token"))
    ]
    assert {"push.signing_keys", "card.signing_key"} <= {".".join(path) for path in telling}
    for path in telling:
        kind: Any = Settings
        for part in path[:-1]:
            kind = setting_types(kind)[part]
        assert is_struct(kind)
        assert path[-1] in getattr(kind, "SECRET", ()) or ".".join(path) in harmless


# --- settings of a program, and of other commands ---------------------------------------------------------------------


def test_a_program_s_settings_are_checked_like_a_file_s() -> None:
    assert settings_of({"server": {"capabilities": ["push"]}}, "x").server.capabilities == (Capability.PUSH,)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"servr": {}}, "to_a2a: unknown setting servr; did you mean server?"),
        ({"engine": {"lease": 1}}, "to_a2a: unknown setting engine.lease"),
        ({"server": {"port": "x"}}, "to_a2a: server.port: Expected `int`, got `str`"),
    ]
    for wrong, reason in refused:
        with pytest.raises(BadSettings) as raised:
            settings_of(wrong, "to_a2a")
        assert str(raised.value) == reason


def test_settings_in_code_refer_to_variables() -> None:
    env = {"ACCORD_SERVER__PORT": "9", "KEY": "k"}
    found = settings_of({"push": {"signing_keys": ["env:KEY"]}}, "to_a2a", env)
    assert (found.push.signing_keys, found.server.port) == (("k",), 8000)


def test_the_store_is_found_despite_other_errors() -> None:
    assert store_of({}) is None
    written('store = "env:DB"\nnonsense = 1')
    assert store_of({"DB": "sqlite:///x.db"}) == "sqlite:///x.db"
    other = written('store = "sqlite:///y.db"', "other.toml")
    assert store_of({"ACCORD_CONFIG": str(other)}) == "sqlite:///y.db"
    with pytest.raises(BadSettings, match=r"^accord\.toml: store refers to DB, which is not set$"):
        store_of({})
    written("store = 5")
    with pytest.raises(BadSettings, match=r"^accord\.toml: store: Expected"):
        store_of({})


def test_the_environment_itself_will_do() -> None:
    assert isinstance(load(None, os.environ).settings, Settings)
