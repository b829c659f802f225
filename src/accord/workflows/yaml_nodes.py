"""YAML of workflow files as nodes that know their position.

Scalars follow YAML 1.2, so `on` and `yes` are strings. Keys are strings, and a duplicate key is an error. No other
module uses the YAML library.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml  # type: ignore[import-untyped]  # it ships no types

from accord.workflows.findings import BadDocument, TextPosition, make_finding

MAX_CHARACTERS = 4 * 1024 * 1024
"""Maximum size of a text. A file of 5,000 steps has a tenth of that."""

MAX_NODES = 1_000_000
"""Maximum number of values with aliases expanded. Nine lines of aliases to aliases would be a billion."""

MAX_DEPTH = 64

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# The core schema of YAML 1.2 (10.3.2), in the order of its rules.
_NULL = re.compile(r"null|Null|NULL|~|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""The line breaks of the parser."""

_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"


class YamlNode:
    """A value, its position and its parts.

    `raw` is a scalar's text. `begins` is its position if it is in the file literally. `keys` has the positions of the
    keys of `parts`, and `names` the spelling of parts that have other names in the text. An alias is the same node as
    its anchor, so nothing is copied. `size` counts it every time.
    """

    __slots__ = ("begins", "keys", "names", "parts", "place", "raw", "size", "tree")

    def __init__(self, place: TextPosition, tree: Any, raw: str | None = None) -> None:
        """Create a scalar, or an empty list or mapping."""
        self.place = place
        self.tree = tree
        self.raw = raw
        self.begins: TextPosition | None = None
        self.parts: dict[str | int, YamlNode] = {}
        self.keys: dict[str | int, TextPosition] = {}
        self.names: Mapping[str, str] = {}
        self.size = 1

    def add(self, key: str | int, part: "YamlNode", place: TextPosition) -> None:
        """Add a part."""
        if isinstance(self.tree, dict):
            self.tree[key] = part.tree
        else:
            self.tree.append(part.tree)
        self.parts[key] = part
        self.keys[key] = place
        self.size += part.size

    def at(self, path: tuple[str | int, ...], *, key: bool = False, start: int | None = None) -> TextPosition:
        """Return the position of the value at a path, of its key, or of an offset in its text.

        For a missing member, the position is where it belongs.
        """
        node, place = self, self.place
        for one in path:
            name = node.names.get(str(one), one)
            if name not in node.parts:
                break
            place = node.keys[name]
            node = node.parts[name]
        else:
            return place if key else node._spot(start)
        return place

    def _spot(self, start: int | None) -> TextPosition:
        if start is None or self.begins is None or self.raw is None:
            return self.place
        before = self.raw[:start]
        line, column = before.count("\n"), start - before.rfind("\n") - 1
        return self.begins._replace(line=self.begins.line + line, column=self.begins.column + column)

    def without(self, key: str) -> "YamlNode":
        """Return a copy without one of its parts."""
        rest = YamlNode(self.place, {})
        for name, part in self.parts.items():
            if name != key:
                rest.add(name, part, self.keys[name])
        return rest


def node_of_values(tree: Any, place: TextPosition) -> YamlNode:
    """Return values without a text as nodes at one position."""
    if not isinstance(tree, Mapping | list | tuple):
        return YamlNode(place, tree, None if tree is None else str(tree))
    node = YamlNode(place, {} if isinstance(tree, Mapping) else [])
    for name, part in tree.items() if isinstance(tree, Mapping) else enumerate(tree):
        node.add(name, node_of_values(part, place), place)
    return node


def read_text(path: Path) -> str:
    """Return the text of a file."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        is_there = not isinstance(error, FileNotFoundError)
        why = f"It cannot be read: {error.strerror}" if is_there else "There is no such file"
        raise BadDocument([make_finding("BAD_YAML", why, "look at the path", TextPosition(str(path)))]) from None
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        place = TextPosition(str(path), before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise BadDocument([make_finding("BAD_YAML", "It is not UTF-8", "save it as UTF-8", place)]) from None


def parse_yaml(text: str, file: str = "<string>") -> YamlNode:
    """Return the node of a text."""
    if len(text) > MAX_CHARACTERS:
        _fail(
            "TOO_LARGE",
            f"The file has {len(text)} characters",
            f"it may have {MAX_CHARACTERS}",
            TextPosition(file, 1, 1),
        )
    if (bad := _UNPRINTABLE.search(text)) is not None:
        before = text[: bad.start()]
        place = TextPosition(file, before.count("\n") + 1, bad.start() - before.rfind("\n"))
        _fail("BAD_YAML", f"There is a character U+{ord(bad[0]):04X}", 'write it as "\\u...", or remove it', place)
    try:
        return _Composer(file, text).compose(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = TextPosition(file, 1, 1) if mark is None else TextPosition(file, mark.line + 1, mark.column + 1)
        problem = " ".join(part for part in (error.problem, error.context) if part)
        line = [*_LINE_END.split(text), ""][place.line - 1]
        _fail("BAD_YAML", f"This is not valid YAML: {problem}", _hint(problem, line[place.column - 1 :]), place)


def _fail(code: str, message: str, fix: str, place: TextPosition) -> NoReturn:
    raise BadDocument([make_finding(code, message, fix, place)]) from None


def _hint(problem: str, rest: str) -> str:
    """Return the fix for an error of the parser at the rest of a line."""
    if rest.startswith("\t"):
        return "indent with blanks, not with tabs"
    if "mapping values" in problem or "start any token" in problem:
        return "put the value into quotes"
    return "look at the indentation, and at quotes and brackets that are not closed"


# --- parsing ----------------------------------------------------------------------------------------------------------


class _OpenCollection:
    """A list or mapping that has not ended yet; `key` is the key of the next value."""

    __slots__ = ("anchor", "key", "merged", "node")

    def __init__(self, node: YamlNode, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: tuple[str, TextPosition, bool] | None = None
        self.merged: list[YamlNode] = []


class _Composer:
    """Makes nodes of the parser's events, without recursion, so that deep nesting cannot crash the process."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._lines = _LINE_END.split(text)
        self._open: list[_OpenCollection] = []
        self._anchors: dict[str, YamlNode | None] = {}
        self._root: YamlNode | None = None

    def compose(self, events: Iterator[Any]) -> YamlNode:
        documents = 0
        for event in events:
            match event:
                case yaml.DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        fix = "put each into a file of its own"
                        _fail("BAD_YAML", "There is more than one document in the file", fix, self._place(event))
                case yaml.MappingStartEvent():
                    self._begin(event, {})
                case yaml.SequenceStartEvent():
                    self._begin(event, [])
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    self._end()
                case yaml.ScalarEvent():
                    self._scalar(event)
                case yaml.AliasEvent():
                    self._alias(event)
        if self._root is None:
            _fail(
                "BAD_YAML",
                "The file is empty",
                "begin with `version`, `name` and `swarm`",
                TextPosition(self._file, 1, 1),
            )
        return self._root

    def _place(self, event: Any) -> TextPosition:
        return TextPosition(self._file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _begin(self, event: Any, tree: Any) -> None:
        place = self._place(event)
        expected = "map" if isinstance(tree, dict) else "seq"
        if event.tag not in (None, "!", _TAG + expected):
            _fail("BAD_YAML", f"The tag {event.tag} is not known", "remove it", place)
        if len(self._open) >= MAX_DEPTH:
            _fail("TOO_LARGE", f"It is nested more than {MAX_DEPTH} deep", "make it flatter", place)
        if self._wants_key:
            self._bad_key(place)
        if event.anchor:
            self._anchors[event.anchor] = None
        self._open.append(_OpenCollection(YamlNode(place, tree), event.anchor))

    def _end(self) -> None:
        ended = self._open.pop()
        for source in ended.merged:
            for key, part in source.parts.items():
                if key not in ended.node.parts:
                    ended.node.add(key, part, source.keys[key])
        if ended.anchor:
            self._anchors[ended.anchor] = ended.node
        self._add_to_parent(ended.node)

    def _scalar(self, event: Any) -> None:
        place = self._place(event)
        if self._wants_key:
            self._take_key(event.value, place, is_merge=event.value == _MERGE and event.implicit[0])
            return
        node = YamlNode(place, self._value(event, place), event.value)
        node.begins = self._literal_position(event, place) if "{{" in event.value else None
        if event.anchor:
            self._anchors[event.anchor] = node
        self._add_to_parent(node)

    def _literal_position(self, event: Any, place: TextPosition) -> TextPosition | None:
        """Return the position of a text, if it is in the file literally: in a line, or in the lines below a `|`."""
        if event.style == "|":
            written, first_line = self._lines[place.line], event.value.split("\n")[0]
            is_there, column = written.endswith(first_line) and bool(first_line), len(written) - len(first_line) + 1
            return place._replace(line=place.line + 1, column=column) if is_there else None
        column = place.column + (event.style in ("'", '"'))
        is_there = self._lines[place.line - 1].startswith(event.value, column - 1)
        return place._replace(column=column) if is_there else None

    def _alias(self, event: Any) -> None:
        place = self._place(event)
        if self._wants_key:
            self._bad_key(place)
        node = self._anchors.get(event.anchor)
        if node is None:
            inside = event.anchor in self._anchors
            what = (
                f"*{event.anchor} is inside of what it stands for" if inside else f"There is no &{event.anchor} before"
            )
            _fail("BAD_YAML", what, f"mark a value with &{event.anchor} before it is used", place)
        self._add_to_parent(node)

    @property
    def _wants_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].node.tree, dict) and self._open[-1].key is None

    def _take_key(self, key: str, place: TextPosition, is_merge: bool) -> None:
        holder = self._open[-1]
        if not is_merge and key in holder.node.keys:
            first = holder.node.keys[key].line
            _fail("DUPLICATE_KEY", f"`{key}` is already in line {first}", "remove one of them", place)
        holder.key = (key, place, is_merge)

    def _bad_key(self, place: TextPosition) -> None:
        _fail("BAD_YAML", "A key is not a text", "put values with {{...}} into quotes; write keys as words", place)

    def _add_to_parent(self, node: YamlNode) -> None:
        if not self._open:
            self._root = node
            return
        holder = self._open[-1]
        if holder.key is None:
            holder.node.add(len(holder.node.parts), node, node.place)
        else:
            (key, place, is_merge), holder.key = holder.key, None
            if is_merge:
                holder.merged += self._mergeable(node)
            else:
                holder.node.add(key, node, place)
        if holder.node.size > MAX_NODES:
            what = f"Its aliases stand for more than {MAX_NODES} values"
            _fail("TOO_LARGE", what, "write what is meant without aliases of aliases", node.place)

    def _mergeable(self, node: YamlNode) -> list[YamlNode]:
        sources = [node] if isinstance(node.tree, dict) else list(node.parts.values())
        if not sources or any(not isinstance(source.tree, dict) for source in sources):
            _fail("BAD_YAML", "`<<` takes mappings", "write `<<: *name`, or `<<: [*one, *other]`", node.place)
        return sources

    def _value(self, event: Any, place: TextPosition) -> Any:
        tag, text = event.tag, event.value
        try:
            if tag in (None, "!"):
                return resolve_scalar(text) if event.implicit[0] else text
            if tag == _TAG + "str":
                return text
            if tag in (_TAG + "int", _TAG + "float", _TAG + "bool", _TAG + "null"):
                return resolve_scalar(text)
        except ValueError as error:
            _fail("BAD_YAML", f"{text[:40]} is not a valid number: {error}", "write it as a text, in quotes", place)
        _fail("BAD_YAML", f"The tag {tag} is not known", "remove it", place)


def resolve_scalar(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text and text[0] not in "~nNtTfF+-.0123456789":
        return text  # as for nearly all scalars
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    if _FLOAT.fullmatch(text):
        number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if not math.isfinite(number):
            raise ValueError("it must be finite")
        return number
    return text


# --- writing ----------------------------------------------------------------------------------------------------------


_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")
"""Characters that are line breaks in only one of YAML 1.1 and 1.2."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # it ships no types
    """Writes lists indented below their key, and multi-line strings as blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
        return super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    """Write a string so that YAML 1.1 and 1.2 both read a string."""
    if _BREAKS.search(text):
        return dumper.represent_scalar(_TAG + "str", text, style='"')
    if "\n" in text:
        return dumper.represent_scalar(_TAG + "str", text, style="|")
    is_plain = _NULL.fullmatch(text) or _BOOL.fullmatch(text) or _INT.fullmatch(text) or _FLOAT.fullmatch(text)
    return dumper.represent_scalar(_TAG + "str", text, style="'" if is_plain else None)


def _represent_list(dumper: Any, items: list[Any]) -> Any:
    """Write a few words in one line, other items below each other."""
    is_short = all(isinstance(item, str) for item in items) and sum(map(len, items)) < 60 and "\n" not in "".join(items)
    return dumper.represent_sequence(_TAG + "seq", items, flow_style=is_short)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)


def render_yaml(tree: Mapping[str, Any]) -> str:
    """Return values as YAML."""
    return str(
        yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False)
    )
