"""What an agent says, piece by piece as it says it, and how it ended.

    speech = client.stream_text("tell me a story")
    async for piece in speech:
        print(piece, end="")
    assert not speech.has_failed

It turns events into text (`text`) and knows nothing of streams and their failures, which are `resume`'s.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from accord.client.peer import Peer
from accord.client.resume import AT_ANSWER, Follower
from accord.client.text import FAILED, Growing
from accord.model import GetRequest, SendRequest, Task, TaskState
from accord.protocol.lifecycle import INTERRUPTED
from accord.protocol.operations import Operation


class Speech:
    """The text of an answer as it comes. The ids are known after the first piece, the status at the end."""

    def __init__(self, peer: Peer, request: SendRequest) -> None:
        """Send the request when the first piece is asked for."""
        self._peer = peer
        self._request = request
        self._follower = Follower(peer, stops=AT_ANSWER)
        self._pieces = self._run()

    @property
    def task_id(self) -> str | None:
        """The task, if the agent has made one."""
        return self._follower.task_id

    @property
    def context_id(self) -> str | None:
        """The conversation."""
        return self._follower.context_id

    @property
    def status(self) -> TaskState | None:
        """Where the task stands."""
        return self._follower.state

    @property
    def has_failed(self) -> bool:
        """Whether the agent could not, or would not, do it; the text ends with its reason."""
        return self.status in FAILED

    @property
    def is_question(self) -> bool:
        """Whether the task waits for its caller; the text ends with what it asks."""
        return self.status in INTERRUPTED

    def __aiter__(self) -> AsyncGenerator[str, None]:
        return self._pieces

    async def aclose(self) -> None:
        """Listen no longer; the task goes on."""
        await self._pieces.aclose()

    async def _run(self) -> AsyncGenerator[str, None]:
        growing = Growing()
        async with aclosing(self._follower.send(self._request)) as events:
            async for event in events:
                for piece in growing.add(event.body):
                    yield piece
        if growing.is_silent and self.task_id is not None:
            task: Task = await self._peer.ask(Operation.GET, GetRequest(id=self.task_id))
            for piece in growing.end(task):
                yield piece
