"""The example of a worker does what it says."""

from accord.agents.loader import load
from accord.model import Message, Part, Role, SendRequest, Task
from accord.testing import running
from accord.testing.inprocess import text_in
from tests.environments import ROOT


async def test_the_example_remembers() -> None:
    async with running(load(f"{ROOT}/examples/agents/fasta2a_agent.py:worker")) as a2a:
        first = await a2a.send_text("tea")
        assert text_in(first) == "tea"
        message = Message(message_id="m", role=Role.USER, parts=(Part(text="cake"),), context_id=first.context_id)
        again = await a2a.service.send(SendRequest(message=message), a2a.caller)
    assert isinstance(again, Task)
    assert text_in(again) == "tea, then cake"
