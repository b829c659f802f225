"""Answers that are no success: what status, headers and body mean together."""

from typing import Any

import pytest

from accord.client.retries import error_of_reply
from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    PermissionDenied,
    RateLimited,
    RemoteError,
    RequestTooLarge,
    TaskNotFound,
    UnsupportedMediaType,
)
from accord.outbound import HttpReply, read_retry_after
from accord.outbound.messages import MAX_RETRY_SECONDS
from tests.cases import each


def reply(status: int, body: bytes = b"", **headers: str) -> HttpReply:
    return HttpReply(
        status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=body
    )


@each(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, AuthenticationFailed),
        (403, PermissionDenied),
        (404, MethodNotFound),
        (405, MethodNotFound),
        (413, RequestTooLarge),
        (415, UnsupportedMediaType),
        (429, RateLimited),
        (500, InternalError),
        (503, AgentUnavailable),
        (302, RemoteError),
        (418, RemoteError),
        (502, RemoteError),
        (504, RemoteError),
    ],
)
def test_a_status_has_a_meaning_of_its_own(status: int, kind: type[AccordError]) -> None:
    error = error_of_reply(reply(status, b"<html>"), None)
    assert (type(error), error.message) == (kind, f"The agent answered with HTTP {status}")
    assert error.metadata["status"] == str(status)


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_some_statuses_override_the_body(status: int) -> None:
    """A gateway writes the status, and a framework behind it whatever code it has."""
    error = error_of_reply(reply(status), InvalidRequest("who are you?", metadata={"a": "b"}))
    assert type(error) is type(error_of_reply(reply(status), None))
    assert (error.message, error.metadata) == ("who are you?", {"a": "b", "status": str(status)})


def test_otherwise_the_body_decides() -> None:
    for stated in (TaskNotFound("gone"), InvalidParams("wrong")):
        assert error_of_reply(reply(404), stated) is stated
    assert type(error_of_reply(reply(500), RemoteError("a code of its own"))) is InternalError
    limited = RateLimited("slow", retry_after=3)
    assert error_of_reply(reply(429, retry_after="9"), limited) is limited
    assert limited.retry_after == 3


def test_challenges_are_reported() -> None:
    error = error_of_reply(reply(401, www_authenticate='Bearer realm="x"'), None)
    assert isinstance(error, AuthenticationFailed)
    assert error.challenges == ('Bearer realm="x"',)


@each(
    ("body", "said"),
    [
        (b'{"detail":"Not authenticated"}', "Not authenticated"),
        (b'{"message":"no"}', "no"),
        (b'{"error":{"message":"no"}}', "no"),
        (b'{"error":"no"}', "no"),
        (b'{"detail":[{"loc":1}]}', ""),
        (b"[]", ""),
        (b"\xff", ""),
        (b"[" * 100_000, ""),
        (b'{"message":"' + b"x" * 1000 + b'"}', "x" * 300),
    ],
)
def test_a_sentence_is_taken_from_where_most_put_it(body: bytes, said: str) -> None:
    expected = "The agent answered with HTTP 400" + (f": {said}" if said else "")
    assert error_of_reply(reply(400, body), None).message == expected


@each(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "120"}, 120),
        ({"retry-after": " 0 "}, 0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "99999999999999999999"}, MAX_RETRY_SECONDS),
        (
            {"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"},
            30,
        ),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
    ],
)
def test_a_pause_is_a_number_or_a_date(headers: dict[str, Any], seconds: int | None) -> None:
    assert read_retry_after(headers) == seconds
