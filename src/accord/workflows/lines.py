"""Where the steps of a workflow stand in the text of their document: from which line to which.

Only places: it says nothing about whether the text is any good, and what it does not find has none. Pages that show a
run beside its document stand above, `text` below.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from accord.workflows.document import Step
from accord.workflows.findings import BadDocument
from accord.workflows.text import Node, parse

ROUND = "-round-"
"""What is between the name of a step and the number of its round in a loop (`patterns.loops`)."""


class Lines(NamedTuple):
    """The first and the last line of something, counted from 1."""

    first: int
    last: int


class Places:
    """The places of one workflow's steps, and of agents for those steps that a pattern has made of them."""

    def __init__(self, text: str, workflow: str) -> None:
        """Look in a text; one that is no YAML, by now, has no places."""
        self._rows = text.splitlines()
        try:
            root = parse(text)
        except BadDocument:
            root = None
        self._steps = {} if root is None else dict(self._named(_steps(root, workflow)))
        self._agents = {} if root is None else dict(self._named(root.parts.get("agents")))

    def of(self, name: str, step: Step | None = None) -> Lines | None:
        """Return where a step stands; an item of a map stands where the map does, and a round of a loop likewise."""
        top = name.partition("[")[0]
        agent = None if step is None else self._agents.get(step.agent or "")
        return self._steps.get(top) or self._steps.get(top.rpartition(ROUND)[0]) or agent

    def _named(self, listed: Node | None) -> Iterator[tuple[str, Lines]]:
        """Yield what is in a list by its name."""
        for part in [] if listed is None else listed.parts.values():
            name = _name(part)
            if name is not None:
                yield name, self._lines(part)

    def _lines(self, node: Node) -> Lines:
        """Return the lines of an item of a list: all that follow and are as far to the right as its first key."""
        first, margin = node.place.line, node.place.column - 1
        last = first
        for at in range(first, len(self._rows)):
            row = self._rows[at]
            if row.strip():
                if len(row) - len(row.lstrip(" ")) < margin:
                    break
                last = at + 1
        return Lines(first, last)


def _steps(root: Node, workflow: str) -> Node | None:
    """Return the list of a workflow's steps."""
    listed = root.parts.get("workflows")
    for part in [] if listed is None else listed.parts.values():
        if _name(part) == workflow:
            return part.parts.get("steps")
    return None


def _name(node: Node) -> str | None:
    tree = node.tree
    name = tree.get("name") if isinstance(tree, Mapping) else None
    return name if isinstance(name, str) else None
