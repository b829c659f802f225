"""Workflow files: read a document with its positions, and write one.

`swarm: NAME` may name a template, from the folder `library` or beside the file: the file's own members are merged over
it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, inspect

from accord.workflows import decoder
from accord.workflows.decoder import DocumentDecoder, nearest_word
from accord.workflows.document import CustomStep, Document, DocumentPart, Step, format_duration
from accord.workflows.findings import BadDocument, TextPosition, make_finding
from accord.workflows.patterns import PATTERNS
from accord.workflows.yaml_nodes import YamlNode, node_of_values, parse_yaml, read_text, render_yaml

BESIDE = (".accord/workflows", ".relay/workflows")
"""Where one's own templates are, beside a file; the first counts."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")

_HERE = Path(__file__).parent / "library"


def template_files(base: Path) -> dict[str, Path]:
    """Return the files of all templates for a file in this directory, by their names."""
    folders = [_HERE, *(base / name for name in reversed(BESIDE))]
    return {
        file.stem: file for folder in folders for file in sorted(folder.glob("*.yaml")) if NAME.fullmatch(file.stem)
    }


def apply_template(root: YamlNode, base: Path) -> YamlNode:
    """Return a file with what its template says besides; raises BadDocument.

    Where a file has steps or agents of its own, the name of a pattern is the pattern.
    """
    swarm = root.parts.get("swarm")
    if swarm is None or not isinstance(swarm.tree, str):
        return root
    known = template_files(base)
    is_own = not root.parts.keys().isdisjoint({"workflows", "agents"})
    if swarm.tree in PATTERNS and (is_own or swarm.tree not in known):
        return root
    if swarm.tree not in known:
        near = nearest_word(swarm.tree, (*known, *PATTERNS))
        fix = f"did you mean {near}?" if near else f"templates are {', '.join(known)}"
        message = f"There is neither a template nor a pattern {swarm.tree}"
        raise BadDocument([make_finding("UNKNOWN_TEMPLATE", message, fix, swarm.place)])
    file = known[swarm.tree]
    return _over(parse_yaml(read_text(file), file.name if file.parent == _HERE else str(file)), root.without("swarm"))


def _over(below: YamlNode, above: YamlNode) -> YamlNode:
    """Return what both say, where the upper one counts: keys by their names, items of lists by their `name`."""
    if isinstance(below.tree, dict) and isinstance(above.tree, dict):
        return _merged(below, above, list(dict.fromkeys((*below.parts, *above.parts))))
    names, others = _by_name(below), _by_name(above)
    if names is None or others is None:
        return above
    made = YamlNode(above.place, [])
    for name in dict.fromkeys((*names, *others)):
        part = _over(names[name], others[name]) if name in names and name in others else names.get(name) or others[name]
        made.add(len(made.parts), part, part.place)
    return made


def _merged(below: YamlNode, above: YamlNode, keys: list[str | int]) -> YamlNode:
    made = YamlNode(above.place, {})
    for key in keys:
        if key in below.parts and key in above.parts:
            part = _over(below.parts[key], above.parts[key])
        else:
            part = above.parts.get(key) or below.parts[key]
        made.add(key, part, above.keys.get(key) or below.keys[key])
    return made


def _by_name(node: YamlNode) -> dict[str, YamlNode] | None:
    """Return the items of a list by their names, if all have one of their own."""
    if not isinstance(node.tree, list) or not all(isinstance(item, dict) and "name" in item for item in node.tree):
        return None
    found_ = {str(part.tree["name"]): part for part in node.parts.values()}
    return found_ if len(found_) == len(node.parts) else None


SCHEMA_FILE = "accord-workflow.schema.json"
"""Where editors look for the schema of a file that was written here: what `accord workflow schema` prints."""

MemberPath = tuple[str | int, ...]


class Source(Struct, frozen=True, kw_only=True):
    """A document, its text, and where in that everything stands."""

    document: Document
    file: str
    text: str
    root: YamlNode

    def place(self, path: MemberPath, *, key: bool = False, start: int | None = None) -> TextPosition:
        """Return where the value at a path of a file's own names stands, its key, or a part of its text.

        What is not there stands where it should be.
        """
        return self.root.at(path, key=key, start=start)


class _Steps(DocumentPart, frozen=True, kw_only=True):
    """A file of steps of one's own."""

    steps: dict[str, CustomStep]


def read_document(text: str, file: str = "<string>") -> Document:
    """Return what a text says; raises BadDocument."""
    return read_source(text, file).document


def load_document(path: Path | str) -> Document:
    """Return what a file says; raises BadDocument, also if it cannot be read."""
    return load_source(path).document


def read_source(text: str, file: str = "<string>") -> Source:
    """Return what a text says, and where."""
    root = apply_template(parse_yaml(text, file), Path(file).parent)
    return Source(document=DocumentDecoder().made(Document, root, "the file"), file=file, text=text, root=root)


def load_source(path: Path | str) -> Source:
    """Return what a file says, and where."""
    return read_source(read_text(Path(path)), str(path))


def read_step(tree: Mapping[str, Any], place: TextPosition = TextPosition()) -> Step:  # noqa: B008  # it is frozen
    """Return the step that values with a file's names say; they all stand at this place."""
    return DocumentDecoder().made(Step, node_of_values(tree, place), "the step")


def read_steps(text: str, file: str = "<string>") -> dict[str, CustomStep]:
    """Return the steps of one's own that a file has below `steps`."""
    return DocumentDecoder().made(_Steps, parse_yaml(text, file), "the file").steps


# --- a document to text -----------------------------------------------------------------------------------------------


def write_document(document: Document, schema: str = SCHEMA_FILE) -> str:
    """Return a document as a file, whose first line tells editors where its schema is; `read` of it is the same."""
    return f"# yaml-language-server: $schema={schema}\n{render_yaml(tree_of(document))}"


def tree_of(said: Struct) -> dict[str, Any]:
    """Return what a file would say, without what is left out of one."""
    tree = {}
    for field in decoder.fields_of(type(said)):
        value = getattr(said, field.name)
        if field.required or value != decoder.default_of(field):
            tree[field.encode_name] = _written(decoder.without_none(field.type), value)
    return tree


def _written(kind: inspect.Type, value: Any) -> Any:
    match value:
        case Struct():
            return tree_of(value)
        case tuple():
            item = kind.item_type if isinstance(kind, inspect.VarTupleType) else inspect.AnyType()
            return [_written(item, one) for one in value]
        case dict():
            inner = kind.value_type if isinstance(kind, inspect.DictType) else inspect.AnyType()
            return {name: _written(inner, one) for name, one in value.items()}
        case int() | float() if decoder.written_as(kind) == "duration":
            return format_duration(float(value))
        case _:
            return value


ROUND = "-round-"
"""What is between the name of a step and the number of its round in a loop (`patterns.loops`)."""


class LineRange(NamedTuple):
    """The first and the last line of something, counted from 1."""

    first: int
    last: int


class StepPositions:
    """The places of one workflow's steps, and of agents for those steps that a pattern has made of them."""

    def __init__(self, text: str, workflow: str) -> None:
        """Look in a text; one that is no YAML, by now, has no places."""
        self._rows = text.splitlines()
        try:
            root = parse_yaml(text)
        except BadDocument:
            root = None
        self._steps = {} if root is None else dict(self._named(_steps(root, workflow)))
        self._agents = {} if root is None else dict(self._named(root.parts.get("agents")))

    def of(self, name: str, step: Step | None = None) -> LineRange | None:
        """Return where a step stands; an item of a map stands where the map does, and a round of a loop likewise."""
        top = name.partition("[")[0]
        agent = None if step is None else self._agents.get(step.agent or "")
        return self._steps.get(top) or self._steps.get(top.rpartition(ROUND)[0]) or agent

    def _named(self, listed: YamlNode | None) -> Iterator[tuple[str, LineRange]]:
        """Yield what is in a list by its name."""
        for part in [] if listed is None else listed.parts.values():
            name = _name(part)
            if name is not None:
                yield name, self._lines(part)

    def _lines(self, node: YamlNode) -> LineRange:
        """Return the lines of an item of a list: all that follow and are as far to the right as its first key."""
        first, margin = node.place.line, node.place.column - 1
        last = first
        for at in range(first, len(self._rows)):
            row = self._rows[at]
            if row.strip():
                if len(row) - len(row.lstrip(" ")) < margin:
                    break
                last = at + 1
        return LineRange(first, last)


def _steps(root: YamlNode, workflow: str) -> YamlNode | None:
    """Return the list of a workflow's steps."""
    listed = root.parts.get("workflows")
    for part in [] if listed is None else listed.parts.values():
        if _name(part) == workflow:
            return part.parts.get("steps")
    return None


def _name(node: YamlNode) -> str | None:
    tree = node.tree
    name = tree.get("name") if isinstance(tree, Mapping) else None
    return name if isinstance(name, str) else None
