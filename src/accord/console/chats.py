"""Chats with agents, in the protocol of the AI SDK's `useChat`.

`/api/chat` takes a message and answers with a UI message stream. The message is stored before the agent receives it,
and the agent works on without readers. The stored chats of a caller, and the agents to choose from, are here too.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.a2a import Caller
from accord.api import Agent, chats, new_id, queries
from accord.api.chats import ASSISTANT, USER, Chat, ChatMessage, DuplicateMessage, NewChatTurn, NoSuchChat
from accord.api.queries import ListedTask
from accord.api.remote import ContactPort, RemoteAgentPort
from accord.console import ui_messages, ui_stream
from accord.console.chat_answers import STREAM, ChatAnswer, ChatAnswers, attempt_message_id, task_data_id
from accord.console.routing import ApiReply, ApiRequest, ApiRoute, PageToken
from accord.console.server_context import ServerContext
from accord.console.task_rows import chat_row, check_question, waiting_reason_of
from accord.console.ui_messages import UIMessage
from accord.console.views import ChatPage, ChatRow, ChatView, Limit, Model
from accord.errors import AccordError, PermissionDenied, TaskNotFound, UnsupportedOperation
from accord.model import CancelRequest, Message, SendConfiguration, SendRequest
from accord.protocol import codec, lifecycle
from accord.protocol.codec import invalid_field
from accord.protocol.operations import Operation
from accord.protocol.states import LOWER

EXAMPLES = 4
"""Maximum number of example prompts shown per agent."""


class ModelsApi:
    """The agents that chats offer."""

    def __init__(self, house: ServerContext) -> None:
        """Create the handlers for the agents of `house`."""
        self._house = house

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        return (ApiRoute("GET", "/api/models", self.listed, gives=list[Model]),)

    async def listed(self, asked: ApiRequest) -> ApiReply:
        """List the agents that the caller may send to."""
        house, caller = self._house, asked.known
        return ApiReply(
            body=[
                self._model(slug)
                for slug, agent in self.offered.items()
                if house.sight.may(caller, agent.profile.name, Operation.SEND)
            ]
        )

    @cached_property
    def offered(self) -> Mapping[str, Agent]:
        """The agents that chats offer, the default first. Without A2A they are this server's own agents."""
        agents = self._house.agents
        if self._house.terms.a2a:
            return agents
        return {slug: agent for slug, agent in agents.items() if not isinstance(agent, ContactPort)}

    def mode(self, slug: str) -> Literal["stream", "task"]:
        """Return the default mode of an agent: `task` for remote agents unless the settings say otherwise."""
        stated = self._house.terms.task_mode
        is_task = isinstance(self._house.agents[slug], RemoteAgentPort) if stated is None else stated
        return "task" if is_task else "stream"

    def _model(self, slug: str) -> Model:
        profile = self._house.agents[slug].profile
        examples = [example for skill in profile.skills for example in skill.examples]
        return Model(
            id=slug,
            name=profile.name,
            description=profile.description,
            mode=self.mode(slug),
            is_default=slug == next(iter(self.offered)),
            examples=examples[:EXAMPLES],
        )


CHAT_ID = "(?P<chat>[^/]{1,200})"


class ChatQuery(Struct, frozen=True, kw_only=True):
    """Filters of the list of chats: `q` are words in titles or messages, `page` is a page token."""

    q: Annotated[str, Meta(max_length=200)] = ""
    page: Annotated[str, Meta(max_length=512)] | None = None
    limit: Limit = 50


class Renamed(Struct, frozen=True, kw_only=True):
    """A new title."""

    title: Annotated[str, Meta(min_length=1, max_length=200)]


_renamed = msgspec.json.Decoder(Renamed)


class ChatHistoryApi:
    """The stored chats of a caller."""

    def __init__(self, house: ServerContext, answers: ChatAnswers) -> None:
        """Create the handlers for chats with these `answers`."""
        self._house = house
        self._answers = answers

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        one = f"/api/chats/{CHAT_ID}"
        return (
            ApiRoute("GET", "/api/chats", self.listed, finds=ChatQuery, gives=ChatPage),
            ApiRoute("GET", one, self.show, gives=ChatView),
            ApiRoute("PATCH", one, self.rename, takes=Renamed, gives=ChatRow),
            ApiRoute("DELETE", one, self.delete, status=204),
        )

    async def found(self, asked: ApiRequest) -> Chat:
        """Return the requested chat. A chat of another owner raises the same error as a missing one."""
        caller = asked.known
        found = await chats.find(self._house.store, caller.tenant, caller.owner, asked.parts["chat"])
        if found is None:
            raise chat_not_found()
        return found

    async def listed(self, asked: ApiRequest) -> ApiReply:
        """List the caller's chats, newest first."""
        caller, wanted, feed = asked.known, asked.found(ChatQuery), self._house.feed.seq
        before = PageToken.read(wanted.page, tuple[int, str])
        found = await chats.list_chats(
            self._house.store, caller.tenant, caller.owner, wanted.q.strip(), before, wanted.limit + 1
        )
        shown = found[: wanted.limit]
        following = PageToken.write((shown[-1].updated_at, shown[-1].id)) if len(found) > wanted.limit else None
        return ApiReply(body=ChatPage(items=[chat_row(chat) for chat in shown], next=following, feed=feed))

    async def show(self, asked: ApiRequest) -> ApiReply:
        """Show a chat and its messages."""
        feed, tenant = self._house.feed.seq, asked.known.tenant
        chat = await self.found(asked)
        active = await self._answers.active(tenant, chat)
        said = await chats.list_messages(self._house.store, tenant, chat.id)
        shown = msgspec.structs.replace(chat, is_active=bool(active))
        messages = [msgspec.json.decode(one.doc) for one in said if one.doc is not None]
        return ApiReply(body=ChatView(chat=chat_row(shown), messages=messages, feed=feed))

    async def rename(self, asked: ApiRequest) -> ApiReply:
        """Rename a chat."""
        caller, chat = asked.known, await self.found(asked)
        title = codec.decode(asked.body, _renamed).title
        await chats.rename(self._house.store, caller.tenant, caller.owner, chat.id, title)
        return ApiReply(body=chat_row(msgspec.structs.replace(chat, title=title)))

    async def delete(self, asked: ApiRequest) -> ApiReply:
        """Delete a chat. Its tasks remain."""
        caller, chat = asked.known, await self.found(asked)
        await chats.delete(self._house.store, caller.tenant, caller.owner, chat.id)
        return ApiReply(204)


def chat_not_found(reason: str = "There is no such chat") -> TaskNotFound:
    """Return the error for a missing chat or a chat of another owner."""
    return TaskNotFound(reason)


MAX_ID = 200
"""Maximum length of an id chosen by a client."""

WAYS_UP = frozenset({".", ".."})
"""Invalid chat ids, because browsers resolve them as relative paths."""

MAX_CHAT_BODY = 32 * 1024 * 1024
"""Maximum bytes of a message with its files. The server's own limit may be lower."""

UNDECIDED = "The last task waits for an approval. Approve or reject it: a text decides nothing"
"""Error for a text sent to a chat while an approval waits."""

Mode = Literal["stream", "task"]


class ChatBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """A request of `useChat`. The server uses only the last of `messages`, since it stores the others.

    `agent`, also accepted as `selectedChatModel` or `model`, is the name in the agent's path. Unknown members are
    ignored.
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
        """The requested agent."""
        return self.agent or self.selected_chat_model or self.model

    @property
    def last(self) -> UIMessage:
        """The user's message."""
        said = self.message or (self.messages[-1] if self.messages else None)
        if said is None or said.get("role", USER) != USER:
            raise invalid_field("message", "The last message has to be one of the user")
        identifier = said.get("id") or new_id()
        if not isinstance(identifier, str) or len(identifier) > MAX_ID:
            raise invalid_field("message.id", f"It has up to {MAX_ID} characters")
        return {**said, "id": identifier, "role": USER}


class StopBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to stop [default: the pending one]."""

    message_id: str | None = None


class ChatTurn(Struct, frozen=True, kw_only=True):
    """A requested turn: the message, and the message that it replaces or follows."""

    question: UIMessage
    is_new: bool = True
    instead_of: str | None = None
    after: str | None = None


_body, _stop = msgspec.json.Decoder(ChatBody), msgspec.json.Decoder(StopBody)


class ChatApi:
    """The chat endpoints."""

    def __init__(self, house: ServerContext, answers: ChatAnswers) -> None:
        """Create the handlers for chats with the agents of `house` and these `answers`."""
        self._house = house
        self._answers = answers
        self._chats = ChatHistoryApi(house, answers)
        self._models = ModelsApi(house)

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        one = f"/api/chat/{CHAT_ID}"
        return (
            ApiRoute("POST", "/api/chat", self.post, takes=ChatBody, max_body=MAX_CHAT_BODY, streams=True),
            ApiRoute("GET", f"{one}/stream", self.resume),
            ApiRoute("POST", f"{one}/stop", self.stop_answer, noted="StopAnswer", status=204),
            *self._chats.routes(),
            *self._models.routes(),
        )

    # --- a turn ---------------------------------------------------------------------------------------------------

    async def post(self, asked: ApiRequest) -> ApiReply:
        """Send a message to an agent, and stream its answer."""
        body, caller, house = codec.decode(asked.body, _body), asked.known, self._house
        if "/" in body.id or body.id in WAYS_UP:
            raise invalid_field("id", "It is a part of addresses: it has no slashes, and is not only dots")
        chat = await chats.find(house.store, caller.tenant, caller.owner, body.id)
        slug = self._slug(body, chat, caller)
        wanted = await self._wanted(body, chat, caller.tenant)
        coming = await self._repeated(wanted, chat, caller)
        if coming is not None:
            return _stream(coming, asked)
        ui_messages.to_agent_parts(wanted.question)  # a message that cannot be sent is not stored
        is_reply = wanted.is_new and wanted.instead_of is None
        answered = await self._waiting(chat, slug, wanted.question, caller) if is_reply else None
        answer_id = new_id()
        answer = self._answers.expect(caller.tenant, body.id, answer_id)  # before the answer becomes visible
        try:
            chat = await self._begun(body.id, slug, wanted, answer_id, caller)
            await self._send(chat, answer_id, wanted.question, answered, body.mode or self._models.mode(slug), caller)
        except DuplicateMessage:  # by the same request, sent twice at once
            self._answers.forget(answer)
            return await self.post(asked)
        except BaseException:
            self._answers.forget(answer)
            raise
        return _stream(answer, asked)

    def _slug(self, body: ChatBody, chat: Chat | None, caller: Caller) -> str:
        """Return the slug of the agent: the requested one, the chat's own, or the server's first."""
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

    async def _repeated(self, wanted: ChatTurn, chat: Chat | None, caller: Caller) -> ChatAnswer | None:
        """Return the pending answer if the request repeats the last message."""
        if chat is None or wanted.instead_of is None:
            return None
        last = await chats.read_message_pair(self._house.store, caller.tenant, chat.id)
        is_same = len(last) == 2 and last[0].id == wanted.instead_of and last[0].doc == _encode_message(wanted.question)
        active = await self._answers.active(caller.tenant, chat) if is_same and last[1].doc is None else []
        return next((one for one in active if one.key[2] == last[1].id), None)

    async def _wanted(self, body: ChatBody, chat: Chat | None, tenant: str) -> ChatTurn:
        """Return the requested turn: a new or repeated message, and the message it replaces or follows."""
        if body.trigger == "submit-message":
            said = body.last
            known = (
                [] if chat is None else await chats.read_message_pair(self._house.store, tenant, chat.id, said["id"])
            )
            return ChatTurn(question=said, instead_of=said["id"] if known else None)
        found = (
            [] if chat is None else await chats.read_message_pair(self._house.store, tenant, chat.id, body.message_id)
        )
        question = next((one for one in reversed(found) if one.role != ASSISTANT and one.doc), None)
        if question is None or question.doc is None:
            raise chat_not_found("There is no such message to be answered again")
        return ChatTurn(question=msgspec.json.decode(question.doc), is_new=False, after=question.id)

    async def _waiting(self, chat: Chat | None, slug: str, said: UIMessage, caller: Caller) -> str | None:
        """Return the task of the last answer if it waits for this message. Raises InvalidParams for an approval.

        An approval needs a decision (`data-reply` with `approved`), not a text. A reply whose `id` is not the question
        of the task raises UnsupportedOperation.
        """
        task = await self._asking(chat, slug, caller)
        check_question(ui_messages.answered_in(said), None if task is None else task.message)
        if task is None:
            return None
        if waiting_reason_of(task.state, task.message) == "approval" and not ui_messages.is_decision(said):
            raise invalid_field("message.parts", UNDECIDED)
        return task.id

    async def _asking(self, chat: Chat | None, slug: str, caller: Caller) -> ListedTask | None:
        """Return the task of the last answer if it waits for input."""
        last = [] if chat is None else await chats.read_message_pair(self._house.store, caller.tenant, chat.id)
        if not last or last[-1].task_id is None or last[-1].agent != slug:
            return None
        found = await queries.task_rows(self._house.store, caller.tenant, [last[-1].task_id])
        return next((one for one in found if one.owner == caller.owner and one.state in lifecycle.INTERRUPTED), None)

    async def _begun(self, chat_id: str, slug: str, wanted: ChatTurn, answer_id: str, caller: Caller) -> Chat:
        """Store the message and its pending answer. Cancel the tasks of the answers that it replaces."""
        at = self._house.now_ms()
        new = Chat(
            id=chat_id,
            owner=caller.owner,
            context_id=new_id(),
            agent=slug,
            title=ui_messages.title_from(wanted.question),
            created_at=at,
            updated_at=at,
        )
        turn = NewChatTurn(
            chat=new,
            agent=slug,
            answer_id=answer_id,
            at=at,
            message_id=wanted.question["id"],
            doc=_encode_message(wanted.question) if wanted.is_new else None,
            instead_of=wanted.instead_of,
            after=wanted.after,
        )
        try:
            begun = await chats.start_turn(self._house.store, caller.tenant, turn)
        except NoSuchChat:
            raise chat_not_found() from None
        for said in begun.dropped:
            await self._cancel(said, caller)
        return begun.chat

    async def _send(
        self, chat: Chat, answer_id: str, question: UIMessage, answered: str | None, mode: Mode, caller: Caller
    ) -> None:
        """Send the message to the agent, and subscribe to its task."""
        tenant, store = caller.tenant, self._house.store
        said = ChatMessage(seq=0, id=answer_id, role=ASSISTANT, agent=chat.agent, created_at=chat.updated_at)
        asked = attempt_message_id((ChatMessage(seq=0, id=question["id"], role=USER),), said)
        message = ui_messages.to_agent_message(question, asked, chat.context_id, answered)
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        try:
            given = await self._house.services[chat.agent].send(request, caller)
        except AccordError:
            await chats.withdraw_answer(store, tenant, chat.id, answer_id)
            raise
        if isinstance(given, Message):
            about = await self._answers.about(tenant, chat, said)
            await self._answers.give(tenant, chat, answer_id, ui_stream.message_answer(about, given))
            return
        linked = replace(said, task_id=given.id, asked=asked if answered else None)
        if not await chats.link_task(store, tenant, chat.id, answer_id, given.id, linked.asked, task_data_id(given.id)):
            await self._cancel(linked, caller)  # another answer replaced it during the send
        if mode == "task":
            about = await self._answers.about(tenant, chat, linked)
            status = LOWER[given.status.state]
            await self._answers.give(tenant, chat, answer_id, ui_stream.acknowledgement(about, status))
        else:
            self._answers.follow(tenant, chat, linked)

    # --- pending answers ------------------------------------------------------------------------------------------

    async def resume(self, asked: ApiRequest) -> ApiReply:
        """Stream the pending answer from its start, or return 204 without one.

        Chats of other owners and chats that do not exist yet also return 204, because `useChat` asks for those too.
        """
        caller = asked.known
        chat = await chats.find(self._house.store, caller.tenant, caller.owner, asked.parts["chat"])
        active = [] if chat is None else await self._answers.active(caller.tenant, chat)
        return _stream(active[-1], asked) if active else ApiReply(204)

    async def stop_answer(self, asked: ApiRequest) -> ApiReply:
        """Cancel the task of the pending answer."""
        caller = asked.known
        wanted = codec.decode(asked.body, _stop).message_id if asked.body else None
        chat = await self._chats.found(asked)
        for answer in await self._answers.active(caller.tenant, chat):
            await answer.begins.wait()
        tenant, store = caller.tenant, self._house.store
        stopped = _answers_to_stop(await chats.list_pending_answers(store, tenant, chat.id), wanted)
        for id in stopped:  # if another process is sending it, that process cancels the task
            await chats.withdraw_answer(store, tenant, chat.id, id)
        for said in await chats.list_pending_answers(store, tenant, chat.id):
            if said.id in stopped:
                await self._cancel(said, caller)
        return ApiReply(204)

    async def _cancel(self, said: ChatMessage, caller: Caller) -> None:
        service = self._house.services.get(said.agent or "")
        if said.task_id is not None and service is not None:
            with suppress(AccordError):  # it has ended, or belongs to another owner
                await service.cancel(CancelRequest(id=said.task_id), caller)


def _answers_to_stop(coming: Sequence[ChatMessage], wanted: str | None) -> Sequence[str]:
    """Return the ids of the pending answers to stop. A named answer may have ended already."""
    return [one.id for one in coming[-1:]] if wanted is None else [one.id for one in coming if one.id == wanted]


def _encode_message(message: UIMessage) -> str:
    return msgspec.json.encode(message).decode()


def _stream(answer: ChatAnswer, asked: ApiRequest) -> ApiReply:
    version = asked.query.get("ui", ["5"])[0]
    return ApiReply(stream=answer.frames(6 if version in ("6", "7") else 5), headers=STREAM)
