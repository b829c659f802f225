"""`--reload`: a changed file is served anew, a broken one until it is mended, and tasks are there all the while."""

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.serve.running import AGENTS, BOUND_SECONDS, Server, running, text_of

AGENT = "def reply(text: str) -> str:\n    return {word!r}\n"


AGAIN_SECONDS = 10.0


def said_at_last(server: Server, word: str, save: Callable[[], object] = lambda: None) -> str:
    """Ask until it says a word, and return the task in which it does.

    A file that is saved in the moment before the first process's watching begins is saved again, as anybody would.
    """
    end, again = time.monotonic() + BOUND_SECONDS, time.monotonic() + AGAIN_SECONDS
    save()
    while time.monotonic() < end:
        if time.monotonic() > again:
            again += AGAIN_SECONDS
            save()
        try:
            task = server.send("x", f"{time.monotonic_ns()}")
        except httpx.TransportError:
            continue  # between two processes
        if task.get("artifacts") and text_of(task) == word:  # one that stops answers with the task as it stands
            return str(task["id"])
    raise AssertionError(f"it never said {word}: {server.all_shown}")


@pytest.mark.parametrize("more", [[], ["--server", "granian"]], ids=["uvicorn", "granian"])
def test_changed_files_are_reloaded(tmp_path: Path, more: list[str]) -> None:
    folder = tmp_path / "agents"  # not where the command is typed
    folder.mkdir()
    file = folder / "mine.py"
    file.write_text(AGENT.format(word="one"))
    here = tmp_path / "here"
    here.mkdir()
    targets = [f"{file}:reply", f"{AGENTS}:who"]
    with running(here, *targets, "--reload", *more, ACCORD_SERVER__GRACE_SECONDS="0.2") as server:
        first = said_at_last(server, "one")
        same = {text_of(server.send("x", f"{number}", path="/agents/who/")) for number in range(5)}
        assert len(same) == 1, "the store lies among what is watched, and changes with every task"
        # As long as before, within the same second, is not seen as new.
        said_at_last(server, "another", lambda: file.write_text(AGENT.format(word="another")))
        file.write_text("def reply(")
        server.says("SyntaxError")
        file.write_text(AGENT.format(word="three"))
        said_at_last(server, "three")
        assert text_of(server.get(first)) == "one"
        assert server.stop() == 0


def test_reloaded_processes_end_with_the_watcher(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(AGENT.format(word="one"))
    with running(tmp_path, "mine.py:reply", "--reload") as server:
        said_at_last(server, "one")
        server.process.kill()
        server.ended()
        assert not server._reader.is_alive()
