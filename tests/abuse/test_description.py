"""The served OpenAPI description against the server, by Schemathesis: thousands of requests that it derives itself.

Both versions of the HTTP+JSON binding are described. Whatever is sent, no answer may be a server error or one that the
description does not have, and what the description forbids must be refused.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import jsonschema_rs
import pytest

from accord.server.application import to_a2a
from accord.testing.conformance import agent

if TYPE_CHECKING:
    from schemathesis.engine.recorder import ScenarioRecorder

SEED = 20_260_101
EXAMPLES = 12

STREAMS = re.compile(r":(stream|subscribe)$")

CONFIG = {
    "seed": SEED,
    "max-failures": 1000,  # all of them, not only the first
    "generation": {"max-examples": EXAMPLES, "deterministic": True},
    "phases": {"stateful": {"enabled": False}},  # the description has no links
    # A description of JSON cannot say everything: that a page token was given out, or a webhook's host is public.
    "checks": {"positive_data_acceptance": {"enabled": False}},
    # OpenAPI 3.1 has no form for the events of a stream; `check_events` looks at them.
    "operations": [
        {"include-path-regex": STREAMS.pattern, "checks": {"response_schema_conformance": {"enabled": False}}}
    ],
}


class Tried(NamedTuple):
    """One request, what was answered, and what Schemathesis thinks of it."""

    operation: str
    request: str
    says_nothing: bool
    status: int
    body: bytes
    failures: list[str]


class Run(NamedTuple):
    """Everything that was tried."""

    description: dict[str, Any]
    tried: list[Tried]
    errors: list[str]
    checks: Counter[str]


@contextmanager
def attack() -> Iterator[Run]:
    """Serve the agent of the conformance kits and try everything."""
    # Late, as every process of a test run imports this file and one of them attacks.
    import schemathesis
    from schemathesis.engine import from_schema
    from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished
    from schemathesis.python.asgi import shutdown_lifespans

    settings: dict[str, Any] = {
        "limits": {"rate": None},
        "server": {"capabilities": ["streaming", "push", "extended-card"]},
    }
    config = schemathesis.Config.from_dict(CONFIG)
    schema = schemathesis.openapi.from_asgi("/openapi.json", to_a2a(agent, **settings), config=config)
    found = Run(schema.raw_schema, [], [], Counter())
    try:
        for event in from_schema(schema).execute():
            if isinstance(event, ScenarioFinished):
                found.tried.extend(_tried(event.recorder, found.checks))
            elif isinstance(event, NonFatalError | FatalError):
                found.errors.append(str(event))
        yield found
    finally:
        shutdown_lifespans()


def _tried(recorder: "ScenarioRecorder", counts: Counter[str]) -> Iterator[Tried]:
    for id, interaction in recorder.interactions.items():
        answer = interaction.response
        assert answer is not None, f"{interaction.request.uri} was not answered"
        checks = recorder.checks.get(id, [])
        counts.update(check.name for check in checks)
        failures = [
            f"{check.name}: {check.failure_info.failure.message}" for check in checks if check.failure_info is not None
        ]
        asked = interaction.request
        values = [value for _, value in parse_qsl(urlsplit(asked.uri).query, keep_blank_values=True)]
        values += [value.strip() for stated in asked.headers.values() for value in stated]
        yield Tried(
            operation=recorder.label,
            request=f"{asked.method} {asked.uri} {asked.headers} {asked.body!r}",
            says_nothing=not all(values) or b"null" in (asked.body or b""),
            status=answer.status_code,
            body=answer.content or b"",
            failures=failures,
        )


def _is_lenient(tried: Tried, failure: str) -> bool:
    """Whether what was accepted says nothing: null, or an empty text in an address or a header.

    ProtoJSON, which A2A 1.0 follows, cannot tell these from a member that is missing.
    """
    return failure.startswith("negative_data_rejection") and tried.says_nothing


@pytest.mark.proves("4-50", "CORE-ERR-001")
def test_answers_match_the_description_and_bad_input_is_refused() -> None:
    with attack() as run:  # once, since it takes seconds
        check_answers(run)
        check_insides(run)
        check_events(run)
        check_reach(run)


def check_answers(run: Run) -> None:
    """Nothing undescribed was answered."""
    assert run.errors == []
    wrong = [
        f"{tried.request}\n  {tried.status} {tried.body[:300]!r}\n  {failure}"
        for tried in run.tried
        for failure in tried.failures
        if not _is_lenient(tried, failure)
    ]
    assert wrong == [], "\n".join(wrong)


def check_insides(run: Run) -> None:
    """No answer shows what went on inside."""
    for tried in run.tried:
        assert tried.status < 500, tried
        assert not re.search(rb"Traceback|File \"|\.py\b|INTERNAL_ERROR", tried.body), tried


def check_events(run: Run) -> None:
    """Every event of a stream is what the description says."""
    checked = 0
    for tried in run.tried:
        path = tried.operation.partition(" ")[2]
        if tried.status == 200 and STREAMS.search(path) and not path.startswith("/v1/"):
            schema = {"$ref": "#/components/schemas/StreamResponse", "components": run.description["components"]}
            judge = jsonschema_rs.validator_for(schema)
            for line in tried.body.split(b"\n"):
                if line.startswith(b"data: "):
                    judge.validate(json.loads(line[6:]))
                    checked += 1
    assert checked


def check_reach(run: Run) -> None:
    """Enough was tried to mean something."""
    described = {
        f"{verb.upper()} {path}" for path, verbs in run.description["paths"].items() for verb in verbs if verb != "head"
    }
    assert {tried.operation for tried in run.tried} == described
    assert {path.startswith("/v1/") for path in run.description["paths"]} == {True, False}
    for name in ("not_a_server_error", "status_code_conformance", "content_type_conformance", "unsupported_method"):
        assert run.checks[name] > 500, run.checks
    answered = Counter((tried.operation, tried.status) for tried in run.tried)
    for operation in ("POST /message:send", "POST /message:stream", "GET /tasks", "GET /extendedAgentCard"):
        assert answered[operation, 200] > 3, answered
        assert answered[operation, 400] > 3, answered
    assert {status for _, status in answered} >= {200, 400, 404, 405}
