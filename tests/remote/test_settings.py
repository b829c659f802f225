"""Agents elsewhere in the settings: what can be said about them, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from accord.agents.remote import ReportMode
from accord.cli import app
from accord.model import Task
from accord.server.agents import remote_agents, webhook_of
from accord.server.settings import Settings
from accord.server.settings_loader import BadSettings, load, settings_of


def stated(**table: Any) -> Settings:
    return settings_of(table, "test")


@pytest.mark.proves("0-17")
def test_a_name_stands_for_an_agents_address(tmp_path: Path) -> None:
    file = tmp_path / "accord.toml"
    file.write_text(
        '[remotes.shop]\nurl = "https://shop.example"\nmode = "poll"\nsla_seconds = 60\ntoken = "env:SHOP"\n'
        'signing_keys = ["k"]\n[receiver]\nurl = "https://accord.example/hook"\ntoken_seconds = 3600\n',
        encoding="utf-8",
    )
    settings = load(file, {"SHOP": "s3cret"}).settings
    (agent,) = remote_agents(settings, {})
    assert (agent.profile.name, agent.url) == ("shop", "https://shop.example")
    assert (agent.terms.mode, agent.terms.sla_seconds) == (ReportMode.POLL, 60)
    assert agent.trust.keys == ("k",)
    assert settings.remotes["shop"].token == "s3cret"
    assert "s3cret" not in repr(settings)
    assert settings.receiver.token_seconds == 3600


@pytest.mark.proves("0-67", "0-68", "0-69", "0-70", "C-19")
def test_the_variables_of_the_chat_application_are_understood(tmp_path: Path) -> None:
    env = {
        "A2A_AGENT_URL": "https://boss.example",
        "A2A_WEBHOOK_URL": "https://a.example/h",
        "A2A_WEBHOOK_TOKEN_TTL": "900",
        "NEXT_PUBLIC_A2A_ENABLED": "false",
    }
    settings = load(None, env).settings
    assert settings.remotes["orchestrator"].url == "https://boss.example"
    assert (settings.receiver.url, settings.receiver.token_seconds) == ("https://a.example/h", 900)
    assert settings.console.a2a is False
    file = tmp_path / "accord.toml"
    file.write_text('[remotes.orchestrator]\nurl = "https://mine.example"\n', encoding="utf-8")
    ours = load(file, env | {"ACCORD_CONSOLE__A2A": "true"}).settings
    assert ours.remotes["orchestrator"].url == "https://boss.example"  # as any variable counts more than a file
    assert ours.console.a2a is True


@pytest.mark.parametrize("name", ["a b", "", "a/b", "-a", "ä", "a?b", "a--b"])
def test_a_name_is_part_of_a_path(name: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(f"remotes.{name}: a name is of letters and digits")):
        remote_agents(stated(remotes={name: {"url": "https://a.example"}}), {})
    done = CliRunner().invoke(app, ["serve", "--remote", f"{name}=https://a.example"])
    assert done.exit_code == 2
    assert "a name is of letters and digits" in " ".join(done.output.replace("│", " ").split())


@pytest.mark.proves("0-57")
def test_a_public_webhook_must_be_https() -> None:
    with pytest.raises(BadSettings, match="https"):
        webhook_of(stated(receiver={"url": "http://accord.example/hook"}), "https://accord.example")
    assert webhook_of(stated(), "http://accord.example") is None
    assert webhook_of(stated(), "https://accord.example") == "https://accord.example/api/webhook/tasks"
    assert webhook_of(stated(), "http://localhost:8000") == "http://localhost:8000/api/webhook/tasks"


def hide(body: Task) -> Task:
    return body


def test_redaction_functions_are_configured_by_name() -> None:
    (agent,) = remote_agents(stated(remotes={"a": {"url": "https://a.example", "redact": f"{__name__}:hide"}}), {})
    assert agent.trust.redact is hide
    with pytest.raises(BadSettings, match=r"remotes\.a\.redact"):
        remote_agents(stated(remotes={"a": {"url": "https://a.example", "redact": "nowhere:at_all"}}), {})


@pytest.mark.parametrize("given", [{"mode": "pigeon"}, {"sla_seconds": 0}, {"streams": -1}, {"urls": "x"}])
def test_impossible_combinations_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadSettings):
        stated(remotes={"a": {"url": "https://a.example"} | given})
