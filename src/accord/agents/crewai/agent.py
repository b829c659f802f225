"""A CrewAI crew as an agent: a task is a kickoff, with what the caller says as the values of the crew's variables.

What a crew task gave is kept, so a run that was lost, or that waited for a person's feedback, goes on with the next.
Its memory, its telemetry and its models are the crew's own. Flows are the same kind, and another agent: `flow`.
"""

import inspect
from typing import Any

import msgspec

from accord.agents.content import conversation, prompt
from accord.agents.crewai.feedback import Asked, Feedback, Question, wish
from accord.agents.crewai.files import received, takes_files
from accord.agents.crewai.flow import FlowAgent, fresh
from accord.agents.crewai.kickoff import Kickoff
from accord.agents.kinds import JSON, Count, Given, Kind, Options, comes_from, is_class_of, profile
from accord.engine.agent import TEXT, Crash, Profile
from accord.engine.context import Context, Rejected
from accord.engine.messages import text_of
from accord.model import Message, Role

TEXT_KEY = "input"
"""What the text is called if the crew has no variable that it could be."""

CHAT_KEY = "crew_chat_messages"
"""What crews call the conversation so far, and add to their tasks."""

CHAT_MESSAGES = 20
"""How much of it they are reminded of."""

FLOW = "crewai.flow.flow:Flow"

NEEDED = "CrewAI crews need crewai: pip install 'accord[crewai]'"


class CrewOptions(Options, frozen=True, kw_only=True):
    """What may be said about a crew.

    The caller's text is the variable `inputs_key`; with `task_artifacts` each crew task's output is an artifact, and
    not the last one's alone. Files that tasks write are artifacts up to `max_file_bytes`. A flow begins with the state
    in which it ended the last time in a conversation, with `keep_state`.
    """

    inputs_key: str | None = None
    task_artifacts: bool = False
    max_file_bytes: Count = 10 * 1024 * 1024
    keep_state: bool = True


class CrewAgent:
    """An agent made of one crew."""

    def __init__(self, crew: Any, profile: Profile, options: CrewOptions) -> None:
        """Kick copies of `crew` off."""
        self.profile = profile
        self._crew = crew
        self._options = options

    async def run(self, ctx: Context) -> None:
        """Kick the crew off, and again with each feedback that it is given."""
        inputs, files = await self._inputs(ctx), received(ctx.message.parts)
        options = self._options
        feedback: Feedback | None = None
        number = 0
        while True:
            key = f"crewai/asked/{number}"
            kept = ctx.kept(key)
            if kept is None:
                run = Kickoff(
                    ctx,
                    self._crew,
                    feedback,
                    task_artifacts=options.task_artifacts,
                    max_file_bytes=options.max_file_bytes,
                )
                try:
                    await run.done(inputs, files)
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


def make(given: Given) -> CrewAgent | FlowAgent:
    """Return a crew, an agent of its or a flow as an agent."""
    try:
        from crewai import Agent, Crew, Task
    except ImportError as error:
        raise ImportError(NEEDED) from error
    thing = given.target
    if _is_flow(thing):
        return _flow(given)
    name, description = getattr(thing, "name", None), None
    if isinstance(thing, Agent):
        name, description = thing.role, thing.goal
        alone = Task(description=f"{{{TEXT_KEY}}}", expected_output="What was asked for", agent=thing)
        thing = Crew(agents=[thing], tasks=[alone])
    return CrewAgent(thing, _profile(given, name or "crew", description), given.options)


def _flow(given: Given) -> FlowAgent:
    thing, options = given.target, given.options
    kind = thing if inspect.isclass(thing) else type(thing)
    try:
        fresh(thing)
    except (TypeError, ValueError) as error:
        reason = f"each task has a flow of its own, and {kind.__name__} cannot be made again: {error}"
        raise ValueError(reason) from error
    name = (None if thing is kind else thing.name) or kind.__name__
    who = _profile(given, name, None if kind.__doc__ is None else inspect.getdoc(kind))
    return FlowAgent(thing, who, inputs_key=options.inputs_key, keep_state=options.keep_state)


def _profile(given: Given, name: str, description: str | None) -> Profile:
    takes = (TEXT, JSON, "*/*") if takes_files() else None
    return profile(
        given,
        crash=Crash.RESUME,
        name=name,
        description=description,
        input_modes=takes,
        output_modes=(TEXT, JSON, "*/*"),
    )


def _is_flow(thing: Any) -> bool:
    return comes_from(thing, FLOW) or (inspect.isclass(thing) and is_class_of(thing, FLOW))


KIND = Kind(
    name="crewai",
    options=CrewOptions,
    make=make,
    recognises=lambda thing: comes_from(thing, "crewai.crew:Crew", "crewai.agent.core:Agent") or _is_flow(thing),
)
