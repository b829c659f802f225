"""The webhook body that belongs to no dialect: `{taskId, status, result}`.

It knows neither delivery nor authentication; the dialects use it where a webhook asks for the simple form.
"""

from typing import Any

from msgspec import UNSET, Struct
from msgspec.json import Decoder

from accord.model import Artifact, Part, Task, TaskState, TaskStatus
from accord.protocol import codec
from accord.protocol.states import LOWER, from_lower


class Simple(Struct, rename="camel"):
    """The simple webhook body."""

    task_id: str
    status: str
    result: Any = UNSET


class _Look(Struct, rename="camel"):
    task_id: Any = None
    status: Any = None


_SIMPLE = Decoder(Simple)
_LOOK = Decoder(_Look)


def result_of(task: Task) -> Any:
    """Return a task's result: the data of its last artifact, else all text of its artifacts, else nothing."""
    if not task.artifacts:
        return None
    parts = task.artifacts[-1].parts
    structured = [part.data for part in parts if part.data is not UNSET]
    if structured:
        return structured[0] if len(structured) == 1 else structured
    texts = [part.text for artifact in task.artifacts for part in artifact.parts if part.text is not None]
    return "".join(texts) if texts else None


def simple_payload(task: Task) -> bytes:
    """Write the simple webhook body of a task."""
    return codec.encode({"taskId": task.id, "status": LOWER[task.status.state], "result": result_of(task)})


def is_simple(body: bytes) -> bool:
    """Whether a webhook body is the simple one: it names the task and its state in one word."""
    look = codec.decode(body, _LOOK)
    return isinstance(look.task_id, str) and isinstance(look.status, str)


def read_simple(body: bytes) -> Task:
    """Read the simple webhook body as a task with at most one artifact."""
    simple = codec.decode(body, _SIMPLE)
    state: TaskState = from_lower(simple.status, "status")
    return Task(id=simple.task_id, status=TaskStatus(state=state), artifacts=_artifacts(simple.result))


def _artifacts(result: Any) -> tuple[Artifact, ...]:
    if result is UNSET or result is None:
        return ()
    part = Part(text=result) if isinstance(result, str) else Part(data=result)
    return (Artifact(artifact_id="result", parts=(part,)),)
