"""Stores for servers that are killed."""

from tests.serve.conftest import postgres, store_url

__all__ = ["postgres", "store_url"]
