"""`accord init`: what it writes is served for real, and nothing is replaced unasked."""

import json
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest

from tests.doc_blocks import ROOT, blocks
from tests.serve.running import Server, accord, running, said, text_of

FILES = ["accord.toml", "hello.py", ".accord/accord.schema.json"]


def test_starter_files_are_servable(tmp_path: Path) -> None:
    made = accord(tmp_path, "init", "project")
    assert (made.returncode, made.stdout.splitlines()) == (0, [f"project/{name}" for name in FILES])
    assert made.stderr == "To serve the agent: cd project && accord serve\n"
    folder = tmp_path / "project"
    with running(folder) as server:
        assert (folder / "accord.db").exists()
        task = server.send("hi")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        done = answered(server, task["id"], "Ada Lovelace")
        assert text_of(done) == "Hello Ada Lovelace! Your name has 11 letters."
    looked = accord(folder, "doctor")
    assert looked.returncode == 0, looked.stdout + looked.stderr
    assert "ok       agent hello: hello 1.0.0: greeting" in looked.stdout
    assert accord(folder, "config", "check").returncode == 0


def answered(server: Server, task_id: str, text: str) -> dict:
    message = said(text, "answer") | {"taskId": task_id}
    task: dict = server.post("SendMessage", message=message).json()["result"]["task"]
    return task


def test_its_first_line_names_a_schema_that_takes_it(tmp_path: Path) -> None:
    assert accord(tmp_path, "init").returncode == 0
    text = (tmp_path / "accord.toml").read_text(encoding="utf-8")
    keyword, place = text.splitlines()[0].split(" ")
    assert keyword == "#:schema"
    schema = json.loads((tmp_path / place).read_text(encoding="utf-8"))
    jsonschema_rs.Draft7Validator(schema).validate(tomllib.loads(text))


def test_the_configuration_page_matches_the_output(tmp_path: Path) -> None:
    (shown,) = [block.text for block in blocks(ROOT / "docs" / "how-to" / "configure.md") if block.language == "text"]
    assert accord(tmp_path, "init").returncode == 0
    told = accord(tmp_path, "config", "show", "--changed", "--port", "9000", ACCORD_KEEP_DAYS="7")
    assert told.stdout == shown


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_replaced_unless_it_is_forced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine", encoding="utf-8")
    refused = accord(tmp_path, "init")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"accord init: {name} already exists. Use --force to replace it\n"
    assert [file for file in FILES if (tmp_path / file).exists()] == [name]
    assert (tmp_path / name).read_text(encoding="utf-8") == "mine"
    forced = accord(tmp_path, "init", "--force")
    assert forced.returncode == 0
    assert (tmp_path / name).read_text(encoding="utf-8") != "mine"


def test_a_project_with_settings_of_its_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.accord]\nkeep_days = 4\n", encoding="utf-8")
    refused = accord(tmp_path, "init", "--force")
    assert refused.returncode == 1
    assert "pyproject.toml already has settings" in refused.stderr
    assert not (tmp_path / "accord.toml").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    refused = accord(tmp_path, "init", "file/inside")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("accord init: ")
    assert len(refused.stderr.splitlines()) == 1
