"""Hosts to run workflows on: see `tests.core.conftest`."""

from tests.core.conftest import hosting, postgres

__all__ = ["hosting", "postgres"]
