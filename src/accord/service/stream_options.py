"""Options of a stream: only the outcome, or text in small pieces."""

from collections.abc import AsyncIterator, Iterator

from msgspec.structs import replace

from accord.a2a import TaskEvents
from accord.engine.subscriptions import at_turn_end
from accord.model import Artifact, ArtifactUpdate, Event, Part, SendRequest, Task
from accord.protocol import lifecycle


def apply_stream_options(stream: TaskEvents, request: SendRequest) -> None:
    """Apply a request's options to the events after its task."""
    task = stream.head.body
    if not request.include_intermediates and isinstance(task, Task):
        stream.pass_through(_outcome(task, stream.rest))
    if request.buffer_size is not None:
        stream.pass_through(_cut_up(stream.rest, request.buffer_size))


async def _cut_up(events: AsyncIterator[Event], size: int) -> AsyncIterator[Event]:
    async for event in events:
        if not isinstance(event.body, ArtifactUpdate):
            yield event
            continue
        for piece in _pieces(event, event.body, size):
            yield piece


async def _outcome(task: Task, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """Yield at each turn's end its whole artifacts and its status."""
    held: list[Event] = []
    async for event in events:
        held.append(event)
        if at_turn_end(event):
            task, before = lifecycle.fold(task, held[:-1]), held[-1].seq - 1
            for artifact in task.artifacts:
                yield Event(seq=before, body=_whole(task, artifact), at=event.at)
            task, held = lifecycle.apply(task, event.body), []
            yield event


def _whole(task: Task, artifact: Artifact) -> ArtifactUpdate:
    return ArtifactUpdate(task_id=task.id, context_id=task.context_id or "", artifact=artifact, last_chunk=True)


def _pieces(event: Event, update: ArtifactUpdate, size: int) -> Iterator[Event]:
    """Cut long texts.

    All pieces but the last have the preceding number, so that resuming after one repeats the event.
    """
    cut = [piece for part in update.artifact.parts for piece in _cut(part, size)]
    for at, part in enumerate(cut):
        is_last = at == len(cut) - 1
        piece = replace(
            update,
            artifact=replace(update.artifact, parts=(part,)),
            append=update.append or at > 0,
            last_chunk=update.last_chunk and is_last,
        )
        yield Event(seq=event.seq if is_last else event.seq - 1, body=piece, at=event.at)


def _cut(part: Part, size: int) -> Iterator[Part]:
    """Yield a text part in pieces of at most `size` bytes that split no character. Other parts are not changed."""
    if part.text is None or len(part.text.encode()) <= size:
        yield part
        return
    piece, used = "", 0
    for character in part.text:
        width = len(character.encode())
        if piece and used + width > size:
            yield replace(part, text=piece)
            piece, used = "", 0
        piece, used = piece + character, used + width
    yield replace(part, text=piece)
