"""What is looked at before a run: checks of a document, commands that are there or not, agents that answer or not."""

from pathlib import Path

import pytest

from accord.workflows import agent_access
from accord.workflows.agent_access import find_missing_commands, run_preflight_checks
from accord.workflows.agent_definition import AgentDef
from accord.workflows.document import Preflight
from tests.workflows.scenes import environment


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (Preflight(command="true"), None),
        (Preflight(command="exit 3"), "The command ended with exit code 3"),
        (Preflight(command="echo dirty", fail_if="non-empty"), "it printed 'dirty'"),
        (Preflight(command="echo", fail_if="non-empty"), None),
        (Preflight(command="true", fail_if="empty"), "it printed nothing"),
        (Preflight(command="echo x", fail_if="empty"), None),
        (Preflight(command="echo on branch main", fail_if="branch (main|master)"), "it printed what matches"),
        (Preflight(command="echo on branch topic", fail_if="branch (main|master)"), None),
        (Preflight(command="echo v18", success_if=r"^v(18|20)"), None),
        (Preflight(command="echo v16", success_if=r"^v(18|20)"), "it printed nothing that matches"),
        (Preflight(command="echo fatal; exit 1", success_if="fatal"), "exit code 1"),
        (Preflight(command="echo x", success_if="("), "is not a valid regular expression"),
    ],
)
async def test_preflight_checks_fail_with_their_message(tmp_path: Path, check: Preflight, wrong: str | None) -> None:
    found = await run_preflight_checks([check], directory=tmp_path, env=environment(tmp_path))
    if wrong is None:
        assert found == []
    else:
        assert len(found) == 1
        assert wrong in found[0]


async def test_all_checks_are_done_where_the_run_works(tmp_path: Path) -> None:
    checks = [
        Preflight(command="echo 1 >> seen; false", description="The first"),
        Preflight(command="echo 2 >> seen"),
        Preflight(command="false"),
    ]
    found = await run_preflight_checks(checks, directory=tmp_path, env=environment(tmp_path))
    assert [problem.partition(": The command")[0] for problem in found] == [
        "Preflight failed: The first",
        "Preflight failed: false",
    ]
    assert (tmp_path / "seen").read_text() == "1\n2\n"


async def test_a_check_has_so_much_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_access, "CHECK_SECONDS", 0.5)
    found = await run_preflight_checks([Preflight(command="sleep 1000")], directory=tmp_path, env=environment(tmp_path))
    assert "did not end within 0.5 seconds" in found[0]


def test_commands_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o755)
    agents = [
        AgentDef(name="one", cli="claude"),
        AgentDef(name="two", cli="codex"),
        AgentDef(name="three", cli="agent"),
        AgentDef(name="four", cli="api"),
        AgentDef(name="five", runtime="a2a", url="http://localhost"),
        AgentDef(name="six", command="whatever"),
    ]
    found = find_missing_commands(agents, {"PATH": str(tmp_path)}, tmp_path)
    assert found == [
        "The agent two needs the command codex, which is not there: install it (npm install -g @openai/codex)",
        "The agent three needs the command agent, which is not there: install it (see https://cursor.com/cli)",
    ]
