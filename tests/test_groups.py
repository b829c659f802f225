"""What tests share they start once, which takes that those who share it run in one process."""

import pytest


@pytest.mark.xdist_group("one")
def test_groups_are_honored_by_xdist(request: pytest.FixtureRequest) -> None:
    """A pytest that is newer than pytest-xdist runs the tests of a group anywhere, and says nothing."""
    is_dealt_out = getattr(request.config.option, "loadgroup", False)
    assert not is_dealt_out or request.node.nodeid.endswith("@one")
