"""The examples that the documentation quotes do what it says of them; those of agents' kinds are in `tests/agents`."""

import re
import runpy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from accord.model import TaskState
from accord.protocol.http_headers import SIGNATURE_HEADER
from accord.testing import running as in_process
from accord.testing import text_in
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, ROOT, accord, environment, running
from tests.transcripts import steps

EXAMPLES = ROOT / "examples"
KILL9 = EXAMPLES / "kill9"


def ran(folder: Path, file: Path, *arguments: str, **env: str) -> str:
    """Run a file to its end and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=2 * BOUND_SECONDS,
        check=False,
        cwd=folder,
        env=environment(folder, **env),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_official_client_calls_the_first_agent(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/accord.db"
    with running(tmp_path, f"{EXAMPLES / 'hello.py'}:hello", "--store", store) as server:
        assert ran(tmp_path, EXAMPLES / "official_client.py", server.url, "Ada") == "Hello, Ada!\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "Name an agent"), (("http://127.0.0.1:9", "Ada"), "http://127.0.0.1:9/.well-known/agent-card.json")],
)
def test_the_official_client_example_reports_missing_packages(arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "official_client.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=2 * BOUND_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


async def test_the_first_agent_asks_for_missing_input() -> None:
    from examples.hello import hello

    async with in_process(hello) as a2a:
        asked = await a2a.send_text("")
        assert (asked.status.state, text_in(asked)) == (TaskState.INPUT_REQUIRED, "Who is there?")
        assert await a2a.ask_text("Bob", task=asked) == "Hello, Bob!"


@pytest.mark.parametrize("name", ["steps", "notes", "looks"])
async def test_stories_are_streamed_once(name: str) -> None:
    from examples import resuming

    async with in_process(getattr(resuming, name)) as a2a:
        assert await a2a.ask_text("go") == "".join(resuming.PARTS)


async def test_a_task_is_given_to_another_agent() -> None:
    from examples.spawning import editor, writer

    async with in_process(editor, writer) as a2a:
        task_id, _, state = (await a2a.ask_text("go")).split()
        assert state in {one.name for one in TaskState}
        assert task_id


async def test_usage_is_in_the_metadata() -> None:
    from examples.agents.budget_agent import writer

    async with in_process(writer) as a2a:
        task = await a2a.send_text("two words")
        assert task.metadata is not None
        assert task.metadata["usage"]["totalTokens"] == 128


def test_a_key_file_lets_us_in(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/accord.db"
    made = accord(tmp_path, "apikeys", "create", "--name", "laptop", "--owner", "alice", "--store", store)
    key = next(word for word in made.stdout.split() if word.startswith("ak"))
    (tmp_path / "keys.json").write_text(f'{{"localhost": "{key}"}}')
    target = f"{EXAMPLES / 'hello.py'}:hello"
    with running(tmp_path, target, "--auth", "api-keys", "--store", store) as server:
        assert ran(tmp_path, EXAMPLES / "call_with_keys.py", server.url, "keys.json") == "Hello, hello!\n"


def test_the_webhook_receiver_example_verifies_signatures(tmp_path: Path) -> None:
    port, signing_key = free_port(), "0123456789abcdef"
    settings = {"ACCORD_PUSH__ALLOW_HOSTS": "localhost", "ACCORD_PUSH__SIGNING_KEYS": signing_key}
    key = accord(tmp_path, "push", "key", f"http://localhost:{port}", **settings).stdout.strip()
    receiver = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "webhook.py"), str(port)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(tmp_path, WEBHOOK_KEY=key),
    )
    bound = threading.Timer(BOUND_SECONDS, receiver.kill)  # after which nothing is read any more
    bound.start()
    store = f"sqlite:///{tmp_path}/accord.db"
    try:
        with running(tmp_path, f"{EXAMPLES / 'booking.py'}:booking", "--store", store, **settings) as server:
            task = server.send("a table")
            hook = f"http://localhost:{port}/hook"
            assert accord(tmp_path, "task", "push", "set", server.url, task["id"], hook).returncode == 0
            again = httpx.HTTPTransport(retries=7)  # it may still be starting
            with httpx.Client(transport=again, timeout=BOUND_SECONDS) as stranger:
                forged = stranger.post(
                    f"http://127.0.0.1:{port}/", content=b"{}", headers={SIGNATURE_HEADER: "t=1,v1=0"}
                )
            assert forged.status_code == 403
            answered = accord(tmp_path, "send", server.url, "--task-id", task["id"], "Friday")
            assert answered.returncode == 0, answered.stderr
            assert receiver.stdout is not None
            told = [receiver.stdout.readline().rstrip("\n").partition(" ") for _ in range(3)]
        assert {about for about, _, _ in told} == {task["id"]}
        (_, _, begun), (_, _, made), (_, _, ended) = told
        assert (begun, ended) == ("TASK_STATE_WORKING", "TASK_STATE_COMPLETED")
        assert "Friday" in made
    finally:
        bound.cancel()
        receiver.kill()
        receiver.communicate(timeout=BOUND_SECONDS)


# --- the proof of 60 seconds ------------------------------------------------------------------------------------------


@pytest.mark.proves("C-01", "C-12")
def test_streams_resume_at_the_next_event_after_a_kill(tmp_path: Path) -> None:
    shown = ran(tmp_path, KILL9 / "run.py", KILL9_PAUSE="0.05", ACCORD_ENGINE__LEASE_SECONDS="2")
    assert shown.splitlines()[-2].endswith("missing none, twice none")
    recorded = next(step.shown for step in steps(ROOT / "docs" / "tutorial" / "kill9.md"))
    assert told(shown) == told(recorded)


def told(transcript: str) -> tuple[list[str], list[str]]:
    """The events of a transcript, and what else it says, without when, where and how far the stream had come."""
    lines = [re.sub(r"^ *[\d.]+ s *", "", line) for line in transcript.splitlines()]
    events = [line for line in lines if line[0].isdigit()]
    return events, [re.sub(r"\d+", "#", line) for line in lines if line not in events]


@pytest.mark.parametrize("change", ["lost", "doubled", "cut", "swapped"])
def test_the_proof_fails_where_something_is_wrong(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.syspath_prepend(str(KILL9))
    script = runpy.run_path(str(KILL9 / "run.py"))
    sys.modules.pop("agent", None)
    heard = log(script["Event"], script["SENTENCE"].split())
    assert script["proven"](heard[:5], heard[5:])
    wrong = {
        "lost": heard[:4] + heard[5:],
        "doubled": [*heard[:5], *heard[4:]],
        "cut": heard[:-1],
        "swapped": [*heard[:3], heard[4], heard[3], *heard[5:]],
    }[change]
    assert not script["proven"](wrong[:5], wrong[5:])


def log(event: Any, words: list[str]) -> list[Any]:
    """The events of a task that says some words."""
    said = [{"artifactUpdate": {"artifact": {"parts": [{"text": f"{word} "}]}}} for word in words]
    status = [{"statusUpdate": {"status": {"state": f"TASK_STATE_{name}"}}} for name in ("WORKING", "COMPLETED")]
    return [event(number, body) for number, body in enumerate([status[0], *said, status[1]], 1)]
