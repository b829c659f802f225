"""The example with Pydantic AI: served as it stands, over several turns, with an approval."""

from pathlib import Path

from accord.agents.loader import load
from accord.model import Message, Part, Role, Task, TaskState
from accord.testing import running, text_in
from tests.engine.conftest import bounded

FILE = Path(__file__).parents[3] / "examples" / "agents" / "pydantic_ai_agent.py"


def test_it_is_short() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 60


@bounded
async def test_it_lends_remembers_and_asks() -> None:
    async with running(load(f"{FILE}:librarian")) as a2a:

        async def say(text: str, number: int) -> Task:
            parts = (Part(text=text),)
            task = await a2a.send(Message(message_id=f"e-{number}", role=Role.USER, parts=parts, context_id="c"))
            assert isinstance(task, Task)
            return task

        assert text_in(await say("lend Emma", 1)) == "Emma is yours. You have said 1 things."
        assert text_in(await say("lend Hamlet", 2)) == "There is no Hamlet. You have said 2 things."
        asked = await say("delete Ulysses", 3)
        assert (asked.status.state, text_in(asked)) == (
            TaskState.INPUT_REQUIRED,
            "May delete(book='Ulysses') be called?",
        )
        done = await a2a.send_text("yes", task=asked)
        assert text_in(done) == "Ulysses is gone. You have said 3 things."
