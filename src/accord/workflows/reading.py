"""Workflow files: text to a document, or to everything that is wrong with its shape; and a document to text.

Whether what a document says makes sense is `checks`' business, and what it comes to `planning`'s. Types are `shapes`',
YAML is `text`'s.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, inspect

from accord.workflows import keys
from accord.workflows.document import CustomStep, Document, Said, Step
from accord.workflows.durations import format_duration
from accord.workflows.findings import Place
from accord.workflows.library import filled
from accord.workflows.shapes import Shaping
from accord.workflows.text import Node, parse, planted, render, text_of

SCHEMA_FILE = "accord-workflow.schema.json"
"""Where editors look for the schema of a file that was written here: what `accord workflow schema` prints."""

MemberPath = tuple[str | int, ...]


class Source(Struct, frozen=True, kw_only=True):
    """A document, its text, and where in that everything stands."""

    document: Document
    file: str
    text: str
    root: Node

    def place(self, path: MemberPath, *, key: bool = False, start: int | None = None) -> Place:
        """Return where the value at a path of a file's own names stands, its key, or a part of its text.

        What is not there stands where it should be.
        """
        return self.root.at(path, key=key, start=start)


class _Steps(Said, frozen=True, kw_only=True):
    """A file of steps of one's own."""

    steps: dict[str, CustomStep]


def read(text: str, file: str = "<string>") -> Document:
    """Return what a text says; raises BadDocument."""
    return source(text, file).document


def load(path: Path | str) -> Document:
    """Return what a file says; raises BadDocument, also if it cannot be read."""
    return open_source(path).document


def source(text: str, file: str = "<string>") -> Source:
    """Return what a text says, and where."""
    root = filled(parse(text, file), Path(file).parent)
    return Source(document=Shaping().made(Document, root, "the file"), file=file, text=text, root=root)


def open_source(path: Path | str) -> Source:
    """Return what a file says, and where."""
    return source(text_of(Path(path)), str(path))


def read_step(tree: Mapping[str, Any], place: Place = Place()) -> Step:  # noqa: B008  # it is frozen
    """Return the step that values with a file's names say; they all stand at this place."""
    return Shaping().made(Step, planted(tree, place), "the step")


def read_steps(text: str, file: str = "<string>") -> dict[str, CustomStep]:
    """Return the steps of one's own that a file has below `steps`."""
    return Shaping().made(_Steps, parse(text, file), "the file").steps


# --- a document to text -----------------------------------------------------------------------------------------------


def write(document: Document, schema: str = SCHEMA_FILE) -> str:
    """Return a document as a file, whose first line tells editors where its schema is; `read` of it is the same."""
    return f"# yaml-language-server: $schema={schema}\n{render(tree_of(document))}"


def tree_of(said: Struct) -> dict[str, Any]:
    """Return what a file would say, without what is left out of one."""
    tree = {}
    for field in keys.fields(type(said)):
        value = getattr(said, field.name)
        if field.required or value != keys.default(field):
            tree[field.encode_name] = _written(keys.kind_of(field.type), value)
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
        case int() | float() if keys.written_as(kind) == "duration":
            return format_duration(float(value))
        case _:
            return value
