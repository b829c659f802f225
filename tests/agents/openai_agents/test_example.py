"""The example with the OpenAI Agents SDK: served as it stands, with an approval."""

from pathlib import Path

from accord.agents.loader import load
from accord.model import TaskState
from accord.testing import running, text_in
from tests.engine.conftest import bounded

FILE = Path(__file__).parents[3] / "examples" / "agents" / "openai_agents_agent.py"


def test_it_is_short() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 60


@bounded
async def test_it_answers_and_asks() -> None:
    async with running(load(f"{FILE}:desk")) as a2a:
        assert await a2a.ask_text("weather Rome") == "It is sunny in Rome."
        assert await a2a.ask_text("hello") == "Say `weather` or `mail`, and where to."
        asked = await a2a.send_text("mail Ada")
        assert (asked.status.state, text_in(asked)) == (
            TaskState.INPUT_REQUIRED,
            'May mail({"to":"Ada"}) be called?',
        )
        assert text_in(await a2a.send_text("yes", task=asked)) == "Sent to Ada."
