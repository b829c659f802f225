"""Flows that answer: what they are sent, what is made of what they say, and what becomes of those that do not."""

import asyncio
import base64
import email
import email.policy
import socket
from typing import Any

import pytest

from accord.agents.http import AGENT_TYPE
from accord.agents.http.flow import HttpOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent
from accord.model import Artifact, ArtifactUpdate, Part, Task, TaskState
from accord.testing import running, text_in
from tests.agents.http.webhook import Behave, Webhook, hangs, says, streams, webhook, writes
from tests.cases import each

DONE = says({"output": "done"})


def flow(url: str, **options: Any) -> Agent:
    """An agent of the kind `http`."""
    return AGENT_TYPE.make(AgentArguments(options=HttpOptions(url=url, **{"backoff": 0.001} | options), name="flow"))


async def told(answer: Behave, *more: Behave, content: Any = "hi", **options: Any) -> tuple[Task, Webhook]:
    """What became of one message, and the webhook that got it."""
    async with webhook(answer, *more) as hook, running(flow(hook.url, **options)) as a2a:
        task = await a2a.send(content)
        assert isinstance(task, Task)
        return task, hook


def parts(task: Task) -> list[Part]:
    return [part for artifact in task.artifacts for part in artifact.parts]


# --- what it is sent --------------------------------------------------------------------------------------------------


async def test_a_message_is_posted_as_n8n_gets_it_from_others() -> None:
    task, hook = await told(DONE, content="what is new?")
    (asked,) = hook.asked
    assert (asked.method, asked.path, asked.headers["content-type"]) == ("POST", "/webhook/flow", "application/json")
    ids = {"context_id": task.context_id, "task_id": task.id}
    assert asked.json == {"message": "what is new?", "metadata": ids}
    assert asked.key == f"{task.id}-1"
    assert (task.status.state, text_in(task)) == (TaskState.COMPLETED, "done")


async def test_templates_place_every_value() -> None:
    template = {
        "chatInput": "{{text}}",
        "sessionId": "{{contextId}}",
        "about": {"line": "{{ taskId }}: {{message}}", "raw": ["{{data}}", 1]},
    }
    content = [Part(text="use {{taskId}}"), Part(data={"n": 3})]
    task, hook = await told(DONE, content=content, payload_template=template, default_inputs={"lang": "de"})
    assert hook.asked[0].json == {
        "chatInput": "use {{taskId}}",
        "sessionId": task.context_id,
        "about": {"line": f"{task.id}: use {{{{taskId}}}}", "raw": [{"n": 3}, 1]},
        "lang": "de",
    }


async def test_without_placeholders_a_template_is_a_base_for_the_message() -> None:
    content = [Part(text="hi"), Part(data=[1, 2])]
    task, hook = await told(DONE, content=content, payload_template={"name": "A2A"}, message_field="event")
    assert hook.asked[0].json == {"name": "A2A", "event": "hi", "data": [1, 2], "context_id": task.context_id}


def test_a_placeholder_that_means_nothing_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"payload_template: There is no \{\{txt\}\}"):
        flow("http://localhost", payload_template={"a": ["{{txt}}"]})
    with pytest.raises(ValueError, match="url: An HTTP agent needs the address"):
        AGENT_TYPE.make(AgentArguments(options=HttpOptions()))
    assert flow("", webhook_url="http://localhost/x") is not None


async def test_text_that_is_json_is_text_unless_that_is_wanted() -> None:
    _, hook = await told(DONE, content='{"admin": true}')
    assert hook.asked[0].json["message"] == '{"admin": true}'
    _, hook = await told(DONE, content='{"city": "Rome"}', parse_json_input=True, default_inputs={"n": 1, "city": "x"})
    assert hook.asked[0].json == {"n": 1, "city": "Rome"}
    _, hook = await told(DONE, content="{not json", parse_json_input=True)
    assert hook.asked[0].json["message"] == "{not json"


def mapped(text: str, context_id: str | None) -> dict[str, Any]:
    """What a mapper makes."""
    return {"loud": text.upper(), "in": bool(context_id)}


async def test_a_mapper_decides_alone() -> None:
    _, hook = await told(DONE, input_mapper=f"{__name__}:mapped", default_inputs={"n": 1})
    assert hook.asked[0].json == {"n": 1, "loud": "HI", "in": True}
    with pytest.raises(ValueError, match="input_mapper: "):
        flow("http://localhost", input_mapper="tests.agents.http:nowhere")


def broken(text: str, context_id: str | None) -> dict[str, Any]:
    """What no mapper should do."""
    raise KeyError("/etc/secret")


async def test_failed_mappers_send_nothing() -> None:
    task, hook = await told(DONE, input_mapper=f"{__name__}:broken")
    assert (task.status.state, hook.asked) == (TaskState.FAILED, [])
    assert "secret" not in text_in(task)


PICTURE = Part(raw=b"\x89PNG", filename="a.png", media_type="image/png")
PAPER = Part(raw=b"%PDF\x00", filename='b"\r\n.pdf', media_type="application/pdf")
LINKED = Part(url="https://files.example/c.txt", filename="c.txt", media_type="text/plain")


async def test_files_are_sent_in_base64_and_images_by_themselves() -> None:
    _, hook = await told(DONE, content=[Part(text="see"), PICTURE, PAPER, LINKED], multimodal_mode=True)
    sent = hook.asked[0].json
    assert sent["images"] == [
        {"name": "a.png", "mime_type": "image/png", "data": base64.b64encode(b"\x89PNG").decode()}
    ]
    assert [file["name"] for file in sent["files"]] == ['b"\r\n.pdf', "c.txt"]
    assert sent["files"][1]["uri"] == "https://files.example/c.txt", "what is linked to is not fetched for strangers"


async def test_files_are_sent_as_they_are_where_base64_is_not_wanted() -> None:
    options = {"multimodal_mode": True, "encode_files_base64": False, "file_field": "docs"}
    _, hook = await told(DONE, content=[Part(text="see"), PICTURE, PAPER, LINKED], **options)
    (asked,) = hook.asked
    head = f"Content-Type: {asked.headers['content-type']}\r\n\r\n".encode()
    form = email.message_from_bytes(head + asked.body, policy=email.policy.HTTP)
    found = {
        part.get_param("name", header="content-disposition"): part.get_payload(decode=True)
        for part in form.iter_parts()
    }
    assert found["message"] == b"see"
    assert (found["images"], found["docs"]) == (b"\x89PNG", b"%PDF\x00")
    assert found["docs_uri"] == b"https://files.example/c.txt"


async def test_unsupported_files_are_refused() -> None:
    async with webhook(DONE) as hook, running(flow(hook.url, input_modes=("*/*",))) as a2a:
        task = await a2a.send([Part(text="see"), PICTURE])
        assert isinstance(task, Task)
        assert (task.status.state, hook.asked) == (TaskState.REJECTED, [])


async def test_headers_are_the_operators_and_no_redirect_gets_them() -> None:
    async with webhook(DONE) as other:
        moved = says({}, status=307, Location=other.url)
        task, hook = await told(moved, headers={"Authorization": "Bearer s3cret", "accept": "text/plain"})
        assert other.asked == []
    assert hook.asked[0].headers["authorization"] == "Bearer s3cret"
    assert hook.asked[0].headers["accept"] == "text/plain"
    assert (task.status.state, text_in(task)) == (TaskState.FAILED, "The flow is somewhere else: HTTP 307")
    assert "s3cret" not in repr(HttpOptions(url="http://x?key=s3cret", headers={"a": "s3cret"}))


# --- what it answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["output", "result", "message", "text", "response", "content"])
async def test_the_text_is_where_flows_have_it(key: str) -> None:
    for answer in (
        {key: "found"},
        [{key: "found"}],
        [{"json": {key: "found"}, "pairedItem": {"item": 0}}],
        {key: {"text": "found"}},
    ):
        task, _ = await told(says(answer))
        assert [part.text for part in parts(task)] == ["found"], answer


@pytest.mark.parametrize(
    ("answer", "text", "data"),
    [
        ({"output": "three", "total": 3}, "three", {"total": 3}),
        ({"status": "completed", "text": "three", "data": {"total": 3}}, "three", {"total": 3}),
        ({"rows": [1, 2]}, "", {"rows": [1, 2]}),
        ([{"json": {"a": 1}}, {"json": {"a": 2}}], "", [{"a": 1}, {"a": 2}]),
        ("just text", "just text", None),
        (17, "", 17),
        ({"status": "shipped", "result": "on its way"}, "on its way", {"status": "shipped"}),
    ],
)
async def test_other_json_is_data(answer: Any, text: str, data: Any) -> None:
    task, _ = await told(says(answer))
    assert text_in(task) == text
    assert [part.data for part in parts(task) if part.text is None] == ([] if data is None else [data])


async def test_files_come_as_they_are_or_in_json() -> None:
    task, _ = await told(says(b"\x00\x01", "application/pdf", Content_Disposition='attachment; filename="../a b.pdf"'))
    (part,) = parts(task)
    assert (part.raw, part.media_type, part.filename) == (b"\x00\x01", "application/pdf", "a b.pdf")
    files = [{"name": "x", "mimeType": "image/png", "data": "AAE="}, {"url": "https://files.example/y"}]
    task, _ = await told(says({"text": "two", "files": files}))
    words, first, second = parts(task)
    assert (words.text, first.raw, first.media_type) == ("two", b"\x00\x01", "image/png")
    assert second.url == "https://files.example/y"
    odd = {"files": ["a.txt", {"name": "b"}]}
    task, _ = await told(says(odd))
    assert [part.data for part in parts(task)] == [odd], "what is no list of files is the flow's own data"


@each(
    ("body", "media_type", "text"),
    [
        (b"plain", "text/plain", "plain"),
        ("Käse".encode("latin-1"), "text/plain; charset=iso-8859-1", "Käse"),
        (b"odd \xff", "text/plain; charset=nonsense", "odd �"),
        (b"", "application/json", ""),
        (b"", "", ""),
        (b'{"text": "unlabelled"}', "", "unlabelled"),
        (b"neither", "", "neither"),
        (b"\n", "application/json", ""),
    ],
)
async def test_text_is_decoded_by_its_charset(body: bytes, media_type: str, text: str) -> None:
    task, _ = await told(says(body, media_type))
    assert (task.status.state, text_in(task)) == (TaskState.COMPLETED, text)


async def test_bytes_without_a_label_are_a_file() -> None:
    task, _ = await told(says(b"\xff\xfe\x00", ""))
    assert [part.raw for part in parts(task)] == [b"\xff\xfe\x00"]


EVENTS = [
    b": hi\n\ndata: one \n\n",
    b'data: {"content": "two "}\n\nevent: ping\ndata:\n\n',
    b"data: three\n\ndata: [DONE]\n\n",
]
N8N = [
    b'{"type":"begin","metadata":{"nodeName":"AI"}}\n{"type":"item","content":"one ","metadata":{"nodeId":"1"}}\n',
    b'{"type":"item","content":"tw',
    b'o ","metadata":{"nodeId":"1"}}\n{"type":"item","content":"three"}\n{"type":"end","metadata":{}}\n',
]
TEXT = [b"one ", b"two ", b"three"]


@pytest.mark.parametrize(
    ("pieces", "media_type"),
    [
        (EVENTS, "text/event-stream"),
        (N8N, "application/json; charset=utf-8"),
        (N8N, "application/x-ndjson"),
        (TEXT, "text/plain"),
    ],
)
async def test_a_stream_is_passed_on_as_it_comes(pieces: list[bytes], media_type: str) -> None:
    go = asyncio.Event()
    async with webhook(streams(pieces, media_type, go)) as hook, running(flow(hook.url)) as a2a:
        said: list[str] = []
        names: set[str] = set()
        async for event in a2a.stream_text("go"):
            if isinstance(event.body, ArtifactUpdate):
                made: Artifact = event.body.artifact
                names.add(made.artifact_id)
                said += [part.text for part in made.parts if part.text]
                if said == ["one "]:
                    go.set()  # what comes next is not yet made
    assert "".join(said) == "one two three"
    assert len(names) == 1


async def test_streams_report_progress_and_usage() -> None:
    pieces = [
        b'{"status": "working", "text": "searching"}\n{"text": "found"}\n',
        b'{"usage": {"prompt_tokens": 7, "outputTokens": 5}}\n',
    ]
    async with webhook(streams(pieces, "application/jsonl")) as hook, running(flow(hook.url)) as a2a:
        said = [event.body async for event in a2a.stream_text("go")]
        statuses = [text_in_status(body) for body in said]
        task = await a2a.get(Task(id=said[0].id, status=said[0].status)) if isinstance(said[0], Task) else None
    assert "searching" in statuses
    assert task is not None
    assert (task.metadata or {})["usage"]["totalTokens"] == 12


def text_in_status(body: Any) -> str:
    message = getattr(getattr(body, "status", None), "message", None)
    return "".join(part.text or "" for part in message.parts) if message else ""


async def test_a_letter_that_is_cut_in_two_is_put_together() -> None:
    euro = "€".encode()
    task, _ = await told(streams([euro[:1], euro[1:]], "text/plain"))
    assert text_in(task) == "€"


async def test_the_last_event_needs_no_blank_line() -> None:
    task, _ = await told(streams([b"data: one \n\ndata: two\n"], "text/event-stream"))
    assert text_in(task) == "one two"


async def test_json_on_many_lines_is_one_answer() -> None:
    task, _ = await told(streams([b'{\n  "output":', b'\n "one"\n}\n'], "application/json"))
    assert text_in(task) == "one"
    task, _ = await told(streams([b'{"output": "one"}\n', b" \n"], "application/json"))
    assert text_in(task) == "one"


# --- questions --------------------------------------------------------------------------------------------------------


async def test_a_flow_may_ask() -> None:
    asks = says({"status": "input-required", "text": "Which city?"})
    async with webhook(asks, says({"output": "to Rome"})) as hook, running(flow(hook.url)) as a2a:
        asked = await a2a.send_text("book")
        assert (asked.status.state, text_in(asked)) == (TaskState.INPUT_REQUIRED, "Which city?")
        done = await a2a.send_text("Rome", task=asked)
        assert (done.status.state, text_in(done)) == (TaskState.COMPLETED, "to Rome")
    assert [one.json["message"] for one in hook.asked] == ["book", "Rome"]
    assert [one.key for one in hook.asked] == [f"{asked.id}-1", f"{asked.id}-2"]


# --- when it goes wrong -----------------------------------------------------------------------------------------------


@each(
    ("answer", "reason"),
    [
        (says({"message": "no such city"}, status=404), "The flow refused the message: HTTP 404: no such city"),
        (
            says({"error": {"message": "bad\nTraceback: x.py"}}, status=400),
            "The flow refused the message: HTTP 400: bad",
        ),
        (says(b"nope\n", "text/plain", status=401), "The flow refused the message: HTTP 401: nope"),
        (says(b"<html>/srv/secret", "text/html", status=403), "The flow refused the message: HTTP 403"),
        (says(b"{", status=422), "The flow refused the message: HTTP 422"),
        (says({"detail": "slow down"}, status=429), "The flow refused the message: HTTP 429: slow down"),
        (says({"status": "failed", "text": "no such city"}), "no such city"),
        (
            streams([b'{"type":"begin"}\n{"type":"error","content":"no such city"}\n'], "application/x-ndjson"),
            "no such city",
        ),
        (streams([b"event: error\ndata: no such city\n\n"], "text/event-stream"), "no such city"),
        (says(b'{"output": '), "The flow's answer cannot be read: its media type is JSON, but its body is not"),
        (
            streams([b"{}\nnot json\n"], "application/x-ndjson"),
            "The flow's answer cannot be read: a line of it is not JSON",
        ),
    ],
)
async def test_refusals_are_reported_once(answer: Behave, reason: str) -> None:
    task, hook = await told(answer)
    assert (task.status.state, text_in(task)) == (TaskState.FAILED, reason)
    assert len(hook.asked) == 1, "what was refused is not sent again"


async def test_server_errors_are_retried_with_the_same_key() -> None:
    task, hook = await told(says({}, status=503), says(b"", status=500), DONE)
    assert text_in(task) == "done"
    assert len({asked.key for asked in hook.asked}) == 1
    assert len(hook.asked) == 3
    task, hook = await told(says({"error": "down for repair"}, status=502), max_retries=1)
    assert text_in(task) == "The flow failed: HTTP 502: down for repair"
    assert len(hook.asked) == 2


@pytest.mark.parametrize(
    "answer",
    [
        hangs,
        writes(b""),
        writes(b"HTTP/1.1 200 OK\r\nContent-Le"),
        writes(b"SSH-2.0-OpenSSH_9.6\r\n"),
        writes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nContent-Type: text/plain\r\n\r\nhalf"),
        streams([b"data: half\n\n"], "text/event-stream", ends=False),
    ],
)
async def test_possibly_delivered_posts_are_not_repeated(answer: Behave) -> None:
    task, hook = await told(answer, timeout=1.0)
    assert task.status.state is TaskState.FAILED
    said = task.status.message
    assert said is not None
    assert (said.parts[0].text or "").startswith("The flow")
    assert len(hook.asked) == 1


async def test_unreachable_flows_are_retried(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        async with running(flow(f"http://127.0.0.1:{taken.getsockname()[1]}/", backoff=0.001)) as a2a:
            task = await a2a.send_text("hi")
    assert task.status.state is TaskState.FAILED
    assert text_in(task) == "The flow could not be reached", "callers are not told where it is"
    noted = [vars(one) for one in caplog.records if one.message == "http.not_answered"]
    assert [(one["task_id"], one["tries"]) for one in noted] == [(task.id, tries) for tries in (1, 2, 3)]
    assert all("127.0.0.1" in one["reason"] for one in noted)


async def test_an_answer_that_is_too_large_is_not_taken() -> None:
    for answer in (says(b"x" * 5000, "text/plain"), streams([b"y" * 999] * 9, "application/octet-stream")):
        task, _ = await told(answer, max_bytes=4096)
        assert (task.status.state, task.status.message is not None) == (TaskState.FAILED, True)
        assert "more than 4096 bytes" in str(task.status.message)


async def test_metadata_services_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with running(flow("http://169.254.169.254/latest/meta-data", max_retries=0)) as a2a:
        task = await a2a.send_text("hi")
    assert text_in(task) == "The flow could not be reached"
    assert any("link-local" in vars(one).get("reason", "") for one in caplog.records)


async def test_cancelled_it_hangs_up() -> None:
    async with webhook(hangs) as hook, running(flow(hook.url)) as a2a:
        task = await a2a.send_text("work", at_once=True)
        await hook.until(lambda: hook.open == 1 and len(hook.asked) == 1)
        cancelled = await a2a.cancel(task)
        assert cancelled.status.state is TaskState.CANCELED
        await hook.until(lambda: hook.open == 0)
