"""Talking to agents, as the AI SDK's `useChat` does: `/api/chat` takes a message and answers with a UI message stream.

What is said, and that an answer is to come, is kept before an agent is asked; the agent works however long somebody
listens. An agent elsewhere, or any if that is wanted, takes on a task instead: the answer says so and ends at once. How
answers come is `console.conversations.answers`, which chats there are `console.conversations.history`.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.a2a import Caller
from accord.console.conversations import uimessages, uistream
from accord.console.conversations.answers import STREAM, Answer, Answers, asked_as, data_of
from accord.console.conversations.history import CHAT_ID, ChatsApi, no_chat
from accord.console.conversations.models import ModelsApi
from accord.console.conversations.uimessages import UIMessage
from accord.console.house import House
from accord.console.routing import Asked, Reply, Route
from accord.console.rows import check_question, waiting
from accord.engine.ids import new_id
from accord.errors import AccordError, PermissionDenied, UnsupportedOperation
from accord.model import CancelRequest, Message, SendConfiguration, SendRequest
from accord.protocol import codec, lifecycle
from accord.protocol.codec import invalid_field
from accord.protocol.operations import Operation
from accord.protocol.states import LOWER
from accord.storage.commands import browsing, chats
from accord.storage.commands.browsing import Found
from accord.storage.commands.chats import ASSISTANT, USER, AlreadySaid, Chat, NoSuchChat, Said, Turn

MAX_ID = 200
"""Characters of an id that clients choose."""

WAYS_UP = frozenset({".", ".."})
"""What no chat is called, because browsers take it for a way to another address."""

MAX_CHAT_BODY = 32 * 1024 * 1024
"""Bytes of a message with its files; the server's own limit may be less."""

UNDECIDED = "The last task waits for an approval. Approve or reject it: a text decides nothing"
"""What a text in a chat is answered while an approval waits."""

Mode = Literal["stream", "task"]


class ChatBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """A request of `useChat`; of `messages` the last counts, because the server knows the others.

    `agent`, which others call `selectedChatModel` or `model`, is the name in the agent's path. Members that nobody here
    knows are passed over.
    """

    id: Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
    message: dict[str, Any] | None = None
    messages: list[dict[str, Any]] | None = None
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: Annotated[str, Meta(max_length=MAX_ID)] | None = None
    agent: str | None = None
    selected_chat_model: str | None = None
    model: str | None = None
    mode: Mode | None = None

    @property
    def wanted(self) -> str | None:
        """The agent that is asked for."""
        return self.agent or self.selected_chat_model or self.model

    @property
    def last(self) -> UIMessage:
        """What is said."""
        said = self.message or (self.messages[-1] if self.messages else None)
        if said is None or said.get("role", USER) != USER:
            raise invalid_field("message", "The last message has to be one of the user")
        identifier = said.get("id") or new_id()
        if not isinstance(identifier, str) or len(identifier) > MAX_ID:
            raise invalid_field("message.id", f"It has up to {MAX_ID} characters")
        return {**said, "id": identifier, "role": USER}


class StopBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which answer is to be stopped; without an id, the one that is coming."""

    message_id: str | None = None


class Wanted(Struct, frozen=True, kw_only=True):
    """A turn as it is wanted: the message, and the messages it takes the place of or comes after."""

    question: UIMessage
    is_new: bool = True
    instead_of: str | None = None
    after: str | None = None


_body, _stop = msgspec.json.Decoder(ChatBody), msgspec.json.Decoder(StopBody)


class ChatApi:
    """The handlers."""

    def __init__(self, house: House, answers: Answers) -> None:
        """Let people talk to the agents of `house`, whose answers come by `answers`."""
        self._house = house
        self._answers = answers
        self._chats = ChatsApi(house, answers)
        self._models = ModelsApi(house)

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        one = f"/api/chat/{CHAT_ID}"
        return (
            Route("POST", "/api/chat", self.post, takes=ChatBody, max_body=MAX_CHAT_BODY, streams=True),
            Route("GET", f"{one}/stream", self.resume),
            Route("POST", f"{one}/stop", self.stop_answer, noted="StopAnswer", status=204),
            *self._chats.routes(),
            *self._models.routes(),
        )

    # --- a turn ---------------------------------------------------------------------------------------------------

    async def post(self, asked: Asked) -> Reply:
        """Say something to an agent, and read its answer."""
        body, caller, house = codec.decode(asked.body, _body), asked.known, self._house
        if "/" in body.id or body.id in WAYS_UP:
            raise invalid_field("id", "It is a part of addresses: it has no slashes, and is not only dots")
        chat = await house.store.read(chats.find, caller.tenant, caller.owner, body.id)
        slug = self._slug(body, chat, caller)
        wanted = await self._wanted(body, chat, caller.tenant)
        coming = await self._repeated(wanted, chat, caller)
        if coming is not None:
            return _stream(coming, asked)
        uimessages.parts_of(wanted.question)  # what cannot be sent is not kept
        is_reply = wanted.is_new and wanted.instead_of is None
        answered = await self._waiting(chat, slug, wanted.question, caller) if is_reply else None
        answer_id = new_id()
        answer = self._answers.expect(caller.tenant, body.id, answer_id)  # before anybody can see that it is to come
        try:
            chat = await self._begun(body.id, slug, wanted, answer_id, caller)
            await self._send(chat, answer_id, wanted.question, answered, body.mode or self._models.mode(slug), caller)
        except AlreadySaid:  # by the same request, sent twice at once
            self._answers.forget(answer)
            return await self.post(asked)
        except BaseException:
            self._answers.forget(answer)
            raise
        return _stream(answer, asked)

    def _slug(self, body: ChatBody, chat: Chat | None, caller: Caller) -> str:
        """Return the agent that is talked to: the one asked for, the chat's own, or the server's first."""
        house = self._house
        offered = self._models.offered
        slug = body.wanted or (chat.agent if chat else next(iter(offered), next(iter(house.agents))))
        if slug not in house.agents:
            raise invalid_field("agent", f"There is no agent called {slug[:60]!r} here")
        if slug not in offered:
            raise UnsupportedOperation("Remote agents are not offered in chats here")
        if not house.sight.may(caller, house.agents[slug].profile.name, Operation.SEND):
            raise PermissionDenied("Your roles do not include sending to this agent")
        return slug

    async def _repeated(self, wanted: Wanted, chat: Chat | None, caller: Caller) -> Answer | None:
        """Return the answer that is coming already, if the same was said just before."""
        if chat is None or wanted.instead_of is None:
            return None
        last = await self._house.store.read(chats.said, caller.tenant, chat.id)
        is_same = len(last) == 2 and last[0].id == wanted.instead_of and last[0].doc == _doc(wanted.question)
        active = await self._answers.active(caller.tenant, chat) if is_same and last[1].doc is None else []
        return next((one for one in active if one.key[2] == last[1].id), None)

    async def _wanted(self, body: ChatBody, chat: Chat | None, tenant: str) -> Wanted:
        """Return what is said, or said again, and what of the chat makes way for it."""
        if body.trigger == "submit-message":
            said = body.last
            known = [] if chat is None else await self._house.store.read(chats.said, tenant, chat.id, said["id"])
            return Wanted(question=said, instead_of=said["id"] if known else None)
        found = [] if chat is None else await self._house.store.read(chats.said, tenant, chat.id, body.message_id)
        question = next((one for one in reversed(found) if one.role != ASSISTANT and one.doc), None)
        if question is None or question.doc is None:
            raise no_chat("There is no such message to be answered again")
        return Wanted(question=msgspec.json.decode(question.doc), is_new=False, after=question.id)

    async def _waiting(self, chat: Chat | None, slug: str, said: UIMessage, caller: Caller) -> str | None:
        """Return the task of the last answer, if it waits for this message; raises InvalidParams for an approval.

        An approval takes a decision (`data-reply` with `approved`): a text says something, it decides nothing. A reply
        whose `id` is not the question of the task is refused with UnsupportedOperation.
        """
        task = await self._asking(chat, slug, caller)
        check_question(uimessages.answered_in(said), None if task is None else task.message)
        if task is None:
            return None
        if waiting(task.state, task.message) == "approval" and not uimessages.is_decision(said):
            raise invalid_field("message.parts", UNDECIDED)
        return task.id

    async def _asking(self, chat: Chat | None, slug: str, caller: Caller) -> Found | None:
        """Return the task of the last answer if it asks something."""
        last = [] if chat is None else await self._house.store.read(chats.said, caller.tenant, chat.id)
        if not last or last[-1].task_id is None or last[-1].agent != slug:
            return None
        found = await self._house.store.read(browsing.rows, caller.tenant, [last[-1].task_id])
        return next((one for one in found if one.owner == caller.owner and one.state in lifecycle.INTERRUPTED), None)

    async def _begun(self, chat_id: str, slug: str, wanted: Wanted, answer_id: str, caller: Caller) -> Chat:
        """Keep what is said and that an answer is to come; tasks of answers that made way for it end."""
        at = self._house.now_ms()
        new = Chat(
            id=chat_id,
            owner=caller.owner,
            context_id=new_id(),
            agent=slug,
            title=uimessages.title_of(wanted.question),
            created_at=at,
            updated_at=at,
        )
        turn = Turn(
            chat=new,
            agent=slug,
            answer_id=answer_id,
            at=at,
            message_id=wanted.question["id"],
            doc=_doc(wanted.question) if wanted.is_new else None,
            instead_of=wanted.instead_of,
            after=wanted.after,
        )
        try:
            begun = await self._house.store.do(chats.begin, caller.tenant, turn)
        except NoSuchChat:
            raise no_chat() from None
        for said in begun.dropped:
            await self._cancel(said, caller)
        return begun.chat

    async def _send(
        self, chat: Chat, answer_id: str, question: UIMessage, answered: str | None, mode: Mode, caller: Caller
    ) -> None:
        """Tell the agent, and let its answer come."""
        tenant, store = caller.tenant, self._house.store
        said = Said(seq=0, id=answer_id, role=ASSISTANT, agent=chat.agent, created_at=chat.updated_at)
        asked = asked_as((Said(seq=0, id=question["id"], role=USER),), said)
        message = uimessages.message_of(question, asked, chat.context_id, answered)
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        try:
            given = await self._house.services[chat.agent].send(request, caller)
        except AccordError:
            await store.do(chats.withdraw, tenant, chat.id, answer_id)
            raise
        if isinstance(given, Message):
            about = await self._answers.about(tenant, chat, said)
            await self._answers.give(tenant, chat, answer_id, uistream.answered(about, given))
            return
        linked = replace(said, task_id=given.id, asked=asked if answered else None)
        if not await store.do(chats.link, tenant, chat.id, answer_id, given.id, linked.asked, data_of(given.id)):
            await self._cancel(linked, caller)  # it has made way for another answer while it was sent
        if mode == "task":
            about = await self._answers.about(tenant, chat, linked)
            status = LOWER[given.status.state]
            await self._answers.give(tenant, chat, answer_id, uistream.acknowledged(about, status))
        else:
            self._answers.follow(tenant, chat, linked)

    # --- an answer that is coming ---------------------------------------------------------------------------------

    async def resume(self, asked: Asked) -> Reply:
        """Read the answer that is coming from its beginning; there is none if no content is answered.

        Nor is there one in a chat of somebody else, or in one that is still to begin, which `useChat` asks about too.
        """
        caller = asked.known
        chat = await self._house.store.read(chats.find, caller.tenant, caller.owner, asked.parts["chat"])
        active = [] if chat is None else await self._answers.active(caller.tenant, chat)
        return _stream(active[-1], asked) if active else Reply(204)

    async def stop_answer(self, asked: Asked) -> Reply:
        """Cancel the task of the answer that is coming."""
        caller = asked.known
        wanted = codec.decode(asked.body, _stop).message_id if asked.body else None
        chat = await self._chats.found(asked)
        for answer in await self._answers.active(caller.tenant, chat):
            await answer.begins.wait()
        tenant, store = caller.tenant, self._house.store
        stopped = _stopped(await store.read(chats.pending, tenant, chat.id), wanted)
        for id in stopped:  # of those that another process is sending: it finds that out, and cancels the task
            await store.do(chats.withdraw, tenant, chat.id, id)
        for said in await store.read(chats.pending, tenant, chat.id):
            if said.id in stopped:
                await self._cancel(said, caller)
        return Reply(204)

    async def _cancel(self, said: Said, caller: Caller) -> None:
        service = self._house.services.get(said.agent or "")
        if said.task_id is not None and service is not None:
            with suppress(AccordError):  # it has ended, or is none of theirs
                await service.cancel(CancelRequest(id=said.task_id), caller)


def _stopped(coming: Sequence[Said], wanted: str | None) -> Sequence[str]:
    """Return the answers that are to be stopped; one that is named may have ended, and another begun."""
    return [one.id for one in coming[-1:]] if wanted is None else [one.id for one in coming if one.id == wanted]


def _doc(message: UIMessage) -> str:
    return msgspec.json.encode(message).decode()


def _stream(answer: Answer, asked: Asked) -> Reply:
    version = asked.query.get("ui", ["5"])[0]
    return Reply(stream=answer.frames(6 if version in ("6", "7") else 5), headers=STREAM)
