"""The commands that ask agents, as processes: what is on standard output, what is not, and how they end."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accord.cli.failures import Exit
from tests.cli.flows import QUICKLY
from tests.serve.running import BOUND_SECONDS, Server, accord, environment, running

AGENT = f"{Path(__file__).parent / 'agents.py'}:obeying"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("served"), AGENT) as server:
        yield server


class Asking:
    """Commands that ask one server, in a folder of their own."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder

    def __call__(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command that has to do its job."""
        done = accord(self.folder, *arguments, ACCORD_AGENT_CARD=self.server.url, **env)
        assert done.returncode == Exit.DONE, done.stderr
        assert "\x1b" not in done.stdout + done.stderr, "nothing draws where there is no terminal"
        assert "Traceback" not in done.stderr
        return done

    def text(self, *arguments: str) -> list[str]:
        return self(*arguments).stdout.splitlines()

    def json(self, *arguments: str) -> dict[str, Any]:
        """Return the one document that a command prints."""
        found: dict[str, Any] = json.loads(self(*arguments, "-o", "json").stdout)
        return found

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*arguments, "-o", "json").stdout.splitlines()]

    def begun(self, text: str) -> str:
        """Begin a task and return its id."""
        task_id: str = self.json("send", "--async", text)["task"]["id"]
        return task_id

    def started(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command that goes on for a while."""
        return subprocess.Popen(
            [sys.executable, "-m", "accord", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=environment(self.folder, ACCORD_AGENT_CARD=self.server.url),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  # background jobs ignore it
        )


@pytest.fixture
def ask(served: Server, tmp_path: Path) -> Asking:
    return Asking(served, tmp_path)


# --- cards ------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("1-09", "4-52")
def test_a_card_is_shown(ask: Asking) -> None:
    lines = ask.text("card", "get")
    assert "Name: obeying" in lines
    assert "Streaming: yes" in lines
    assert f"Interface: JSONRPC 1.0 {ask.server.url}/" in lines
    assert ask.json("card", "get")["name"] == "obeying"
    assert ask.json("card", "get", ask.server.url)["skills"][0]["id"] == "obeying"
    assert ask.json("card", ask.server.url)["name"] == "obeying", "as who forgets the command means it"
    assert ask.json("card", "get", f"localhost:{ask.server.port}")["name"] == "obeying"


def test_a_card_in_a_file_is_an_agent(ask: Asking) -> None:
    (ask.folder / "card.json").write_text(json.dumps(ask.json("card", "get")))
    assert ask.json("card", "get", "./card.json")["name"] == "obeying"
    assert ask.text("send", "card.json", "hi", "-q") == ["hi, it says"]


# --- sending ----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("1-10", "1-15")
def test_a_message_is_answered(ask: Asking) -> None:
    done = ask("send", "hello")
    fields = dict(line.partition(": ")[::2] for line in done.stdout.splitlines())
    assert fields["State"] == "completed"
    assert fields["Task"]
    assert fields["Context"]
    assert "hello, it says" in done.stdout.splitlines()
    assert not done.stderr
    task = ask.json("send", "hello")["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert ask.text("send", "-q", "hello") == ["hello, it says"]
    assert ask.json("send", "alone hello")["message"]["parts"]


@pytest.mark.parametrize("binding", ["jsonrpc", "rest"])
def test_another_binding_answers_alike(ask: Asking, binding: str) -> None:
    assert ask.text("send", "-q", "--binding", binding, "hello") == ["hello, it says"]


@pytest.mark.parametrize("dialect", ["v1", "v03", "vault", "gen", "relay"])
def test_another_dialect_answers_alike(ask: Asking, dialect: str) -> None:
    assert ask.text("send", "-q", "--dialect", dialect, "hello") == ["hello, it says"]
    assert ask.text("send", "-q", "--stream", "--dialect", dialect, "hello") == ["hello, it says"]


@pytest.mark.proves("1-12")
def test_a_stream_is_a_line_for_each_event(ask: Asking) -> None:
    lines = ask.lines("send", "--stream", "hello")
    assert list(lines[0]) == ["task"]
    assert all(len(line) == 1 for line in lines)
    texts = [
        part["text"]
        for line in lines
        if "artifactUpdate" in line
        for part in line["artifactUpdate"]["artifact"]["parts"]
    ]
    assert "".join(texts) == "hello, it says"
    assert lines[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


def test_a_stream_of_text_ends_with_the_task(ask: Asking) -> None:
    lines = ask.text("send", "--stream", "hello")
    assert lines[-1] == "State: completed"
    assert lines[-3].startswith("Task: ")
    assert "hello, it says" in lines


def test_a_failed_task_is_a_job_well_done(ask: Asking) -> None:
    done = ask("send", "fail")
    assert "State: failed" in done.stdout
    assert done.stderr == "The task is failed\n"


def test_questions_show_the_answer_command(ask: Asking) -> None:
    done = ask("send", "-o", "json", "ask")
    task = json.loads(done.stdout)["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert f"accord send --task-id {task['id']} TEXT" in done.stderr
    answered = ask.json("send", "--task-id", task["id"], "Sunday")["task"]
    assert (answered["id"], answered["contextId"]) == (task["id"], task["contextId"])
    assert answered["artifacts"][0]["parts"][0]["text"] == "It is Sunday"


def test_auth_required_ends_the_wait(ask: Asking) -> None:
    done = ask("send", "auth")
    assert "State: auth-required" in done.stdout
    assert "Log in first" in done.stdout
    assert "waits for credentials" in done.stderr


def test_tasks_of_one_conversation_share_its_id(ask: Asking) -> None:
    first = ask.json("send", "one")["task"]
    second = ask.json("send", "--context-id", first["contextId"], "two")["task"]
    assert second["contextId"] == first["contextId"]
    assert second["id"] != first["id"]
    listed = ask.json("task", "list", "--context-id", first["contextId"])
    assert {task["id"] for task in listed["tasks"]} == {first["id"], second["id"]}


def test_the_same_message_twice_is_one_task(ask: Asking) -> None:
    once, again = (ask.json("send", "--message-id", "m-1", "hello")["task"]["id"] for _ in range(2))
    assert once == again


def test_parts_are_sent_in_their_order(ask: Asking) -> None:
    (ask.folder / "a.txt").write_text("A")
    (ask.folder / "b.bin").write_text("B")
    arguments = ("--file", "b.bin", "--media-type", "x/y", "--text", "and", "--file", "a.txt")
    assert ask.text("send", "-q", "parts ", *arguments) == ["b'B'b.bin:x/y;andb''None:None;b'A'a.txt:text/plain;"]


def test_a_terminal_is_not_at_the_mercy_of_an_agent(ask: Asking) -> None:
    assert "a?[31mred?" in ask.text("send", "evil")
    piped = accord(ask.folder, "send", "-q", "evil", ACCORD_AGENT_CARD=ask.server.url)
    assert piped.stdout == "a\x1b[31mred\x07\n"
    assert json.loads(ask("send", "-o", "json", "evil").stdout)["task"]["artifacts"][0]["parts"][0]["text"].startswith(
        "a\x1b"
    )


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("1-13")
def test_running_tasks_are_listed_followed_and_canceled(ask: Asking) -> None:
    file = ask.folder / "go"
    done = ask("send", "--async", "-o", "json", f"hold {file}")
    task_id = json.loads(done.stdout)["task"]["id"]
    assert f"accord task subscribe {task_id}" in done.stderr
    following = ask.started("task", "subscribe", task_id, "-o", "json", "--stream")
    waiting = ask.started("task", "get", task_id, "--wait", "-o", "json")
    assert following.stdout is not None
    assert "task" in json.loads(following.stdout.readline())
    file.touch()
    events = [json.loads(line) for line in following.communicate(timeout=BOUND_SECONDS)[0].splitlines()]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    task = json.loads(waiting.communicate(timeout=BOUND_SECONDS)[0])
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert (following.returncode, waiting.returncode) == (Exit.DONE, Exit.DONE)
    other = ask.begun(f"hold {ask.folder / 'never'}")
    assert "State: canceled" in ask.text("task", "cancel", other, "--reason", "no need")
    assert ask.json("task", "get", other)["status"]["state"] == "TASK_STATE_CANCELED"


def test_an_ended_task_is_followed_to_its_end(ask: Asking) -> None:
    task_id = ask.json("send", "hello")["task"]["id"]
    assert ask.json("task", "subscribe", task_id)["status"]["state"] == "TASK_STATE_COMPLETED"
    assert ask.text("task", "subscribe", "-q", task_id) == ["hello, it says"]
    assert ask.json("task", "get", "--wait", task_id)["id"] == task_id


def test_history_is_shown_if_it_is_wanted(ask: Asking) -> None:
    task_id = ask.json("send", "hello")["task"]["id"]
    assert "history" not in ask.json("task", "get", task_id, "--history", "0")
    lines = ask.text("task", "get", task_id, "--history", "5")
    assert lines[lines.index("User:") + 1] == "hello"


def test_tasks_are_listed_in_pages(ask: Asking) -> None:
    context = ask.json("send", "one")["task"]["contextId"]
    ask.json("send", "--context-id", context, "two")
    first = ask("task", "list", "--context-id", context, "--page-size", "1")
    assert first.stdout.count("Task: ") == 1
    token = first.stderr.split("--page-token ")[1].split()[0]
    second = ask("task", "list", "--context-id", context, "--page-size", "1", "--page-token", token)
    assert second.stdout.count("Task: ") == 1
    assert first.stdout != second.stdout
    whole = ask("task", "list", "--context-id", context, "--artifacts", "--history", "1").stdout.splitlines()
    assert "one, it says" in whole
    assert whole[whole.index("User:") + 1] == "two"


def test_artifacts_are_saved_to_the_folder(ask: Asking) -> None:
    task_id = ask.json("send", "make")["task"]["id"]
    saved = ask.json("task", "download", task_id, "--to", "out")["files"]
    folder = ask.folder / "out"
    assert {Path(one["path"]).name for one in saved} == {path.name for path in folder.iterdir()}
    assert (folder / "evil.png").read_bytes() == b"\x89PNG"
    assert json.loads((folder / "numbers.json").read_text()) == {"n": 1}
    assert not list(ask.folder.glob("*.png"))
    refused = accord(ask.folder, "task", "download", task_id, "-a", ask.server.url, "--to", "out")
    assert refused.returncode == Exit.FAILED
    assert "already exists" in refused.stderr
    assert "Saved: " in ask("task", "download", task_id, "--to", "out", "--force", "--artifact", "numbers").stdout
    unknown = accord(ask.folder, "task", "download", task_id, "-a", ask.server.url, "--artifact", "nothing")
    assert unknown.returncode == Exit.FAILED


def test_webhooks_are_set_shown_and_removed(ask: Asking) -> None:
    task_id = ask.begun(f"hold {ask.folder / 'never'}")
    made = ask("task", "push", "set", task_id, "https://x.example/h?k=s3cret", "--id", "w-1", "--token", "s3cret")
    assert "Webhook: w-1" in made.stdout
    assert "s3cret" not in made.stdout + made.stderr
    assert ask.json("task", "push", "get", task_id, "w-1")["url"] == "https://x.example/h?k=s3cret"
    assert [config["id"] for config in ask.json("task", "push-config", "list", task_id)["configs"]] == ["w-1"]
    assert ask.json("task", "push", "delete", task_id, "w-1") == {}
    assert ask.text("task", "push", "list", task_id) == []
    ask("task", "cancel", task_id)


# --- ends -------------------------------------------------------------------------------------------------------------


def failing(ask: Asking, *arguments: str, **env: str) -> tuple[int, dict[str, Any], str]:
    """Run a command that fails, both ways, and return its code, its error for programs and what people see."""
    spoken = accord(ask.folder, *arguments, ACCORD_AGENT_CARD=ask.server.url, **env)
    coded = accord(ask.folder, *arguments, "-o", "json", ACCORD_AGENT_CARD=ask.server.url, **env)
    assert spoken.returncode == coded.returncode
    assert not spoken.stdout
    assert "Traceback" not in spoken.stderr
    assert spoken.stderr.startswith("accord: ")
    error: dict[str, Any] = json.loads(coded.stdout)["error"]
    assert set(error) == {"code", "message", "hint", "a2aCode"}
    return coded.returncode, error, spoken.stderr


def test_an_error_of_the_agent_has_its_name(ask: Asking) -> None:
    code, error, _ = failing(ask, "task", "get", "nothing")
    assert (code, error["code"], error["a2aCode"]) == (Exit.FAILED, "TaskNotFoundError", -32001)
    code, error, _ = failing(ask, "send", "--task-id", "nothing", "hello")
    assert (code, error["code"]) == (Exit.FAILED, "TaskNotFoundError")
    ended = ask.json("send", "hello")["task"]["id"]
    code, error, _ = failing(ask, "task", "cancel", ended)
    assert (code, error["code"]) == (Exit.FAILED, "TaskNotCancelableError")


@pytest.mark.parametrize(
    "arguments", [("send", "hello"), ("send", "--stream", "hello"), ("task", "get", "t-1"), ("card", "get")]
)
def test_unreachable_servers_exit_with_their_code(ask: Asking, arguments: tuple[str, ...]) -> None:
    from tests.ports import free_port

    code, error, _ = failing(ask, *arguments, "-a", f"http://localhost:{free_port()}")
    assert (code, error["code"]) == (Exit.UNREACHABLE, "A2ACLI_ERR_UNREACHABLE")
    assert error["hint"], "it says what to do"


def test_a_name_that_has_no_address_is_unreachable(ask: Asking) -> None:
    code, _, _ = failing(ask, "card", "get", "-a", "https://nowhere.invalid")
    assert code == Exit.UNREACHABLE


def test_invalid_card_files_are_reported(ask: Asking) -> None:
    code, error, _ = failing(ask, "card", "get", "-a", "./nothing.json")
    assert (code, error["code"]) == (Exit.UNREACHABLE, "A2ACLI_ERR_CARD_NOT_FOUND")
    (ask.folder / "odd.json").write_text("[]")
    code, error, _ = failing(ask, "card", "get", "-a", "./odd.json")
    assert (code, error["code"]) == (Exit.FAILED, "A2ACLI_ERR_CARD_INVALID")


@pytest.mark.parametrize("arguments", [("send",), ("send", "--stream")])
def test_timed_out_waits_show_how_to_continue(ask: Asking, arguments: tuple[str, ...]) -> None:
    waited = accord(ask.folder, *arguments, "-a", ask.server.url, f"hold {ask.folder / 'never'}", "--timeout", "3s")
    assert waited.returncode == Exit.TIMED_OUT, waited.stderr
    way_on = waited.stderr.split("To wait for the task again: ")[1].split()
    assert way_on[:5] == ["accord", "task", "get", "--wait", "-a"]
    ask("task", "cancel", way_on[-1])


@pytest.mark.parametrize("arguments", [("send",), ("send", "--stream")])
def test_ctrl_c_shows_how_to_continue(ask: Asking, arguments: tuple[str, ...]) -> None:
    file = ask.folder / "go"
    out = err = ""
    for attempt in range(10):  # what it was told by then cannot be seen from outside
        message_id = f"m-interrupted{''.join(arguments)}-{attempt}"
        command = ask.started(*arguments, f"hold {file}", "--message-id", message_id)
        _until_working(ask, message_id)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=BOUND_SECONDS)
        assert command.returncode == Exit.INTERRUPTED
        assert "Traceback" not in err
        if "Task " in err:
            break
    task_id = err.split("Task ")[1].split()[0]
    assert f"accord task subscribe {task_id}" in err
    assert f"accord task cancel {task_id}" in err
    if "--stream" not in arguments:
        assert not out
    file.touch()
    assert ask.text("task", "subscribe", "-q", task_id)[-1] == "begun done"


def _until_working(ask: Asking, message_id: str) -> None:
    """Wait until the agent works on a message: its own stream says so."""
    follow = ask.started("send", "--message-id", message_id, "hold x", "--stream", "-o", "json")
    assert follow.stdout is not None
    for line in follow.stdout:
        if "artifactUpdate" in line:
            break
    follow.send_signal(signal.SIGINT)
    follow.communicate(timeout=BOUND_SECONDS)


def test_a_closed_pipe_is_not_an_error(ask: Asking) -> None:
    command = ask.started("send", "--stream", "-o", "json", f"hold {ask.folder / 'go'}")
    assert command.stdout is not None
    command.stdout.readline()
    command.stdout.close()
    (ask.folder / "go").touch()
    assert command.stderr is not None
    err = command.stderr.read()
    command.stderr.close()
    assert command.wait(timeout=BOUND_SECONDS) == 1
    assert "Traceback" not in err
    assert "Exception" not in err


def test_a_wait_outlives_the_server(tmp_path: Path) -> None:
    file = tmp_path / "go"
    store = ("--store", f"sqlite:///{tmp_path}/accord.db")
    quickly: dict[str, Any] = {**QUICKLY}
    first = Server(tmp_path, AGENT, *store, **quickly)
    command = Asking(first, tmp_path).started("send", f"hold {file}", "--stream", "-o", "json")
    assert command.stdout is not None
    before = [command.stdout.readline()]
    while "artifactUpdate" not in before[-1]:
        before.append(command.stdout.readline())
    first.kill()
    with running(tmp_path, AGENT, *store, port=first.port, **quickly):
        file.touch()
        after = command.communicate(timeout=BOUND_SECONDS)[0].splitlines()
    assert command.returncode == Exit.DONE
    events = [json.loads(line) for line in (*before, *after)]
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert len([event for event in events if "task" in event]) == 1, "the stream went on where it broke"


def test_disabled_verification_warns(ask: Asking) -> None:
    assert "certificates are not verified" in ask("send", "hello", "--insecure", "-q").stderr
