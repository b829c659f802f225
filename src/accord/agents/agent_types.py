"""Agent types: the registry, common options and the profile of an agent.

Each type is a row of `KINDS`, or an entry point of another package, and knows no other type. No framework is imported
here, nor by a type until an agent of it is made.
"""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.auth.scheme_settings import Settings
from accord.engine.agent import TEXT, Agent, Crash, Profile
from accord.entries import Group, Unusable
from accord.model import AgentSkill
from accord.protocol.budgets import Budget

JSON = "application/json"

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]

log = logging.getLogger("accord.agents")


class Options(Settings, frozen=True, kw_only=True):
    """What may be said about an agent of any kind; each kind adds its own, and names in `SECRET` what is not shown.

    What is not said is the agent's own, where its framework knows it, or its kind's.
    """

    type: str | None = None
    """The kind; left out, that which recognises the target."""

    target: str | None = None
    """The thing that the agent is made of, `module:name` or `file.py:name`, where the kind has things."""

    description: str | None = None
    """What it does, for the card."""

    version: str | None = None
    """Its version, for the card."""

    skills: tuple[str, ...] = ()
    """The names of what it can do, for the card."""

    extended_skills: tuple[str, ...] = ()
    """Names of skills that only the extended card has, for callers who have authenticated."""

    answers_message: bool | None = None
    """Answer a message with a bare message instead of a task."""

    input_modes: tuple[str, ...] = ()
    """The media types that it takes."""

    output_modes: tuple[str, ...] = ()
    """The media types that it makes."""

    on_crash: Literal["resume", "restart", "fail"] | None = None
    """What becomes of a run whose process was lost: it goes on after what it has said, begins anew, or fails."""

    attempts: Count | None = None
    """How often a run is begun before its task fails."""

    timeout: Seconds | None = None
    """Seconds that a task may take; it then fails."""

    concurrency: Count | None = None
    """Runs of this agent at a time on one node."""

    max_tokens: Count | None = None
    """Tokens that a task may use, with all that it calls."""

    max_cost: Annotated[float, Meta(gt=0)] | None = None
    """What a task may cost, with all that it calls, in dollars."""


class Given(Struct, frozen=True, kw_only=True):
    """What an agent is made of: its name, if it is told one, the thing itself, if the kind has things, and options."""

    options: Any
    name: str | None = None
    target: Any = None
    env: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Given(name={self.name!r}, target={self.target!r}, options={self.options!r})"  # env has secrets


class Kind(Struct, frozen=True, kw_only=True):
    """A kind of agent.

    One that `recognises` things is chosen when a command names such a thing; the others are made by settings alone. Of
    several that recognise the same thing, the one of the highest `precedence` is: what is built on something else is
    often that as well. `options` is the kind's own subclass of `Options`, and its defaults must do for a thing that a
    command names.
    """

    name: str
    make: Callable[[Given], Agent]
    options: type[Options] = Options
    recognises: Callable[[Any], bool] | None = None
    precedence: int = 0


# --- which kinds there are --------------------------------------------------------------------------------------------

KINDS = Group(
    "accord.agents",
    "kind of agent",
    Kind,
    {
        "a2a-sdk": "accord.agents.a2a_sdk:KIND",
        "adk": "accord.agents.adk:KIND",
        "chat": "accord.agents.chat:KIND",
        "crewai": "accord.agents.crewai:KIND",
        "fasta2a": "accord.agents.fasta2a:KIND",
        "function": "accord.agents.function:KIND",
        "http": "accord.agents.http:KIND",
        "isek": "accord.agents.remote.isek:KIND",
        "langchain": "accord.agents.langchain:KIND",
        "langgraph": "accord.agents.langgraph:KIND",
        "openai-agents": "accord.agents.openai_agents:KIND",
        "planner": "accord.agents.planner:KIND",
        "process": "accord.agents.process:KIND",
        "pydantic-ai": "accord.agents.pydantic_ai:KIND",
        "relay": "accord.agents.relay.agent:KIND",
        "temporal": "accord.agents.temporal:KIND",
        "workflow": "accord.workflows.agent_type:KIND",
    },
)
"""All kinds, by their names."""


def kind_of(thing: Any) -> Kind | None:
    """Return the kind that recognises a thing, if one does."""
    found: Kind | None = None
    for entry in KINDS.entries():
        try:
            kind = KINDS.take(entry)
        except Unusable:  # a package beside us is broken, which is no reason to serve nothing
            log.exception("kind of agent cannot be used", extra={"kind": entry.name, "entry_point": entry.value})
            continue
        if kind.recognises is not None and (found is None or kind.precedence > found.precedence):
            found = kind if kind.recognises(thing) else found
    return found


def is_instance_of(thing: Any, *classes: str) -> bool:
    """Whether a thing is an instance of a class, by the name `module:Class` that a framework defines it under.

    So nothing has to be imported to see what it is not.
    """
    return is_subclass_of(type(thing), *classes)


def is_subclass_of(kind: type, *classes: str) -> bool:
    """Whether a class is one of those, or made of one."""
    return any(f"{one.__module__}:{one.__qualname__}" in classes for one in kind.__mro__)


class Framework(NamedTuple):
    """The extra that serves what a framework makes, and what of that."""

    extra: str
    serves: str


FRAMEWORKS: Mapping[str, Framework] = {
    "a2a.server": Framework("a2a-sdk", "an AgentExecutor"),
    "agents.agent": Framework("openai-agents", "an Agent"),
    "crewai": Framework("crewai", "a Crew, a Flow or an Agent"),
    "fasta2a": Framework("fasta2a", "a Worker"),
    "google.adk": Framework("adk", "an agent, an App or a Runner"),
    "langchain": Framework("langchain", "a Runnable"),
    "langchain_core": Framework("langchain", "a Runnable"),
    "langgraph": Framework("langgraph", "a graph"),
    "pydantic_ai": Framework("pydantic-ai", "an Agent"),
    "temporalio": Framework("temporal", "a workflow that settings name"),
}
"""Where a framework's classes are -> who serves them. OpenAI's package has a name that many have, so it is longer."""


def framework(module: str) -> Framework | None:
    """Return the framework that a module belongs to, if we serve something of it."""
    return next((one for name, one in FRAMEWORKS.items() if f"{module}.".startswith(f"{name}.")), None)


def remedy(thing: Any) -> str | None:
    """Return what would make an agent of a thing that no kind recognises; it is known by its classes' modules."""
    is_class = inspect.isclass(thing)
    for one in (thing if is_class else type(thing)).__mro__:
        if (found := framework(one.__module__)) is not None:
            made = "make one, it is a class; " if is_class else ""
            return f"{made}of {one.__module__} {found.serves} is served, by pip install 'accord[{found.extra}]'"
    return None


# --- who an agent is --------------------------------------------------------------------------------------------------


def profile(given: Given, *, crash: Crash = Crash.RESTART, **own: Any) -> Profile:
    """Return who an agent is: as its options say, else as it says itself (`own`, whose None says nothing).

    `own` may have `name`, `description`, `version`, `skills` (names, or skills), `input_modes` and `output_modes`.
    """
    name = given.name or own.get("name") or "agent"
    description = given.options.description or own.get("description") or name
    itself = Profile(
        name=name,
        description=description,
        version=own.get("version") or "1.0.0",
        skills=skills_of(own.get("skills") or (name,), description),
        input_modes=tuple(own.get("input_modes") or (TEXT, JSON)),
        output_modes=tuple(own.get("output_modes") or (TEXT, JSON)),
        crash=crash,
    )
    return with_options(itself, given)


def with_options(profile: Profile, given: Given) -> Profile:
    """Return who an agent is that says so itself, with what its options say instead."""
    options: Options = given.options
    description = options.description or profile.description
    return replace(
        profile,
        name=given.name or profile.name,
        description=description,
        version=options.version or profile.version,
        skills=skills_of(options.skills, description) or profile.skills,
        extended_skills=skills_of(options.extended_skills, description) or profile.extended_skills,
        input_modes=options.input_modes or profile.input_modes,
        output_modes=options.output_modes or profile.output_modes,
        crash=profile.crash if options.on_crash is None else Crash(options.on_crash),
        attempts=options.attempts or profile.attempts,
        timeout=options.timeout or profile.timeout,
        concurrency=options.concurrency or profile.concurrency,
        answers_message=profile.answers_message if options.answers_message is None else options.answers_message,
        budget=Budget(
            max_tokens=options.max_tokens or profile.budget.max_tokens,
            max_cost=options.max_cost or profile.budget.max_cost,
        ),
    )


def skills_of(skills: Sequence[str | AgentSkill], description: str) -> tuple[AgentSkill, ...]:
    """Return skills, of which some may be names only."""
    return tuple(_skill(skill, description) for skill in skills)


def _skill(skill: str | AgentSkill, description: str) -> AgentSkill:
    if isinstance(skill, AgentSkill):
        return skill
    return AgentSkill(id=skill.lower().replace(" ", "-"), name=skill, description=description, tags=(skill.lower(),))
