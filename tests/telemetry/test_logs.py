"""Lines of the log: they have everything that was said of a record, and nothing that a terminal obeys."""

import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from accord import Context, agent
from accord.engine.hooks import Hooks
from accord.model import Task
from accord.telemetry.logs import JsonFormatter, LineFormatter, configure_logging, log_context_hook
from tests.engine.conftest import ALICE, Hosting, saying
from tests.serve.running import Machine


def line(message: str, *values: object, **about: object) -> str:
    record = logging.LogRecord("accord.http", logging.WARNING, __file__, 1, message, values, None)
    vars(record).update(about)
    return LineFormatter().format(record)


def test_lines_have_time_level_logger_and_message() -> None:
    written = line("http.%s", "refused", task_id="0198-ab", status=404, body=b"no\nsuch hook", reason="it's late")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING accord\.http: http\.refused"
        r' task_id=0198-ab status=404 body="no\\nsuch hook" reason="it\'s late"',
        written,
    )


def test_foreign_text_is_one_safe_line() -> None:
    written = line("said %s", "a\nb\x1b[2Jc \u202egnp", reason="x\r\n2026 ERROR forged\x1b]0;t\x07 \x9b1m \u2066")
    assert "\n" not in written
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", written)
    assert r"a\nb\x1b[2Jc" in written


def test_tracebacks_are_safe_lines() -> None:
    try:
        raise RuntimeError("red \x1b[31m")
    except RuntimeError:
        record = logging.LogRecord("accord", logging.ERROR, __file__, 1, "run.agent_failed", (), sys.exc_info())
    first, *rest = LineFormatter().format(record).splitlines()
    assert first.endswith("ERROR accord: run.agent_failed")
    assert rest[0].startswith("Traceback")
    assert rest[-1] == r"RuntimeError: red \x1b[31m"


def test_existing_logging_configuration_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    own = logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [own])
    configure_logging()
    assert root.handlers == [own]
    monkeypatch.setattr(root, "handlers", [])
    configure_logging()
    assert [type(one.formatter) for one in root.handlers] == [LineFormatter]
    monkeypatch.setattr(root, "handlers", [])
    configure_logging("json")
    assert [type(one.formatter) for one in root.handlers] == [JsonFormatter]


# --- as JSON ----------------------------------------------------------------------------------------------------------


def object_of(message: str, *values: object, logger: str = "accord.http", **about: object) -> dict[str, Any]:
    record = logging.LogRecord(logger, logging.WARNING, __file__, 1, message, values, None)
    vars(record).update(about)
    (written,) = JsonFormatter().format(record).splitlines()
    assert written.isascii()
    assert written.isprintable(), "nothing that a terminal obeys"
    found: dict[str, Any] = json.loads(written)
    return found


def test_json_records_have_a_stable_event_and_all_fields() -> None:
    found = object_of("remote.not_there", reason="no\nanswer\x7f\x1b[2J", tries=2, body=b"\xff", at=Path("/x"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("ts"))
    assert found == {
        "level": "warning",
        "event": "remote.not_there",
        "logger": "accord.http",
        "message": "remote.not_there",
        "reason": "no\nanswer\x7f\x1b[2J",
        "tries": 2,
        "body": "\ufffd",
        "at": "/x",
    }


def test_records_of_other_libraries_are_distinguished() -> None:
    assert object_of("store.unavailable", logger="somebody")["event"] == "log"
    assert object_of("store.unavailable", logger="accordion")["event"] == "log"
    assert object_of("store.unavailable")["event"] == "store.unavailable"
    assert object_of("store unavailable")["event"] == "log"
    found = object_of("x", logger="somebody", event="mine", level=3)
    assert (found["event"], found["event_"], found["level"], found["level_"]) == ("log", "mine", "warning", 3)


def test_a_traceback_is_part_of_the_object() -> None:
    try:
        raise RuntimeError("red \x1b[31m")
    except RuntimeError:
        record = logging.LogRecord("accord", logging.ERROR, __file__, 1, "run.agent_failed", (), sys.exc_info())
    (written,) = JsonFormatter().format(record).splitlines()
    found = json.loads(written)
    assert found["event"] == "run.agent_failed"
    assert found["exception"].startswith("Traceback")
    assert found["exception"].endswith("RuntimeError: red \x1b[31m")


async def test_agent_records_name_the_task(hosting: Hosting) -> None:
    written: list[dict[str, Any]] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(json.loads(self.format(record)))

    handler = Kept()
    handler.setFormatter(JsonFormatter())
    log = logging.getLogger("mine")
    log.addHandler(handler)

    @agent
    async def talks(ctx: Context) -> str:
        log.warning("at work")
        return "done"

    try:
        host = await hosting(talks, hooks=Hooks((log_context_hook,)))
        tasks = [await host.default.send(saying("x"), ALICE) for _ in range(2)]
        log.warning("outside")
    finally:
        log.removeHandler(handler)
    *inside, outside = written
    for task, found in zip(tasks, inside, strict=True):
        assert isinstance(task, Task)
        about = {name: found[name] for name in ("task_id", "context_id", "agent", "tenant")}
        assert about == {"task_id": task.id, "context_id": task.context_id, "agent": "talks", "tenant": "acme"}
    assert "task_id" not in outside


@pytest.mark.parametrize("told", ["flag", "setting"])
def test_json_logs_go_to_the_configured_stream(tmp_path: Path, told: str) -> None:
    (tmp_path / "mine.py").write_text("async def broken(text: str) -> str:\n    raise RuntimeError(text)\n")
    flags = ("--log-format", "json") if told == "flag" else ()
    env: dict[str, Any] = {"ACCORD_TELEMETRY__LOG_FORMAT": "json"} if told == "setting" else {}
    server = Machine(tmp_path, "mine.py:broken", *flags, **env)
    try:
        task = server.send("x")
        found = json.loads(server.says('"run.agent_failed"'))
    finally:
        server.stop()
    assert (found["task_id"], found["context_id"], found["agent"]) == (task["id"], task["contextId"], "broken")
    assert found["exception"].endswith("RuntimeError: x")
