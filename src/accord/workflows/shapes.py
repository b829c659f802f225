"""The values of a workflow file against the types of a document: what the structs are made of, and all that is wrong.

It knows types and names, and nothing of what they mean together: that is `checks`'. It goes on behind a mistake, so
that a file is mended in one go. `reading` is above, `keys` and `text` below.
"""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, inspect

from accord.workflows import keys
from accord.workflows.document import (
    ACCESS,
    STEP_TYPES,
    AgentDef,
    CustomStep,
    Document,
    FilePermissions,
    Permissions,
    Step,
    Swarm,
    Trajectories,
)
from accord.workflows.durations import parse_duration
from accord.workflows.findings import BadDocument, Finding, Place, found
from accord.workflows.steps.kinds import step_types
from accord.workflows.text import Node

T = TypeVar("T")


class _Bad(Exception):
    """A value that is wrong; the finding is written down."""


class Shaping:
    """Goes over values together with the types that they should have, and writes down what does not fit.

    What it returns has the structs' own names and times in seconds. In a step of one's own (`partial`) nothing is
    required, and any value may be a template.
    """

    def __init__(self, *, partial: bool = False) -> None:
        """Begin without findings."""
        self.findings: list[Finding] = []
        self._partial = partial

    def made(self, kind: type[T], node: Node, where: str) -> T:
        """Return a value of this type; raises BadDocument with everything that was found."""
        try:
            tree = self._value(inspect.type_info(kind), node, where)
        except _Bad:
            tree = None
        if self.findings:
            raise BadDocument(self.findings)
        return msgspec.convert(tree, kind)

    def _bad(self, code: str, message: str, fix: str, place: Place) -> _Bad:
        self.findings.append(found(code, message, fix, place))
        return _Bad()

    def _value(self, kind: inspect.Type, node: Node, where: str) -> Any:
        if node.tree is None and not isinstance(kind, inspect.AnyType):
            raise self._bad("EMPTY_VALUE", f"`{where}` has no value", "give it one, or remove the key", node.place)
        if self._partial and isinstance(node.tree, str) and "{{" in node.tree:
            return node.tree
        return _BY_KIND[type(kind)](self, kind, node, where)

    # --- groups

    def struct(self, kind: inspect.StructType, node: Node, where: str) -> Any:
        """Return the members of a struct, whatever the file calls them."""
        if (short := _SHORT.get(kind.cls)) is not None and (tree := short(self, node, where)) is not None:
            return tree
        self._must_be(dict, node, where, "keys with values", "write `key: value`")
        tree = {}
        written: dict[str, str] = {}
        loose: dict[str, Any] = {}
        for key, part in node.parts.items():
            member = keys.members(kind.cls).get(str(key))
            if member is None:
                loose |= self._unknown(kind.cls, str(key), node)
            elif (other := written.setdefault(member.name, str(key))) != key:
                self._bad("DUPLICATE_KEY", f"`{key}` says the same as `{other}`", "remove one of them", node.keys[key])
            else:
                self._try(tree, member.name, self._member, kind.cls, member, str(key), part)
        node.names = written
        if loose:
            tree["with"] = loose | tree.get("with", {})
        for field in () if self._partial else kind.fields:
            if field.required and field.encode_name not in written:
                message, fix = f"`{where}` has no `{field.encode_name}`", f"add `{field.encode_name}: ...`"
                self._bad("MISSING_KEY", message, fix, node.place)
        return tree

    def list(self, kind: inspect.VarTupleType, node: Node, where: str) -> Any:
        """Return the items of a list."""
        fix = "write each behind a `-`" if node.raw is None else f"write [{node.raw}]"
        self._must_be(list, node, where, "a list", fix)
        if len(node.tree) < (kind.min_length or 0):
            raise self._bad("BAD_VALUE", f"`{where}` is empty", "add one, or remove the key", node.place)
        items: dict[str | int, Any] = {}
        for at, part in node.parts.items():
            self._try(items, at, self._value, kind.item_type, part, f"{where}[{at}]")
        return list(items.values())

    def table(self, kind: inspect.DictType, node: Node, where: str) -> Any:
        """Return the values below names of one's own."""
        self._must_be(dict, node, where, "names with values", "write `name: value` for each")
        values: dict[str | int, Any] = {}
        for name, part in node.parts.items():
            self._try(values, name, self._value, kind.value_type, part, f"{where}.{name}")
        return values

    def union(self, kind: inspect.UnionType, node: Node, where: str) -> Any:
        """Return a value of the one type that its form belongs to: a list, or something else, or nothing."""
        some = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        is_list = isinstance(node.tree, list)
        fits = [one for one in some if isinstance(one, inspect.VarTupleType) == is_list]
        return self._value((fits or some)[0], node, where)

    def _try(self, into: dict[Any, Any], name: str | int, read: Callable[..., Any], *given: Any) -> None:
        """Read a part; if it is wrong, that is written down, and the next one is read."""
        try:
            into[name] = read(*given)
        except _Bad:
            return

    def _must_be(self, form: type, node: Node, where: str, what: str, fix: str) -> None:
        if not isinstance(node.tree, form):
            raise self._bad("BAD_TYPE", f"`{where}` is {_a(node)}, not {what}", fix, node.place)

    def _unknown(self, struct: type[Struct], key: str, node: Node) -> dict[str, Any]:
        """Return the parameter that a key is: agent-relay gives a step of one's own its parameters beside `use`."""
        stated = node.tree.get("with")
        if struct is Step and "use" in node.parts:
            if isinstance(stated, dict) and key in stated:
                self._bad("DUPLICATE_KEY", f"`{key}` is in `with` as well", "remove one of them", node.keys[key])
            return {key: node.parts[key].tree}
        if (implied := keys.IMPLIED.get((struct, keys.camel(key)))) is not None and node.parts[key].tree is implied:
            return {}
        code, fix = keys.remedy(struct, key)
        what = f"There is no key `{key}` here" if code == "UNKNOWN_KEY" else f"`{key}` is not supported"
        self._bad(code, what, fix, node.keys[key])
        return {}

    def _member(self, struct: type[Struct], member: keys.Member, key: str, node: Node) -> Any:
        refused = keys.REFUSED_VALUES.get((struct, member.name, str(node.tree)))
        if refused is not None:
            raise self._bad("UNSUPPORTED", f"`{key}: {node.tree}` is not supported", refused, node.place)
        if (same := keys.SAME_VALUES.get((struct, member.name, str(node.tree)))) is not None:
            return same
        if (struct, member.name) == (Document, "steps") and isinstance(node.tree, list):
            fix = "write `workflows: [{name: main, steps: [...]}]`; each step has a `name`"
            raise self._bad("UNSUPPORTED", "A list of `steps` at the top of a file is not supported", fix, node.place)
        if (struct, member.name) == (AgentDef, "credentials") and isinstance(node.tree, dict):
            fix = "write the name of a credential"
            raise self._bad("UNSUPPORTED", "A proxy for credentials is not supported", fix, node.place)
        if member.unit is not None and not (self._partial and isinstance(node.tree, str) and "{{" in node.tree):
            return self._time(member, key, node)
        return self._value(member.kind, node, key)

    # --- single values

    def _time(self, member: keys.Member, key: str, node: Node) -> float:
        value, unit = node.tree, member.unit
        assert unit is not None
        try:
            if isinstance(value, str) and not keys.is_counted(key):
                time = parse_duration(value)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                time = float(Decimal(str(value)) * unit)
            else:
                raise ValueError(value)
        except (ValueError, OverflowError):
            what = "a number" if keys.is_counted(key) else "a time"
            fix = f"write `{member.name}: 90s`, `10m`, `1h30m` or `250ms`"
            raise self._bad("BAD_DURATION", f"`{key}` is {_a(node)}, not {what}", fix, node.place) from None
        kind = member.kind.type if isinstance(member.kind, inspect.Metadata) else member.kind
        assert isinstance(kind, inspect.FloatType)
        self._within(kind, time, node, key)
        return time

    def marked(self, kind: inspect.Metadata, node: Node, where: str) -> Any:
        """Return a value that files write in a way of their own."""
        written = keys.written_as(kind)
        if written == "scalar" and node.raw is not None:
            return node.raw
        if written == "step type" and node.tree not in STEP_TYPES:
            return self._one_of(step_types(), node, where)
        return self._value(kind.type, node, where)

    def text(self, kind: inspect.StrType, node: Node, where: str) -> Any:
        """Return a text."""
        fix = f'write "{node.raw}"' if node.raw is not None else "write a text; put {{...}} into quotes"
        self._must_be(str, node, where, "a text", fix)
        return node.tree

    def boolean(self, kind: inspect.BoolType, node: Node, where: str) -> Any:
        """Return true or false."""
        self._must_be(bool, node, where, "true or false", "write `true` or `false`")
        return node.tree

    def number(self, kind: inspect.IntType | inspect.FloatType, node: Node, where: str) -> Any:
        """Return a number within its bounds."""
        forms = (int,) if isinstance(kind, inspect.IntType) else (int, float)
        if isinstance(node.tree, bool) or not isinstance(node.tree, forms):
            what = "a whole number" if forms == (int,) else "a number"
            raise self._bad("BAD_TYPE", f"`{where}` is {_a(node)}, not {what}", f"write {what}", node.place)
        self._within(kind, node.tree, node, where)
        return node.tree

    def _within(self, kind: inspect.IntType | inspect.FloatType, value: float, node: Node, where: str) -> None:
        low = kind.ge if kind.ge is not None else kind.gt if kind.gt is not None else -math.inf
        high = kind.le if kind.le is not None else math.inf
        if not low <= value <= high or (kind.gt is not None and value <= kind.gt):
            bounds = f"at least {low}" if kind.gt is None else f"more than {kind.gt}"
            bounds += "" if high == math.inf else f" and at most {high}"
            raise self._bad("BAD_VALUE", f"`{where}` must be {bounds}", f"{node.raw} is outside of that", node.place)

    def choice(self, kind: inspect.LiteralType, node: Node, where: str) -> Any:
        """Return one of a few words."""
        return self._one_of(tuple(map(str, kind.values)), node, where)

    def _one_of(self, known: tuple[str, ...], node: Node, where: str) -> Any:
        if not isinstance(node.tree, str) or node.tree not in known:
            near = keys.nearest(str(node.raw), known)
            fix = f"did you mean {near}?" if near else f"write one of {', '.join(known)}"
            raise self._bad("BAD_VALUE", f"`{where}` is {_a(node)}, none of {', '.join(known)}", fix, node.place)
        return node.tree

    def anything(self, kind: inspect.AnyType, node: Node, where: str) -> Any:
        """Return a value of the file's own."""
        return node.tree

    # --- what may be written shorter

    def pattern(self, node: Node, where: str) -> Any:
        """Return a swarm that is only the name of its pattern."""
        return {"pattern": node.tree} if isinstance(node.tree, str) else None

    def permitted(self, node: Node, where: str) -> Any:
        """Return permissions that are one word: an access, or else the name of a profile."""
        if not isinstance(node.tree, str):
            return None
        return {"access" if node.tree in ACCESS else "profile": node.tree}

    def permitted_all(self, node: Node, where: str) -> Any:
        """Return the permissions of a file that are one word."""
        return None if (short := self.permitted(node, where)) is None else {"default": short}

    def switch(self, node: Node, where: str) -> Any:
        """Return what is only switched on or off."""
        return {"enabled": node.tree} if isinstance(node.tree, bool) else None

    def custom(self, node: Node, where: str) -> Any:
        """Return a step of one's own: its members below `step`, or beside its parameters as agent-relay has them.

        They stay as they are written until its parameters are filled in.
        """
        self._must_be(dict, node, where, "keys with values", "write `type`, `command` and `params`")
        inner = node.parts.get("step")
        if inner is None or node.parts.keys() - {"params", "step"}:
            inner = node.without("params")
        self._must_be(dict, inner, where, "keys with values", "write the members of a step")
        judging = Shaping(partial=True)
        self._try({}, "", judging._value, inspect.type_info(Step), inner, where)
        self.findings += judging.findings
        tree: dict[str, Any] = {"step": inner.tree}
        if (params := node.parts.get("params")) is not None:
            self._try(tree, "params", self._value, _PARAMS, params, f"{where}.params")
        return tree


_PARAMS = keys.members(CustomStep)["params"].kind

_SHORT: Mapping[type, Callable[[Shaping, Node, str], Any]] = {
    Swarm: Shaping.pattern,
    FilePermissions: Shaping.permitted_all,
    Permissions: Shaping.permitted,
    Trajectories: Shaping.switch,
    CustomStep: Shaping.custom,
}

_BY_KIND: Mapping[type[inspect.Type], Callable[[Shaping, Any, Node, str], Any]] = {
    inspect.StructType: Shaping.struct,
    inspect.VarTupleType: Shaping.list,
    inspect.DictType: Shaping.table,
    inspect.UnionType: Shaping.union,
    inspect.Metadata: Shaping.marked,
    inspect.StrType: Shaping.text,
    inspect.BoolType: Shaping.boolean,
    inspect.IntType: Shaping.number,
    inspect.FloatType: Shaping.number,
    inspect.LiteralType: Shaping.choice,
    inspect.AnyType: Shaping.anything,
}


def _a(node: Node) -> str:
    """Return what a value is, for people."""
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
