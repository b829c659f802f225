"""From a name to an answer: the registry has the card, the card says what to bring, and the user has it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accord.cli.failures import Exit
from tests.cli.test_commands import AGENT
from tests.registry.conftest import VAULT
from tests.serve.running import BOUND_SECONDS, accord, environment, running


def kept(folder: Path, id: str, secret: str) -> None:
    """Keep a credential as a user does, by piping it in."""
    subprocess.run(
        [sys.executable, "-m", "accord", "creds", "set", id],
        input=secret,
        text=True,
        capture_output=True,
        check=True,
        timeout=BOUND_SECONDS,
        cwd=folder,
        env=environment(folder),
    )


@pytest.mark.proves("2-28", "2-08", "2-11", "0-17")
def test_named_agents_are_resolved_with_their_credentials(tmp_path: Path) -> None:
    key = json.loads(accord(tmp_path, "apikeys", "create", "-o", "json").stdout)["key"]
    with running(tmp_path, AGENT, "--auth", "api-keys") as server:
        unknown = accord(tmp_path, "send", "acme/obeying", "hello", "-o", "json")
        assert unknown.returncode == Exit.UNREACHABLE
        assert json.loads(unknown.stdout)["error"]["code"] == "A2ACLI_ERR_CARD_NOT_FOUND"
        assert accord(tmp_path, "agents", "publish", server.url, "--name", "acme/obeying").returncode == Exit.DONE
        assert accord(tmp_path, "card", "get", "acme/obeying").stdout.startswith("Name: obeying\n")

        missing = accord(tmp_path, "send", "acme/obeying", "hello", "-o", "json")
        assert missing.returncode == Exit.UNAUTHENTICATED
        assert json.loads(missing.stdout)["error"]["code"] == "A2ACLI_ERR_CREDENTIALS_MISSING"
        wrong = accord(tmp_path, "send", "acme/obeying", "hello", "--api-key", f"{key[:-2]}xx", "-o", "json")
        assert wrong.returncode == Exit.UNAUTHENTICATED
        assert json.loads(wrong.stdout)["error"]["code"] == "A2ACLI_ERR_AUTH_FAILED"
        assert key[:-2] not in wrong.stdout + wrong.stderr

        kept(tmp_path, "acme/obeying", key)
        refused = accord(tmp_path, "send", "acme/obeying", "hello")
        assert refused.returncode == Exit.UNAUTHENTICATED
        command = re.search(r"`accord (creds set acme/obeying --kind hosts --host .*?)`", refused.stderr)
        assert command is not None, refused.stderr
        assert accord(tmp_path, *command[1].split()).returncode == Exit.DONE
        done = accord(tmp_path, "send", "acme/obeying", "hello", "--stream", "-o", "json")
        assert done.returncode == Exit.DONE, done.stderr
        last = json.loads(done.stdout.splitlines()[-1])
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        asked = accord(tmp_path, "send", "acme/obeying", "ask")
        assert "accord send -a acme/obeying --task-id" in asked.stderr


def test_a_name_is_looked_up_in_the_store_that_it_was_published_in(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(json.dumps(VAULT))
    there = {"ACCORD_STORE": f"sqlite:///{tmp_path}/of-its-own.db"}
    assert accord(tmp_path, "agents", "publish", "card.json", **there).returncode == Exit.DONE
    shown = accord(tmp_path, "card", "get", "acme/weather", **there)
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (Exit.DONE, f"Name: {VAULT['name']}"), shown.stderr
    assert accord(tmp_path, "card", "get", "acme/weather").returncode == Exit.UNREACHABLE
