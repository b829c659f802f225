"""A service that does what it is told and remembers what it was asked, so that a test sees nothing but the binding."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.auth.rate_limits import Quotas
from accord.http.asgi import Receive, Scope
from accord.http.request_bodies import read_request
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    ArtifactUpdate,
    Authentication,
    Event,
    Message,
    Part,
    PushConfig,
    PushPage,
    Role,
    StatusUpdate,
    Task,
    TaskPage,
    TaskState,
    TaskStatus,
)
from accord.protocol.operations import Operation

AT = "2026-01-02T03:04:05.678Z"
SAID = Message(message_id="m-1", role=Role.USER, parts=(Part(text="hello"),), context_id="c-1", task_id="t-1")
ANSWER = Artifact(artifact_id="a-1", parts=(Part(text="hi"), Part(raw=b"\x00\xff", media_type="image/png")))
TASK = Task(
    id="t-1",
    context_id="c-1",
    status=TaskStatus(state=TaskState.COMPLETED, timestamp=AT),
    artifacts=(ANSWER,),
    history=(SAID,),
)
PUSH = PushConfig(
    id="p-1", task_id="t-1", url="https://example.com/hook", authentication=Authentication(scheme="Bearer")
)
CARD = AgentCard(
    name="Trips",
    description="Plans trips",
    version="2.1.0",
    supported_interfaces=(
        AgentInterface(url="https://example.com/", protocol_binding="HTTP+JSON", protocol_version="1.0"),
    ),
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=("text/plain",),
    default_output_modes=("text/plain",),
    skills=(AgentSkill(id="plan", name="Plan", description="Plans", tags=("travel",)),),
)
EVENTS = (
    Event(seq=0, body=Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.SUBMITTED, timestamp=AT))),
    Event(seq=1, body=ArtifactUpdate(task_id="t-1", context_id="c-1", artifact=ANSWER)),
    Event(
        seq=2,
        body=StatusUpdate(task_id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.COMPLETED, timestamp=AT)),
    ),
)
RESULTS: dict[Operation, Any] = {
    Operation.SEND: TASK,
    Operation.GET: TASK,
    Operation.LIST: TaskPage(tasks=(TASK,), next_page_token="more", page_size=1, total_size=2),
    Operation.CANCEL: TASK,
    Operation.PUSH_SET: PUSH,
    Operation.PUSH_GET: PUSH,
    Operation.PUSH_LIST: PushPage(configs=(PUSH,)),
    Operation.PUSH_DELETE: 1,
    Operation.EXTENDED_CARD: CARD,
}


class Call(NamedTuple):
    """One call of the service."""

    operation: Operation
    request: Any
    caller: Caller
    after: int | None = None


class Scripted:
    """Answers every operation with its result, or with an error; streams may break after some events."""

    def __init__(
        self,
        error: Exception | None = None,
        *,
        results: dict[Operation, Any] | None = None,
        broken: Exception | None = None,
    ) -> None:
        self.error = error
        self.broken = broken
        self.results = RESULTS | (results or {})
        self.calls: list[Call] = []
        self.closed = 0
        self.send = self._answers(Operation.SEND)
        self.get = self._answers(Operation.GET)
        self.list = self._answers(Operation.LIST)
        self.cancel = self._answers(Operation.CANCEL)
        self.push_set = self._answers(Operation.PUSH_SET)
        self.push_get = self._answers(Operation.PUSH_GET)
        self.push_list = self._answers(Operation.PUSH_LIST)
        self.push_delete = self._answers(Operation.PUSH_DELETE)
        self.extended_card = self._answers(Operation.EXTENDED_CARD)
        self.stream = self._streams(Operation.STREAM)
        self.subscribe = self._streams(Operation.SUBSCRIBE)

    @property
    def only(self) -> Call:
        """The one call that was made."""
        (call,) = self.calls
        return call

    def _answers(self, operation: Operation) -> Any:
        async def answer(request: Any, caller: Caller) -> Any:
            self.calls.append(Call(operation, request, caller))
            if self.error is not None:
                raise self.error
            return self.results[operation]

        return answer

    def _streams(self, operation: Operation) -> Any:
        async def stream(request: Any, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
            self.calls.append(Call(operation, request, caller, after))
            if self.error is not None:
                raise self.error
            try:
                for event in EVENTS:
                    if after is None or event.seq > after:
                        yield event
                if self.broken is not None:
                    raise self.broken
            finally:
                self.closed += 1

        return stream


async def read_body(receive: Receive, quotas: Quotas | None = None, *, owner: str = "") -> bytes:
    """Read a body of an authenticated caller."""

    async def identify(_presented: Presented) -> Caller:
        return Caller(owner=owner)

    scope: Scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    return (await read_request(scope, receive, identify, quotas or Quotas()))[1]
