"""Agent types: the registry, common options and the profile of an agent.

Each type is a row of `KINDS` or an entry point of another package, and is independent of other types. This module
imports no framework. A type imports its own when an agent is made.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.auth.scheme_settings import MaskedSettings
from accord.engine.agent import TEXT, Agent, Crash, Profile
from accord.entries import Group, Unusable
from accord.model import AgentSkill
from accord.protocol.budgets import Budget

JSON = "application/json"

ANY_MEDIA = (TEXT, JSON, "*/*")
"""Media types of an agent that accepts everything; whether it can use a file is up to the agent."""

Seconds = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]

log = logging.getLogger("accord.agents")


class Options(MaskedSettings, frozen=True, kw_only=True):
    """Options of an agent of any type; types add their own.

    Names in `SECRET` are never shown. An option that is left out has the framework's value, or else the default of the
    type.
    """

    type: str | None = None
    """Agent type [default: the type that recognizes the target]."""

    target: str | None = None
    """Object that the agent is made from, as `module:name` or `file.py:name`, for types that wrap an object."""

    description: str | None = None
    """Description of the agent in its card."""

    version: str | None = None
    """Version of the agent in its card."""

    skills: tuple[str, ...] = ()
    """Names of the agent's skills in its card."""

    extended_skills: tuple[str, ...] = ()
    """Names of skills that only the extended card contains, for authenticated callers."""

    answers_message: bool | None = None
    """Answer a message with a bare message instead of a task."""

    input_modes: tuple[str, ...] = ()
    """Media types that the agent accepts."""

    output_modes: tuple[str, ...] = ()
    """Media types that the agent produces."""

    on_crash: Literal["resume", "restart", "fail"] | None = None
    """Handling of a lost execution: `resume` after its last event, `restart` from the beginning, or `fail` the task."""

    attempts: Count | None = None
    """Maximum number of attempts before the task fails; each lost execution is retried."""

    timeout: Seconds | None = None
    """Maximum duration of a task in seconds; the task then fails."""

    concurrency: Count | None = None
    """Maximum number of concurrent executions of this agent on one node."""

    max_tokens: Count | None = None
    """Maximum number of tokens for a task and its child tasks."""

    max_cost: Annotated[float, Meta(gt=0)] | None = None
    """Maximum cost of a task and its child tasks, in dollars."""


class Given(Struct, frozen=True, kw_only=True):
    """Input for making an agent: its options, name, target object and environment."""

    options: Any
    name: str | None = None
    target: Any = None
    env: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Given(name={self.name!r}, target={self.target!r}, options={self.options!r})"  # env has secrets


class Kind(Struct, frozen=True, kw_only=True):
    """An agent type.

    A type with `recognises` is chosen when a command names an object that it accepts. Other types are configured by
    settings alone. Of several types that accept an object, the one with the highest `precedence` is chosen, because
    objects of one framework are often objects of another as well. `options` is the type's subclass of `Options`. Its
    defaults must work for an object that a command names.
    """

    name: str
    make: Callable[[Given], Agent]
    options: type[Options] = Options
    recognises: Callable[[Any], bool] | None = None
    precedence: int = 0


# --- which kinds there are --------------------------------------------------------------------------------------------

KINDS = Group(
    "accord.agents",
    "agent type",
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
"""All agent types by name."""


def kind_of(thing: Any) -> Kind | None:
    """Return the agent type that recognizes an object, or None."""
    found: Kind | None = None
    for entry in KINDS.entries():
        try:
            kind = KINDS.take(entry)
        except Unusable:  # another package is broken, which must not stop this server
            log.exception("agent.kind_unusable", extra={"kind": entry.name, "entry_point": entry.value})
            continue
        if kind.recognises is not None and (found is None or kind.precedence > found.precedence):
            found = kind if kind.recognises(thing) else found
    return found


def is_instance_of(thing: Any, *classes: str) -> bool:
    """Whether an object is an instance of a class named as `module:Class`.

    The check imports no framework.
    """
    return is_subclass_of(type(thing), *classes)


def is_subclass_of(kind: type, *classes: str) -> bool:
    """Whether a class is one of the named classes or a subclass of one."""
    return any(f"{one.__module__}:{one.__qualname__}" in classes for one in kind.__mro__)


class Framework(NamedTuple):
    """A framework's extra, and the objects of the framework that it serves."""

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
"""Module of a framework's classes -> its extra. The name of OpenAI's package is common, so its entry is longer."""


@contextmanager
def needs(package: str, extra: str) -> Iterator[None]:
    """Import a framework within the block; if it is missing, the error names its extra."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"Agents of the type {extra} need {package}: pip install 'accord[{extra}]'") from error


def framework(module: str) -> Framework | None:
    """Return the framework of a module, or None if it is not supported."""
    return next((one for name, one in FRAMEWORKS.items() if f"{module}.".startswith(f"{name}.")), None)


def remedy(thing: Any) -> str | None:
    """Return a fix for an object that no agent type recognizes, found by the modules of its classes, or None."""
    is_class = inspect.isclass(thing)
    for one in (thing if is_class else type(thing)).__mro__:
        if (found := framework(one.__module__)) is not None:
            made = "make one, it is a class; " if is_class else ""
            return f"{made}of {one.__module__} {found.serves} is served, by pip install 'accord[{found.extra}]'"
    return None


# --- who an agent is --------------------------------------------------------------------------------------------------


def profile(given: Given, *, crash: Crash = Crash.RESTART, **own: Any) -> Profile:
    """Return the profile of an agent: its options first, then its own values (`own`, where None means unset).

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
    """Return a profile with the values that the options override."""
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
    """Return skills, made from names where only a name is given."""
    return tuple(_skill(skill, description) for skill in skills)


def _skill(skill: str | AgentSkill, description: str) -> AgentSkill:
    if isinstance(skill, AgentSkill):
        return skill
    return AgentSkill(id=skill.lower().replace(" ", "-"), name=skill, description=description, tags=(skill.lower(),))
