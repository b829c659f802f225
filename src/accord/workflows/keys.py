"""What the members of a document are called in a file: their own names, those of agent-relay, and those that are none.

The structs of `document` are the source; here is only what a name may be besides, and what to say of a name that is
refused. `reading` and `schema` are above.
"""

import difflib
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import NODEFAULT, Struct, inspect

from accord.workflows.document import (
    AgentDef,
    Document,
    Permissions,
    Preflight,
    SharedState,
    Step,
    Swarm,
    Verification,
    Workflow,
)
from accord.workflows.durations import UNITS

Refusals = Mapping[tuple[type[Struct], str], str]

REFUSED: Refusals = MappingProxyType(
    {
        (Swarm, "credentialProxy"): "give agents a credential by its name: `credentials: NAME`",
        (Permissions, "network"): "nothing here could enforce it: run the agent in a sandbox",
        (Permissions, "exec"): "nothing here could enforce it: run the agent in a sandbox",
        (Permissions, "scopes"): "nothing here could enforce it: use `files` and `access`",
        (Step, "integration"): "use `gh` or `curl` in a deterministic step, or an A2A agent",
        (Step, "action"): "use `gh` or `curl` in a deterministic step, or an A2A agent",
        (Preflight, "captureOutput"): "remove it: the output of a check is always read",
        (Step, "params"): "use `gh` or `curl` in a deterministic step, or an A2A agent",
    }
)
"""Keys of agent-relay that would have no effect here, and what has."""

REFUSED_VALUES: Mapping[tuple[type[Struct], str, str], str] = MappingProxyType(
    {
        (Step, "type", "integration"): "use `gh` or `curl` in a deterministic step, or an A2A agent",
        (SharedState, "backend", "redis"): "use `backend: database`",
        (AgentDef, "runtime", "acp"): "write `cli: NAME` or `command: ...`, or `runtime: a2a` and a `url`",
        (Step, "type", "llm"): "write `type: agent`, and for its agent `cli: api` and `constraints: {model: ...}`",
        (Step, "type", "run"): "write `type: deterministic` and `command`",
        (Step, "type", "human"): "write `type: approval` and `task`",
        (Step, "type", "dispatch"): "write `type: workflow` and `workflow`",
        (Step, "type", "done"): "remove the step: `output` of the workflow is what a run returns",
    }
)
"""Values of agent-relay and of its successor that are refused, and what to write."""

IMPLIED: Mapping[tuple[type[Struct], str], Any] = MappingProxyType({(Preflight, "captureOutput"): True})
"""Keys of agent-relay that may be written with the only value that there is here."""

SAME_VALUES: Mapping[tuple[type[Struct], str, str], str] = MappingProxyType(
    {
        (Step, "onError", "fail-fast"): "fail",
        (Workflow, "onError", "fail-fast"): "fail",
    }
)
"""Values of agent-relay that have another name here."""

MEANT: Refusals = MappingProxyType(
    {
        (Document, "jobs"): "write `workflows`",
        (Document, "errors"): "write `errorHandling`",
        (Document, "barriers"): "write it in `coordination`",
        (Document, "pattern"): "write it in `swarm`",
        (Document, "budget"): "write `tokenBudget` or `costBudget` in `swarm`",
        (Step, "id"): "write `name`",
        (Step, "budget"): "write `maxTokens` or `maxCost` in the `constraints` of its agent",
        (Workflow, "jobs"): "write `steps`",
        (Step, "needs"): "write `dependsOn`",
        (Step, "run"): "write `type: deterministic` and `command`",
        (Step, "bash"): "write `type: deterministic` and `command`",
        (Step, "prompt"): "write `task`",
        (Step, "message"): "write `task`",
        (Step, "uses"): "write `use`",
        (Step, "when"): "write `if`",
        (Step, "timeout-minutes"): "write `timeout: 10m`",
        (Step, "continue-on-error"): "write `onError: continue`",
        (Step, "strategy"): "write `type: map`",
        (Step, "matrix"): "write `type: map`",
        (AgentDef, "model"): "write it in `constraints`",
        (AgentDef, "retries"): "write it in `constraints`",
        (AgentDef, "prompt"): "write `role`, or `skills` for `cli: api`",
        (AgentDef, "type"): "write `runtime: a2a`, or `cli`",
    }
)
"""Keys that other tools have for what is called otherwise here."""


class Member(NamedTuple):
    """What a name stands for: a member, its type without the None it may be, and the unit of a plain number."""

    field: inspect.Field
    kind: inspect.Type
    unit: Decimal | None = None

    @property
    def name(self) -> str:
        """What files call it by themselves."""
        return self.field.encode_name


def kind_of(kind: inspect.Type) -> inspect.Type:
    """Return a type without the None that a value may be where it is left out."""
    if isinstance(kind, inspect.UnionType):
        some = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return some[0] if len(some) == 1 else inspect.UnionType(tuple(some))
    return kind


def written_as(kind: inspect.Type) -> str | None:
    """Return how a file writes a type, if not as itself: `duration` or `scalar`."""
    return (kind.extra or {}).get("written") if isinstance(kind, inspect.Metadata) else None


@cache
def fields(struct: type[Struct]) -> tuple[inspect.Field, ...]:
    """Return the members of a struct."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info.fields


@cache
def members(struct: type[Struct]) -> dict[str, Member]:
    """Return every name that a file may use for a member, its own name first."""
    found: dict[str, Member] = {}
    for field in fields(struct):
        kind = kind_of(field.type)
        snake = field.name.rstrip("_")
        names = dict.fromkeys((field.encode_name, camel(snake), snake))
        is_time = written_as(kind) == "duration"
        # agent-relay counts this one in milliseconds, though its name does not say so
        plain = UNITS["ms" if (struct, field.name) == (Verification, "diagnostic_timeout") else "s"]
        found |= dict.fromkeys(names, Member(field, kind, plain if is_time else None))
        if is_time:
            found |= dict.fromkeys((camel(snake) + "Ms", snake + "_ms"), Member(field, kind, UNITS["ms"]))
        if field.name == "idle_threshold":
            found |= dict.fromkeys((camel(snake) + "Secs", snake + "_secs"), Member(field, kind, UNITS["s"]))
    return found


def default(field: inspect.Field) -> Any:
    """Return what a member is if a file does not say it."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def is_counted(name: str) -> bool:
    """Whether a name says which unit its number has."""
    return name.endswith(("Ms", "_ms", "Secs", "_secs"))


def camel(name: str) -> str:
    """Return a name in camel case."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def remedy(struct: type[Struct], key: str) -> tuple[str, str]:
    """Return the code of a key that is not read, and what to do about it."""
    if (instead := REFUSED.get((struct, camel(key)))) is not None:
        return "UNSUPPORTED", instead
    if (instead := MEANT.get((struct, key))) is not None:
        return "UNKNOWN_KEY", instead
    known = members(struct)
    near = nearest(key, known)
    fix = f"did you mean `{near}`?" if near else f"known are {', '.join(field.encode_name for field in fields(struct))}"
    return "UNKNOWN_KEY", fix


def nearest(word: str, known: Mapping[str, Any] | tuple[str, ...]) -> str | None:
    """Return the word that was probably meant."""
    lower = {one.lower(): one for one in reversed(list(known))}
    close = difflib.get_close_matches(word.lower(), lower, 1)
    return lower[close[0]] if close else None
