"""A keyring in memory in place of the machine's."""

from collections.abc import Iterator

import keyring
import pytest

from tests.client.keys.backend import MemoryKeyring


@pytest.fixture
def memory() -> Iterator[MemoryKeyring]:
    """What the package `keyring` talks to while a test runs."""
    before, found = keyring.get_keyring(), MemoryKeyring()
    keyring.set_keyring(found)
    yield found
    keyring.set_keyring(before)
