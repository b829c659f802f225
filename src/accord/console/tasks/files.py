"""Files of tasks: addresses in their place where a task is shown, and the part that one of these addresses means.

How their bytes are handed out is `bindings.files`, where they are kept `storage.blobs`.
"""

from typing import Any
from urllib.parse import quote

import msgspec

from accord.errors import TaskNotFound
from accord.model import Artifact, Message, Part, Task


def shown(task: Task, base: str) -> dict[str, Any]:
    """Return a task's A2A 1.0 form in which files have addresses below `base`."""
    found: dict[str, Any] = msgspec.to_builtins(task)
    for artifact, made in zip(found.get("artifacts", ()), task.artifacts, strict=True):
        artifact["parts"] = _placed(made, f"{base}/{quote(made.artifact_id, safe='')}")
    for turn, said in zip(found.get("history", ()), task.history, strict=True):
        turn["parts"] = _placed(said, f"{base}/message/{quote(said.message_id, safe='')}")
    if task.status.message is not None:
        said = task.status.message
        found["status"]["message"]["parts"] = _placed(said, f"{base}/message/{quote(said.message_id, safe='')}")
    return found


def _placed(of: Artifact | Message, base: str) -> list[Any]:
    return [part_shown(part, f"{base}/{at}") for at, part in enumerate(of.parts)]


def part_shown(part: Part, url: str | None) -> dict[str, Any]:
    """Return a part in which bytes have become an address, or only their number."""
    found: dict[str, Any] = msgspec.to_builtins(part)
    if part.raw is not None:
        del found["raw"]
        found |= {"size": len(part.raw)} if url is None else {"url": url, "size": len(part.raw)}
    return found


def part_of(task: Task, artifact: str | None, message: str | None, at: int) -> Part:
    """Return a part of an artifact or a message, by its place."""
    messages = [*task.history, *([task.status.message] if task.status.message is not None else [])]
    holders: list[Artifact | Message] = [
        *(one for one in task.artifacts if one.artifact_id == artifact),
        *(one for one in messages if one.message_id == message),
    ]
    for holder in holders:
        if at < len(holder.parts):
            return holder.parts[at]
    raise TaskNotFound("The task has no such file")
