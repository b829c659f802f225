"""Turns of hosted agents: context ids, stored progress and reported events.

A framework that keys its memory by context id gets an id per caller (`external_context`), because callers choose their
`contextId`s. `TurnMemory` stores the progress of a turn and the turns before it. `EventRecord` writes the events of an
executor or worker into the task's event log. A question that ends a turn suspends the task.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from accord.api import Context, Failed, IncomingMessage, StoreUnavailable
from accord.api.remote import RemoteCancel
from accord.model import Artifact, ArtifactUpdate, EventBody, Message, Role, StatusUpdate, Task, TaskState, TaskStatus
from accord.protocol.lifecycle import INTERRUPTED, TERMINAL

T = TypeVar("T", bound=EventBody)


def external_context(ctx: Context, *place: str) -> str:
    """Return the id of a task's conversation for external services, stable for each caller; `place` names the service.

    Callers must not enter each other's conversations by choosing the same name. Their own name is passed on only if
    callers are not authenticated.
    """
    if not ctx.caller.owner and not ctx.tenant:
        return ctx.context_id
    identity = (ctx.tenant, ctx.caller.owner, *place, ctx.context_id)
    return str(uuid5(NAMESPACE_URL, msgspec.json.encode(identity).decode()))


def with_context_id(value: T, context_id: str) -> T:
    """Return a task, message or event with this context id in place of any other."""
    return replace(value, **_context_fields(value, context_id))


def _context_fields(value: EventBody, context_id: str) -> dict[str, object]:
    fields: dict[str, object] = {} if value.context_id is None else {"context_id": context_id}
    if isinstance(value, Task | StatusUpdate):
        fields["status"] = _status(value.status, context_id)
    if isinstance(value, Task):
        fields["history"] = tuple(with_context_id(message, context_id) for message in value.history)
    return fields


def _status(status: TaskStatus, context_id: str) -> TaskStatus:
    return status if status.message is None else replace(status, message=with_context_id(status.message, context_id))


Form = TypeVar("Form")


class StoredTurn(Struct, frozen=True):
    """The id of a turn, and its messages in a conversation."""

    id: str
    messages: Raw


class _TurnNote(Struct, frozen=True):
    turn: str
    value: Raw = Raw(b"null")
    is_done: bool = False


class TurnMemory:
    """The stored state of one turn."""

    def __init__(self, ctx: Context, kind: str) -> None:
        """Store the state of an agent type; keys start with its name."""
        self.turn = f"{ctx.task_id}/{ctx.message.message_id}"
        self._ctx = ctx
        self._history = f"{kind}/history"
        self._note_key = f"{kind}/turn/{ctx.task_id}"

    async def load(self, form: type[Form]) -> tuple[Form | None, bool]:
        """Return the latest note of this turn, and whether the turn is done."""
        stored = await self._ctx.recall_context(self._note_key)
        save = None if stored is None else msgspec.json.decode(stored, type=_TurnNote)
        if save is None or save.turn != self.turn:
            return None, False
        return msgspec.json.decode(save.value, type=form | None), save.is_done

    async def save(self, value: Struct) -> None:
        """Store the progress of the turn, after all of its output is committed."""
        await self._write_note(_TurnNote(self.turn, Raw(msgspec.json.encode(value))))

    async def earlier_turns(self) -> list[StoredTurn]:
        """Return the turns of the conversation before this one."""
        return self._other_turns(await self._ctx.recall_context(self._history))

    async def close(self, messages: Raw, keep: Callable[[list[StoredTurn]], list[StoredTurn]]) -> None:
        """Add this turn's messages to the conversation; another execution of the turn then does nothing.

        `keep` selects the turns to store from all turns. This turn is the last one, after those that other tasks have
        added meanwhile.
        """
        await self._ctx.flush()
        turn = StoredTurn(self.turn, messages)

        def joined(stored: str | None) -> str:
            return msgspec.json.encode(keep([*self._other_turns(stored), turn])).decode()

        await self._ctx.remember_context(self._history, joined)
        await self._write_note(_TurnNote(self.turn, is_done=True))

    def _other_turns(self, stored: str | None) -> list[StoredTurn]:
        turns = [] if stored is None else msgspec.json.decode(stored, type=list[StoredTurn])
        return [turn for turn in turns if turn.id != self.turn]

    async def _write_note(self, save: _TurnNote) -> None:
        await self._ctx.flush()
        await self._ctx.remember_context(self._note_key, msgspec.json.encode(save).decode())


SHOW_QUESTION_SECONDS = 0.2
"""Time that a question waits for the end of its turn, which suspends the task, in seconds.

An agent that continues after its question waits for an answer out of band, and the caller must see the question.
"""

OWN_CANCEL_SECONDS = 0.5
"""Time for an agent's own cancel, in seconds, before it is stopped."""

STOP_SECONDS = 5.0
"""Time for canceled work and an agent's own cancel to clean up, in seconds."""

log = logging.getLogger("accord.agents")


class QuestionTurn(Struct, frozen=True, kw_only=True):
    """A turn that ended with a question, which is in the event log if it `is_shown`.

    `parts` contains the number of parts of each artifact at that time.
    """

    question: StatusUpdate
    is_shown: bool
    parts: dict[str, int]


class EventRecord:
    """The events of one turn."""

    def __init__(self, ctx: Context, before: QuestionTurn | None) -> None:
        """Write to `ctx`, whose earlier turns ended with `before`."""
        self.is_first = before is None
        self._ctx = ctx
        self._before = _artifacts_before(ctx.task, before)
        self._state = ctx.task.status.state
        self._open: set[str] = set()
        self._has_ended = False
        self._question: StatusUpdate | None = None
        self._is_shown = False
        self._showing: asyncio.Task[None] | None = None

    async def turn(self) -> QuestionTurn | None:
        """Return the turn if it ended with a question, else None."""
        if self._question is None:
            return None
        await self._ctx.flush()  # the task does not contain pending commits
        parts = {artifact.artifact_id: len(artifact.parts) for artifact in self._ctx.task.artifacts}
        return QuestionTurn(question=self._question, is_shown=self._is_shown, parts=parts)

    async def put(self, body: EventBody) -> None:
        """Write an event."""
        if self._has_ended:
            log.warning("agent.said_too_late", extra={"task_id": self._ctx.task_id, "said": type(body).__name__})
            return
        body = with_context_id(body, self._ctx.context_id)  # the agent may have another id for it
        match body:
            case StatusUpdate():
                self._check(body.task_id)
                await self._status(body)
            case ArtifactUpdate():
                self._check(body.task_id)
                await self._artifact(body)
            case Task():
                self._check(body.id)
                await self._task(body)
            case Message():
                await self._end(TaskState.COMPLETED, body)

    async def close(self) -> None:
        """End the turn, and cancel a question that is not shown yet."""
        showing, self._showing = self._showing, None
        if showing is not None:
            showing.cancel()
            await asyncio.wait({showing})
            if not showing.cancelled():
                showing.result()

    def _check(self, task_id: str) -> None:
        if task_id != self._ctx.task_id:
            raise Failed(f"The agent reported on task {task_id} while it worked on {self._ctx.task_id}")

    async def _status(self, update: StatusUpdate) -> None:
        await self.close()
        await self._show()
        state, message = update.status.state, update.status.message
        self._question = None
        if state in INTERRUPTED:
            self._question, self._is_shown = update, False
            self._showing = asyncio.create_task(self._show_later(), name=f"question {self._ctx.task_id}")
        elif state in TERMINAL:
            await self._end(state, message, update)
        elif message is not None or update.metadata or self._state is not TaskState.WORKING:
            self._state = TaskState.WORKING  # an agent that reports SUBMITTED has started
            await self._ctx.enter(TaskState.WORKING, message, metadata=update.metadata)

    async def _end(self, state: TaskState, message: Message | None, update: StatusUpdate | None = None) -> None:
        self._has_ended = True
        for artifact_id in sorted(self._open):
            await self._ctx.finish(artifact_id)
        await self._ctx.enter(state, message, metadata=update.metadata if update else None)

    async def _artifact(self, update: ArtifactUpdate) -> None:
        artifact, append = update.artifact, bool(update.append)
        (self._open.discard if update.last_chunk else self._open.add)(artifact.artifact_id)
        earlier = self._before.pop(artifact.artifact_id, None)
        if append and earlier is not None:  # else the first chunk would replace the earlier parts
            artifact, append = replace(earlier, parts=earlier.parts + artifact.parts), False
        await self._ctx.artifact(artifact, append=append, last_chunk=bool(update.last_chunk))

    async def _task(self, task: Task) -> None:
        """Write the parts of a whole task that are not in the event log."""
        await self._ctx.flush()
        context_id = self._ctx.context_id
        known_ids = {message.message_id for message in self._ctx.history}
        for message in task.history:
            if message.role is Role.AGENT and message.message_id not in known_ids:
                await self._ctx.say(message)
        have = self._ctx.task.artifacts
        for artifact in task.artifacts:
            if artifact not in have:
                whole = ArtifactUpdate(task_id=task.id, context_id=context_id, artifact=artifact, last_chunk=True)
                await self._artifact(whole)
        await self._status(StatusUpdate(task_id=task.id, context_id=context_id, status=task.status))

    async def _show_later(self) -> None:
        await asyncio.sleep(SHOW_QUESTION_SECONDS)
        await self._show()

    async def _show(self) -> None:
        """Show a question to subscribers while the turn continues."""
        question = self._question
        if question is not None and not self._is_shown:
            self._is_shown, self._state = True, question.status.state
            await self._ctx.enter(question.status.state, question.status.message, metadata=question.metadata)


RunTurn = Callable[[Message, EventRecord], Awaitable[None]]


async def run_turns(ctx: Context, run_turn: RunTurn) -> None:
    """Execute the turns of a task: one for its message, and one for each answer to a question that ended a turn.

    A finished turn is not executed again, even after a crash.
    """
    message, number = ctx.message, 0
    before: QuestionTurn | None = None
    while True:
        key = f"turn/{number}"
        stored = ctx.kept(key)
        if stored is None:
            turn = await _run_turn(run_turn, message, EventRecord(ctx, before))
            if turn is None:
                return
            stored = await ctx.keep(key, msgspec.json.encode(turn).decode())
            if turn.is_shown:
                await ctx.pause()
        before = msgspec.json.decode(stored, type=QuestionTurn)
        message = (await _wait_for_answer(ctx, before, key)).message
        number += 1


async def _run_turn(run_turn: RunTurn, message: Message, record: EventRecord) -> QuestionTurn | None:
    try:
        await run_turn(message, record)
    finally:
        await record.close()
    return await record.turn()


async def _wait_for_answer(ctx: Context, turn: QuestionTurn, key: str) -> IncomingMessage:
    status = turn.question.status
    asking = ctx.require_auth if status.state is TaskState.AUTH_REQUIRED else ctx.ask
    return await asking(status.message, key=key)


async def run_cancelable(
    ctx: Context, coroutine: Coroutine[Any, Any, None], cancel: Callable[[], Awaitable[None]]
) -> None:
    """Run work with its own way to cancel, which is called first if the task was ended from outside.

    If another node continues the task, the work is only stopped.
    """
    work = asyncio.create_task(coroutine, name=f"work {ctx.task_id}")
    try:
        await asyncio.wait({work})
    except asyncio.CancelledError:
        await _stop(ctx, work, cancel)
        raise
    await work


async def _stop(ctx: Context, work: asyncio.Task[None], cancel: Callable[[], Awaitable[None]]) -> None:
    awaited = {work}
    if await _has_ended(ctx):
        canceling = asyncio.create_task(_cancel_work(ctx, cancel), name=f"cancel {ctx.task_id}")
        awaited.add(canceling)
        await asyncio.wait({canceling}, timeout=OWN_CANCEL_SECONDS)
    work.cancel()
    done, unfinished = await asyncio.wait(awaited, timeout=STOP_SECONDS)
    for task in unfinished:
        log.warning("agent.does_not_stop", extra={"task_id": ctx.task_id, "doing": task.get_name()})
        task.cancel()
    if work in done and not work.cancelled() and (error := work.exception()) is not None:
        log.info("agent.late_error", extra={"task_id": ctx.task_id}, exc_info=error)


async def _has_ended(ctx: Context) -> bool:
    """Whether the task has ended; false if the store does not answer in time, so that the work is stopped."""
    try:
        async with asyncio.timeout(OWN_CANCEL_SECONDS):
            return await ctx.has_ended()
    except TimeoutError:
        return False


async def _cancel_work(ctx: Context, cancel: Callable[[], Awaitable[None]]) -> None:
    try:
        await cancel()
    except Exception:  # the task has ended, so there is no client to report to
        log.exception("agent.cancel_failed", extra={"task_id": ctx.task_id})


def _artifacts_before(task: Task, before: QuestionTurn | None) -> dict[str, Artifact]:
    """Return the artifacts at the end of earlier turns, since a lost execution may have added to them."""
    if before is None:
        return {}
    return {
        artifact.artifact_id: replace(artifact, parts=artifact.parts[: before.parts[artifact.artifact_id]])
        for artifact in task.artifacts
        if artifact.artifact_id in before.parts
    }


class CancelLoop:
    """Passes on the cancels of tasks that another system executes. Each is due again until it is passed on."""

    def __init__(
        self,
        service: str,
        claim: Callable[[], Awaitable[Sequence[RemoteCancel]]],
        pass_on: Callable[[RemoteCancel], Awaitable[None]],
        seconds: float,
    ) -> None:
        """Check for cancels every `seconds`."""
        self._service = service
        self._claim = claim
        self._pass_on = pass_on
        self._seconds = seconds

    async def run(self) -> None:
        """Pass on cancels until canceled."""
        while True:
            await self.pass_on_due()
            await asyncio.sleep(self._seconds)

    async def pass_on_due(self) -> None:
        """Pass on the cancels that are due."""
        try:
            while due := await self._claim():
                await asyncio.gather(*(self._pass_on(cancel) for cancel in due))
        except StoreUnavailable as error:
            log.warning("store.unavailable", extra={"reason": str(error)})
        except Exception:  # the node must continue; the log has the error
            log.exception("cancel.loop_failed", extra={"service": self._service})
