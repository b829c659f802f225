"""Prints the OpenAPI document of the console, which the types of the front end are made from.

The routes are those of a server, made without one: nothing is asked of what they would be about. `make web` runs it as
`python -m accord.console.description`.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

from accord.console.describing import Describing
from accord.console.flows.runs import RunsApi
from accord.console.parts import routes_of
from accord.console.routing import Route

VERSION = "0"
"""The document in the tree is of no release: it would change with each."""


class Nothing:
    """Stands for everything that a server has, and is never asked for anything but to be kept."""

    def __getattr__(self, name: str) -> "Nothing":
        return self


def routes() -> list[Route]:
    """Return the routes of any server."""
    nothing: Any = Nothing()
    return routes_of(nothing, nothing, nothing, {}, RunsApi(nothing, nothing, {}), {})


def document() -> str:
    """Return the document, as the front end keeps it."""
    found: Sequence[Route] = routes()[:-1]  # the last one describes the others
    described = json.loads(Describing(found, VERSION).document)
    return json.dumps(described, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
