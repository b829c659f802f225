"""What a row of the conformance matrix is: a requirement, how it is tried, and where that makes sense.

The rows are `table`, what they play are the scenarios; nothing here knows which requirements there are.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest
from msgspec import Struct

from accord.protocol.operations import DialectName, Operation
from tests.conformance.scene import Scene
from tests.conformance.wire import Binding, Speech


class Store(Enum):
    """Where tasks are kept."""

    MEMORY = "memory"
    SQLITE = "sqlite"
    POSTGRES = "postgres"


STORED = Speech(DialectName.V1, Binding.JSONRPC)
"""The one way to speak that is tried with every store: dialects and bindings never meet the store."""

Where = Callable[[Speech], bool]


def dialects(*names: DialectName) -> Where:
    """Only in these dialects."""
    return lambda speech: speech.dialect in names


def bindings(*names: Binding) -> Where:
    """Only over these bindings."""
    return lambda speech: speech.binding in names


def everywhere(speech: Speech) -> bool:
    """Everywhere."""
    return True


class Row(Struct, frozen=True, kw_only=True):
    """A requirement: what it is called, which ids it proves, how it is tried and which operations that uses."""

    name: str
    proves: pytest.MarkDecorator
    says: str
    plays: Callable[[Scene], Awaitable[None]]
    uses: tuple[Operation, ...] = ()
    where: Where = everywhere
    kept: bool = True
    gated: bool = False
    settings: Mapping[str, Any] = MappingProxyType({})

    def applies(self, speech: Speech, store: Store) -> bool:
        """Whether a scenario is played so."""
        if not self.where(speech) or not all(map(speech.has, self.uses)):
            return False
        return store is Store.MEMORY or (self.kept and speech == STORED)
