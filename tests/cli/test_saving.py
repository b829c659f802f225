"""Names that strangers give to files: they stay in their folder, and nothing that is there is lost."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.cli.failures import CommandError
from accord.cli.message_parts import ArtifactFile, choose_paths, files_of, open_for_saving, safe_name
from accord.model import Artifact, Part
from tests.cases import each


def save(path: Path, content: bytes, *, force: bool) -> None:
    with open_for_saving(path, force=force) as file:
        file.write(content)


def found(name: str, content: bytes = b"x") -> ArtifactFile:
    return ArtifactFile("a", name, "text/plain", content)


@each(
    ("given_name", "kept"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("C:\\boot.ini", "boot.ini"),
        ("..", "artifact"),
        (".", "artifact"),
        ("", "artifact"),
        ("a/", "artifact"),
        (".bashrc", "bashrc"),
        ("-rf", "rf"),
        ("-.profile", "profile"),
        ("nul.txt", "_nul.txt"),
        ("COM1", "_COM1"),
        ("a\x00b\x1b[31m\n.txt", "a_b_[31m_.txt"),
        ("\u202egpj.exe", "_gpj.exe"),
        ("résumé 2.txt", "résumé 2.txt"),
        ("x" * 300 + ".tar", "x" * 116 + ".tar"),
    ],
)
def test_file_names_keep_safe_characters(given_name: str, kept: str) -> None:
    assert safe_name(given_name) == kept


@given(st.text())
def test_no_name_leaves_its_folder(name: str) -> None:
    safe = safe_name(name)
    folder = Path("/folder")
    assert Path(os.path.normpath(folder / safe)).parent == folder
    assert not safe.startswith((".", "-"))
    safe.encode()
    assert 0 < len(safe) <= 121


def test_two_files_of_one_name_get_two_places(tmp_path: Path) -> None:
    places = choose_paths([found("a.txt"), found("x/A.TXT"), found("a.txt")], tmp_path, force=False)
    assert [path.name for _, path in places] == ["a.txt", "A-2.TXT", "a-3.txt"]


def test_nothing_is_saved_over_a_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("mine")
    with pytest.raises(CommandError, match=r"b\.txt already exists"):
        choose_paths([found("a.txt"), found("b.txt")], tmp_path, force=False)
    assert choose_paths([found("a.txt"), found("b.txt")], tmp_path, force=True)
    with pytest.raises(CommandError, match="cannot be written"):
        save(tmp_path / "b.txt", b"theirs", force=False)  # it came there after all were checked
    assert (tmp_path / "b.txt").read_text() == "mine"
    save(tmp_path / "b.txt", b"theirs", force=True)
    assert (tmp_path / "b.txt").read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


@pytest.mark.parametrize("force", [False, True])
def test_links_are_not_followed(tmp_path: Path, force: bool) -> None:
    outside = tmp_path / "outside.txt"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").symlink_to(outside)
    if force:
        save(folder / "a.txt", b"theirs", force=True)
        assert (folder / "a.txt").read_bytes() == b"theirs"
    else:
        with pytest.raises(CommandError, match="already exists"):
            choose_paths([found("a.txt")], folder, force=False)
        with pytest.raises(CommandError, match="cannot be written"):
            save(folder / "a.txt", b"theirs", force=False)
    assert not outside.exists()


def test_the_parts_of_an_artifact_become_files() -> None:
    artifact = Artifact(
        artifact_id="a-1",
        name="report",
        parts=(
            Part(text="one "),
            Part(raw=b"\x00\x01", filename="image.png", media_type="image/png"),
            Part(text="two"),
            Part(data={"a": 1}),
            Part(url="https://files.example/x/chart.svg?key=1", media_type="image/svg+xml"),
            Part(raw=b"PDF", media_type="application/pdf"),
        ),
    )
    files = list(files_of([artifact]))
    assert [(one.name, one.content) for one in files] == [
        ("image.png", b"\x00\x01"),
        ("report.json", b'{\n  "a": 1\n}\n'),
        ("chart.svg", None),
        ("report.pdf", b"PDF"),
        ("report.txt", b"one two"),
    ]
    assert {one.artifact for one in files} == {"a-1"}
