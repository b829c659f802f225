"""What the documentation draws is what the code says."""

import re
from pathlib import Path

from accord.protocol.lifecycle import ENDED, TRANSITIONS

ARCHITECTURE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"


def test_the_diagram_of_states_is_the_transition_table() -> None:
    drawn = re.findall(r"^ {4}(\w+) --> (\w+)$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    stated = {
        (before.name, after.name)
        for before, followers in TRANSITIONS.items()
        for after in followers
        if after not in ENDED and before is not after
    }
    assert set(drawn) == stated
    assert len(drawn) == len(stated)
