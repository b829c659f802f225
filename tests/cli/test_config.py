"""`accord config`: what counts and why, what is wrong, and what there is."""

import json
import re
from pathlib import Path

from accord.server.settings_schema import all_agent_types
from accord.server.settings_schema import settings_schema as made
from tests.serve.running import ROOT, accord


def written(folder: Path, text: str) -> None:
    (folder / "accord.toml").write_text(text, encoding="utf-8")


def test_every_source_is_named_with_the_line_of_the_file(tmp_path: Path) -> None:
    written(
        tmp_path, '# settings\nkeep_days = 3\n\n[server]\nhost = "::1"\nport = 1\n[push]\nsigning_keys = ["env:K"]\n'
    )
    done = accord(tmp_path, "config", "show", "--json", "--port", "9000", ACCORD_AUDIT="all", K="secret")
    assert (done.returncode, done.stderr) == (0, "")
    found = {one["name"]: (one["value"], one["source"]) for one in json.loads(done.stdout)}
    assert found["keep_days"] == (3, "accord.toml:2")
    assert found["server.host"] == ("::1", "accord.toml:5")
    assert found["server.port"] == (9000, "--port")
    assert found["audit"] == ("all", "ACCORD_AUDIT")
    assert found["push.signing_keys"] == (["env:K"], "accord.toml:8")
    assert found["server.workers"] == (1, "default")


def test_the_table_shows_changed_settings(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.accord]\nstore = "sqlite:///a.db"\n', encoding="utf-8")
    done = accord(tmp_path, "config", "show", "--changed", "--dialects", "v1,v03", "shop:agent")
    assert done.returncode == 0, done.stderr
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == ["NAME", "store", "server.dialects"]
    assert "pyproject.toml:2" in done.stdout
    assert "v1, v03" in done.stdout


def test_unknown_flags_are_refused_as_by_serve(tmp_path: Path) -> None:
    done = accord(tmp_path, "config", "show", "--prot", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("accord serve: No such option: --prot")


def test_wrong_settings_are_not_shown_but_explained(tmp_path: Path) -> None:
    written(tmp_path, "[server]\nprot = 1\n")
    done = accord(tmp_path, "config", "show")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("accord config: accord.toml: unknown setting server.prot; did you mean server.port?\n")


def test_valid_settings_are_reported(tmp_path: Path) -> None:
    written(tmp_path, 'keep_days = 3\n[agents.x]\ntype = "http"\nurl = "https://x.example"\n')
    done = accord(tmp_path, "config", "check")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("The settings are valid (accord.toml, 2 not default")


def test_invalid_settings_exit_with_1(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from accord import agent\nprint('imported')\n@agent\nasync def talk(text: str) -> str:\n    return text\n"
    )
    (tmp_path / "flow.yaml").write_text(
        'version: "1"\nname: f\nswarm: {}\n'
        "workflows: [{name: m, steps: [{name: a, type: deterministic, command: ls}]}]\n"
    )
    for text, said in (
        ("keep_days = -1", "accord.toml: keep_days: Expected `float` >= 0.0"),
        ('store = "mysql://x"', "accord.toml: store: A store cannot be at mysql://"),
        ('[agents.x]\ntype = "htp"', "accord.toml: agents.x: unknown agent type 'htp'"),
        (
            '[agents.x]\ntype = "http"\nurll = "y"',
            "unknown setting agents.x.urll; did you mean agents.x.url?",
        ),
        ('[server]\nhost = "0.0.0.0"', "Anybody could use this server"),
        ('[server]\ntls_cert = "cert.pem"', "A certificate needs its key"),
        ('store = "sqlite://:memory:"\n[server]\nworkers = 2', "Several processes cannot share a store in memory"),
        ('[receiver]\nurl = "http://accord.example/hook"', "receiver.url: It must be an https URL"),
        ('[agents.x]\ntarget = "own.py:talk"\ndescr = "y"', "unknown setting agents.x.descr"),
        ('[agents.x]\ntarget = "flow.yaml"\nvras = {}', "unknown setting agents.x.vras"),
        ('[agents]\nx = "own.py:gone"', "gone"),
    ):
        written(tmp_path, text)
        done = accord(tmp_path, "config", "check")
        assert (done.returncode, done.stdout) == (1, ""), text
        assert said in done.stderr
        served = accord(tmp_path, "serve", "--port", "1")
        assert served.returncode in (1, 2), "refused before it listens"
        assert said.removeprefix("accord.toml: store: ") in served.stderr


def test_all_setting_errors_are_reported_at_once(tmp_path: Path) -> None:
    written(tmp_path, 'keep_days = "x"\n[server]\nprot = 1\nport = "x"\n[limits]\nbody = "many"\nqueue = 5\n')
    done = accord(tmp_path, "config", "check")
    assert done.returncode == 1
    for name in ("keep_days", "server.prot", "server.port", "limits.body"):
        assert len(re.findall(rf"{name}\b", done.stderr)) >= 1, done.stderr
    assert len(done.stderr.splitlines()) == len(set(done.stderr.splitlines())) == 5


def test_variable_errors_are_reported_too(tmp_path: Path) -> None:
    written(tmp_path, '[server]\nprot = 1\n[remotes.far]\nurl = "https://far.example"\n')
    wrong = {
        "ACCORD_SERVER__PORT": "x",
        "ACCORD_KEEP_DAYS": "-1",
        "ACCORD_SERVER__HSOT": "1",
        "ACCORD_REMOTES__FAR__MODE": "psh",
        "ACCORD_LIMITS": "{",
        "ACCORD_HOOKS": "x",
    }
    done = accord(tmp_path, "config", "check", **wrong, ACCORD_REMOTES__FAR__TOKEN="what it needs is in the file")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    for name in (*wrong, "server.prot"):
        assert len([line for line in lines if name in line]) == 1, done.stderr
    assert len(lines) == len(wrong) + 1
    (tmp_path / "accord.toml").unlink()
    bare = accord(tmp_path, "config", "check", ACCORD_SERVER__PORT="x", ACCORD_KEEP_DAYS="-1")
    assert (bare.returncode, len(bare.stderr.splitlines())) == (1, 2), "without a file there are variables all the same"


def test_invalid_settings_are_not_reported_as_missing(tmp_path: Path) -> None:
    variables = {"ACCORD_REMOTES__FAR__URL": "env:FAR", "ACCORD_REMOTES__FAR__TOKEN": "x", "ACCORD_KEEP_DAYS": "-1"}
    done = accord(tmp_path, "config", "check", **variables)
    assert done.returncode == 1
    assert "ACCORD_REMOTES__FAR__URL: remotes.far.url refers to FAR, which is not set" in done.stderr
    assert "ACCORD_KEEP_DAYS: keep_days" in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_two_files_are_refused(tmp_path: Path) -> None:
    written(tmp_path, "keep_days = 3\n")
    (tmp_path / "pyproject.toml").write_text("[tool.accord]\nkeep_days = 4\n", encoding="utf-8")
    done = accord(tmp_path, "config", "check")
    assert done.returncode == 1
    assert "keep one of them" in done.stderr
    shown = accord(tmp_path, "config", "show", "--changed", "--config", "pyproject.toml")
    assert "pyproject.toml:2" in shown.stdout


def test_the_schema_is_printed(tmp_path: Path) -> None:
    done = accord(tmp_path, "config", "schema")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(json.dumps(made(all_agent_types())))


def test_the_page_matches_the_starter_file(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "configure.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(NAME .*?)```", page, re.DOTALL)
    accord(tmp_path, "init")
    done = accord(tmp_path, "config", "show", "--changed", "--port", "9000", ACCORD_KEEP_DAYS="7")
    assert done.stdout == shown
