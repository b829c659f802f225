"""Files to and from a server that speaks vault only, with commands as processes: nothing is lost on either way."""

import json
from pathlib import Path

import pytest

from accord.cli.failures import Exit
from accord.cli.message_parts import files_of
from accord.http.files import FileLinks
from accord.model import Artifact, Part, Task, TaskState, TaskStatus
from tests.serve.running import accord, running

AGENT = f"{Path(__file__).parent / 'agents.py'}:obeying"


@pytest.mark.proves("B-02")
def test_artifacts_are_downloaded_from_their_address(tmp_path: Path) -> None:
    with running(tmp_path, AGENT, "--dialects", "vault") as server:
        sent = accord(tmp_path, "send", server.url, "make", "-o", "json")
        assert sent.returncode == Exit.DONE, sent.stderr
        task = json.loads(sent.stdout)["task"]
        part = next(one for one in task["artifacts"] if one["artifactId"] == "a-1")["parts"][0]
        assert part["url"].startswith(f"{server.url}/files/")
        assert (part["filename"], part["mediaType"]) == ("../../evil.png", "image/png")
        shown = accord(tmp_path, "send", server.url, "make")
        assert "evil.png" in shown.stdout
        saved = accord(tmp_path, "task", "download", task["id"], "-a", server.url, "--to", "out")
        assert saved.returncode == Exit.DONE, saved.stderr
        assert (tmp_path / "out" / "evil.png").read_bytes() == b"\x89PNG"
        assert json.loads((tmp_path / "out" / "numbers.json").read_text()) == {"n": 1}


@pytest.mark.proves("B-02")
def test_attachments_reach_the_agent_as_bytes(tmp_path: Path) -> None:
    content = bytes([0, 255])
    (tmp_path / "x.bin").write_bytes(content)
    with running(tmp_path, AGENT, "--dialects", "vault") as server:
        sent = accord(tmp_path, "send", server.url, "parts", "--file", "x.bin", "--media-type", "x/y", "-q")
        assert sent.returncode == Exit.DONE, sent.stderr
        assert sent.stdout.strip() == f"{content!r}x.bin:x/y;"


def test_a_file_without_a_name_is_called_after_its_artifact() -> None:
    made = Artifact(artifact_id="a", name="picture", parts=(Part(raw=b"x", media_type="image/png"),))
    task = Task(id="t", status=TaskStatus(state=TaskState.COMPLETED), artifacts=(made,))
    linked = FileLinks(b"key", "https://agents.example", 60, lambda: 0.0).linked(task, "")
    assert [found.name for found in files_of(linked.artifacts)] == ["picture.png"]
    assert [found.name for found in files_of(task.artifacts)] == ["picture.png"]
