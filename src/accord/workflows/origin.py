"""Where a run comes from: what was asked for and of which document, kept with it so that anybody can go on with it.

Only values and the keys that they are kept under. The workflow's agent writes them down when a run begins, and commands
read them, who have nothing but a run's id.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from accord.storage.commands.journal import ORIGIN
from accord.workflows.document import Document

PLAN, DOCUMENT, SOURCE = "flow-plan", "flow-document", "flow-source"
"""What the plan of a run, the document that it was made of and the text of that are kept under; `ORIGIN` is what tells
that it is one. What was built without a file has no text."""


class Wish(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a run is asked for: as whoever begins one for another says it, in the data of a message.

    With `check_agents` it begins only if all of its A2A agents are there.
    """

    input: str = ""
    inputs: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    workflow: str | None = None
    start_from: str | None = None
    previous_run: str | None = None
    check_agents: bool = False


class Origin(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of which document a run is, by its own name, which of its workflows, and what it was asked for.

    `directory` and `vars` are what the document was served with: with them and the document the same agent is made.
    """

    name: str
    workflow: str
    directory: str
    vars: dict[str, Any] = {}
    wish: Wish = Wish()


def entries(origin: Origin, document: str, text: str | None = None) -> dict[str, str]:
    """Return what is written down with a run; the document is its JSON, and the text what its file says."""
    found = {ORIGIN: msgspec.json.encode(origin).decode(), DOCUMENT: document}
    return found if text is None else {**found, SOURCE: text}


def origin_of(entry: str) -> Origin:
    """Return where a run comes from, as it was written down."""
    return msgspec.json.decode(entry, type=Origin)


def document_of(entry: str) -> Document:
    """Return the document of a run, as it was written down."""
    return msgspec.json.decode(entry, type=Document)


def own_name(document: Document, directory: Path, vars: Mapping[str, Any]) -> str:
    """Return what the agent is called that runs a document for a command: a name that no other document has.

    Whoever runs things for commands shares one store, and two documents may well have the same name: they must not do
    each other's work.
    """
    told = msgspec.json.encode((document, str(directory), dict(vars)), order="deterministic")
    return f"{document.name}@{hashlib.sha256(told).hexdigest()[:12]}"
