"""The answer of one turn, as it comes together from what models say at the same time.

It is one artifact. A run that goes on after another begins with what the graph has kept, so that nothing of a step that
is run again is there twice. What a graph says is `turn`'s to read.
"""

from collections.abc import Sequence

from accord.agents.content import answer_id
from accord.agents.langgraph.mapping import BREAK, Output
from accord.engine.context import Context
from accord.engine.messages import text_of
from accord.model import Part


class Speech:
    """What a model says in one message, as far as it has to wait until another is done."""

    def __init__(self, node: str) -> None:
        """Wait for what is said in `node`."""
        self.node = node
        self.text = ""
        self.is_over = False


class Answer:
    """What has been said, and who talks."""

    def __init__(self, ctx: Context, kept: str = "") -> None:
        """Go on after `kept`."""
        self._ctx = ctx
        self._id = answer_id(ctx)
        self._text = kept
        self._given: list[Part] = []
        self._is_begun = False
        self._heard: str | None = None
        self._talking: dict[str, Speech] = {}  # by message, the oldest first: that one is heard, the others wait

    async def add(self, message_id: str, node: str, text: str, *, is_last: bool) -> None:
        """Add what a model says in a message; two that talk at the same time are heard one after the other."""
        if not text and message_id not in self._talking:
            return
        speech = self._talking.setdefault(message_id, Speech(node))
        speech.text += text
        speech.is_over = speech.is_over or is_last
        await self._hear()

    async def node_ended(self, node: str) -> None:
        """What was said in a node is over when the node is: not every model says so itself."""
        for speech in self._talking.values():
            speech.is_over = speech.is_over or speech.node == node
        await self._hear()

    async def give(self, parts: Sequence[Part]) -> None:
        """Add parts that are no text."""
        self._given += parts
        await self._write(parts)

    async def end(self, output: Output) -> None:
        """Say what has not been said: a text that is not what models said last takes the place of all of it."""
        for speech in self._talking.values():
            speech.is_over = True
        await self._hear()
        if output.text and not self._text.endswith(output.text):
            self._text, self._is_begun = output.text, False
        self._given += output.parts
        if self._is_begun or not self._is_there():
            await self._write(output.parts)
        await self._ctx.finish(self._id)

    async def _hear(self) -> None:
        """Say what is to be heard now: of the oldest message, and of those after it if it is over."""
        while self._talking:
            message_id, speech = next(iter(self._talking.items()))
            if speech.text:
                piece = BREAK + speech.text if self._text and self._heard != message_id else speech.text
                speech.text, self._heard = "", message_id
                self._text += piece
                await self._write([Part(text=piece)])
            if not speech.is_over:
                return
            del self._talking[message_id]

    async def _write(self, parts: Sequence[Part]) -> None:
        """Append to the artifact; the first time, put all that it is so far in place of what an earlier run left."""
        if not self._is_begun:
            parts = self._whole()
        if parts:
            await self._ctx.artifact(list(parts), id=self._id, append=self._is_begun, last_chunk=False)
            self._is_begun = True

    def _whole(self) -> list[Part]:
        return ([Part(text=self._text)] if self._text else []) + self._given

    def _is_there(self) -> bool:
        """Whether an earlier run has said all of it."""
        found = next((one.parts for one in self._ctx.task.artifacts if one.artifact_id == self._id), ())
        files = [part for part in found if part.text is None]
        return text_of(found) == self._text and files == [part for part in self._given if part.text is None]
