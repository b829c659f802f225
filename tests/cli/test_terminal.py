"""Commands as people see them: progress while they wait, a conversation, and Ctrl+C."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from accord.cli.failures import Exit
from tests.cli.terminal import CTRL_C, CTRL_D, terminal
from tests.cli.test_commands import AGENT
from tests.serve.running import Server, accord, running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("served"), AGENT) as server:
        yield server


def test_progress_is_replaced_by_the_answer(served: Server, tmp_path: Path) -> None:
    file = tmp_path / "go"
    with terminal(tmp_path, "send", served.url, f"hold {file}") as shown:
        shown.says("holding on")
        shown.says("begun")
        file.touch()
        shown.says("State: completed")
        assert shown.ended() == Exit.DONE
        left = shown.shown[shown.shown.rindex("Task: ") :]
        assert "begun done" in left
        assert "\x1b" not in left, "what is left is plain"


@pytest.mark.parametrize("how", [["-o", "json"], ["-o", "json", "--stream"]], ids=["document", "lines"])
def test_json_in_a_terminal_has_nothing_that_it_obeys(served: Server, tmp_path: Path, how: list[str]) -> None:
    evil = "a\x9b2Jb\u202ec\U000e0041d \u00e9\U0001f680"
    with terminal(tmp_path, "send", served.url, evil, *how) as shown:
        assert shown.ended() == Exit.DONE
    assert "a\\u009b2Jb\\u202ec\\udb40\\udc41d \u00e9\U0001f680" in shown.shown
    assert not {"\x9b", "\u202e"} & set(shown.shown)
    assert evil in accord(tmp_path, "send", served.url, evil, *how).stdout, "a pipe gets what was sent"


def test_ctrl_c_in_a_terminal_shows_how_to_continue(served: Server, tmp_path: Path) -> None:
    file = tmp_path / "go"
    with terminal(tmp_path, "send", served.url, "--stream", f"hold {file}") as shown:
        shown.says("begun")
        shown.press(CTRL_C)
        shown.says("is still running")
        assert shown.ended() == Exit.INTERRUPTED
        command = shown.shown.split("  subscribe  ")[1].split("\r\n")[0].split()
    file.touch()
    done = accord(tmp_path, *command[1:], "-q")
    assert done.stdout == "begun done\n"


def test_a_conversation(served: Server, tmp_path: Path) -> None:
    file = tmp_path / "go"
    with terminal(tmp_path, "chat", served.url) as chat:
        for line, answer in [("hello", "hello, it says"), ("ask", "Which day?"), ("Sunday", "It is Sunday")]:
            chat.asks()
            chat.press(f"{line}\n")
            chat.says(answer)
        chat.asks()
        chat.press(f"hold {file}\n")
        chat.says("begun")
        chat.press(CTRL_C)
        chat.says("Stopped waiting")
        file.touch()
        for line, answer in [
            ("/wait", "begun done"),
            ("/task", "Context: "),
            ("/cancel", "accord: "),  # it has ended, and the conversation goes on
            ("/file nothing.txt", "/file"),
            ("parts", "cannot be read"),
            ("make", "To save the files: accord task download"),
            ("/help", "/quit"),
        ]:
            chat.asks()
            chat.press(f"{line}\n")
            chat.says(answer)
        chat.asks()
        chat.press(CTRL_D)
        assert chat.ended() == Exit.DONE
        assert "Traceback" not in chat.shown


def test_ctrl_c_at_the_prompt_ends_a_conversation(served: Server, tmp_path: Path) -> None:
    with terminal(tmp_path, "chat", served.url) as chat:
        chat.asks()
        assert chat.interrupted() == Exit.DONE
        chat.ended()
        assert "Traceback" not in chat.shown
