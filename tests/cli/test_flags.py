"""What the flags mean that every command shares: which agent, how it is asked, and what is a mistake."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from accord.cli import app
from accord.cli.connection import ConnectionOptions
from accord.cli.failures import Exit, ExplainedFailure, explain_failure, shell_command
from accord.cli.tables import OutputFormat
from accord.client.peer import Unconfirmed
from accord.errors import TABLE, AccordError, InvalidParams, RateLimited, TaskNotFound, Violation
from accord.outbound import TimedOut, Unreachable
from tests.cases import each

URL = "http://localhost:1"


class Asked:
    """Commands that end where they would ask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reach = ConnectionOptions()
        for module in ("messages", "tasks"):
            monkeypatch.setattr(f"accord.cli.{module}.run_with_client", self._ask)

    def _ask(self, reach: ConnectionOptions, *_: Any, **__: Any) -> None:
        self.reach = reach

    def __call__(self, *arguments: str, **env: str) -> ConnectionOptions:
        """Return what a command would ask with."""
        done = CliRunner().invoke(app, arguments, env={"ACCORD_AGENT_CARD": "", **env})
        assert done.exit_code == 0, done.output
        return self.reach

    def refused(self, *arguments: str, **env: str) -> str:
        """Return how a command is refused."""
        done = CliRunner().invoke(
            app, arguments, env={"ACCORD_AGENT_CARD": "", "COLUMNS": "300", "TERM": "dumb", **env}
        )
        assert done.exit_code == Exit.MISUSED, done.output
        assert not done.stdout
        return done.stderr


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.mark.parametrize(
    "arguments",
    [
        ("card", "get", URL),
        ("send", URL, "hello"),
        ("send", "-a", URL, "hello"),
        ("send", URL, "--text", "hello"),
        ("send", "-a", URL, "--text", "hello"),
        ("task", "get", URL, "t-1"),
        ("task", "get", "--agent-card", URL, "t-1"),
        ("task", "list", URL),
        ("task", "push", "set", URL, "t-1", "https://x.example"),
        ("task", "push-config", "get", "-a", URL, "t-1", "w-1"),
    ],
)
def test_the_agent_comes_first_or_behind_its_flag(asked: Asked, arguments: tuple[str, ...]) -> None:
    reach = asked(*arguments)
    assert reach.agent == URL
    assert reach.named == ("-a", URL)


def test_a_variable_names_the_agent_unless_the_command_does(asked: Asked) -> None:
    reach = asked("task", "get", "t-1", ACCORD_AGENT_CARD=URL)
    assert (reach.agent, reach.named) == (URL, ())
    assert asked("task", "get", "http://other", "t-1", ACCORD_AGENT_CARD=URL).agent == "http://other"
    assert asked("task", "get", "-a", "http://other", "t-1", ACCORD_AGENT_CARD=URL).agent == "http://other"


def test_flags_choose_the_connection(asked: Asked) -> None:
    reach = asked(
        *("task", "list", URL, "-o", "json", "--bearer", "t0ken", "--timeout", "1.5m", "--dialect", "V03"),
        *("--binding", "rest", "--header", "X-A: b:c", "--svc-param", "A2A-Extensions:x", "--insecure"),
    )
    assert reach._replace(order=()) == ConnectionOptions(
        agent=URL,
        named=("-a", URL, "--dialect", "V03", "--binding", "rest"),
        output=OutputFormat.JSON,
        bearer="t0ken",
        headers=(("X-A", "b:c"), ("A2A-Extensions", "x")),
        seconds=90.0,
        dialect="v03",
        binding="HTTP+JSON",
        insecure=True,
    )
    assert "t0ken" not in reach.shell_command("task get", "t 1")
    assert reach.shell_command("task get", "t 1") == f"accord task get -a {URL} --dialect V03 --binding rest 't 1'"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("https://me:s3cret@agents.example/x", "https://me@agents.example/x"),
        ("https://agents.example/x?key=s3cret&flag", "'https://agents.example/x?key=...&flag=...'"),
        ("org/agent", "org/agent"),
    ],
)
def test_suggested_commands_hide_passwords(asked: Asked, typed: str, shown: str) -> None:
    assert asked("task", "list", typed).shell_command("task get", "t-1") == f"accord task get -a {shown} t-1"


def test_credentials_may_come_from_variables(asked: Asked) -> None:
    reach = asked("task", "list", URL, ACCORD_BEARER="t0ken", ACCORD_API_KEY="k3y")
    assert (reach.bearer, reach.api_key) == ("t0ken", "k3y")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("send",), "Missing agent"),
        (("send", URL), "The message is empty"),
        (("send", URL, ""), "The message is empty"),
        (("send", URL, "--text", ""), "The message is empty"),
        (("send", "", "hi"), "Missing agent"),
        (("send", " ", "hi"), "Missing agent"),
        (("task", "get"), "Missing agent"),
        (("task", "get", URL), "ID"),
        (("task", "get", "-a", URL), "ID"),
        (("task", "get", "-a", URL, "t-1", "t-2"), "Unexpected argument 't-2'"),
        (("send", URL, "hello", "you"), "Quote text that contains spaces"),
        (("send", URL, "hello", "--async", "--stream"), "--async"),
        (("send", URL, "hello", "-q", "-o", "json"), "--quiet"),
        (("task", "subscribe", URL, "t-1", "-q", "-o", "json"), "--quiet"),
        (("send", URL, "hello", "--media-type", "x/y"), "--media-type"),
        (("send", URL, "hello", "--metadata", "[]"), "not a JSON object"),
        (("task", "list", URL, "--timeout", "soon"), "not a valid duration"),
        (("task", "list", URL, "--timeout", "0"), "is out of range"),
        (("task", "list", URL, "--dialect", "v9"), "v1, v03"),
        (("task", "list", URL, "--binding", "soap"), "jsonrpc"),
        (("task", "list", URL, "--status", "odd"), "submitted"),
        (("task", "list", URL, "--since", "odd"), "--since"),
        (("task", "list", URL, "-o", "xml"), "xml"),
    ],
)
def test_errors_are_reported_without_a_prompt(asked: Asked, arguments: tuple[str, ...], why: str) -> None:
    assert why in asked.refused(*arguments)
    assert asked.reach == ConnectionOptions()


def test_a_header_that_is_wrong_is_not_repeated(asked: Asked) -> None:
    assert "s3cret" not in asked.refused("task", "list", URL, "--header", "s3cret")
    assert "s3cret" not in asked.refused("task", "list", URL, "--header", "X: s3cret\x00")


# --- how errors end a command -----------------------------------------------------------------------------------------


def failure(error: Exception) -> ExplainedFailure:
    found = explain_failure(error)
    assert found is not None
    return found


@each("kind", list(TABLE))
def test_every_error_of_an_agent_has_the_name_of_the_specification(kind: type[AccordError]) -> None:
    found = failure(kind())
    assert found.exit in (Exit.FAILED, Exit.UNAUTHENTICATED)
    assert found.code.endswith("Error") or found.code == "A2ACLI_ERR_AUTH_FAILED"
    assert "_ERROR" not in found.code
    assert "ErrorError" not in found.code


def test_an_error_is_a_document_for_programs() -> None:
    found = failure(TaskNotFound("There is no task t-1"))
    assert json.loads(json.dumps(found.document())) == {
        "error": {"code": "TaskNotFoundError", "message": "There is no task t-1", "hint": None, "a2aCode": -32001}
    }
    assert failure(RateLimited(retry_after=7)).hint == "Retry in 7 seconds"
    wrong = InvalidParams("Wrong", violations=(Violation("message.parts", "too few"),))
    assert failure(wrong).message == "Wrong; message.parts: too few"


@pytest.mark.parametrize(
    ("error", "exit"),
    [
        (Unreachable("No connection", was_sent=False), Exit.UNREACHABLE),
        (TimedOut("Too slow", was_sent=True), Exit.TIMED_OUT),
        (TimedOut("No connection", was_sent=False), Exit.UNREACHABLE),
        (TimeoutError(), Exit.TIMED_OUT),
        (Unconfirmed("m", Unreachable("cut", was_sent=True)), Exit.UNREACHABLE),
        (Unconfirmed("m", TimedOut("slow", was_sent=True), "t-1"), Exit.TIMED_OUT),
    ],
)
def test_invalid_answers_have_their_exit_code(error: Exception, exit: Exit) -> None:
    found = failure(error)
    assert found.exit is exit
    assert found.code.startswith("A2ACLI_ERR_")
    assert found.message


def test_unexpected_errors_keep_their_traceback() -> None:
    assert explain_failure(RuntimeError("a bug")) is None


def test_commands_to_be_copied_are_quoted() -> None:
    assert shell_command("send", "it's $HOME") == """accord send 'it'"'"'s $HOME'"""
