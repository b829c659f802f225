"""Validation of data against a JSON Schema that a caller sent.

Both are untrusted, so the check itself is bounded: nothing is fetched or read, patterns run in linear time, and a
schema may refer only to its own parts, without recursion. The number of visits to its parts, times the size of the
data, is limited before anything is compiled. Otherwise a kilobyte of references would run for days.
"""

from typing import Any, NoReturn
from urllib.parse import unquote

import jsonschema_rs

from accord.protocol.codec import invalid_field

MAX_STEPS = 2_000_000
"""Visits of schemas' parts times values of the data, in one request: some ten milliseconds of work."""

MAX_EXPLAINED = 20_000
"""Steps above which a refusal does not explain the error: explaining costs a thousand times more than detecting it."""

MAX_PATTERNS = 100
"""Regular expressions in one schema; compiling one may take half a millisecond and a megabyte."""

MAX_DEPTH = 200
"""Nesting of a schema or of the data it is for; the validator's own limit is not much higher."""

_PATTERN_BYTES = 1_000_000
_LINEAR = jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DRAFTS = frozenset(
    {
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)
"""Supported drafts. In older ones `id` inside a schema changes its references, which `_Schema` could not resolve."""


def check(data: Any, schema: dict[str, Any], data_at: str, schema_at: str, spent: int = 0) -> int:
    """Refuse data that does not match its schema, and an unusable schema; the paths are for errors.

    Returns the steps spent on the request so far; `spent` are those of its earlier parts.
    """
    try:
        visits = _Schema(schema).visits()
        validator = jsonschema_rs.validator_for(schema, retriever=_refuse, pattern_options=_LINEAR, mask="the value")
    except jsonschema_rs.ValidationError as error:
        where = schema_at + _path(error.instance_path)
        raise invalid_field(where, f"Unusable JSON Schema: {_brief(error)}") from None
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        raise invalid_field(schema_at, f"Unusable JSON Schema: {_brief(error)}") from None
    try:
        steps = visits * _size(data)
        if spent + steps > MAX_STEPS:
            raise ValueError("it is too large for so complex a schema")
        if not validator.is_valid(data):
            _explain(validator, data, data_at, steps)
    except ValueError as error:
        raise invalid_field(data_at, f"Cannot be checked: {_brief(error)}") from None
    return spent + steps


def _explain(validator: Any, data: Any, data_at: str, steps: int) -> NoReturn:
    reason = "Does not match its schema"
    if steps <= MAX_EXPLAINED:
        try:
            validator.validate(data)
        except jsonschema_rs.ValidationError as error:
            raise invalid_field(data_at + _path(error.instance_path), f"{reason}: {_brief(error)}") from None
    raise invalid_field(data_at, reason)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"schemas are not fetched: {uri[:100]}")


def _brief(error: Exception) -> str:
    text = str(getattr(error, "message", error))
    return text if len(text) <= 200 else text[:197] + "..."


def _path(steps: list[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


class _Schema:
    """Counts the parts of a schema that a validator may visit, following references."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._known: dict[int, int] = {}
        self._open: set[int] = set()
        self._patterns = 0

    def visits(self) -> int:
        """Return the number of visits, or refuse a schema whose check is not bounded."""
        draft = self._root.get("$schema")
        if isinstance(draft, str) and draft.rstrip("#") not in _DRAFTS:
            raise ValueError(f"unknown `$schema` {draft[:100]!r}")
        visits = self._below(self._root, 0)
        if visits > MAX_STEPS or self._patterns > MAX_PATTERNS:
            raise ValueError("it is too complex")
        return visits

    def _below(self, node: Any, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        if not isinstance(node, dict | list):
            return 1
        key = id(node)
        if key in self._known:
            return self._known[key]
        if key in self._open:
            raise ValueError("it refers to itself")
        self._open.add(key)
        members = [*node.values(), *self._targets(node)] if isinstance(node, dict) else node
        self._known[key] = 1 + sum(self._below(member, depth + 1) for member in members)
        self._open.discard(key)
        return self._known[key]

    def _targets(self, node: dict[str, Any]) -> list[Any]:
        if isinstance(node.get("$id"), str) and node is not self._root:
            raise ValueError("only the whole schema may have an `$id`")
        patterns = node.get("patternProperties")
        self._patterns += isinstance(node.get("pattern"), str) + (len(patterns) if isinstance(patterns, dict) else 0)
        return [self._resolve(node[name]) for name in _REFERENCES if isinstance(node.get(name), str)]

    def _resolve(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            raise ValueError(f"references must start with `#/`, not {reference[:100]!r}")
        part: Any = self._root
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(part, list) and name.isdecimal() and int(name) < len(part):
                part = part[int(name)]
            elif isinstance(part, dict) and name in part:
                part = part[name]
            else:
                raise ValueError(f"it has no {reference[:100]!r}")
        return part


def _size(data: Any, depth: int = 0) -> int:
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(data, str):
        return 1 + len(data) // 10
    if isinstance(data, dict):
        return 1 + sum(2 + _size(value, depth + 1) for value in data.values())
    if isinstance(data, list):
        return 1 + sum(_size(value, depth + 1) for value in data)
    return 1
