"""Webhook bodies: every dialect's three forms are told apart and read, and the simple one is exact."""

import json

import pytest
from hypothesis import given

from accord.errors import AccordError, InvalidParams
from accord.model import Artifact, Event, Part, PushFormat, StatusUpdate, Task, TaskState, TaskStatus
from accord.protocol.dialects import DIALECTS, decode_webhook
from accord.protocol.dialects.base import result_of, simple_payload
from accord.protocol.operations import DialectName
from tests import strategies
from tests.cases import each

AT = "2024-03-15T18:30:00.000Z"
DONE = TaskStatus(state=TaskState.COMPLETED, timestamp=AT)
TASK = Task(
    id="t-1",
    context_id="c-1",
    status=DONE,
    artifacts=(Artifact(artifact_id="a-1", parts=(Part(data={"result": "42"}),)),),
)
EVENT = Event(seq=3, body=StatusUpdate(task_id="t-1", context_id="c-1", status=DONE), at=AT)


@pytest.mark.proves("B-10", "0-32", "0-35")
@each("form", [None, *PushFormat])
@each("dialect", DialectName)
def test_every_form_of_every_dialect_is_understood(dialect: DialectName, form: PushFormat | None) -> None:
    found = decode_webhook(DIALECTS[dialect].encode_push(EVENT, TASK, form))
    assert isinstance(found, Task | StatusUpdate)
    assert (found.id if isinstance(found, Task) else found.task_id) == "t-1"
    assert found.status.state is TaskState.COMPLETED
    if isinstance(found, Task):
        assert [part.data for artifact in found.artifacts for part in artifact.parts] == [{"result": "42"}]


@pytest.mark.proves("0-08")
@each("state", TaskState)
def test_the_simple_form(state: TaskState) -> None:
    task = Task(id="t-1", status=TaskStatus(state=state), artifacts=TASK.artifacts)
    body = json.loads(simple_payload(task))
    assert body.keys() == {"taskId", "status", "result"}
    assert body["result"] == {"result": "42"}
    read = decode_webhook(simple_payload(task))
    assert isinstance(read, Task)
    assert read.status.state is state


@pytest.mark.parametrize(
    ("parts", "result"),
    [
        ((Part(text="a"), Part(text="b")), "ab"),
        ((Part(data=1), Part(text="b"), Part(data=2)), [1, 2]),
        ((Part(url="https://example.com"),), None),
    ],
)
def test_the_result_of_a_report(parts: tuple[Part, ...], result: object) -> None:
    task = Task(id="t", status=DONE, artifacts=(Artifact(artifact_id="a", parts=parts),))
    assert result_of(task) == result


@pytest.mark.proves("0-08")
@pytest.mark.parametrize(
    ("first", "last", "result"),
    [
        (Part(data={"draft": 1}), Part(data={"final": 2}), {"final": 2}),
        (Part(data={"draft": 1}), Part(text="done"), "done"),
        (Part(text="draft"), Part(data=[1]), [1]),
        (Part(text="one "), Part(text="two"), "one two"),
        (Part(data={"draft": 1}), Part(url="https://example.com"), None),
        (Part(text="draft"), Part(url="https://example.com"), "draft"),
        (Part(data={"draft": 1}), Part(data=None), None),
    ],
)
def test_the_result_is_the_last_artifact_s_data_or_else_all_text(first: Part, last: Part, result: object) -> None:
    made = tuple(Artifact(artifact_id=str(at), parts=(part,)) for at, part in enumerate((first, last)))
    task = Task(id="t", status=DONE, artifacts=made)
    assert json.loads(simple_payload(task)) == {"taskId": "t", "status": "completed", "result": result}


@pytest.mark.proves("0-08")
@pytest.mark.parametrize(("result", "part"), [('"42"', Part(text="42")), ("42", Part(data=42)), ('""', Part(text=""))])
def test_a_simple_result_is_read_as_the_only_artifact(result: str, part: Part) -> None:
    read = decode_webhook(b'{"taskId":"t","status":"failed","result":%b}' % result.encode())
    artifact = Artifact(artifact_id="result", parts=(part,))
    assert read == Task(id="t", status=TaskStatus(state=TaskState.FAILED), artifacts=(artifact,))


@pytest.mark.proves("0-08")
@pytest.mark.parametrize("rest", [b"", b',"result":null'])
def test_a_simple_body_without_a_result_has_no_artifact(rest: bytes) -> None:
    read = decode_webhook(b'{"taskId":"t","status":"working"%b}' % rest)
    assert read == Task(id="t", status=TaskStatus(state=TaskState.WORKING))


def test_a_task_without_artifacts_has_no_result() -> None:
    assert result_of(Task(id="t", status=DONE)) is None
    read = decode_webhook(simple_payload(Task(id="t", status=DONE)))
    assert isinstance(read, Task)
    assert read.artifacts == ()


@pytest.mark.proves("0-32", "B-10")
def test_a_task_without_its_kind_is_still_a_task() -> None:
    read = decode_webhook(
        b'{"id":"t","contextId":"c","status":{"state":"completed"},"timestamp":"2024-03-15T18:30:00Z"}'
    )
    assert isinstance(read, Task)
    assert (read.id, read.status.state) == ("t", TaskState.COMPLETED)


@pytest.mark.proves("0-08")
def test_unknown_states_are_refused() -> None:
    with pytest.raises(InvalidParams, match="status"):
        decode_webhook(b'{"taskId":"t","status":"dancing"}')


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"kind":"task"}', b'{"state":1}', b'{"task_id":1}', b'{"task":1}']
)
def test_invalid_reports_are_errors(body: bytes) -> None:
    with pytest.raises(AccordError):
        decode_webhook(body)


@given(strategies.events, strategies.tasks)
def test_no_body_that_we_send_is_misread(event: Event, task: Task) -> None:
    for dialect in DIALECTS.values():
        for form in PushFormat:
            body = dialect.encode_push(event, task, form)
            assert decode_webhook(body) == dialect.decode_push(body)
