"""What is not served: what strangers could use or read, and what could not work; each with the remedy."""

import socket
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from granian import Granian
from typer.testing import CliRunner
from uvicorn.supervisors import ChangeReload, Multiprocess

from accord.cli import app, serve
from accord.server.http_server import listen
from accord.server.settings import ServerSettings
from tests.certificates import Authority, Issued
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, accord, running


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Issued]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    return authority, authority.server()


@pytest.fixture
def refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `accord serve` in this process, which must end before it serves; return its exit code and what it said."""
    monkeypatch.chdir(tmp_path)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("it was served")

    for serving in (uvicorn.Server.run, Multiprocess.run, ChangeReload.run, Granian.serve):
        monkeypatch.setattr(f"{serving.__module__}.{serving.__qualname__}", never)

    def run(*arguments: str, **env: str) -> tuple[int, str]:
        home = {"XDG_DATA_HOME": str(tmp_path), "COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb"}
        done = CliRunner().invoke(app, ["serve", *arguments], env=home | env)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stderr

    return run


def test_an_open_address_is_refused_with_the_remedy(tmp_path: Path) -> None:
    done = accord(tmp_path, "serve", "--host", "0.0.0.0", "--port", str(free_port()))
    assert done.returncode == 1
    assert "0.0.0.0 is not a loopback address" in done.stderr
    for remedy in ("--auth api-keys", "accord apikeys create", "127.0.0.1", "--tls-cert", "--behind-proxy"):
        assert remedy in done.stderr
    assert "Traceback" not in done.stderr
    assert "curl" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason", "remedy"),
    [
        (["--behind-proxy"], "the proxy of --behind-proxy passes on", "or leave --behind-proxy out."),
        (
            ["--behind-proxy", "--url", "https://pub.example"],
            "the proxy of --behind-proxy",
            "leave --behind-proxy out.",
        ),
        (["--url", "https://pub.example"], "callers use it at https://pub.example", "or leave --url out."),
        (["--url", "http://192.0.2.1:8000"], "callers use it at http://192.0.2.1:8000", "or leave --url out."),
    ],
)
@pytest.mark.parametrize("is_extended", [False, True])
def test_an_open_server_that_others_reach_is_refused(
    refuse: Any, tmp_path: Path, arguments: list[str], reason: str, remedy: str, is_extended: bool
) -> None:
    if is_extended:
        (tmp_path / "accord.toml").write_text(
            '[auth]\nrequired_for = "extended-card"\n[[auth.schemes]]\ntype = "api-keys"'
        )
    code, said = refuse(*arguments)
    assert (code, "Anybody could use this server: " in said) == (1, True)
    for part in (reason, "--auth api-keys", remedy):
        assert part in said


@pytest.mark.proves("2-01", "4-22", "AUTH-TLS-001")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "box.example"])
def test_credentials_in_the_clear_are_refused_with_the_remedy(refuse: Any, host: str) -> None:
    code, said = refuse("--host", host, "--auth", "api-keys")
    assert code == 1
    assert "Credentials would travel in the clear" in said
    assert "--tls-cert" in said
    assert "--behind-proxy" in said
    assert refuse("--host", host)[0] == 1


def test_behind_a_proxy_credentials_are_the_proxy_s_to_keep(tmp_path: Path) -> None:
    forwarded = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "agents.example", "X-Forwarded-Prefix": "/team"}
    with running(tmp_path, "--host", "0.0.0.0", "--auth", "api-keys", "--behind-proxy") as behind:
        card = httpx.get(f"{behind.url}/.well-known/agent-card.json", headers=forwarded).json()
        assert card["url"] == "https://agents.example/team/"
        assert behind.post("ListTasks", headers=forwarded).status_code == 401


def test_proxy_headers_need_behind_proxy(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        card = httpx.get(f"{server.url}/.well-known/agent-card.json", headers={"X-Forwarded-Proto": "https"}).json()
        assert card["url"].startswith("http://")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_wildcard_hosts_listen_on_both_families() -> None:
    with closing(listen(ServerSettings(host="::", port=free_port()))) as found:
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, found.getsockname()[1]), timeout=BOUND_SECONDS).close()


def test_tls_needs_all_of_it(refuse: Any, issued: tuple[Authority, Issued], tmp_path: Path) -> None:
    authority, server = issued
    other = authority.client("other")
    cert, key, ca = str(server.certificate), str(server.key), str(authority.certificate)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for arguments, reason in [
        (["--tls-cert", cert], "give both --tls-cert and --tls-key"),
        (["--tls-key", key], "give both --tls-cert and --tls-key"),
        (["--tls-client-ca", ca], "give --tls-cert and --tls-key as well"),
        (["--tls-cert", "nowhere.pem", "--tls-key", key], "nowhere.pem cannot be read"),
        (["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", "no.pem"], "no.pem cannot be read"),
        (["--tls-cert", cert, "--tls-key", str(other.key)], "cannot be used for TLS: [X509: KEY_VALUES_MISMATCH]"),
        (["--tls-cert", str(garbage), "--tls-key", key], "cannot be used for TLS"),
        (["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", str(garbage)], f"{garbage} cannot be used for TLS"),
    ]:
        code, said = refuse(*arguments, "--port", str(free_port()))
        assert (code, reason in said) == (1, True), said


def test_client_certificates_need_a_ca(refuse: Any, issued: tuple[Authority, Issued], tmp_path: Path) -> None:
    authority, server = issued
    (tmp_path / "accord.toml").write_text('[[auth.schemes]]\ntype = "mtls"')
    tls = ["--tls-cert", str(server.certificate), "--tls-key", str(server.key)]
    assert "--tls-client-ca" in refuse(*tls)[1]
    assert "--server uvicorn" in refuse(*tls, "--tls-client-ca", str(authority.certificate), "--server", "granian")[1]


def test_processes_cannot_share_memory(refuse: Any) -> None:
    code, said = refuse("--workers", "2", "--store", "sqlite://:memory:")
    assert (code, "--store" in said) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere.py:agent"], "TARGET: There is no file nowhere.py"),
        (["nowhere.py"], "TARGET: There is no file nowhere.py"),
        (["nowhere:agent"], "TARGET: There is no module called 'nowhere'"),
        (["json:nothing"], "TARGET: json has no 'nothing'"),
        (["json"], "TARGET: 'json' is not a valid name: write module:name"),
        (["json:__name__"], "TARGET: json:__name__ is not an agent but str"),
        (["--config", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["--dialects", "v1,v9"], "--dialects: server.dialects[1]: 'v9' is not one of"),
        (["--dialects", ""], "--dialects: server.dialects: Expected `array` of length >= 1"),
        (["--capabilities", "flying"], "--capabilities: server.capabilities[0]: 'flying' is not one of"),
        (["--auth", "oauth"], "--auth: auth.schemes[0].type: 'oauth' is not one of"),
        (["--auth", "jwt"], "--auth: auth.schemes[0]: Object missing required field `issuer`"),
        (["--server", "apache"], "--server: server.server: 'apache' is not one of"),
        (["--store", "mysql://x"], "--store: A store cannot be at mysql://"),
        (["--store", "my.db"], "--store: The store's address has no scheme; write sqlite:/// before the path"),
        (["--prot", "1"], "No such option: --prot"),
        (["--port", "0"], "'--port': 0 is not in the range 1<=x<=65535"),
        (["--workers", "0"], "'--workers': 0 is not in the range x>=1"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(refuse: Any, arguments: list[str], reason: str) -> None:
    code, said = refuse(*arguments)
    assert code == 2
    first, more = said.splitlines()
    assert first.startswith("accord serve: ")
    assert reason in first
    assert more == "Try 'accord serve --help'."


@pytest.mark.parametrize(
    ("names", "remedy"),
    [((), "write mine.py:name"), (("a",), "write mine.py:a"), (("a", "b"), "write which of mine.py:a, mine.py:b")],
)
def test_files_without_a_name_list_their_agents(
    refuse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], remedy: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    made = "".join(f"@agent(description='x')\ndef {name}() -> str: ...\n" for name in names)
    (tmp_path / "mine.py").write_text(f"from accord import agent\n{made}")
    code, said = refuse("mine.py")
    assert code == 2
    assert said.splitlines()[0] == f"accord serve: Invalid value for TARGET: mine.py names no object: {remedy}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("limit = int('many')\n", ["ValueError: invalid literal", 'mine.py", line 1', "limit = int('many')"]),
        ("def f(:\n", ["SyntaxError: invalid syntax", 'mine.py", line 1', "def f(:", " ^"]),
        ("import sys\nsys.exit(3)\n", ["it ends the process: sys.exit(3)", 'mine.py", line 2']),
        (
            "from accord import agent\n@agent(nme='x')\ndef f(): ...\n",
            ["argument 'nme'", "line 2, in <module>", "@agent"],
        ),
        ("import other\n", ["SyntaxError", 'mine.py", line 1', "import other", 'other.py", line 1', "two = (", " ^"]),
    ],
)
@pytest.mark.parametrize("how", ["mine.py:agent", "mine:agent", "accord.toml"])
def test_a_mistake_in_an_agent_s_own_module_is_shown_where_it_is(
    refuse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, text: str, shown: list[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mine", "other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "other.py").write_text("two = (\n    1 +\n")
    (tmp_path / "mine.py").write_text(text)
    if how == "accord.toml":
        (tmp_path / how).write_text('[agents.x]\ntarget = "mine.py:agent"\n')
    code, said = refuse(*([] if how == "accord.toml" else [how]))
    assert code == 2
    first, *rest = said.splitlines()
    assert "cannot be imported: " in first
    assert shown[0] in first
    for line in shown[1:]:
        assert any(line in found for found in rest), said
    for ours in ("typer", "importlib", "naming.py", "Traceback"):
        assert ours not in said


def test_a_mistake_in_the_settings_is_one_sentence(refuse: Any, tmp_path: Path) -> None:
    file = tmp_path / "accord.toml"
    for text, reason in [
        ("[server]\nprot = 1", "accord.toml: unknown setting server.prot; did you mean server.port?"),
        ("store = ", "accord.toml is not TOML"),
        ('store = "env:NOWHERE"', "accord.toml: store refers to NOWHERE, which is not set"),
        ('[server]\ntrusted_proxies = ["x"]\nbehind_proxy = true', "server.trusted_proxies: 'x' does not appear to be"),
        ('[server]\nurl = "http://[::1"', "accord.toml: server.url: It must be a URL that begins with https://"),
        ('[remotes.r]\nurl = "http://[::1"', "accord.toml: remotes.r.url: It must be a URL that begins with https://"),
    ]:
        file.write_text(text)
        code, said = refuse()
        assert (code, reason in " ".join(said.split())) == (2, True), said
    file.unlink()
    assert "did you mean ACCORD_SERVER__PORT?" in refuse(ACCORD_SERVER_PORT="9")[1]
    assert "ACCORD_SERVER__URL: server.url: It must be a URL" in refuse(ACCORD_SERVER__URL="nonsense")[1]


STORE = 'store = "sqlite:////proc/nowhere/a.db"', "/proc/nowhere/a.db"
ROLE = '[auth]\ndefault_role = "boss"', "auth: There is no role 'boss' that could be the default"

several = pytest.mark.parametrize("more", [["--workers", "2"], ["--reload"], ["--server", "granian"]], ids=str)


@several
@pytest.mark.parametrize(("settings", "reason"), [STORE, ROLE])
def test_start_errors_precede_worker_processes(
    refuse: Any, tmp_path: Path, settings: str, reason: str, more: list[str]
) -> None:
    (tmp_path / "accord.toml").write_text(settings)
    code, said = refuse(*more)
    assert (code, reason in said) == (1, True)


DATABASE = 'store = "postgresql://me:secret@127.0.0.1:1/x"', "postgresql://me@127.0.0.1:1/x cannot be used: "


@pytest.mark.parametrize(("settings", "reason"), [STORE, ROLE, DATABASE])
def test_start_errors_are_one_line(tmp_path: Path, settings: str, reason: str) -> None:
    (tmp_path / "accord.toml").write_text(settings)
    done = accord(tmp_path, "serve", "--port", str(free_port()))
    assert (done.returncode, done.stdout) == (1, "")
    (said,) = done.stderr.splitlines()
    assert reason in said


@pytest.mark.parametrize("command", [["serve", "--port", "1"], ["run", "flow.yaml"]])
def test_a_database_of_another_program_is_refused_in_one_line(tmp_path: Path, command: list[str]) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE task (id INTEGER)")
    before = file.read_bytes()
    steps = "[{name: a, type: deterministic, command: 'true'}]"
    flow = f"version: '1'\nname: f\nswarm: {{pattern: dag}}\nworkflows: [{{name: main, steps: {steps}}}]\n"
    (tmp_path / "flow.yaml").write_text(flow)
    done = accord(tmp_path, *command, "--store", f"sqlite:///{file}")
    (said,) = done.stderr.splitlines()
    assert (done.returncode, "belongs to another program" in said) == (1, True)
    assert file.read_bytes() == before


@several
def test_a_port_that_is_taken_is_reported_before_any_process_is_made(refuse: Any, more: list[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        code, said = refuse("--port", str(taken.getsockname()[1]), *more)
    assert (code, "Address already in use. Choose another port with --port." in said) == (1, True)
    assert "curl" not in said


def test_occupied_ports_end_the_start(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = accord(tmp_path, "serve", "--port", str(port))
    assert done.returncode == 1
    assert f"Cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
    assert "curl" not in done.stderr


@pytest.mark.parametrize("host", ["192.0.2.1", "300.1.1.1"])
def test_an_address_that_is_not_this_machine_s_is_reported(refuse: Any, host: str) -> None:
    code, said = refuse("--host", host, "--auth", "api-keys", "--behind-proxy", "--port", str(free_port()))
    assert code == 1
    assert said.startswith(f"Cannot listen on {host}:")
    assert said.endswith(". Choose an address of this machine with --host.\n")


def test_a_grpc_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = accord(tmp_path, "serve", "--port", str(free_port()), "--grpc-port", str(port))
    assert done.returncode == 1
    assert f"Cannot listen for gRPC on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_extra_that_is_missing_is_named(refuse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "granian", None)
    code, said = refuse("--server", "granian", "--port", str(free_port()))
    assert (code, "pip install 'accord[granian]'" in said) == (1, True)


def test_capabilities_are_all_none_or_some() -> None:
    assert serve._capabilities("all") == ["streaming", "push", "extended-card"]
    assert serve._capabilities("none") == []
    assert serve._capabilities("push, streaming") == ["push", "streaming"]
    assert serve._capabilities(None) is None


def test_a_server_with_a_guarded_extended_card_is_open(refuse: Any) -> None:
    code, said = refuse("--host", "0.0.0.0", "--auth", "api-keys", ACCORD_AUTH__REQUIRED_FOR="extended-card")
    assert code == 1
    assert "Anybody could use this server" in said


def test_an_extended_card_is_not_guarded_without_schemes(refuse: Any) -> None:
    code, said = refuse(ACCORD_AUTH__REQUIRED_FOR="extended-card")
    assert code == 2, said
    assert "auth.required_for: `extended-card` needs at least one of `auth.schemes`" in said


def test_a_refusal_beside_a_remote_agent_is_one_line(tmp_path: Path) -> None:
    """The remote agent has been asked for its card by then: its connection is closed, and nothing else is shown."""
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    with running(tmp_path / "there") as there:
        options = ("--remote", f"there={there.url}", "--blobs", f"dir://{tmp_path}/file/blobs")
        done = accord(tmp_path, "serve", *options, "--port", str(free_port()))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"The directory {tmp_path}/file/blobs cannot be used")


def test_an_address_for_reports_must_be_safe(tmp_path: Path) -> None:
    options = ("--remote", f"there=http://localhost:{free_port()}", "--webhook-url", "http://example.com")
    done = accord(tmp_path, "serve", *options, "--port", str(free_port()))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("receiver.url: It must be an https URL")
