"""Templates: whole documents to begin with, which `swarm: NAME` takes and the rest of a file changes.

Those in this folder come with the package, those beside a file are one's own. They are only text here, put under the
file's own before anything is read; `reading` is above, `text` below.
"""

import re
from pathlib import Path

from accord.workflows.findings import BadDocument, found
from accord.workflows.keys import nearest
from accord.workflows.patterns import PATTERNS
from accord.workflows.text import Node, parse, text_of

BESIDE = (".accord/workflows", ".relay/workflows")
"""Where one's own templates are, beside a file; the first counts."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")

_HERE = Path(__file__).parent


def templates(base: Path) -> dict[str, Path]:
    """Return the files of all templates for a file in this directory, by their names."""
    folders = [_HERE, *(base / name for name in reversed(BESIDE))]
    return {
        file.stem: file for folder in folders for file in sorted(folder.glob("*.yaml")) if NAME.fullmatch(file.stem)
    }


def filled(root: Node, base: Path) -> Node:
    """Return a file with what its template says besides; raises BadDocument.

    Where a file has steps or agents of its own, the name of a pattern is the pattern.
    """
    swarm = root.parts.get("swarm")
    if swarm is None or not isinstance(swarm.tree, str):
        return root
    known = templates(base)
    is_own = not root.parts.keys().isdisjoint({"workflows", "agents"})
    if swarm.tree in PATTERNS and (is_own or swarm.tree not in known):
        return root
    if swarm.tree not in known:
        near = nearest(swarm.tree, (*known, *PATTERNS))
        fix = f"did you mean {near}?" if near else f"templates are {', '.join(known)}"
        message = f"There is neither a template nor a pattern {swarm.tree}"
        raise BadDocument([found("UNKNOWN_TEMPLATE", message, fix, swarm.place)])
    file = known[swarm.tree]
    return _over(parse(text_of(file), file.name if file.parent == _HERE else str(file)), root.without("swarm"))


def _over(below: Node, above: Node) -> Node:
    """Return what both say, where the upper one counts: keys by their names, items of lists by their `name`."""
    if isinstance(below.tree, dict) and isinstance(above.tree, dict):
        return _merged(below, above, list(dict.fromkeys((*below.parts, *above.parts))))
    names, others = _by_name(below), _by_name(above)
    if names is None or others is None:
        return above
    made = Node(above.place, [])
    for name in dict.fromkeys((*names, *others)):
        part = _over(names[name], others[name]) if name in names and name in others else names.get(name) or others[name]
        made.add(len(made.parts), part, part.place)
    return made


def _merged(below: Node, above: Node, keys: list[str | int]) -> Node:
    made = Node(above.place, {})
    for key in keys:
        if key in below.parts and key in above.parts:
            part = _over(below.parts[key], above.parts[key])
        else:
            part = above.parts.get(key) or below.parts[key]
        made.add(key, part, above.keys.get(key) or below.keys[key])
    return made


def _by_name(node: Node) -> dict[str, Node] | None:
    """Return the items of a list by their names, if all have one of their own."""
    if not isinstance(node.tree, list) or not all(isinstance(item, dict) and "name" in item for item in node.tree):
        return None
    found_ = {str(part.tree["name"]): part for part in node.parts.values()}
    return found_ if len(found_) == len(node.parts) else None
