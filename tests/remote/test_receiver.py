"""Webhooks that come in: who is believed, what is answered, and what becomes of the task."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from accord.auth.rate_limits import Quotas
from accord.http.webhooks import WebhookEndpoint
from accord.model import Artifact, Event, Part, PushFormat, StatusUpdate, Task, TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.protocol import http_headers
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName
from accord.remote.flow_reports import WEBHOOK
from accord.remote.tasks import WebhookKeys, token_hash
from accord.testing.asgi import Response, call
from tests.engine.conftest import ALICE, AT_ONCE, said, saying, text
from tests.engine.doubles import Meddler, is_parked, reaches, rows, sent, times, until
from tests.remote.conftest import Joined, Joining, there

S = TaskState
KEY = "a key that both sides know"


class Between:
    """Puts a meddler before the store."""

    real: Meddler

    def __call__(self, store: Any) -> Meddler:
        self.real = Meddler(store)
        return self.real


async def posted(
    here: Joined, body: Any, *, bearer: str | None = None, receiver: WebhookEndpoint | None = None, **headers: str
) -> Response:
    """Post a webhook."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    given |= {"authorization": f"Bearer {bearer}"} if bearer else {}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    app = receiver or WebhookEndpoint(here.remotes)
    return await call(app, method="POST", path=WEBHOOK, headers=given, body=raw)


async def acknowledged(here: Joined, words: str = "hello") -> Task:
    """A task that the agent elsewhere has taken on, and that waits for its report."""
    task = await sent(here.service, saying(words, configuration=AT_ONCE), ALICE)
    await until(lambda: is_parked(here.store, task.id))
    return task


def done(words: str = "well", **fields: Any) -> dict[str, Any]:
    """The end of a task, as the founding document writes it."""
    parts = [{"kind": "data", "data": {"result": words}}]
    status = {"state": "completed", "timestamp": "2024-03-15T18:30:00Z"}
    whole = {"id": "r-1", "contextId": "c", "kind": "task", "status": status}
    return whole | {"artifacts": [{"artifactId": "a-1", "parts": parts}]} | fields


@pytest.mark.proves("0-07", "0-45", "0-64")
async def test_a_webhook_with_its_token_ends_the_task(joining: Joining) -> None:
    here = await joining()
    task = await acknowledged(here)
    answer = await posted(here, done(), bearer=here.peer.token)
    assert (answer.status, answer.body) == (204, b"")
    ended = await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert ended.artifacts[0].parts[0].data == {"result": "well"}


@pytest.mark.proves("0-41", "0-43", "0-64", "C-05")
async def test_reports_without_token_learn_nothing(joining: Joining) -> None:
    here = await joining()
    await acknowledged(here)
    for body in (done(), done(id="no-such-task")):
        for bearer in (None, "guessed", here.peer.token + "x"):
            answer = await posted(here, body, bearer=bearer)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert b"r-1" not in answer.body


@pytest.mark.proves("0-43")
async def test_a_guess_is_looked_up_by_its_digest_alone(joining: Joining) -> None:
    """How long a lookup takes says nothing about a secret if it is for a digest, however near the guess is."""
    store = Between()
    here = await joining(wrap=store)
    await acknowledged(here)
    token = here.peer.token
    guesses = [token[:-1] + ("a" if token[-1] != "a" else "b"), token[:-2], "x"]
    for guess in guesses:
        assert (await posted(here, done(), bearer=guess)).status == 401
    asked = [arguments for name, arguments in store.real.given if name == "remote_tasks.find_link_by_token"]
    assert asked == [(hashlib.sha256(guess.encode()).hexdigest(),) for guess in guesses]


@pytest.mark.proves("0-33")
async def test_the_token_of_another_task_is_refused(joining: Joining) -> None:
    here = await joining()
    here.peer.answer = lambda _: there(id=f"r-{len(here.peer.sent)}")
    first = await acknowledged(here, "one")
    token = here.peer.token
    second = await acknowledged(here, "two")
    assert token != here.peer.token
    assert (await posted(here, done(id="r-2"), bearer=token)).status == 401
    assert (await posted(here, done(id="r-1"), bearer=token)).status == 204
    await reaches(here.service, first.id, S.COMPLETED, ALICE)
    await reaches(here.service, second.id, S.WORKING, ALICE)


@pytest.mark.proves("0-42")
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"task"', b'{"id":"r-1"}', b'{"kind":"task","status":{}}'])
async def test_invalid_reports_are_errors(joining: Joining, body: bytes) -> None:
    here = await joining()
    await acknowledged(here)
    assert (await posted(here, body, bearer=here.peer.token)).status == 400


async def test_other_methods_and_bodies_that_are_too_large_are_refused(joining: Joining) -> None:
    here = await joining()
    await acknowledged(here)
    small = WebhookEndpoint(here.remotes, quotas=Quotas(body=100))
    assert (await posted(here, b" " * 101, bearer=here.peer.token, receiver=small)).status == 413
    assert (await call(small, method="GET", path=WEBHOOK)).status == 405


@pytest.mark.proves("0-58")
async def test_excess_reports_get_retry_after(joining: Joining) -> None:
    here = await joining()
    await acknowledged(here)
    slow = WebhookEndpoint(here.remotes, rate=1.0)
    answers = [await posted(here, done(), bearer=here.peer.token, receiver=slow) for _ in range(3)]
    assert [answer.status for answer in answers] == [204, 429, 429]
    assert int(answers[1].headers["retry-after"]) >= 1
    full = WebhookEndpoint(here.remotes, most=0)
    assert (await posted(here, done(), bearer=here.peer.token, receiver=full)).status == 429


@pytest.mark.proves("0-58")
async def test_slow_anonymous_reports_do_not_block_others(joining: Joining) -> None:
    """Who shows no token that is known is refused at once; signatures are right or wrong at the end of the body."""
    here = await joining(trust=WebhookKeys(keys=(KEY,)))
    task = await acknowledged(here)
    receiver = WebhookEndpoint(here.remotes, most=3, most_unproven=2)
    never = asyncio.Event()

    async def begin(**headers: str) -> int:
        """Send the head of a request and never a body; return the status, or 0 if it waits for the body."""
        status = 0
        is_known = asyncio.Event()

        async def receive() -> dict[str, object]:
            is_known.set()
            await never.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)

        async def receiving(request: Any) -> None:
            try:
                await receiver(request, receive, send)
            finally:
                is_known.set()

        fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        request = {"type": "http", "method": "POST", "path": WEBHOOK, "headers": fields, "client": ("192.0.2.1", 1)}
        waiting.append(asyncio.create_task(receiving(request)))
        await is_known.wait()
        return status

    waiting: list[asyncio.Task[None]] = []
    assert {await begin(authorization="Bearer guessed") for _ in range(5)} == {401}
    assert {await begin() for _ in range(5)} == {401}
    assert [await begin(x_a2a_signature="t=1,v1=00") for _ in range(4)] == [0, 0, 429, 429]
    assert (await posted(here, done(), bearer=here.peer.token, receiver=receiver)).status == 204
    await reaches(here.service, task.id, S.COMPLETED, ALICE)
    never.set()
    await asyncio.gather(*waiting)


@pytest.mark.proves("0-58")
async def test_webhooks_are_logged_without_their_secrets(joining: Joining, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "accord")
    here = await joining()
    task = await acknowledged(here)
    await posted(here, done(), bearer=here.peer.token)
    await posted(here, done(), bearer="guessed-by-somebody")
    lines = {record.msg: vars(record) for record in caplog.records if record.name.startswith("accord.re")}
    accepted = lines["report.accepted"]
    assert (accepted["task_id"], accepted["agent"], accepted["state"]) == (task.id, "there", "COMPLETED")
    assert accepted["levelname"] == "INFO", "the end of a task"
    assert lines["report.refused"]["status"] == 401
    shown = " ".join(str(vars(record)) for record in caplog.records)
    assert here.peer.token not in shown
    assert "guessed-by-somebody" not in shown


@pytest.mark.proves("0-44", "0-64")
async def test_the_same_webhook_twice_leaves_the_same_task(joining: Joining) -> None:
    here = await joining()
    task = await acknowledged(here)
    assert (await posted(here, done(), bearer=here.peer.token)).status == 204
    ended = await reaches(here.service, task.id, S.COMPLETED, ALICE)
    kept = await rows(here.store, "task", "*"), await rows(here.store, "event", "*")
    assert await rows(here.store, "event WHERE kind = 'artifact'", "count(*)") == [(1,)]
    for _ in range(2):
        assert (await posted(here, done(), bearer=here.peer.token)).status == 204
    assert await reaches(here.service, task.id, S.COMPLETED, ALICE) == ended
    assert (await rows(here.store, "task", "*"), await rows(here.store, "event", "*")) == kept


async def test_work_that_is_reported_after_the_end_changes_nothing(joining: Joining) -> None:
    here = await joining()
    task = await acknowledged(here)
    token = here.peer.token
    assert (await posted(here, done(), bearer=token)).status == 204
    late = {"id": "r-1", "kind": "task", "status": {"state": "working", "timestamp": "2024-03-15T11:00:00Z"}}
    assert (await posted(here, late, bearer=token)).status == 204
    assert (await posted(here, done("other"), bearer=token)).status == 204
    ended = await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert ended.artifacts[0].parts[0].data == {"result": "well"}


@pytest.mark.proves("B-10", "C-22")
@pytest.mark.parametrize("form", list(PushFormat))
@pytest.mark.parametrize("dialect", list(DialectName))
async def test_every_dialect_and_every_form_is_understood(
    joining: Joining, dialect: DialectName, form: PushFormat
) -> None:
    here = await joining()
    task = await acknowledged(here)
    made = (Artifact(artifact_id="result", parts=(Part(text="well"),)),)
    end = TaskStatus(state=S.COMPLETED, timestamp=timestamp_ms(here.remotes.now_ms()))
    whole = Task(id="r-1", context_id="c", status=end, artifacts=made)
    here.peer.tasks["r-1"] = whole  # what an event alone leaves out is asked for
    event = Event(seq=5, body=StatusUpdate(task_id="r-1", context_id="c", status=end))
    body = DIALECTS[dialect].encode_push(event, whole, form)
    assert (await posted(here, body, bearer=here.peer.token)).status == 204
    assert text(await reaches(here.service, task.id, S.COMPLETED, ALICE)) == "well"


@pytest.mark.proves("B-09", "C-22")
@pytest.mark.parametrize("header", ["x-a2a-notification-token", "authorization"])
async def test_a_token_may_come_in_either_header_and_with_a_signature(joining: Joining, header: str) -> None:
    here = await joining()
    await acknowledged(here)
    token, body = here.peer.token, json.dumps(done()).encode()
    shown: dict[str, Any] = {header: token if header.startswith("x-") else f"Bearer {token}"}
    now = here.remotes.now_ms() // 1000
    forged = http_headers.sign_webhook(body, now, ["another key"])
    assert (await posted(here, body, **shown, x_a2a_signature=forged)).status == 401
    old = http_headers.sign_webhook(body, now - 3600, [token])
    assert (await posted(here, body, **shown, x_a2a_signature=old)).status == 401
    good = http_headers.sign_webhook(body, now, [token])
    assert (await posted(here, body, **shown, x_a2a_signature=good)).status == 204


@pytest.mark.proves("C-05")
async def test_signed_reports_need_no_token(joining: Joining) -> None:
    here = await joining(trust=WebhookKeys(keys=(KEY,)))
    task = await acknowledged(here)
    now = here.remotes.now_ms() // 1000
    unknown = json.dumps(done(id="r-9")).encode()
    assert (await posted(here, unknown, x_a2a_signature=http_headers.sign_webhook(unknown, now, [KEY]))).status == 404
    body = json.dumps(done()).encode()
    assert (await posted(here, body, x_a2a_signature=http_headers.sign_webhook(unknown, now, [KEY]))).status == 401
    assert (await posted(here, body, x_a2a_signature=http_headers.sign_webhook(body, now, [KEY]))).status == 204
    await reaches(here.service, task.id, S.COMPLETED, ALICE)


@pytest.mark.proves("C-15", "0-56", "0-54", "0-20")
async def test_tokens_are_random_one_for_each_task_and_kept_only_as_hashes(joining: Joining) -> None:
    here = await joining()
    here.peer.answer = lambda _: there(id=f"r-{len(here.peer.sent)}")
    tokens = set()
    for number in range(3):
        await acknowledged(here, f"number {number}")
        tokens.add(here.peer.token)
    assert len(tokens) == 3
    assert all(len(token) >= 43 for token in tokens)  # 256 bits
    kept = {row[0] for row in await rows(here.store, "remote_token", "hash")}
    assert kept == {token_hash(token) for token in tokens}
    for table, columns in (("step", "output"), ("remote", "mark"), ("event", "data"), ("snapshot", "doc")):
        written = str(await rows(here.store, table, columns))
        assert not any(token in written for token in tokens)


@pytest.mark.proves("0-69")
async def test_a_token_may_expire(joining: Joining) -> None:
    here = await joining()
    here.remotes._ttl_ms = -1
    await acknowledged(here)
    assert (await posted(here, done(), bearer=here.peer.token)).status == 401


@pytest.mark.proves("C-06")
async def test_a_webhook_may_come_before_the_acknowledgement(joining: Joining) -> None:
    here = await joining()

    async def report(_: Any) -> None:
        assert (await posted(here, done(), bearer=here.peer.token)).status == 204

    here.peer.before = report
    task = await sent(here.service, saying("hello", configuration=AT_ONCE), ALICE)
    assert text(await reaches(here.service, task.id, S.COMPLETED, ALICE)) == ""
    assert len(here.peer.sent) == 1
    assert (await posted(here, done(), bearer=here.peer.token)).status == 204


@pytest.mark.proves("0-59")
async def test_redacted_fields_are_removed_first(joining: Joining) -> None:
    def redact(body: Any) -> Any:
        hidden = (Artifact(artifact_id="a-1", parts=(Part(text="[redacted]"),)),)
        return Task(id=body.id, context_id=body.context_id, status=body.status, artifacts=hidden)

    here = await joining(trust=WebhookKeys(redact=redact))
    task = await acknowledged(here)
    await posted(here, done("alice@example.com"), bearer=here.peer.token)
    assert text(await reaches(here.service, task.id, S.COMPLETED, ALICE)) == "[redacted]"
    for table, columns in (("event", "data"), ("snapshot", "doc"), ("step", "output")):
        assert "alice@" not in str(await rows(here.store, table, columns))


async def test_numbered_chunks_are_added_once_each_and_in_their_order(joining: Joining) -> None:
    here = await joining()
    task = await acknowledged(here)

    def chunk(words: str) -> dict[str, Any]:
        artifact = {"artifactId": "a", "parts": [{"text": words}]}
        return {"artifactUpdate": {"taskId": "r-1", "contextId": "c", "artifact": artifact, "append": True}}

    for number, words in ((1, "one "), (2, "two "), (2, "two "), (1, "one "), (3, "three")):
        answer = await posted(here, chunk(words), bearer=here.peer.token, x_a2a_event_id=f"r-1:w:{number}")
        assert answer.status == 204
    found = await reaches(here.service, task.id, S.WORKING, ALICE)
    assert text(found) == "one two three"


async def test_large_parts_of_a_report_are_kept_like_any_other(joining: Joining) -> None:
    here = await joining()
    task = await acknowledged(here)
    words = "x" * 3_000_000
    assert (await posted(here, done(words), bearer=here.peer.token)).status == 204
    ended = await reaches(here.service, task.id, S.COMPLETED, ALICE)
    assert ended.artifacts[0].parts[0].data == {"result": words}


@pytest.mark.proves("0-61")
async def test_the_store_being_away_asks_the_agent_to_come_again(joining: Joining) -> None:
    store = Between()
    here = await joining(wrap=store)
    task = await acknowledged(here)
    store.real.refuses = times("remote_tasks.write_report", 1)
    answer = await posted(here, done(), bearer=here.peer.token)
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert (await posted(here, done(), bearer=here.peer.token)).status == 204
    await reaches(here.service, task.id, S.COMPLETED, ALICE)


async def test_reported_failures_have_a_reason(joining: Joining) -> None:
    here = await joining()
    task = await acknowledged(here)
    why = {"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "no stock"}]}
    body = {"id": "r-1", "kind": "task", "status": {"state": "failed", "message": why}}
    assert (await posted(here, body, bearer=here.peer.token)).status == 204
    assert said(await reaches(here.service, task.id, S.FAILED, ALICE)) == "no stock"


def test_secrets_are_not_shown() -> None:
    from accord.remote.tasks import ReportCredentials

    assert "s3cret" not in repr(ReportCredentials(token="s3cret", signature="s3cret")) + repr(
        WebhookKeys(keys=("s3cret",))
    )
