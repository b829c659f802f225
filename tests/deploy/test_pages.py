"""The pages about deploying and upgrading: each command is one that there is, and copies are made and put back so."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from accord import __version__
from accord.storage.postgres import connections
from tests.deploy.chart import DEFAULTS, manifests
from tests.deploy.dockerfile import stages
from tests.deploy.nodes import ACCORD
from tests.doc_blocks import Unbound, blocks, commands
from tests.doc_blocks import accord as parsed_by_accord
from tests.serve.running import BOUND_SECONDS, ROOT, Server, environment

PAGES = [ROOT / "docs" / "how-to" / name for name in ("deploy.md", "upgrade.md")]
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
STORE = {"store": {"existingSecret": "accord-store"}}
UNITS = {path.name for path in (ROOT / "deploy" / "systemd").glob("*.service")}


def options(words: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Tell what is meant from how: plain words, and options with the word after them."""
    plain, given = [], dict[str, list[str]]()
    rest = iter(words)
    for word in rest:
        if word in ("--build", "--pull", "-d", "--rm", "--create-namespace", "--reuse-values"):
            continue
        if word.startswith("-"):
            given.setdefault(word, []).append(next(rest))
        else:
            plain.append(word)
    return plain, given


def compose(words: list[str]) -> None:
    """docker compose: the file is there, and the services in it; a command for one is one of ours."""
    assert words[:2] == ["compose", "-f"]
    assert (ROOT / words[2]).is_file()
    plain, _ = (words[3:], None) if words[3] == "run" else options(words[3:])
    if plain[0] == "run":
        assert plain[1] == "--rm"
        assert plain[2] in COMPOSE
        parsed_by_accord(plain[3:] or COMPOSE[plain[2]]["command"])
    else:
        assert plain in (["up"], ["build"])


def helm(words: list[str]) -> None:
    """helm: the chart is there, and the values that are set."""
    plain, given = options(words)
    assert plain[0] in ("install", "upgrade", "rollback")
    assert plain[1] == "accord"
    assert plain[2:] in ([], ["deploy/helm/accord"])
    for pair in given.pop("--set", []):
        value: Any = DEFAULTS
        for name in pair.partition("=")[0].split("."):
            value = value[name]
    assert set(given) <= {"--namespace"}


def kubectl(words: list[str]) -> None:
    """kubectl: what is named is what the chart makes of a release called accord."""
    inner = words[words.index("--") + 1 :] if "--" in words else []
    plain, given = options(words[: words.index("--")] if inner else words)
    made = manifests(STORE, "accord")["Deployment"]
    assert plain[-1] == f"deployment/{made['metadata']['name']}"
    assert plain[:-1] in (["exec"], ["rollout", "status"])
    assert given.get("--container", ["accord"]) == [made["spec"]["template"]["spec"]["containers"][0]["name"]]
    if inner:
        assert inner[0] == "accord"
        parsed_by_accord(inner[1:])


def systemctl(words: list[str]) -> None:
    """systemctl: the units are there."""
    plain = [word for word in words if word != "--now"]
    assert plain[0] in ("daemon-reload", "enable", "start", "stop", "restart", "edit")
    for unit in plain[1:]:
        assert re.sub(r"@\d+", "@", unit) + ".service" in UNITS


def files(words: list[str]) -> None:
    """install, cp: what comes from the checkout is there."""
    for word in words:
        if word.startswith("deploy/") and word != "deploy/.env":  # which is what is being made
            assert (ROOT / word).is_file(), word


def pip(words: list[str]) -> None:
    for name in (word for word in words if word.endswith(".txt")):
        assert (ROOT / name).is_file()


def nothing(_words: list[str]) -> None:
    """It has nothing of ours in it."""


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "docker": compose,
    "helm": helm,
    "kubectl": kubectl,
    "systemctl": systemctl,
    "install": files,
    "cp": files,
    "sh": files,
    "/opt/accord/bin/accord": parsed_by_accord,
    "/opt/accord/bin/pip": pip,
    "python3": nothing,
    "rm": nothing,
    "export": nothing,
    "systemd-sysusers": nothing,
}


def shown(page: Path) -> Iterator[list[str]]:
    for block in blocks(page):
        if block.language == "sh":
            yield from commands(block.text)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_command_is_one(page: Path) -> None:
    found = list(shown(page))
    assert len(found) > 10
    for words in found:
        assert words[0] in PROGRAMS, f"{words[0]} is new: say here what can be checked about it"
        PROGRAMS[words[0]](words[1:])


@pytest.mark.parametrize(
    "line",
    [
        "docker compose -f deploy/compose.yml up -d",
        "docker compose -f deploy/compose.yaml run --rm migrate",
        "helm install accord deploy/helm/accord --set replica=3",
        "kubectl --namespace agents rollout status deployment/agents",
        "systemctl restart acord",
        "install -D -m 0644 deploy/systemd/acord.service /etc/systemd/system/accord.service",
        "/opt/accord/bin/accord db save x.db",
    ],
)
def test_invalid_commands_are_detected(line: str) -> None:
    name, *words = shlex.split(line)
    with pytest.raises((AssertionError, KeyError, Unbound)):
        PROGRAMS[name](words)


def test_the_image_in_the_page_is_built_on_ours() -> None:
    (only,) = stages(ROOT / "examples" / "deploy" / "Dockerfile")
    assert only.base == f"accord:{__version__}"
    parsed_by_accord(only.one("CMD").words)
    _, ours = stages(ROOT / "deploy" / "Dockerfile")
    assert only.all("USER")[-1] == ours.one("USER"), "it is not left to root"


def test_documented_sizes_are_true() -> None:
    written = PAGES[0].read_text()
    assert f"at most {connections.POOL_SIZE} connections for commands and one to listen" in written
    assert 10 * (connections.POOL_SIZE + 1) < 100


def test_documented_backup_and_restore_work(tmp_path: Path) -> None:
    """Its very lines, with the paths of this machine; the service is a server of the test."""
    text = PAGES[0].read_text()
    section = text[text.index("### Backups") : text.index("## Containers")]
    copying, restoring = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    store = f"sqlite:///{tmp_path}/accord.db"
    settings = tmp_path / "accord.toml"
    settings.write_text(f'store = "{store}"\n')
    env = environment(tmp_path, ACCORD_CONFIG=str(settings))

    def run(line: str) -> None:
        here = line.replace("sudo -E -u accord ", "").replace("/opt/accord/bin/accord", ACCORD)
        here = here.replace("/var/lib/accord", str(tmp_path))
        done = subprocess.run(["/bin/sh", "-ec", here], env=env, cwd=tmp_path, check=False, timeout=BOUND_SECONDS)
        assert done.returncode == 0, line

    server = Server(tmp_path)
    before = server.send("before", "1")
    for line in copying.splitlines():
        run(line)
    after = server.send("after", "2")
    for line in restoring.splitlines():
        match shlex.split(line):
            case ["systemctl", "stop", "accord"]:
                assert server.stop() == 0
            case ["systemctl", "start", "accord"]:
                server = Server(tmp_path)
            case _:
                run(line)
    try:
        assert server.get(before["id"]) == before
        gone = server.post("GetTask", id=after["id"]).json()
        assert "error" in gone, "what happened after the copy is gone"
    finally:
        assert server.stop() == 0
    assert os.stat(tmp_path / "accord.db").st_mode & 0o077 == 0
