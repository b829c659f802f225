"""Naming an agent on the command line, and the examples, which are agents that can be named."""

import re
from pathlib import Path

import pytest

from accord.agents.loader import BrokenModule, NotAnAgent, import_object, load, traceback_of
from accord.model import Task, TaskState
from tests.engine.conftest import ALICE, Hosting, hosting, postgres, saying, state, text

__all__ = ["hosting", "postgres"]

ROOT = Path(__file__).parents[2]


def test_a_module_and_a_file_name_agents(tmp_path: Path) -> None:
    assert load("accord.agents.echo:echo").profile.name == "Echo"
    file = tmp_path / "plain.py"
    file.write_text('def shout(text: str) -> str:\n    """Shouts."""\n    return text.upper()\n')
    found = load(f"{file}:shout")
    assert (found.profile.name, found.profile.description) == ("shout", "Shouts.")


def test_a_file_is_one_module_however_many_of_its_agents_are_named(tmp_path: Path) -> None:
    file = tmp_path / "both.py"
    file.write_text("shared = []\ndef one(): return shared\ndef two(): return shared\n")
    assert import_object(f"{file}:one")() is import_object(f"{file}:two")()
    other = tmp_path / "deeper" / "both.py"
    other.parent.mkdir()
    other.write_text("raise RuntimeError('not yet')")
    with pytest.raises(BrokenModule, match=r"cannot be imported: RuntimeError: not yet$") as broken:
        import_object(f"{other}:one")
    assert traceback_of(broken.value) == f"  File \"{other}\", line 1, in <module>\n    raise RuntimeError('not yet')"
    other.write_text("def one(): return 1")
    assert import_object(f"{other}:one")() == 1


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("echo", "module:name"),
        ("accord.agents.echo:", "module:name"),
        ("no.such.module:x", "no module"),
        ("accord.agents.echo:nothing", "no 'nothing'"),
        ("accord.agents.echo:MAX_CHUNKS", "int"),
        ("nowhere.py:x", "no file"),
    ],
)
def test_objects_that_are_not_agents_are_refused(spec: str, reason: str) -> None:
    with pytest.raises(NotAnAgent, match=re.escape(reason)):
        load(spec)


async def test_the_example_books_a_table(hosting: Hosting) -> None:
    host = await hosting(load(f"{ROOT}/examples/booking.py:booking"))
    asked = await host.default.send(saying("A table, please"), ALICE)
    assert isinstance(asked, Task)
    assert state(asked) is TaskState.INPUT_REQUIRED
    assert text(await host.default.send(saying("Friday", task_id=asked.id), ALICE)) == "Table 7 is yours on Friday."
