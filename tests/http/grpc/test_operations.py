"""Every operation of both services over a real connection, with the official stubs: asked, answered and refused."""

from typing import Any, NamedTuple

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.types import a2a_pb2 as new

from accord.errors import TABLE, AccordError, InvalidParams, RateLimited, TaskNotFound, Violation
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    ArtifactUpdate,
    Authentication,
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    Message,
    MessageUpdate,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    Role,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
    TaskState,
    TaskStatus,
)
from accord.protocol.protobuf import GRPC_SERVICES
from tests.http.grpc.conftest import STUBS, Serving, Told, all_of, failing

AT = "2026-01-02T03:04:05.678Z"
HELLO = Message(message_id="m-1", role=Role.USER, parts=(Part(text="hello"),))
ANSWER = Message(message_id="m-2", role=Role.AGENT, parts=(Part(text="hello yourself"),), context_id="c-1")
TASK = Task(
    id="t-1",
    context_id="c-1",
    status=TaskStatus(state=TaskState.CANCELED, timestamp=AT),
    history=(HELLO,),
    artifacts=(Artifact(artifact_id="a", parts=(Part(raw=b"\0\xff", filename="f", media_type="image/png"),)),),
)
PUSH = PushConfig(
    id="p-1",
    task_id="t-1",
    url="https://example.com/hook",
    token="secret",
    authentication=Authentication(scheme="Bearer", credentials="key"),
)
CARD = AgentCard(
    name="echo",
    description="Echoes",
    version="1",
    supported_interfaces=(AgentInterface(url="h:1", protocol_binding="GRPC", protocol_version="1.0"),),
    capabilities=AgentCapabilities(streaming=True, extended_agent_card=True),
    default_input_modes=("text/plain",),
    default_output_modes=("text/plain",),
    skills=(AgentSkill(id="s", name="S", description="d", tags=("t",)),),
)
EVENTS = (
    Event(seq=3, body=Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.WORKING))),
    Event(seq=4, body=ArtifactUpdate(task_id="t-1", context_id="c-1", artifact=TASK.artifacts[0], append=True)),
    Event(seq=5, body=MessageUpdate(task_id="t-1", context_id="c-1", message=HELLO)),
    Event(seq=6, body=StatusUpdate(task_id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.COMPLETED))),
)


class Case(NamedTuple):
    """A call, what the service must be asked, what it answers, and what the caller must find in the answer."""

    dialect: str
    method: str
    sent: Any
    asked: Any
    result: Any
    found: Any


NEW_HELLO = new.Message(message_id="m-1", role=new.ROLE_USER, parts=[new.Part(text="hello")])
OLD_HELLO = old.Message(message_id="m-1", role=old.ROLE_USER, content=[old.Part(text="hello")])
NEW_PUSH = new.TaskPushNotificationConfig(
    id="p-1",
    task_id="t-1",
    url="https://example.com/hook",
    token="secret",
    authentication=new.AuthenticationInfo(scheme="Bearer", credentials="key"),
)
OLD_PUSH = old.TaskPushNotificationConfig(
    name="tasks/t-1/pushNotificationConfigs/p-1",
    push_notification_config=old.PushNotificationConfig(
        id="p-1",
        url="https://example.com/hook",
        token="secret",
        authentication=old.AuthenticationInfo(schemes=["Bearer"], credentials="key"),
    ),
)
NEW_TASK = new.Task(
    id="t-1",
    context_id="c-1",
    status=new.TaskStatus(state=new.TASK_STATE_CANCELED, timestamp={"seconds": 1767323045, "nanos": 678_000_000}),
    history=[NEW_HELLO],
    artifacts=[new.Artifact(artifact_id="a", parts=[new.Part(raw=b"\0\xff", filename="f", media_type="image/png")])],
)
OLD_TASK = old.Task(
    id="t-1",
    context_id="c-1",
    status=old.TaskStatus(state=old.TASK_STATE_CANCELLED, timestamp={"seconds": 1767323045, "nanos": 678_000_000}),
    history=[OLD_HELLO],
    artifacts=[
        old.Artifact(
            artifact_id="a",
            parts=[old.Part(file=old.FilePart(file_with_bytes=b"\0\xff", name="f", mime_type="image/png"))],
        )
    ],
)
IN_TASK, IN_WEBHOOK = "tasks/t-1", "tasks/t-1/pushNotificationConfigs/p-1"

CASES = [
    Case(
        "v1",
        "SendMessage",
        new.SendMessageRequest(
            message=NEW_HELLO,
            configuration=new.SendMessageConfiguration(history_length=0, return_immediately=True),
            tenant="acme",
        ),
        SendRequest(
            message=HELLO,
            configuration=SendConfiguration(history_length=0, return_immediately=True),
            tenant="acme",
        ),
        TASK,
        new.SendMessageResponse(task=NEW_TASK),
    ),
    Case(
        "v1",
        "SendMessage",
        new.SendMessageRequest(message=NEW_HELLO),
        SendRequest(message=HELLO),
        ANSWER,
        new.SendMessageResponse(
            message=new.Message(
                message_id="m-2", role=new.ROLE_AGENT, context_id="c-1", parts=[new.Part(text="hello yourself")]
            )
        ),
    ),
    Case(
        "v1",
        "GetTask",
        new.GetTaskRequest(id="t-1", history_length=0),
        GetRequest(id="t-1", history_length=0),
        TASK,
        NEW_TASK,
    ),
    Case(
        "v1",
        "ListTasks",
        new.ListTasksRequest(
            context_id="c-1",
            status=new.TASK_STATE_CANCELED,
            page_size=7,
            page_token="next",
            history_length=2,
            include_artifacts=True,
            status_timestamp_after={"seconds": 1767323045, "nanos": 678_000_000},
        ),
        TaskFilter(
            context_id="c-1",
            status=TaskState.CANCELED,
            page_size=7,
            page_token="next",
            history_length=2,
            include_artifacts=True,
            status_timestamp_after=AT,
        ),
        TaskPage(tasks=(TASK,), next_page_token="", page_size=7, total_size=1),
        new.ListTasksResponse(tasks=[NEW_TASK], page_size=7, total_size=1),
    ),
    Case("v1", "CancelTask", new.CancelTaskRequest(id="t-1"), CancelRequest(id="t-1"), TASK, NEW_TASK),
    Case("v1", "CreateTaskPushNotificationConfig", NEW_PUSH, PUSH, PUSH, NEW_PUSH),
    Case(
        "v1",
        "GetTaskPushNotificationConfig",
        new.GetTaskPushNotificationConfigRequest(task_id="t-1", id="p-1"),
        PushGetRequest(task_id="t-1", id="p-1"),
        PUSH,
        NEW_PUSH,
    ),
    Case(
        "v1",
        "ListTaskPushNotificationConfigs",
        new.ListTaskPushNotificationConfigsRequest(task_id="t-1", page_size=3),
        PushListRequest(task_id="t-1", page_size=3),
        PushPage(configs=(PUSH,), next_page_token="more"),
        new.ListTaskPushNotificationConfigsResponse(configs=[NEW_PUSH], next_page_token="more"),
    ),
    Case(
        "v1",
        "DeleteTaskPushNotificationConfig",
        new.DeleteTaskPushNotificationConfigRequest(task_id="t-1", id="p-1"),
        PushDeleteRequest(task_id="t-1", id="p-1"),
        1,
        None,
    ),
    Case(
        "v1",
        "GetExtendedAgentCard",
        new.GetExtendedAgentCardRequest(tenant="acme"),
        CardRequest(tenant="acme"),
        CARD,
        new.AgentCard(
            name="echo",
            description="Echoes",
            version="1",
            supported_interfaces=[new.AgentInterface(url="h:1", protocol_binding="GRPC", protocol_version="1.0")],
            capabilities=new.AgentCapabilities(streaming=True, extended_agent_card=True),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[new.AgentSkill(id="s", name="S", description="d", tags=["t"])],
        ),
    ),
    Case(
        "v03",
        "SendMessage",
        old.SendMessageRequest(
            request=OLD_HELLO, configuration=old.SendMessageConfiguration(blocking=True, history_length=2)
        ),
        SendRequest(message=HELLO, configuration=SendConfiguration(history_length=2)),
        TASK,
        old.SendMessageResponse(task=OLD_TASK),
    ),
    Case(
        "v03",
        "SendMessage",
        old.SendMessageRequest(request=OLD_HELLO, configuration=old.SendMessageConfiguration()),
        SendRequest(message=HELLO, configuration=SendConfiguration(return_immediately=True)),
        ANSWER,
        old.SendMessageResponse(
            msg=old.Message(
                message_id="m-2", role=old.ROLE_AGENT, context_id="c-1", content=[old.Part(text="hello yourself")]
            )
        ),
    ),
    Case(
        "v03",
        "GetTask",
        old.GetTaskRequest(name=IN_TASK, history_length=2),
        GetRequest(id="t-1", history_length=2),
        TASK,
        OLD_TASK,
    ),
    Case("v03", "CancelTask", old.CancelTaskRequest(name=IN_TASK), CancelRequest(id="t-1"), TASK, OLD_TASK),
    Case(
        "v03",
        "CreateTaskPushNotificationConfig",
        old.CreateTaskPushNotificationConfigRequest(parent=IN_TASK, config_id="p-1", config=OLD_PUSH),
        PUSH,
        PUSH,
        OLD_PUSH,
    ),
    Case(
        "v03",
        "GetTaskPushNotificationConfig",
        old.GetTaskPushNotificationConfigRequest(name=IN_WEBHOOK),
        PushGetRequest(task_id="t-1", id="p-1"),
        PUSH,
        OLD_PUSH,
    ),
    Case(
        "v03",
        "ListTaskPushNotificationConfig",
        old.ListTaskPushNotificationConfigRequest(parent=IN_TASK, page_size=3),
        PushListRequest(task_id="t-1", page_size=3),
        PushPage(configs=(PUSH,), next_page_token="more"),
        old.ListTaskPushNotificationConfigResponse(configs=[OLD_PUSH], next_page_token="more"),
    ),
    Case(
        "v03",
        "DeleteTaskPushNotificationConfig",
        old.DeleteTaskPushNotificationConfigRequest(name=IN_WEBHOOK),
        PushDeleteRequest(task_id="t-1", id="p-1"),
        1,
        None,
    ),
    Case(
        "v03",
        "GetAgentCard",
        old.GetAgentCardRequest(),
        CardRequest(),
        CARD,
        old.AgentCard(
            protocol_version="0.3.0",
            name="echo",
            description="Echoes",
            version="1",
            url="h:1",
            preferred_transport="GRPC",
            capabilities=old.AgentCapabilities(streaming=True),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[
                old.AgentSkill(
                    id="s",
                    name="S",
                    description="d",
                    tags=["t"],
                    input_modes=["text/plain"],
                    output_modes=["text/plain"],
                )
            ],
            supports_authenticated_extended_card=True,
        ),
    ),
]
STREAMS = [
    Case(
        "v1", "SendStreamingMessage", new.SendMessageRequest(message=NEW_HELLO), SendRequest(message=HELLO), None, new
    ),
    Case("v1", "SubscribeToTask", new.SubscribeToTaskRequest(id="t-1"), SubscribeRequest(id="t-1"), None, new),
    Case(
        "v03", "SendStreamingMessage", old.SendMessageRequest(request=OLD_HELLO), SendRequest(message=HELLO), None, old
    ),
    Case("v03", "TaskSubscription", old.TaskSubscriptionRequest(name=IN_TASK), SubscribeRequest(id="t-1"), None, old),
]


def named(case: Case) -> str:
    return f"{case.dialect} {case.method}"


def test_every_method_of_both_services_has_a_case() -> None:
    covered = {(case.dialect, case.method) for case in CASES + STREAMS}
    assert covered == {
        (name.value, method.name) for name, edition in GRPC_SERVICES.items() for method in edition.methods
    }
    for module, name in ((new, "lf.a2a.v1.A2AService"), (old, "a2a.v1.A2AService")):
        published = module.DESCRIPTOR.services_by_name["A2AService"]
        (edition,) = (edition for edition in GRPC_SERVICES.values() if edition.service == name == published.full_name)
        assert {(m.name, m.streams) for m in edition.methods} == {
            (m.name, m.server_streaming) for m in published.methods
        }


@pytest.mark.proves("GRPC-SVC-001", "GRPC-SVC-002")
@pytest.mark.parametrize("case", CASES, ids=named)
async def test_a_call_is_answered(case: Case, serving: Serving, dial: Any) -> None:
    service = Told(case.result)
    stub = STUBS[case.dialect](dial(await serving(service)))
    answer = await getattr(stub, case.method)(case.sent)
    if case.found is None:
        assert answer.DESCRIPTOR.full_name == "google.protobuf.Empty"
    else:
        assert answer == case.found
    (asked,) = service.asked
    assert asked.request == case.asked
    assert (asked.caller.origin, asked.caller.owner) == (case.dialect, "")


@pytest.mark.proves("GRPC-ERR-003")
@pytest.mark.parametrize("case", STREAMS, ids=named)
async def test_a_stream_carries_every_event_that_the_dialect_has(case: Case, serving: Serving, dial: Any) -> None:
    service = Told(events=EVENTS)
    stub = STUBS[case.dialect](dial(await serving(service)))
    call = getattr(stub, case.method)(case.sent)
    task, artifact, status = await all_of(call)
    module = case.found
    assert task == module.StreamResponse(
        task=module.Task(id="t-1", context_id="c-1", status=module.TaskStatus(state=module.TASK_STATE_WORKING))
    )
    assert artifact.artifact_update.append
    assert artifact.artifact_update.artifact.artifact_id == "a"
    assert status.status_update.status.state == module.TASK_STATE_COMPLETED
    assert getattr(status.status_update, "final", True)
    assert (await call.code()) is grpc.StatusCode.OK
    (asked,) = service.asked
    assert (asked.request, asked.after) == (case.asked, None)
    assert (asked.caller.origin, asked.caller.owner) == (case.dialect, "")


# --- refusals -----------------------------------------------------------------------------------------------------

SAID: dict[str, Any] = {
    "violations": (Violation("message.parts", "Expected at least one part"),),
    "retry_after": 7,
    "metadata": {"taskId": "t-1"},
}


@pytest.mark.proves("GRPC-ERR-001", "GRPC-ERR-002")
@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
async def test_every_error_has_its_status_and_its_reason(kind: type[AccordError], serving: Serving, dial: Any) -> None:
    address = await serving(Told(error=kind("why \N{SNOWMAN}\n", **SAID)))
    row = TABLE[kind]
    for dialect, method, sent in (
        ("v1", "GetTask", new.GetTaskRequest(id="t-1")),
        ("v1", "SubscribeToTask", new.SubscribeToTaskRequest(id="t-1")),
        ("v03", "GetTask", old.GetTaskRequest(name=IN_TASK)),
        ("v03", "TaskSubscription", old.TaskSubscriptionRequest(name=IN_TASK)),
    ):
        failure = await failing(getattr(STUBS[dialect](dial(address)), method)(sent))
        assert failure.code == row.grpc
        assert failure.sentence.endswith("why \N{SNOWMAN}\n")
        assert failure.sentence.startswith("why") == (dialect == "v1" or row.code == -32000)
        info = failure.details["ErrorInfo"]
        assert (info.reason, info.domain, dict(info.metadata)) == (row.reason, row.domain, {"taskId": "t-1"})
        (violation,) = failure.details["BadRequest"].field_violations
        assert (violation.field, violation.description) == SAID["violations"][0]
        assert failure.details["RetryInfo"].retry_delay.seconds == 7
        assert failure.metadata["retry-after"] == "7"


async def test_an_error_with_nothing_to_add_has_its_reason_only(serving: Serving, dial: Any) -> None:
    failure = await failing(
        STUBS["v1"](dial(await serving(Told(error=TaskNotFound())))).GetTask(new.GetTaskRequest(id="t"))
    )
    assert (failure.code, failure.sentence) == ("NOT_FOUND", "Task not found")
    assert list(failure.details) == ["ErrorInfo"]
    assert set(failure.metadata) == {"grpc-status-details-bin"}


@pytest.mark.parametrize("letter", ["x", "\N{SNOWMAN}", "\N{GRINNING FACE}", "%", "\n"])
async def test_long_errors_keep_their_reason(letter: str, serving: Serving, dial: Any) -> None:
    """A client refuses metadata over 8 kB, and an id that was not found may have megabytes."""
    long = letter * 100_000
    violations = tuple(Violation(f"field{number}", long) for number in range(100))
    error = InvalidParams(long, violations=violations, metadata={"taskId": long}, retry_after=3)
    failure = await failing(STUBS["v1"](dial(await serving(Told(error=error)))).GetTask(new.GetTaskRequest(id="t")))
    assert failure.code == "INVALID_ARGUMENT"
    assert failure.sentence
    assert long.startswith(failure.sentence)
    assert failure.details["ErrorInfo"].reason == "INVALID_PARAMS"
    assert failure.metadata["retry-after"] == "3"


@pytest.mark.parametrize("method", ["GetTask", "SubscribeToTask"])
async def test_unexpected_errors_are_logged_and_hidden(
    method: str, serving: Serving, dial: Any, caplog: pytest.LogCaptureFixture
) -> None:
    address = await serving(Told(error=ValueError("the password is hunter2")))
    sent = new.GetTaskRequest(id="t") if method == "GetTask" else new.SubscribeToTaskRequest(id="t")
    failure = await failing(getattr(STUBS["v1"](dial(address)), method)(sent))
    assert (failure.code, failure.details["ErrorInfo"].reason) == ("INTERNAL", "INTERNAL_ERROR")
    assert "hunter2" not in failure.sentence + str(failure.metadata)
    assert "hunter2" in caplog.text
    (record,) = (record for record in caplog.records if record.name == "accord.grpc")
    assert record.__dict__["method"] == f"/lf.a2a.v1.A2AService/{method}"


async def test_broken_streams_end_with_an_error(serving: Serving, dial: Any) -> None:
    address = await serving(Told(events=EVENTS[:2], error=RateLimited("enough", retry_after=2)))
    call = STUBS["v1"](dial(address)).SubscribeToTask(new.SubscribeToTaskRequest(id="t-1"))
    assert (await call.read()).HasField("task")
    assert (await call.read()).HasField("artifact_update")
    failure = await failing(call)
    assert (failure.code, failure.sentence, failure.metadata["retry-after"]) == ("RESOURCE_EXHAUSTED", "enough", "2")
    assert failure.metadata["last-event-id"] == "4"
    assert failure.details["ErrorInfo"].reason == "RATE_LIMITED"
