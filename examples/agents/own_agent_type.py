"""An agent type of your own: phrase books, which are plain dictionaries in your code, become agents.

A package that is installed beside accord registers it, and from then on every `PhraseBook` can be served:

    [project.entry-points."accord.agents"]
    phrases = "examples.agents.own_agent_type:AGENT_TYPE"
"""

from typing import Any

from accord import Context, Failed
from accord.agents import messages
from accord.api.agent_types import AgentArguments, AgentType, Options, profile


class PhraseBook(dict[str, str]):
    """What to say to whom: the thing that such an agent is made of."""


class PhraseOptions(Options, frozen=True, kw_only=True):
    """What `[agents.NAME]` may say about one, besides what it may say about every agent."""

    polite: bool = False


class PhraseAgent:
    """An agent: a profile, and a method that does the work of one turn."""

    def __init__(self, given: AgentArguments) -> None:
        """Answer from a phrase book."""
        self.profile = profile(given, name="phrases", description="Answers from a phrase book")
        self._book: PhraseBook = given.target
        self._ending = ", please." if given.options.polite else "."

    async def run(self, ctx: Context) -> None:
        """Look a phrase up and say it word by word."""
        phrase = self._book.get(messages.prompt(ctx.message.parts))
        if phrase is None:
            raise Failed("That is not in the book")  # the caller sees this text, and that of no other exception
        for word in phrase.split():
            await messages.append_answer(ctx, f"{word} ")
        await messages.append_answer(ctx, self._ending)
        await messages.finish_answer(ctx)


def recognizes(thing: Any) -> bool:
    """Whether `accord serve module:name` names a phrase book."""
    return isinstance(thing, PhraseBook)


AGENT_TYPE = AgentType(name="phrases", options=PhraseOptions, make=PhraseAgent, recognizes=recognizes)

italian = PhraseBook({"thanks": "tante grazie", "bill": "il conto"})
