"""What tests of hosted agents say to them, and how they look at what comes back."""

from typing import Any

from accord.model import Message, Part, Role, Task
from accord.testing.inprocess import Running

_numbers = iter(range(10**9))


def saying(text: str, *parts: Part, context: str | None = None, task: Task | None = None) -> Message:
    """A message of its own, which may belong to a conversation or to a task."""
    return Message(
        message_id=f"m-{next(_numbers)}",
        role=Role.USER,
        parts=(Part(text=text), *parts),
        context_id=context,
        task_id=task.id if task else None,
    )


async def sent(a2a: Running, message: Any, **more: Any) -> Task:
    """What became of a message, which is a task."""
    answer = await a2a.send(message, **more)
    assert isinstance(answer, Task)
    return answer


def reason(task: Task) -> str:
    """What the status says."""
    assert task.status.message is not None
    return task.status.message.parts[0].text or ""


def parts(task: Task) -> list[Part]:
    """Everything that was made."""
    return [part for artifact in task.artifacts for part in artifact.parts]


def text(task: Task) -> str:
    """All text of that."""
    return "".join(part.text or "" for part in parts(task))
