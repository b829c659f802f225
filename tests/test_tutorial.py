"""The tutorial's commands, typed one after the other, print what it says."""

from pathlib import Path

import pytest

from tests.serve.running import ROOT
from tests.transcripts import Reader, steps

TUTORIAL = ROOT / "docs" / "tutorial" / "index.md"


@pytest.mark.proves("C-01")
def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        for step in steps(TUTORIAL):
            if step.command.startswith("kill"):
                reader.hears()  # the agent is in the midst of it
            reader.types(step)
    finally:
        reader.stop()
    assert (tmp_path / "bookings.txt").read_text() == "Porto\n", "one booking, whatever died"


def test_another_output_is_noticed(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (step,) = (step for step in steps(TUTORIAL) if step.command == "cat bookings.txt")
    reader.types(step._replace(command="cat a.txt", shown="one\n..."))
    with pytest.raises(AssertionError, match="is not"):
        reader.types(step._replace(command="cat a.txt", shown="one\n"))
