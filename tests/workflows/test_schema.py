"""The published schema says what is read, the reference says what the schema says, and every key has its sentence."""

from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings

from accord.workflows import decoder
from accord.workflows.document import Document
from accord.workflows.findings import CODES, BadDocument
from accord.workflows.schema import STRUCTS, meanings, schema
from accord.workflows.source import SCHEMA_FILE, read_document, write_document
from accord.workflows.yaml_nodes import parse_yaml
from docs.workflows import generate
from tests.cases import each
from tests.workflows.saying import DOCUMENTS, documents, structs_in
from tests.workflows.test_reading import HEAD, MISTAKES

JUDGE = jsonschema_rs.validator_for(schema())
OF_SHAPE = jsonschema_rs.validator_for(schema(), validate_formats=False)
BESIDES = "DUPLICATE_KEY"
"""What no schema can see: that two keys say the same."""


@pytest.mark.proves("1-29")
@pytest.mark.parametrize("file", sorted(DOCUMENTS.glob("*.yaml")), ids=lambda file: file.name)
def test_the_documents_are_valid(file: Path) -> None:
    JUDGE.validate(parse_yaml(file.read_text(encoding="utf-8")).tree)


@settings(max_examples=40)
@given(documents)
def test_written_documents_match_the_schema(document: Document) -> None:
    OF_SHAPE.validate(parse_yaml(write_document(document)).tree)


@each("row", [row for row in MISTAKES if row[1] != BESIDES])
def test_unreadable_documents_do_not_match_the_schema(row: tuple[str, str, int, int, str]) -> None:
    text = row[0]
    whole = HEAD.replace("swarm: {pattern: dag}", text) if text.startswith("swarm") else HEAD + text
    with pytest.raises(BadDocument):
        read_document(whole)
    too_long = "99999d" in text  # how long a text of units is, only a reader knows
    assert JUDGE.is_valid(parse_yaml(whole).tree) == too_long


@pytest.mark.proves("1-29")
def test_the_schema_describes_a2a_steps() -> None:
    step: dict[str, Any] = schema()["definitions"]["Step"]["properties"]
    assert {"agent", "deterministic", "worktree", "a2a"} <= set(step["type"]["enum"])
    assert (step["url"]["type"], {"format": "uri"} in step["url"]["anyOf"]) == ("string", True)
    assert (step["headers"]["type"], step["headers"]["additionalProperties"]) == ("object", {"type": "string"})
    assert (step["streaming"]["type"], step["streaming"]["default"]) == ("boolean", True)
    assert "dependsOn" in step
    assert step["depends_on"]["doNotSuggest"]


def test_every_key_has_a_sentence_and_nothing_else_has_one() -> None:
    below = {one for struct in STRUCTS for field in decoder.fields_of(struct) for one in structs_in(field.type)}
    assert below | {Document} == set(STRUCTS) == set(generate.TITLES)
    assert all(words.endswith(".") for struct in STRUCTS for words in meanings(struct).values())
    assert all(row.meaning.endswith((".", "?")) for row in CODES.values())


@pytest.mark.parametrize(("name", "made"), [("reference.md", generate.reference), (SCHEMA_FILE, generate.published)])
def test_the_published_schema_is_current(name: str, made: Any) -> None:
    written = (generate.FOLDER / name).read_text(encoding="utf-8")
    assert written == made(), "run docs/workflows/generate.py"
