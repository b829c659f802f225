"""A server of models, and the agents that use it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from accord.agents.chat import ChatAgent, ChatOptions
from accord.api.agent_types import AgentArguments
from tests.agents.chat.server import Models, serving

Making = Callable[..., ChatAgent]


@pytest.fixture
async def models() -> AsyncIterator[Models]:
    async with serving() as found:
        yield found


@pytest.fixture(params=["openai", "ollama"])
def api(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def slept() -> list[float]:
    """How long a call waited before it was repeated; it does not really."""
    return []


@pytest.fixture
async def make(models: Models, api: str, slept: list[float]) -> AsyncIterator[Making]:
    """A function that makes agents over the server."""
    made: list[ChatAgent] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    def agent(**options: Any) -> ChatAgent:
        given = {"model": "m", "base_url": models.url, "api": api, **options}
        made.append(ChatAgent(AgentArguments(options=ChatOptions(**given), name="helper"), sleep=sleep))
        return made[-1]

    yield agent
    for one in made:
        await one.stop()
