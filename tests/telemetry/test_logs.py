"""Lines of the log: they have everything that was said of a record, and nothing that a terminal obeys."""

import logging
import re
import sys

import pytest

from accord.telemetry.logs import Lines, write_down


def line(message: str, *values: object, **about: object) -> str:
    record = logging.LogRecord("accord.http", logging.WARNING, __file__, 1, message, values, None)
    vars(record).update(about)
    return Lines().format(record)


def test_a_line_says_when_how_bad_of_whom_and_about_what() -> None:
    written = line("flow %s", "refused", task_id="0198-ab", status=404, body=b"no\nsuch hook", reason="it's late")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING accord\.http: flow refused"
        r' task_id=0198-ab status=404 body="no\\nsuch hook" reason="it\'s late"',
        written,
    )


def test_what_others_say_is_one_line_that_nobody_obeys() -> None:
    written = line("said %s", "a\nb\x1b[2Jc", reason="x\r\n2026 ERROR forged\x1b]0;t\x07 \x9b1m")
    assert "\n" not in written
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", written)
    assert r"a\nb\x1b[2Jc" in written


def test_a_traceback_is_kept_in_lines_and_obeyed_by_nobody() -> None:
    try:
        raise RuntimeError("red \x1b[31m")
    except RuntimeError:
        record = logging.LogRecord("accord", logging.ERROR, __file__, 1, "agent failed", (), sys.exc_info())
    first, *rest = Lines().format(record).splitlines()
    assert first.endswith("ERROR accord: agent failed")
    assert rest[0].startswith("Traceback")
    assert rest[-1] == r"RuntimeError: red \x1b[31m"


def test_a_program_that_has_said_what_becomes_of_records_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    own = logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [own])
    write_down()
    assert root.handlers == [own]
    monkeypatch.setattr(root, "handlers", [])
    write_down()
    assert [type(one.formatter) for one in root.handlers] == [Lines]
