"""What a command was told becomes an application: targets, agents of the settings, and both together."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accord.agents.loader import NotAnAgent
from accord.cli import serve
from accord.cli.serve import VARIABLE, WORKER, ServeRequest
from accord.protocol.operations import DialectName
from accord.server.application import Application
from accord.server.settings_loader import BadSettings
from accord.testing import lifespan
from tests.server.conftest import card_at, get, send, text_of

AGENTS = """
from accord import agent

@agent(name="Weather", description="Knows the weather")
def weather(text: str) -> str:
    return f"rain in {text}"

def plain(text: str) -> str:
    return text.upper()
"""

SETTINGS = """
store = "sqlite:///tasks.db"

[server]
dialects = ["v1"]

[agents]
forecast = "agents.py:weather"
"Loud Mouth" = "agents.py:plain"
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with agents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    Path("agents.py").write_text(AGENTS)


def served(settings: str = SETTINGS, **told: Any) -> Application:
    """What becomes of a file of settings."""
    Path("accord.toml").write_text(settings)
    return ServeRequest(**told).application()


async def test_configured_agents_have_their_configured_names() -> None:
    app = served()
    assert app.settings.server.dialects == (DialectName.V1,)
    async with lifespan(app):
        assert text_of(await send(app, "rome")) == "rain in rome"
        for path, name, said in [("forecast", "forecast", "rain in rome"), ("loud-mouth", "Loud Mouth", "ROME")]:
            card = await card_at(app, f"/agents/{path}")
            assert card["name"] == name
            assert text_of(await send(app, "rome", f"/agents/{path}/")) == said
        assert (await get(app, "/agents/weather/")).status == 404
    assert str(app.address) == "sqlite:///tasks.db"


async def test_agents_of_the_command_line_come_first() -> None:
    app = served(targets=("agents.py:plain",))
    assert list(app.agents) == ["plain", "forecast", "loud-mouth"]


async def test_without_any_agent_there_is_an_echo() -> None:
    assert list(ServeRequest(flags={"store": "sqlite://:memory:"}).application().agents) == ["echo"]


async def test_one_agent_under_two_names_is_two_agents() -> None:
    app = served('store = "sqlite://:memory:"\n[agents]\na = "agents.py:weather"\nb = "agents.py:weather"')
    async with lifespan(app):
        task = await send(app, "x", "/agents/a/")
        assert (await get(app, f"/agents/a/tasks/{task['id']}")).status == 200
        assert (await get(app, f"/agents/b/tasks/{task['id']}")).status == 404


def test_unservable_objects_are_refused() -> None:
    with pytest.raises(NotAnAgent, match=r"There is no file nowhere\.py"):
        ServeRequest(targets=("nowhere.py:x",)).application()
    Path("others.py").write_text(AGENTS)
    with pytest.raises(ValueError, match="Two agents cannot both be at /agents/weather"):
        ServeRequest(targets=("agents.py:weather", "others.py:weather")).application()
    with pytest.raises(BadSettings, match="cannot be read"):
        ServeRequest(config="nowhere.toml").application()


def test_workers_inherit_options_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, VARIABLE, "")
    told = ServeRequest(targets=("agents.py:weather",), flags={"server.dialects": ["v1"], "store": "sqlite:///x.db"})
    told.leave()
    assert msgspec.json.decode(os.environ[VARIABLE], type=ServeRequest) == told
    made = serve.application()
    assert (list(made.agents), made.settings.server.dialects) == (["weather"], (DialectName.V1,))
    assert VARIABLE not in os.environ, "agents and what they start have no use for it"
    assert WORKER == "accord.cli.serve:application"
