"""Answers of chats: read once per process, and stored when they end.

A page that disconnects changes nothing. After a restart an answer is read again from the start of its event log.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import msgspec
from msgspec.structs import replace

from accord.api import Agent, StoreUnavailable, chats, queries
from accord.api.chats import ASSISTANT, Chat, ChatMessage
from accord.console import ui_messages, ui_stream
from accord.console.server_context import ServerContext
from accord.console.ui_stream import AnswerInfo, Chunk, UiStreamEncoder
from accord.errors import TaskNotFound
from accord.http.sse import KEEP_ALIVE_SECONDS, STREAM_HEADERS
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.protocol.sse import KEEP_ALIVE

STREAM = [*STREAM_HEADERS, (b"x-vercel-ai-ui-message-stream", b"v1")]
"""Headers of a UI message stream."""

UNSURE_MS = 60_000
"""Milliseconds that a message may take to reach an agent, before an answer without a task counts as lost."""

SEARCHED_TASKS = 20
"""Tasks of a context that are searched for one whose id was not stored in time."""

NOT_SENT = "The server was stopped before the agent got the message. Send it again."
STOPPED = "The server was stopped. The answer is there when it is back."
UNREADABLE = "The answer cannot be read at the moment. Look again later."
NOT_KEPT = "The task of this answer is not kept any more."

log = logging.getLogger("accord.chat")

Key = tuple[str, str, str]


class ChatAnswer:
    """One answer and its chunks so far."""

    def __init__(self, key: Key) -> None:
        """Create an answer without chunks."""
        self.key = key
        self.is_done = False
        self.begins = asyncio.Event()
        self.chunks: list[Chunk] = []
        self._changed = asyncio.Event()

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Append chunks and wake the readers."""
        self.chunks += chunks
        self._wake()

    def end(self) -> None:
        """Mark the answer as complete and wake the readers."""
        self.is_done = True
        self._wake()

    def _wake(self) -> None:
        self.begins.set()
        self._changed.set()
        self._changed = asyncio.Event()

    async def frames(self, version: int) -> AsyncIterator[bytes]:
        """Yield the answer from its start as frames, with keep-alive comments while it waits."""
        read = 0
        while True:
            changed = self._changed
            if read < len(self.chunks):
                new, read = self.chunks[read:], len(self.chunks)
                yield b"".join(ui_stream.frame(chunk, version) for chunk in new)
            elif self.is_done:
                yield ui_stream.DONE
                return
            else:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    yield KEEP_ALIVE


class ChatAnswers:
    """The answers of a server's chats."""

    def __init__(self, server: ServerContext) -> None:
        """Create the answers of `server`."""
        self._server = server
        self._answers: dict[Key, ChatAnswer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """Stop subscriptions. An unfinished answer is read again on the next request."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for answer in list(self._answers.values()):
            self._fail(answer, STOPPED)

    # --- new answers ----------------------------------------------------------------------------------------------

    def expect(self, tenant: str, chat_id: str, answer_id: str) -> ChatAnswer:
        """Return an answer whose message is on its way to the agent."""
        key = (tenant, chat_id, answer_id)
        return self._answers.setdefault(key, ChatAnswer(key))

    def forget(self, answer: ChatAnswer) -> None:
        """End an answer and remove it from memory."""
        self._answers.pop(answer.key, None)
        answer.end()

    def follow(self, tenant: str, chat: Chat, message: ChatMessage) -> ChatAnswer:
        """Return an answer with a task, and subscribe to the task unless already subscribed."""
        answer = self.expect(tenant, chat.id, message.id)
        if not answer.begins.is_set():
            answer.begins.set()
            task = asyncio.create_task(self._read(tenant, chat, message, answer), name=f"answer {message.id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answer

    async def _read(self, tenant: str, chat: Chat, message: ChatMessage, answer: ChatAnswer) -> None:
        try:
            await self._encode(tenant, chat, message, answer)
            await self.keep(tenant, chat, message.id, answer.chunks)
        except StoreUnavailable as error:
            log.warning("chat.followed_later", extra={"chat": chat.id, "reason": str(error)})
            self._fail(answer, UNREADABLE)
        except Exception:  # readers must not wait forever
            log.exception("chat.not_followed", extra={"chat": chat.id, "task_id": message.task_id})
            self._fail(answer, UNREADABLE)
        else:
            self.forget(answer)

    def _fail(self, answer: ChatAnswer, reason: str) -> None:
        """End an answer with an error: a stream that only stops looks complete."""
        answer.add([{"type": "error", "errorText": reason}])
        self.forget(answer)

    async def _encode(self, tenant: str, chat: Chat, message: ChatMessage, answer: ChatAnswer) -> None:
        """Feed an answer from its task's events, until the task ends or waits for a person."""
        about = await self.about(tenant, chat, message)
        encoder, hub = UiStreamEncoder(about), self._server.host.node.hub
        answer.add(encoder.begin())
        try:
            async with hub.follow(tenant, about.task_id, 0) as follower:
                events = follower.events(lambda _: False)
                async with aclosing(events):  # type: ignore[type-var]  # it is an async generator
                    async for event in events:
                        answer.add(encoder.feed(event))
                        if encoder.is_done:
                            return
        except TaskNotFound:
            answer.add(encoder.broken(NOT_KEPT))

    async def give(self, tenant: str, chat: Chat, answer_id: str, chunks: Sequence[Chunk]) -> None:
        """Store an answer that is already complete."""
        answer = self.expect(tenant, chat.id, answer_id)
        answer.add(chunks)
        await self.keep(tenant, chat, answer_id, chunks)
        self.forget(answer)

    async def keep(self, tenant: str, chat: Chat, answer_id: str, chunks: Sequence[Chunk]) -> None:
        """Store an answer that has ended."""
        doc = msgspec.json.encode(ui_messages.fold_chunks(chunks)).decode()
        await chats.finish_answer(self._server.store, tenant, chat.id, answer_id, doc)

    async def about(self, tenant: str, chat: Chat, message: ChatMessage) -> AnswerInfo:
        """Return the task, agent and title of an answer."""
        before = await chats.read_message_pair(self._server.store, tenant, chat.id, message.id)
        question = next((earlier.doc for earlier in before if earlier.role != ASSISTANT and earlier.doc), None)
        agent: Agent | None = self._server.agents.get(message.agent or "")
        return AnswerInfo(
            message_id=message.id,
            task_id=message.task_id or "",
            context_id=chat.context_id,
            agent=agent.profile.name if agent else message.agent or "",
            slug=message.agent or "",
            created_at=timestamp_ms(message.created_at),
            title=ui_messages.title_from(msgspec.json.decode(question)) if question else "",
            asked=message.asked,
        )

    # --- answers of an earlier process ----------------------------------------------------------------------------

    async def active(self, tenant: str, chat: Chat) -> list[ChatAnswer]:
        """Return the pending answers of a chat. Those that have ended meanwhile are stored first."""
        answers = []
        for message in await chats.list_pending_answers(self._server.store, tenant, chat.id):
            running = self._answers.get((tenant, chat.id, message.id))
            if running is not None:
                answers.append(running)
                continue
            linked = message if message.task_id else await self._find_task(tenant, chat, message)
            if linked is None:
                continue
            answer = self.follow(tenant, chat, linked)
            if await self._is_over(tenant, linked):
                async for _ in answer.frames(5):
                    pass
            else:
                answers.append(answer)
        return answers

    async def _is_over(self, tenant: str, message: ChatMessage) -> bool:
        head = await queries.read_task_head(self._server.store, tenant, message.task_id or "")
        return head is None or head.task_state in lifecycle.ENDED | lifecycle.INTERRUPTED

    async def _find_task(self, tenant: str, chat: Chat, message: ChatMessage) -> ChatMessage | None:
        """Return an answer with the task that its message created, or None without such a task.

        The task is found by the message id, which is unique. After `UNSURE_MS` without a task the answer is stored as
        not sent.
        """
        server = self._server
        message_id = attempt_message_id(
            await chats.read_message_pair(server.store, tenant, chat.id, message.id), message
        )
        query = queries.TaskListQuery(owner=chat.owner, context_id=chat.context_id, limit=SEARCHED_TASKS)
        for stored in (await queries.list_tasks(server.store, tenant, query))[0]:
            task = await server.host.node.task_store.unpack(tenant, stored)
            places = [at for at, turn in enumerate(task.history) if turn.message_id == message_id]
            if places:
                asked = message_id if places[0] else None
                data = task_data_id(task.id)
                await chats.link_task(server.store, tenant, chat.id, message.id, task.id, asked, data)
                return replace(message, task_id=task.id, asked=asked, data=data)
        if server.now_ms() - message.created_at > UNSURE_MS:
            encoder = UiStreamEncoder(await self.about(tenant, chat, message))
            await self.keep(tenant, chat, message.id, [*encoder.begin(), *encoder.broken(NOT_SENT)])
        return None


def task_data_id(task_id: str) -> str:
    """Return the data id of a message that introduces a task."""
    return msgspec.json.encode({"artifactType": ui_stream.TASK, "taskId": task_id}).decode()


def attempt_message_id(before: Sequence[ChatMessage], answer: ChatMessage) -> str:
    """Return the id of the message sent to the agent: unique per attempt at an answer."""
    question = next((message.id for message in before if message.role != ASSISTANT), "")
    return f"{question}/{answer.id}"
