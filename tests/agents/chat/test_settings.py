"""A model as an agent by settings alone: the example, secrets from the environment, mistakes."""

from pathlib import Path
from typing import Any

import pytest

from accord.agents.chat import ChatAgent
from accord.engine.agent import Agent
from accord.server.agents import agents_of
from accord.server.settings_loader import BadSettings, load
from accord.testing import running, text_in
from tests.agents.chat.server import Models
from tests.engine.conftest import bounded

EXAMPLE = Path(__file__).parents[3] / "examples" / "agents" / "chat_agent.toml"


def agents(settings: str, folder: Path, **env: str) -> list[Agent]:
    file = folder / "accord.toml"
    file.write_text(settings, encoding="utf-8")
    return agents_of(load(file, env), env)


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60


@bounded
async def test_the_example_talks(models: Models, tmp_path: Path) -> None:
    here = EXAMPLE.read_text(encoding="utf-8").replace("http://localhost:11434", models.url.removesuffix("/v1"))
    helper, local = agents(here, tmp_path)
    assert (helper.profile.name, helper.profile.timeout) == ("helper", 300)
    for agent in (helper, local):
        async with running(agent) as a2a:
            assert text_in(await a2a.send_text("hello")) == "you said hello "
    openai, ollama = models.asked
    assert openai.body["messages"][0]["content"].startswith("You are a helpful assistant.")
    assert (openai.path, openai.body["max_tokens"]) == ("/v1/chat/completions", 500)
    assert (ollama.path, ollama.body["keep_alive"], ollama.body["options"]) == ("/api/chat", "30m", {"num_ctx": 8192})


@bounded
async def test_a_key_comes_from_the_environment(models: Models, tmp_path: Path) -> None:
    table = f'[agents.x]\ntype = "chat"\nmodel = "m"\nbase_url = "{models.url}"\napi_key = "env:MODEL_KEY"'
    (agent,) = agents(table, tmp_path, MODEL_KEY="sk-secret")
    assert isinstance(agent, ChatAgent)
    assert "sk-secret" not in repr(agent._options)
    async with running(agent) as a2a:
        await a2a.send_text("hello")
    assert models.asked[0].headers["authorization"] == "Bearer sk-secret"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "agents.x: Object missing required field `model`"),
        ('model = "m"\nmodle = "x"', "agents.x.modle"),
        ('model = "m"\nretries = -1', "agents.x.retries"),
        ('model = "m"\nkeep_alive = "5m"', "keep_alive"),
        ('model = "m"\napi = "anthropic"', "agents.x.api"),
    ],
)
def test_mistakes_are_named(line: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(BadSettings) as caught:
        agents(f'[agents.x]\ntype = "chat"\n{line}', tmp_path)
    told: Any = str(caught.value)
    assert expected in told
