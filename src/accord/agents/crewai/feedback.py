"""What a person says to a crew task that wants feedback (`human_input`): the crew's terminal is the caller of ours.

An answer that is to be looked at ends the kickoff as a `Question`. The next one either takes that answer as it is, or
lets the model go on from what was said to it, with the feedback. `agent` and `kickoff` stand above.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from accord.engine.messages import YES, IncomingMessage


class Asked(Struct, frozen=True, kw_only=True):
    """An answer that a person is to look at: of which crew task, and what was said to the model until then."""

    task: int
    answer: str
    messages: list[dict[str, Any]]


class Question(BaseException):
    """A crew task wants feedback."""

    def __init__(self, asked: Asked) -> None:
        """Keep what is asked."""
        self.asked = asked


class Feedback(Struct, frozen=True):
    """What was asked, and what is to be done better; None if nothing is."""

    asked: Asked
    wish: str | None


class Provider:
    """What CrewAI asks for feedback."""

    def __init__(self, feedback: Feedback | None, index: Callable[[Any], int]) -> None:
        """Go on with `feedback`; `index` says where in the crew a task is."""
        self._feedback = feedback
        self._index = index

    def setup_messages(self, context: Any) -> bool:
        """Let the model go on where it was asked about."""
        given = self._feedback
        if given is None or given.wish is None or self._index(context.task) != given.asked.task:
            return False
        context.messages = [*given.asked.messages, context._format_feedback_message(given.wish)]
        return True

    def post_setup_messages(self, context: Any) -> None:
        """Leave the messages as they are."""

    def handle_feedback(self, answer: Any, context: Any) -> Any:
        """Ask for feedback: the kickoff ends here."""
        said = [*context.messages, {"role": "assistant", "content": str(answer.output)}]
        plain = [{"role": str(one["role"]), "content": one.get("content")} for one in said]
        raise Question(Asked(task=self._index(context.task), answer=str(answer.output), messages=plain))

    async def handle_feedback_async(self, answer: Any, context: Any) -> Any:
        """Ask for feedback."""
        return self.handle_feedback(answer, context)


def wish(said: IncomingMessage) -> str | None:
    """Return what a person wants to have done better, or None if that is nothing."""
    if isinstance(said.data, dict) and said.data.get("approved") is True:
        return None
    text = said.text.strip()
    return None if not text or text.strip(".,!").lower() in YES else text
