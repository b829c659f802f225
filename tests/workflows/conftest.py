"""Hosts to run workflows on: see `tests.engine.conftest`."""

from tests.engine.conftest import hosting, postgres

__all__ = ["hosting", "postgres"]
