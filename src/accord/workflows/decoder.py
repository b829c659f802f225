"""Decode YAML nodes into document structs, with a finding for each mistake.

A file may use several names for a member: its own in camelCase, and agent-relay's. Decoding continues after a mistake,
so a single pass reports all of them. `validation` checks how members fit together.
"""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import NODEFAULT, Struct, inspect

from accord.workflows.agent_definition import ACCESS, AgentDef, FilePermissions, Permissions
from accord.workflows.document import (
    CustomStep,
    Document,
    Preflight,
    SharedState,
    Step,
    Swarm,
    Trajectories,
    Verification,
    Workflow,
)
from accord.workflows.executors import step_types
from accord.workflows.findings import BadDocument, DocumentFinding, TextPosition, make_finding
from accord.workflows.functions import closest
from accord.workflows.notation import UNITS, parse_duration
from accord.workflows.step_types import STEP_TYPES
from accord.workflows.yaml_nodes import YamlNode

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
"""Keys of agent-relay that would have no effect here, and what to use instead."""

REFUSED_VALUES: Mapping[tuple[type[Struct], str, str], str] = MappingProxyType(
    {
        (Step, "type", "integration"): "use `gh` or `curl` in a deterministic step, or an A2A agent",
        (SharedState, "backend", "redis"): "use `backend: database`",
        (AgentDef, "runtime", "acp"): "write `cli: NAME` or `command: ...`, or `runtime: a2a` and a `url`",
        (Step, "type", "llm"): "write `type: agent`, and for its agent `cli: api` and `constraints: {model: ...}`",
        (Step, "type", "run"): "write `type: deterministic` and `command`",
        (Step, "type", "human"): "write `type: approval` and `task`",
        (Step, "type", "dispatch"): "write `type: workflow` and `workflow`",
        (Step, "type", "done"): "remove the step: a run returns the `output` of the workflow",
    }
)
"""Values of agent-relay and of its successor that are refused, and what to write instead."""

IMPLIED: Mapping[tuple[type[Struct], str], Any] = MappingProxyType({(Preflight, "captureOutput"): True})
"""Keys of agent-relay that are accepted only with the one value that applies here."""

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
"""Keys of other tools, and what to write here."""


class MemberName(NamedTuple):
    """The meaning of a name: a member, its type without None, and the unit of a plain number."""

    field: inspect.Field
    kind: inspect.Type
    unit: Decimal | None = None

    @property
    def name(self) -> str:
        """The name of the member in files."""
        return self.field.encode_name


def without_none(kind: inspect.Type) -> inspect.Type:
    """Return a type without its None."""
    if isinstance(kind, inspect.UnionType):
        some = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return some[0] if len(some) == 1 else inspect.UnionType(tuple(some))
    return kind


def written_as(kind: inspect.Type) -> str | None:
    """Return the notation of a type in files, `duration` or `scalar`; None for its own."""
    return (kind.extra_json_schema or {}).get("notation") if isinstance(kind, inspect.Metadata) else None


@cache
def fields_of(struct: type[Struct]) -> tuple[inspect.Field, ...]:
    """Return the members of a struct."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return info.fields


@cache
def members_of(struct: type[Struct]) -> dict[str, MemberName]:
    """Return every name that a file may use for a member, its own name first."""
    members: dict[str, MemberName] = {}
    for field in fields_of(struct):
        kind = without_none(field.type)
        snake = field.name.rstrip("_")
        names = dict.fromkeys((field.encode_name, camel_case(snake), snake))
        is_time = written_as(kind) == "duration"
        # agent-relay counts this one in milliseconds, though its name does not say so
        plain = UNITS["ms" if (struct, field.name) == (Verification, "diagnostic_timeout") else "s"]
        members |= dict.fromkeys(names, MemberName(field, kind, plain if is_time else None))
        if is_time:
            members |= dict.fromkeys((camel_case(snake) + "Ms", snake + "_ms"), MemberName(field, kind, UNITS["ms"]))
        if field.name == "idle_threshold":
            members |= dict.fromkeys((camel_case(snake) + "Secs", snake + "_secs"), MemberName(field, kind, UNITS["s"]))
    return members


def default_of(field: inspect.Field) -> Any:
    """Return the default of a member."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def has_time_unit(name: str) -> bool:
    """Whether a name contains the unit of its number."""
    return name.endswith(("Ms", "_ms", "Secs", "_secs"))


def camel_case(name: str) -> str:
    """Return a name in camel case."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def unknown_key_fix(struct: type[Struct], key: str) -> tuple[str, str]:
    """Return the code for an unknown key, and its fix."""
    if (instead := REFUSED.get((struct, camel_case(key)))) is not None:
        return "UNSUPPORTED", instead
    if (instead := MEANT.get((struct, key))) is not None:
        return "UNKNOWN_KEY", instead
    members = members_of(struct)
    near = closest(key, members)
    fix = (
        f"did you mean `{near}`?"
        if near
        else f"known are {', '.join(field.encode_name for field in fields_of(struct))}"
    )
    return "UNKNOWN_KEY", fix


T = TypeVar("T")


class _BadValue(Exception):
    """A value that is not valid; its finding is recorded."""


class DocumentDecoder:
    """Decodes values by type, and records a finding for each mistake.

    The result has the names of the structs, and durations in seconds. In a custom step (`partial`) nothing is required,
    and any value may be a template.
    """

    def __init__(self, *, partial: bool = False) -> None:
        """Start without findings."""
        self.findings: list[DocumentFinding] = []
        self._partial = partial

    def decode(self, kind: type[T], node: YamlNode, where: str) -> T:
        """Return a value of this type; raises BadDocument with all findings."""
        try:
            tree = self._value(inspect.type_info(kind), node, where)
        except _BadValue:
            tree = None
        if self.findings:
            raise BadDocument(self.findings)
        return msgspec.convert(tree, kind)

    def _error(self, code: str, message: str, fix: str, place: TextPosition) -> _BadValue:
        self.findings.append(make_finding(code, message, fix, place))
        return _BadValue()

    def _value(self, kind: inspect.Type, node: YamlNode, where: str) -> Any:
        if node.tree is None and not isinstance(kind, inspect.AnyType):
            raise self._error("EMPTY_VALUE", f"`{where}` has no value", "give it one, or remove the key", node.place)
        if self._partial and isinstance(node.tree, str) and "{{" in node.tree:
            return node.tree
        return _BY_KIND[type(kind)](self, kind, node, where)

    # --- groups

    def struct(self, kind: inspect.StructType, node: YamlNode, where: str) -> Any:
        """Return the members of a struct by any of their names."""
        if (short := _SHORT.get(kind.cls)) is not None and (tree := short(self, node, where)) is not None:
            return tree
        self._must_be(dict, node, where, "keys with values", "write `key: value`")
        tree = {}
        written: dict[str, str] = {}
        loose: dict[str, Any] = {}
        for key, part in node.parts.items():
            member = members_of(kind.cls).get(str(key))
            if member is None:
                loose |= self._unknown(kind.cls, str(key), node)
            elif (other := written.setdefault(member.name, str(key))) != key:
                self._error(
                    "DUPLICATE_KEY", f"`{key}` says the same as `{other}`", "remove one of them", node.keys[key]
                )
            else:
                self._try(tree, member.name, self._member, kind.cls, member, str(key), part)
        node.names = written
        if loose:
            tree["with"] = loose | tree.get("with", {})
        for field in () if self._partial else kind.fields:
            if field.required and field.encode_name not in written:
                message, fix = f"`{where}` has no `{field.encode_name}`", f"add `{field.encode_name}: ...`"
                self._error("MISSING_KEY", message, fix, node.place)
        return tree

    def list(self, kind: inspect.VarTupleType, node: YamlNode, where: str) -> Any:
        """Return the items of a list."""
        fix = "write each behind a `-`" if node.raw is None else f"write [{node.raw}]"
        self._must_be(list, node, where, "a list", fix)
        if len(node.tree) < (kind.min_length or 0):
            raise self._error("BAD_VALUE", f"`{where}` is empty", "add one, or remove the key", node.place)
        items: dict[str | int, Any] = {}
        for at, part in node.parts.items():
            self._try(items, at, self._value, kind.item_type, part, f"{where}[{at}]")
        return list(items.values())

    def table(self, kind: inspect.DictType, node: YamlNode, where: str) -> Any:
        """Return a mapping whose names the author chooses."""
        self._must_be(dict, node, where, "names with values", "write `name: value` for each")
        values: dict[str | int, Any] = {}
        for name, part in node.parts.items():
            self._try(values, name, self._value, kind.value_type, part, f"{where}.{name}")
        return values

    def union(self, kind: inspect.UnionType, node: YamlNode, where: str) -> Any:
        """Return a value of the type that fits its form: a list or another value."""
        some = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        is_list = isinstance(node.tree, list)
        fits = [one for one in some if isinstance(one, inspect.VarTupleType) == is_list]
        return self._value((fits or some)[0], node, where)

    def _try(self, into: dict[Any, Any], name: str | int, read: Callable[..., Any], *given: Any) -> None:
        """Decode a part; if it is not valid, leave it out, because its finding is recorded."""
        try:
            into[name] = read(*given)
        except _BadValue:
            return

    def _must_be(self, form: type, node: YamlNode, where: str, what: str, fix: str) -> None:
        if not isinstance(node.tree, form):
            raise self._error("BAD_TYPE", f"`{where}` is {_shown(node)}, not {what}", fix, node.place)

    def _unknown(self, struct: type[Struct], key: str, node: YamlNode) -> dict[str, Any]:
        """Return the parameter for an unknown key.

        In agent-relay, the parameters of a custom step are next to `use`.
        """
        stated = node.tree.get("with")
        if struct is Step and "use" in node.parts:
            if isinstance(stated, dict) and key in stated:
                self._error("DUPLICATE_KEY", f"`{key}` is in `with` as well", "remove one of them", node.keys[key])
            return {key: node.parts[key].tree}
        if (implied := IMPLIED.get((struct, camel_case(key)))) is not None and node.parts[key].tree is implied:
            return {}
        code, fix = unknown_key_fix(struct, key)
        what = f"There is no key `{key}` here" if code == "UNKNOWN_KEY" else f"`{key}` is not supported"
        self._error(code, what, fix, node.keys[key])
        return {}

    def _member(self, struct: type[Struct], member: MemberName, key: str, node: YamlNode) -> Any:
        refused = REFUSED_VALUES.get((struct, member.name, str(node.tree)))
        if refused is not None:
            raise self._error("UNSUPPORTED", f"`{key}: {node.tree}` is not supported", refused, node.place)
        if (same := SAME_VALUES.get((struct, member.name, str(node.tree)))) is not None:
            return same
        if (struct, member.name) == (Document, "steps") and isinstance(node.tree, list):
            fix = "write `workflows: [{name: main, steps: [...]}]`; each step has a `name`"
            raise self._error("UNSUPPORTED", "A list of `steps` at the top of a file is not supported", fix, node.place)
        if (struct, member.name) == (AgentDef, "credentials") and isinstance(node.tree, dict):
            fix = "write the name of a credential"
            raise self._error("UNSUPPORTED", "A proxy for credentials is not supported", fix, node.place)
        if member.unit is not None and not (self._partial and isinstance(node.tree, str) and "{{" in node.tree):
            return self._time(member, key, node)
        return self._value(member.kind, node, key)

    # --- single values

    def _time(self, member: MemberName, key: str, node: YamlNode) -> float:
        value, unit = node.tree, member.unit
        assert unit is not None
        try:
            if isinstance(value, str) and not has_time_unit(key):
                time = parse_duration(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                time = float(Decimal(str(value)) * unit)
            else:
                raise ValueError(value)
        except (ValueError, OverflowError):
            what = "a number" if has_time_unit(key) else "a time"
            fix = f"write `{member.name}: 90s`, `10m`, `1h30m` or `250ms`"
            raise self._error("BAD_DURATION", f"`{key}` is {_shown(node)}, not {what}", fix, node.place) from None
        kind = member.kind.type if isinstance(member.kind, inspect.Metadata) else member.kind
        assert isinstance(kind, inspect.FloatType)
        self._within(kind, time, node, key)
        return time

    def marked(self, kind: inspect.Metadata, node: YamlNode, where: str) -> Any:
        """Return a value with a notation of its own."""
        written = written_as(kind)
        if written == "scalar" and node.raw is not None:
            return node.raw
        if written == "step type" and node.tree not in STEP_TYPES:
            return self._one_of(step_types(), node, where)
        return self._value(kind.type, node, where)

    def text(self, kind: inspect.StrType, node: YamlNode, where: str) -> Any:
        """Return a string."""
        fix = f'write "{node.raw}"' if node.raw is not None else "write a text; put {{...}} into quotes"
        self._must_be(str, node, where, "a text", fix)
        return node.tree

    def boolean(self, kind: inspect.BoolType, node: YamlNode, where: str) -> Any:
        """Return true or false."""
        self._must_be(bool, node, where, "true or false", "write `true` or `false`")
        return node.tree

    def number(self, kind: inspect.IntType | inspect.FloatType, node: YamlNode, where: str) -> Any:
        """Return a number within its bounds."""
        forms = (int,) if isinstance(kind, inspect.IntType) else (int, float)
        if isinstance(node.tree, bool) or not isinstance(node.tree, forms):
            what = "a whole number" if forms == (int,) else "a number"
            raise self._error("BAD_TYPE", f"`{where}` is {_shown(node)}, not {what}", f"write {what}", node.place)
        self._within(kind, node.tree, node, where)
        return node.tree

    def _within(self, kind: inspect.IntType | inspect.FloatType, value: float, node: YamlNode, where: str) -> None:
        low = kind.ge if kind.ge is not None else kind.gt if kind.gt is not None else -math.inf
        high = kind.le if kind.le is not None else math.inf
        if not low <= value <= high or (kind.gt is not None and value <= kind.gt):
            bounds = f"at least {low}" if kind.gt is None else f"more than {kind.gt}"
            bounds += "" if high == math.inf else f" and at most {high}"
            raise self._error("BAD_VALUE", f"`{where}` must be {bounds}", f"{node.raw} is outside of that", node.place)

    def choice(self, kind: inspect.LiteralType, node: YamlNode, where: str) -> Any:
        """Return one of a fixed set of words."""
        return self._one_of(tuple(map(str, kind.values)), node, where)

    def _one_of(self, words: tuple[str, ...], node: YamlNode, where: str) -> Any:
        if not isinstance(node.tree, str) or node.tree not in words:
            near = closest(str(node.raw), words)
            fix = f"did you mean {near}?" if near else f"write one of {', '.join(words)}"
            raise self._error("BAD_VALUE", f"`{where}` is {_shown(node)}, none of {', '.join(words)}", fix, node.place)
        return node.tree

    def anything(self, kind: inspect.AnyType, node: YamlNode, where: str) -> Any:
        """Return any value unchanged."""
        return node.tree

    # --- short forms

    def pattern(self, node: YamlNode, where: str) -> Any:
        """Return a swarm that is written as the name of its pattern."""
        return {"pattern": node.tree} if isinstance(node.tree, str) else None

    def permitted(self, node: YamlNode, where: str) -> Any:
        """Return permissions that are written as one word: an access, or the name of a profile."""
        if not isinstance(node.tree, str):
            return None
        return {"access" if node.tree in ACCESS else "profile": node.tree}

    def permitted_all(self, node: YamlNode, where: str) -> Any:
        """Return the permissions of a file that are written as one word."""
        return None if (short := self.permitted(node, where)) is None else {"default": short}

    def switch(self, node: YamlNode, where: str) -> Any:
        """Return a struct that is written as true or false."""
        return {"enabled": node.tree} if isinstance(node.tree, bool) else None

    def custom(self, node: YamlNode, where: str) -> Any:
        """Return a custom step. Its members are below `step`, or next to its parameters as in agent-relay.

        They stay as written until the parameters are filled in.
        """
        self._must_be(dict, node, where, "keys with values", "write `type`, `command` and `params`")
        inner = node.parts.get("step")
        if inner is None or node.parts.keys() - {"params", "step"}:
            inner = node.without("params")
        self._must_be(dict, inner, where, "keys with values", "write the members of a step")
        judging = DocumentDecoder(partial=True)
        self._try({}, "", judging._value, inspect.type_info(Step), inner, where)
        self.findings += judging.findings
        tree: dict[str, Any] = {"step": inner.tree}
        if (params := node.parts.get("params")) is not None:
            self._try(tree, "params", self._value, _PARAMS, params, f"{where}.params")
        return tree


_PARAMS = members_of(CustomStep)["params"].kind

_SHORT: Mapping[type, Callable[[DocumentDecoder, YamlNode, str], Any]] = {
    Swarm: DocumentDecoder.pattern,
    FilePermissions: DocumentDecoder.permitted_all,
    Permissions: DocumentDecoder.permitted,
    Trajectories: DocumentDecoder.switch,
    CustomStep: DocumentDecoder.custom,
}

_BY_KIND: Mapping[type[inspect.Type], Callable[[DocumentDecoder, Any, YamlNode, str], Any]] = {
    inspect.StructType: DocumentDecoder.struct,
    inspect.VarTupleType: DocumentDecoder.list,
    inspect.DictType: DocumentDecoder.table,
    inspect.UnionType: DocumentDecoder.union,
    inspect.Metadata: DocumentDecoder.marked,
    inspect.StrType: DocumentDecoder.text,
    inspect.BoolType: DocumentDecoder.boolean,
    inspect.IntType: DocumentDecoder.number,
    inspect.FloatType: DocumentDecoder.number,
    inspect.LiteralType: DocumentDecoder.choice,
    inspect.AnyType: DocumentDecoder.anything,
}


def _shown(node: YamlNode) -> str:
    match node.tree:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case bool() | int() | float():
            return str(node.raw)
        case _:
            text = str(node.tree)
            return f'"{text}"' if len(text) <= 40 else f'"{text[:37]}..."'
