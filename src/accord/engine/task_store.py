"""Tasks and events of the store as model values, with large parts in blobs."""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.engine.webhook_secrets import SealPort, WebhookSecrets
from accord.model import (
    ArtifactUpdate,
    Event,
    EventBody,
    Message,
    Part,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.model.metadata_keys import USAGE
from accord.model.task import parts_of
from accord.protocol import lifecycle
from accord.retries import RetryPolicy
from accord.storage.blobs import LargeParts
from accord.storage.blobs.blob_store import hexdigest
from accord.storage.commands import tasks
from accord.storage.commands.tasks import StoredTask
from accord.storage.encoding import decode_event, decode_task
from accord.storage.store import Store, StoreInterrupted, StoreUnavailable

T = TypeVar("T")

REMEMBERED = 2_000_000
"""Total characters of cached snapshots. Decoded snapshots take a few times as much memory."""

SHORT = 4096
"""Characters of a snapshot that decodes about as fast as a cache lookup."""


class SnapshotCache:
    """Builds tasks from stored rows, and decodes the same long snapshot once."""

    def __init__(self, most: int = REMEMBERED) -> None:
        """Cache up to `most` characters."""
        self._most = most
        self._known: dict[tuple[str, str], tuple[str, Task]] = {}
        self.characters = 0

    def task(self, tenant: str, stored: StoredTask) -> Task:
        """Return the model value of a stored task."""
        if len(stored.doc) <= SHORT:
            return stored.task()
        key = (tenant, stored.id)
        doc, snapshot = self._known.pop(key, ("", None))
        if snapshot is None or doc != stored.doc:
            snapshot = decode_task(stored.doc)
        self._known[key] = (stored.doc, snapshot)
        self.characters += len(stored.doc) - len(doc)
        while self.characters > self._most:
            oldest, _ = self._known.pop(next(iter(self._known)))
            self.characters -= len(oldest)
        return stored.folded(snapshot)


SERVER_ID = "server id"
"""The purpose for which the server's ID is derived from the store's secret."""

AT_REST = lifecycle.ENDED | lifecycle.INTERRUPTED
"""States in which no execution works on a task."""


def fingerprint(part: Part, hash: str | None = None) -> str:
    """Return the fingerprint of a file: a hash of its bytes' hash, media type and name."""
    bytes_hash = hexdigest(part.raw or b"") if hash is None else hash
    return hashlib.sha256(msgspec.json.encode((bytes_hash, part.media_type, part.filename))).hexdigest()


Linker = Callable[[str, str, str, Part, str], Part]
"""Returns the file part of a tenant's task with a link at an origin, given the hash of its bytes."""


RETRIES = RetryPolicy(first_seconds=0.05, max_seconds=2.0, jitter=(1.0, 1.0))
"""Delays between attempts while the store is unavailable, without a limit of attempts."""

INTERRUPTIONS = 20
"""Maximum consecutive interruptions of a command by the server, over half a minute. More would retry forever."""


class StoreRetries:
    """Waits with backoff between attempts of one operation on the store, and logs the reason."""

    def __init__(self, log: logging.Logger, **extra: object) -> None:
        """Start before the first attempt. `extra` is logged."""
        self._failures = self._interruptions = 0
        self._log, self._extra = log, extra

    async def wait(self, error: Exception) -> None:
        """Wait before the next attempt. Raises the error of a command that is always interrupted."""
        self._interruptions = self._interruptions + 1 if isinstance(error, StoreInterrupted) else 0
        if self._interruptions > INTERRUPTIONS:
            raise error
        self._failures += 1
        self._log.warning("store.unavailable", extra={**self._extra, "reason": str(error)})
        await asyncio.sleep(RETRIES.delay(self._failures))


async def retry_until_available(do: Callable[[], Awaitable[T]], log: logging.Logger, **extra: object) -> T:
    """Call a function, and retry it while the store is unavailable. `extra` is logged."""
    retries = StoreRetries(log, **extra)
    while True:
        try:
            return await do()
        except StoreUnavailable as error:
            await retries.wait(error)


class PackedEvents(Struct, frozen=True):
    """Events to store, the task after them, and the hashes of the blobs they refer to."""

    bodies: Sequence[EventBody]
    snapshot: Task | None
    blobs: tuple[str, ...]


class TaskStore:
    """A store, with blobs for large parts if it has them."""

    def __init__(self, store: Store, parts: LargeParts | None = None, seals: SealPort | None = None) -> None:
        """Create a task store.

        Without `parts` nothing becomes a blob. Without `seals` webhook secrets are not encrypted.
        """
        self.store = store
        self.webhook_secrets = WebhookSecrets(seals)
        self._parts = parts
        self._snapshots = SnapshotCache()
        self.linker: Linker | None = None
        """Makes links to files, if the server has any."""
        self.inline_files = 0
        """Bytes of files inline in one task. Files beyond them get links."""
        self.server_id = parts.key(SERVER_ID)[:8].hex() if parts else secrets.token_hex(8)
        """An ID that the nodes of one store share, and that differs from other servers."""
        self.has_large: Callable[[EventBody], bool] = (lambda _: False) if parts is None else parts.has_large
        """Whether a value has parts that are stored as blobs."""

    async def pack(self, tenant: str, bodies: Sequence[EventBody], snapshot: Task | None) -> PackedEvents:
        """Move large parts of events and their snapshot into blobs."""
        parts = self._parts
        if parts is None:
            return PackedEvents(bodies, snapshot, ())
        packed: list[EventBody] = []
        hashes: set[str] = set()
        for body in bodies:
            stored, found = await parts.detach(tenant, body)
            packed.append(stored)
            hashes.update(found)
        if snapshot is not None:
            snapshot, found = await parts.detach(tenant, snapshot)
            hashes.update(found)
        return PackedEvents(packed, snapshot, tuple(sorted(hashes)))

    async def pack_message(self, tenant: str, message: Message) -> tuple[Message, tuple[str, ...]]:
        """Move large parts of a message into blobs."""
        if self._parts is None or not self._parts.has_large(message):
            return message, ()
        return await self._parts.detach(tenant, message)

    async def read(self, tenant: str, task_id: str, files_at: str | None = None) -> tuple[StoredTask, Task] | None:
        """Return a task, stored and as a model value, or None."""
        stored = await self.store.read(tasks.read_task, tenant, task_id)
        return None if stored is None else (stored, await self.unpack(tenant, stored, files_at))

    async def conversation(self, tenant: str, task_id: str, limit: int) -> tuple[Task, ...]:
        """Return the latest ended tasks of a task's context with the same owner and agent, oldest first."""
        found = await self.store.read(tasks.read_conversation, tenant, task_id, limit)
        return tuple([await self.unpack(tenant, stored) for stored in found])

    async def unpack(self, tenant: str, stored: StoredTask, files_at: str | None = None) -> Task:
        """Return a stored task with its large parts. With `files_at`, files beyond `inline_files` become links."""
        task = self._snapshots.task(tenant, stored)
        return await self._attached(tenant, task, files_at) if self.is_packed(stored) else task

    async def _attached(self, tenant: str, task: Task, files_at: str | None) -> Task:
        if self._parts is None:
            return task
        if files_at is None or self.linker is None:
            return await self._parts.attach(tenant, task)
        link = partial(self.linker, tenant, task.id, files_at)
        return await self._parts.attach(tenant, task, link, self.inline_files)

    async def as_of(self, tenant: str, stored: StoredTask, seq: int, files_at: str | None = None) -> Task | None:
        """Return a stored task as it was after an event, or None if its log does not reach back that far."""
        if stored.doc_seq <= seq:
            events = tuple(row for row in stored.events if row[0] <= seq)
            return await self.unpack(tenant, replace(stored, events=events), files_at)
        past = await self.events(tenant, stored.id, 0, seq) if seq > 0 else []
        if len(past) != seq or stored.min_seq > 1:
            return None
        task = decode_task(stored.doc)
        status = TaskStatus(state=TaskState.SUBMITTED, timestamp=task.created_at)
        metadata = {key: value for key, value in (task.metadata or {}).items() if key != USAGE}
        born = replace(task, status=status, history=task.history[:1], artifacts=(), metadata=metadata or None)
        return lifecycle.fold(await self._attached(tenant, born, files_at), past)

    def is_packed(self, stored: StoredTask) -> bool:
        """Whether a stored task refers to blobs. Searching for the marker is cheap, however long the task is."""
        if self._parts is None:
            return False
        marker = self._parts.marker
        return marker in stored.doc or any(marker in row[2] for row in stored.events)

    async def events(self, tenant: str, task_id: str, after: int, limit: int = tasks.READ_PAGE) -> list[Event]:
        """Return the events after a sequence number."""
        rows = await self.store.read(tasks.events_after, tenant, task_id, after, limit)
        events = [decode_event(row) for row in rows]
        parts = self._parts
        if parts is None:
            return events
        return [
            Event(seq=event.seq, body=await parts.attach(tenant, event.body), at=event.at)
            if parts.marker in row[2]
            else event
            for event, row in zip(events, rows, strict=True)
        ]

    async def leaves_open(self, tenant: str, task_id: str, event: Event) -> bool:
        """Whether the task pauses or ends with this event while an artifact lacks its last chunk.

        The latest chunk of each artifact counts. Artifacts from before the previous pause do not.
        """
        if not _ends_turn(event.body):
            return False
        seq, whole = event.seq, set[str]()
        while rows := await self.store.read(tasks.events_before, tenant, task_id, seq):
            seq = rows[-1][0]
            for body in (decode_event(row, dated=False).body for row in rows):
                if isinstance(body, Task) or _ends_turn(body):
                    return False
                if isinstance(body, ArtifactUpdate) and body.artifact.artifact_id not in whole:
                    if not body.last_chunk:
                        return True
                    whole.add(body.artifact.artifact_id)
        return False

    async def file(self, tenant: str, task_id: str, wanted: str) -> tuple[Part, int, AsyncIterator[bytes]] | None:
        """Return a task's file by its fingerprint, with its size and a stream of its bytes, or None.

        The returned part is in stored form, and its bytes must not be exposed. Only files of this task are read.
        Replaced files are found while the log reaches back that far.
        """
        stored = await self.store.read(tasks.read_task, tenant, task_id)
        if stored is None:
            return None
        found = self._known(parts_of(self._snapshots.task(tenant, stored)), wanted)
        last = stored.min_seq - 1
        while found is None and (rows := await self.store.read(tasks.events_after, tenant, task_id, last)):
            said = [part for row in rows if '"raw"' in row[2] for part in parts_of(decode_event(row).body)]
            found, last = self._known(said, wanted), rows[-1][0]
        if found is None:
            return None
        if self._parts is None:
            raw = found.raw or b""
            return found, len(raw), _whole(raw)
        return found, *await self._parts.opened(tenant, found)

    def _known(self, parts: Iterable[Part], wanted: str) -> Part | None:
        """Return the stored part that has a fingerprint, or None."""
        hash_of = self._parts.hash_of if self._parts else None
        files = (part for part in parts if part.raw is not None)
        return next((one for one in files if fingerprint(one, hash_of(one) if hash_of else None) == wanted), None)


async def _whole(raw: bytes) -> AsyncIterator[bytes]:
    yield raw


def _ends_turn(body: EventBody) -> bool:
    return isinstance(body, StatusUpdate) and body.status.state in AT_REST
