"""A CrewAI crew as an agent: a task is a kickoff, with what the caller says as the values of the crew's variables.

What a crew task gave is kept, so a run that was lost, or that waited for a person's feedback, goes on with the next.
Its memory, its telemetry and its models are the crew's own; flows are not known here, a function can kick one off.
"""

from typing import Any

import msgspec

from accord.agents.content import conversation, prompt
from accord.agents.crewai.feedback import Asked, Feedback, Question, wish
from accord.agents.crewai.kickoff import Kickoff
from accord.agents.kinds import Given, Kind, Options, comes_from, profile
from accord.core.agent import Crash, Profile
from accord.core.context import Context, Rejected
from accord.core.output import text_of
from accord.model import Message, Role

TEXT_KEY = "input"
"""What the text is called if the crew has no variable that it could be."""

CHAT_KEY = "crew_chat_messages"
"""What crews call the conversation so far, and add to their tasks."""

CHAT_MESSAGES = 20
"""How much of it they are reminded of."""

NEEDED = "CrewAI crews need crewai: pip install 'accord[crewai]'"


class CrewOptions(Options, frozen=True, kw_only=True):
    """What may be said about a crew.

    The caller's text is the variable `inputs_key`; with `task_artifacts` each crew task's output is an artifact, and
    not the last one's alone.
    """

    inputs_key: str | None = None
    task_artifacts: bool = False


class CrewAgent:
    """An agent made of one crew."""

    def __init__(self, crew: Any, profile: Profile, options: CrewOptions) -> None:
        """Kick copies of `crew` off."""
        self.profile = profile
        self._crew = crew
        self._options = options

    async def run(self, ctx: Context) -> None:
        """Kick the crew off, and again with each feedback that it is given."""
        inputs = await self._inputs(ctx)
        feedback: Feedback | None = None
        number = 0
        while True:
            key = f"crewai/asked/{number}"
            kept = ctx.kept(key)
            if kept is None:
                run = Kickoff(ctx, self._crew, feedback, task_artifacts=self._options.task_artifacts)
                try:
                    await run.done(inputs)
                    return
                except Question as question:
                    kept = await ctx.keep(key, msgspec.json.encode(question.asked).decode())
            asked = msgspec.json.decode(kept, type=Asked)
            feedback = Feedback(asked, wish(await ctx.ask(asked.answer, key=key)))
            number += 1

    async def _inputs(self, ctx: Context) -> dict[str, Any]:
        """Return the values of the crew's variables: the data that was sent, and the text as the one that is left."""
        inputs = dict(ctx.data) if isinstance(ctx.data, dict) else {}
        text = prompt(part for part in ctx.message.parts if part.data is msgspec.UNSET or not inputs)
        missing = sorted(self._crew.fetch_inputs() - inputs.keys())
        key = self._options.inputs_key or (missing[0] if len(missing) == 1 else TEXT_KEY)
        if text:
            inputs.setdefault(key, text)
        if absent := [name for name in missing if name not in inputs]:
            raise Rejected(f"The crew needs {', '.join(absent)}: send them as data, by name")
        if len(said := await conversation(ctx, CHAT_MESSAGES)) > 1:
            inputs[CHAT_KEY] = msgspec.json.encode([_chat(message) for message in said[:-1]]).decode()
        return inputs


def _chat(message: Message) -> dict[str, str]:
    return {"role": "user" if message.role is Role.USER else "assistant", "content": text_of(message.parts)}


def make(given: Given) -> CrewAgent:
    """Return a crew as an agent."""
    try:
        from crewai import Agent, Crew, Task
    except ImportError as error:
        raise ImportError(NEEDED) from error
    thing = given.target
    name, description = getattr(thing, "name", None), None
    if isinstance(thing, Agent):
        name, description = thing.role, thing.goal
        alone = Task(description=f"{{{TEXT_KEY}}}", expected_output="What was asked for", agent=thing)
        thing = Crew(agents=[thing], tasks=[alone])
    who = profile(given, crash=Crash.RESUME, name=name or "crew", description=description)
    return CrewAgent(thing, who, given.options)


KIND = Kind(
    name="crewai",
    options=CrewOptions,
    make=make,
    recognises=lambda thing: comes_from(thing, "crewai.crew:Crew", "crewai.agent.core:Agent"),
)
