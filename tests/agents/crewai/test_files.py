"""Files of crews: what they are sent, and what their tasks write."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from accord.agents.crewai import kickoffs
from accord.agents.crewai.kickoffs import WrittenFiles, input_files
from accord.engine.outcome import Failed, Rejected
from accord.model import Part, Task, TaskState
from tests.agents.contract.scratch import BEAT_SECONDS
from tests.agents.contract.talking import BOUND_SECONDS, status, text
from tests.agents.elsewhere import Talking

S = TaskState

pytestmark = pytest.mark.xdist_group("crewai")


@pytest.fixture
def talk(talking_in: Callable[[str], Talking]) -> Talking:
    """A function that lets a test talk to a crew."""
    return talking_in("writers")


def given(task: Task) -> dict[str, Part]:
    """The files of a task that must be completed, by artifact."""
    assert task.status.state is S.COMPLETED, status(task)
    return {
        artifact.artifact_id: artifact.parts[0]
        for artifact in task.artifacts
        if artifact.artifact_id.startswith("file/")
    }


# --- what crews write -------------------------------------------------------------------------------------------------


async def test_files_of_tasks_are_artifacts(talk: Talking) -> None:
    async with talk("both") as crew:
        task = await crew.send("go")
        found = given(task)
        assert set(found) == {"file/out/one.md", "file/two.json"}
        one, two = found["file/out/one.md"], found["file/two.json"]
        assert (one.filename, one.media_type, one.raw) == ("one.md", "text/markdown", b"go")
        assert (two.filename, two.media_type) == ("two.json", "application/json")
        assert text(task) == "go", "which is still the answer"
        assert (crew.scratch / "out" / "one.md").read_text() == "go", "where the crew wants it"


async def test_a_structured_output_is_a_file_as_crewai_writes_it(talk: Talking) -> None:
    async with talk("structured") as crew:
        (file,) = given(await crew.send("which?")).values()
        assert json.loads(file.raw or b"") == {"name": "Rome", "people": 2750000}
        assert file.raw == (crew.scratch / "city.json").read_bytes()


async def test_input_cannot_escape_the_working_directory(talk: Talking) -> None:
    async with talk("named") as crew:
        assert set(given(await crew.send("tea"))) == {"file/out/tea.txt"}
        outside = crew.scratch.parent / "stolen.txt"
        task = await crew.send("../../stolen")
        assert (task.status.state, "outside" in status(task)) == (S.FAILED, True)
        assert not outside.exists()


async def test_large_files_are_given_up_to_a_limit(talk: Talking) -> None:
    async with talk("large") as crew:
        (file,) = given(await crew.send("go")).values()
        assert file.raw == b"x" * 3_000_000
    async with talk("small") as crew:
        task = await crew.send("go")
        assert given(task) == {}
        said = [part.text for message in task.history for part in message.parts]
        assert "These files are too large and stay behind: large.txt" in said


async def test_parallel_runs_deliver_their_own_files(talk: Talking) -> None:
    async with talk("shared") as crew:
        first = asyncio.create_task(crew.send("first"))
        try:
            async with asyncio.timeout(BOUND_SECONDS):
                while not (crew.scratch / "steps").exists():  # noqa: ASYNC110  # it is said by another process
                    await asyncio.sleep(BEAT_SECONDS)
            second = await crew.send("second")
        finally:
            (crew.scratch / "go").touch()
        found = [given(task)["file/shared.txt"].raw for task in (await first, second)]
        assert found == [b"first", b"second"]


class Crewed:
    """A crew task that is done."""

    def __init__(self, name: str, raw: str) -> None:
        self.output_file = name
        self.output = self
        self.raw, self.pydantic, self.json_dict = raw, None, None


def test_a_file_that_two_write_is_taken_from_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with WrittenFiles() as one, WrittenFiles() as two:
        for written in (one, two):
            written.expect("a.txt")
        (tmp_path / "a.txt").write_text("whose?")
        assert [written.collect([Crewed("a.txt", "own")], 100)[0]["a.txt"].raw for written in (one, two)] == [
            b"own"
        ] * 2
    with WrittenFiles() as alone:
        alone.expect("a.txt")
        (tmp_path / "a.txt").write_text("own, and more by a tool")
        assert alone.collect([Crewed("a.txt", "own")], 100)[0]["a.txt"].raw == b"own, and more by a tool"
        assert alone.collect([Crewed("a.txt", "own")], 10) == ({}, ["a.txt"])


def test_a_link_leads_nowhere_else_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    monkeypatch.chdir(inside)
    (inside / "out").symlink_to(tmp_path)
    with WrittenFiles() as written, pytest.raises(Failed, match="outside of its working directory"):
        written.expect("out/a.txt")
    assert written.collect([Crewed("out/a.txt", "x")], 100) == ({}, [])


# --- what crews are sent ----------------------------------------------------------------------------------------------


async def test_a_file_that_is_sent_can_be_read(talk: Talking) -> None:
    async with talk("reads") as crew:
        task = await crew.send("what is in it?", Part(raw=b"\x00\xff!", filename="dot.bin"))
        assert task.status.state is S.COMPLETED, status(task)
        assert "AP8h" in text(task), "its bytes, as CrewAI shows them to models"


def test_files_are_refused_where_they_cannot_be_given(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kickoffs, "find_spec", lambda name: None)
    readable = Part(raw=b"words", media_type="text/plain", filename="a.txt")
    assert input_files([readable, Part(text="hi")]) == {}
    with pytest.raises(Rejected, match=r"takes text and data, and no other files: dot\.png"):
        input_files([readable, Part(raw=b"\x89PNG", media_type="image/png", filename="dot.png")])
    assert "pip install 'crewai[file-processing]'" in vars(caplog.records[-1])["reason"]
