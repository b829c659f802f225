"""Workflow files: read a document with its positions, and write one.

`swarm: NAME` may name a template from the folder `library` or from the directory of the file. The file's own members
are merged over it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, inspect

from accord.workflows import decoder
from accord.workflows.decoder import DocumentDecoder
from accord.workflows.document import CustomStep, Document, Step
from accord.workflows.findings import BadDocument, TextPosition, make_finding
from accord.workflows.functions import closest
from accord.workflows.notation import DocumentPart, format_duration
from accord.workflows.patterns import PATTERNS
from accord.workflows.yaml_nodes import YamlNode, node_of_values, parse_yaml, read_text, render_yaml

BESIDE = (".accord/workflows", ".relay/workflows")
"""Directories of the author's templates, relative to a file. The first one counts."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")

_HERE = Path(__file__).parent / "library"


def template_files(base: Path) -> dict[str, Path]:
    """Return the files of all templates by name, for a file in this directory."""
    folders = [_HERE, *(base / name for name in reversed(BESIDE))]
    return {
        file.stem: file for folder in folders for file in sorted(folder.glob("*.yaml")) if NAME.fullmatch(file.stem)
    }


def apply_template(root: YamlNode, base: Path) -> YamlNode:
    """Return a file merged over its template; raises BadDocument.

    In a file with steps or agents of its own, the name of a pattern means the pattern.
    """
    swarm = root.parts.get("swarm")
    if swarm is None or not isinstance(swarm.tree, str):
        return root
    templates = template_files(base)
    is_own = not root.parts.keys().isdisjoint({"workflows", "agents"})
    if swarm.tree in PATTERNS and (is_own or swarm.tree not in templates):
        return root
    if swarm.tree not in templates:
        near = closest(swarm.tree, (*templates, *PATTERNS))
        fix = f"did you mean {near}?" if near else f"templates are {', '.join(templates)}"
        message = f"There is neither a template nor a pattern {swarm.tree}"
        raise BadDocument([make_finding("UNKNOWN_TEMPLATE", message, fix, swarm.place)])
    file = templates[swarm.tree]
    return _merge(parse_yaml(read_text(file), file.name if file.parent == _HERE else str(file)), root.without("swarm"))


def _merge(below: YamlNode, above: YamlNode) -> YamlNode:
    """Return two nodes merged, with `above` taking precedence: mappings by key, lists by the `name` of their items."""
    if isinstance(below.tree, dict) and isinstance(above.tree, dict):
        return _merge_mappings(below, above, list(dict.fromkeys((*below.parts, *above.parts))))
    names, others = _items_by_name(below), _items_by_name(above)
    if names is None or others is None:
        return above
    made = YamlNode(above.place, [])
    for name in dict.fromkeys((*names, *others)):
        part = (
            _merge(names[name], others[name]) if name in names and name in others else names.get(name) or others[name]
        )
        made.add(len(made.parts), part, part.place)
    return made


def _merge_mappings(below: YamlNode, above: YamlNode, keys: list[str | int]) -> YamlNode:
    merged = YamlNode(above.place, {})
    for key in keys:
        if key in below.parts and key in above.parts:
            part = _merge(below.parts[key], above.parts[key])
        else:
            part = above.parts.get(key) or below.parts[key]
        merged.add(key, part, above.keys.get(key) or below.keys[key])
    return merged


def _items_by_name(node: YamlNode) -> dict[str, YamlNode] | None:
    if not isinstance(node.tree, list) or not all(isinstance(item, dict) and "name" in item for item in node.tree):
        return None
    found_ = {str(part.tree["name"]): part for part in node.parts.values()}
    return found_ if len(found_) == len(node.parts) else None


SCHEMA_FILE = "accord-workflow.schema.json"
"""The file name of the schema for editors, as printed by `accord workflow schema`."""

MemberPath = tuple[str | int, ...]


class Source(Struct, frozen=True, kw_only=True):
    """A document, its text, and the positions of its members."""

    document: Document
    file: str
    text: str
    root: YamlNode

    def place(self, path: MemberPath, *, key: bool = False, start: int | None = None) -> TextPosition:
        """Return the position of the value at a path, of its key, or of a part of its text.

        The path has the file's own names. For a missing member, the position is where it belongs.
        """
        return self.root.at(path, key=key, start=start)


class _Steps(DocumentPart, frozen=True, kw_only=True):
    """A file of custom steps."""

    steps: dict[str, CustomStep]


def read_document(text: str, file: str = "<string>") -> Document:
    """Return the document in a text; raises BadDocument."""
    return read_source(text, file).document


def load_document(path: Path | str) -> Document:
    """Return the document in a file; raises BadDocument, also if the file cannot be read."""
    return load_source(path).document


def read_source(text: str, file: str = "<string>") -> Source:
    """Return the document in a text, with positions."""
    root = apply_template(parse_yaml(text, file), Path(file).parent)
    return Source(document=DocumentDecoder().decode(Document, root, "the file"), file=file, text=text, root=root)


def load_source(path: Path | str) -> Source:
    """Return the document in a file, with positions."""
    return read_source(read_text(Path(path)), str(path))


def read_step(tree: Mapping[str, Any], place: TextPosition = TextPosition()) -> Step:  # noqa: B008  # it is frozen
    """Return a step from members with a file's names, all at one position."""
    return DocumentDecoder().decode(Step, node_of_values(tree, place), "the step")


def read_steps(text: str, file: str = "<string>") -> dict[str, CustomStep]:
    """Return the custom steps below `steps` of a file."""
    return DocumentDecoder().decode(_Steps, parse_yaml(text, file), "the file").steps


# --- writing ----------------------------------------------------------------------------------------------------------


def write_document(document: Document, schema: str = SCHEMA_FILE) -> str:
    """Return a document as YAML; the inverse of `read_document`. The first line names its schema for editors."""
    return f"# yaml-language-server: $schema={schema}\n{render_yaml(tree_of(document))}"


def tree_of(said: Struct) -> dict[str, Any]:
    """Return the members of a struct under a file's names, without defaults."""
    tree = {}
    for field in decoder.fields_of(type(said)):
        value = getattr(said, field.name)
        if field.required or value != decoder.default_of(field):
            tree[field.encode_name] = _file_value(decoder.without_none(field.type), value)
    return tree


def _file_value(kind: inspect.Type, value: Any) -> Any:
    match value:
        case Struct():
            return tree_of(value)
        case tuple():
            item = kind.item_type if isinstance(kind, inspect.VarTupleType) else inspect.AnyType()
            return [_file_value(item, one) for one in value]
        case dict():
            inner = kind.value_type if isinstance(kind, inspect.DictType) else inspect.AnyType()
            return {name: _file_value(inner, one) for name, one in value.items()}
        case int() | float() if decoder.written_as(kind) == "duration":
            return format_duration(float(value))
        case _:
            return value


ROUND = "-round-"
"""The text between the name of a step and its round number in a loop (`pattern_rounds`)."""


class LineRange(NamedTuple):
    """The first and last line of a member, counted from 1."""

    first: int
    last: int


class StepPositions:
    """The line ranges of a workflow's steps, and of agents for steps that a pattern adds."""

    def __init__(self, text: str, workflow: str) -> None:
        """Parse a text. If it is not valid YAML anymore, there are no positions."""
        self._rows = text.splitlines()
        try:
            root = parse_yaml(text)
        except BadDocument:
            root = None
        self._step_list = {} if root is None else dict(self._ranges_by_name(_step_list(root, workflow)))
        self._agents = {} if root is None else dict(self._ranges_by_name(root.parts.get("agents")))

    def of(self, name: str, step: Step | None = None) -> LineRange | None:
        """Return the lines of a step. Items of a map and rounds of a loop have the lines of their step."""
        top = name.partition("[")[0]
        agent = None if step is None else self._agents.get(step.agent or "")
        return self._step_list.get(top) or self._step_list.get(top.rpartition(ROUND)[0]) or agent

    def _ranges_by_name(self, listed: YamlNode | None) -> Iterator[tuple[str, LineRange]]:
        for part in [] if listed is None else listed.parts.values():
            name = _name(part)
            if name is not None:
                yield name, self._lines(part)

    def _lines(self, node: YamlNode) -> LineRange:
        """Return the lines of a list item: all following lines with at least the indentation of its first key."""
        first, margin = node.place.line, node.place.column - 1
        last = first
        for at in range(first, len(self._rows)):
            row = self._rows[at]
            if row.strip():
                if len(row) - len(row.lstrip(" ")) < margin:
                    break
                last = at + 1
        return LineRange(first, last)


def _step_list(root: YamlNode, workflow: str) -> YamlNode | None:
    listed = root.parts.get("workflows")
    for part in [] if listed is None else listed.parts.values():
        if _name(part) == workflow:
            return part.parts.get("steps")
    return None


def _name(node: YamlNode) -> str | None:
    tree = node.tree
    name = tree.get("name") if isinstance(tree, Mapping) else None
    return name if isinstance(name, str) else None
