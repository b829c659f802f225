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
from accord.console.routing import ApiReply, ApiRequest, ApiSection, read_page, route, split_page
from accord.console.server_context import ServerContext
from accord.console.ui_messages import UIMessage
from accord.console.views import ChatRow, Limit, View, chat_row, check_question, waiting_reason_of
from accord.errors import AccordError, PermissionDenied, TaskNotFound, UnsupportedOperation
from accord.model import CancelRequest, Message, SendConfiguration, SendRequest
from accord.protocol import codec, lifecycle
from accord.protocol.codec import invalid_field
from accord.protocol.operations import Operation
from accord.protocol.states import LOWER

EXAMPLES = 4
"""Maximum number of example prompts shown per agent."""

CHATS, CHAT = "/api/chats", "/api/chats/(?P<chat>[^/]{1,200})"
ANSWERS = "/api/chat/(?P<chat>[^/]{1,200})"

MAX_ID = 200
"""Maximum length of an id chosen by a client."""

RELATIVE_PATHS = frozenset({".", ".."})
"""Invalid chat ids, because browsers resolve them as relative paths."""

MAX_CHAT_BODY = 32 * 1024 * 1024
"""Maximum bytes of a message with its files. The server's own limit may be lower."""

UNDECIDED = "The last task waits for an approval. Approve or reject it: a text decides nothing"
"""Error for a text sent to a chat while an approval waits."""

Mode = Literal["stream", "task"]


class Model(View, frozen=True, kw_only=True):
    """An agent that chats offer. Its mode is an immediate answer (`stream`) or a `task`."""

    id: str
    name: str
    description: str
    mode: Literal["stream", "task"]
    is_default: bool
    examples: list[str]


class ChatPage(View, frozen=True, kw_only=True):
    """A page of chats."""

    items: list[ChatRow]
    next: str | None
    feed: int


class ChatView(View, frozen=True, kw_only=True):
    """A chat and its messages, which are UI messages of the AI SDK. A pending answer is not included."""

    chat: ChatRow
    messages: list[dict[str, Any]]
    feed: int


class ChatQuery(Struct, frozen=True, kw_only=True):
    """Filters of the list of chats: `q` are words in titles or messages, `page` is a page token."""

    q: Annotated[str, Meta(max_length=200)] = ""
    page: Annotated[str, Meta(max_length=512)] | None = None
    limit: Limit = 50


class ChatTitle(Struct, frozen=True, kw_only=True):
    """A new title."""

    title: Annotated[str, Meta(min_length=1, max_length=200)]


def _chat_not_found(reason: str = "There is no such chat") -> TaskNotFound:
    return TaskNotFound(reason)


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
    def last(self) -> UIMessage:
        """The user's message."""
        message = self.message or (self.messages[-1] if self.messages else None)
        if message is None or message.get("role", USER) != USER:
            raise invalid_field("message", "The last message must have the role `user`")
        identifier = message.get("id") or new_id()
        if not isinstance(identifier, str) or len(identifier) > MAX_ID:
            raise invalid_field("message.id", f"It has up to {MAX_ID} characters")
        return {**message, "id": identifier, "role": USER}


class StopBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer to stop [default: the pending one]."""

    message_id: str | None = None


class ChatTurn(Struct, frozen=True, kw_only=True):
    """A requested turn: the message, and the message that it replaces or follows."""

    question: UIMessage
    is_new: bool = True
    instead_of: str | None = None
    after: str | None = None


_stop = msgspec.json.Decoder(StopBody)


class ChatApi(ApiSection):
    """The chats of a caller, their messages and answers, and the agents that chats offer."""

    def __init__(self, server: ServerContext, answers: ChatAnswers) -> None:
        """Create the handlers for chats with the agents of `server` and these `answers`."""
        self._server = server
        self._answers = answers

    # --- stored chats and agents ----------------------------------------------------------------------------------

    @route("GET", CHATS)
    async def page(self, request: ApiRequest, query: ChatQuery) -> ChatPage:
        """List the caller's chats, newest first."""
        caller, feed = request.caller, self._server.feed.seq
        before = read_page(query.page, tuple[int, str])
        stored = await chats.list_chats(
            self._server.store, caller.tenant, caller.owner, query.q.strip(), before, query.limit + 1
        )
        page, following = split_page(stored, query.limit, lambda chat: (chat.updated_at, chat.id))
        return ChatPage(items=[chat_row(chat) for chat in page], next=following, feed=feed)

    @route("GET", CHAT)
    async def show(self, request: ApiRequest) -> ChatView:
        """Show a chat and its messages."""
        feed, tenant = self._server.feed.seq, request.caller.tenant
        chat = await self._find(request)
        active = await self._answers.active(tenant, chat)
        stored = await chats.list_messages(self._server.store, tenant, chat.id)
        messages = [msgspec.json.decode(message.doc) for message in stored if message.doc is not None]
        return ChatView(chat=chat_row(replace(chat, is_active=bool(active))), messages=messages, feed=feed)

    @route("PATCH", CHAT)
    async def rename(self, request: ApiRequest, body: ChatTitle) -> ChatRow:
        """Rename a chat."""
        caller, chat = request.caller, await self._find(request)
        await chats.rename(self._server.store, caller.tenant, caller.owner, chat.id, body.title)
        return chat_row(replace(chat, title=body.title))

    @route("DELETE", CHAT, status=204)
    async def delete(self, request: ApiRequest) -> None:
        """Delete a chat. Its tasks remain."""
        caller, chat = request.caller, await self._find(request)
        await chats.delete(self._server.store, caller.tenant, caller.owner, chat.id)

    async def _find(self, request: ApiRequest) -> Chat:
        """Return the requested chat. A chat of another owner raises the same error as a missing one."""
        caller = request.caller
        chat = await chats.find(self._server.store, caller.tenant, caller.owner, request.parts["chat"])
        if chat is None:
            raise _chat_not_found()
        return chat

    @route("GET", "/api/models")
    async def models(self, request: ApiRequest) -> list[Model]:
        """List the agents that the caller may send to."""
        visibility = self._server.visibility
        return [
            self._model(slug)
            for slug, agent in self._offered.items()
            if visibility.allows(request.caller, agent.profile.name, Operation.SEND)
        ]

    @cached_property
    def _offered(self) -> Mapping[str, Agent]:
        """The agents that chats offer, the default first. Without A2A they are this server's own agents."""
        agents = self._server.agents
        if self._server.terms.a2a:
            return agents
        return {slug: agent for slug, agent in agents.items() if not isinstance(agent, ContactPort)}

    def _mode(self, slug: str) -> Mode:
        """Return the default mode of an agent: `task` for remote agents unless the settings say otherwise."""
        is_task_mode = self._server.terms.task_mode
        is_task = isinstance(self._server.agents[slug], RemoteAgentPort) if is_task_mode is None else is_task_mode
        return "task" if is_task else "stream"

    def _model(self, slug: str) -> Model:
        profile = self._server.agents[slug].profile
        examples = [example for skill in profile.skills for example in skill.examples]
        return Model(
            id=slug,
            name=profile.name,
            description=profile.description,
            mode=self._mode(slug),
            is_default=slug == next(iter(self._offered)),
            examples=examples[:EXAMPLES],
        )

    # --- a turn ---------------------------------------------------------------------------------------------------

    @route("POST", "/api/chat", max_body=MAX_CHAT_BODY, streams=True)
    async def post(self, request: ApiRequest, body: ChatBody) -> ApiReply:
        """Send a message to an agent, and stream its answer."""
        caller = request.caller
        if "/" in body.id or body.id in RELATIVE_PATHS:
            raise invalid_field("id", "It is a part of addresses: it has no slashes, and is not only dots")
        chat = await chats.find(self._server.store, caller.tenant, caller.owner, body.id)
        slug = self._slug(body, chat, caller)
        turn = await self._turn(body, chat, caller.tenant)
        repeated = await self._repeated(turn, chat, caller)
        if repeated is not None:
            return _stream(repeated, request)
        ui_messages.to_agent_parts(turn.question)  # a message that cannot be sent is not stored
        is_reply = turn.is_new and turn.instead_of is None
        answered = await self._answered_task(chat, slug, turn.question, caller) if is_reply else None
        answer_id = new_id()
        answer = self._answers.expect(caller.tenant, body.id, answer_id)  # before the answer becomes visible
        try:
            chat = await self._start(body.id, slug, turn, answer_id, caller)
            await self._send(chat, answer_id, turn.question, answered, body.mode or self._mode(slug), caller)
        except DuplicateMessage:  # by the same request, sent twice at once
            self._answers.forget(answer)
            return await self.post(request, body)
        except BaseException:
            self._answers.forget(answer)
            raise
        return _stream(answer, request)

    def _slug(self, body: ChatBody, chat: Chat | None, caller: Caller) -> str:
        """Return the slug of the agent: the requested one, the chat's own, or the server's first."""
        agents, offered = self._server.agents, self._offered
        default = chat.agent if chat else next(iter(offered), next(iter(agents)))
        slug = body.agent or body.selected_chat_model or body.model or default
        if slug not in agents:
            raise invalid_field("agent", f"There is no agent called {slug[:60]!r} here")
        if slug not in offered:
            raise UnsupportedOperation("Remote agents are not offered in chats here")
        if not self._server.visibility.allows(caller, agents[slug].profile.name, Operation.SEND):
            raise PermissionDenied("Your roles do not include sending to this agent")
        return slug

    async def _repeated(self, turn: ChatTurn, chat: Chat | None, caller: Caller) -> ChatAnswer | None:
        """Return the pending answer if the request repeats the last message."""
        if chat is None or turn.instead_of is None:
            return None
        last = await self._pair(caller.tenant, chat)
        if len(last) != 2 or last[0].id != turn.instead_of or last[0].doc != _encode_message(turn.question):
            return None
        active = await self._answers.active(caller.tenant, chat) if last[1].doc is None else []
        return next((answer for answer in active if answer.key[2] == last[1].id), None)

    async def _pair(self, tenant: str, chat: Chat | None, *message_id: str | None) -> Sequence[ChatMessage]:
        """Return a message with the one before it: the last ones of a chat if no id is given."""
        if chat is None:
            return ()
        return await chats.read_message_pair(self._server.store, tenant, chat.id, *message_id)

    async def _turn(self, body: ChatBody, chat: Chat | None, tenant: str) -> ChatTurn:
        """Return the requested turn: a new or repeated message, and the message it replaces or follows."""
        if body.trigger == "submit-message":
            message = body.last
            is_stored = bool(await self._pair(tenant, chat, message["id"]))
            return ChatTurn(question=message, instead_of=message["id"] if is_stored else None)
        pair = await self._pair(tenant, chat, body.message_id)
        question = next((message for message in reversed(pair) if message.role != ASSISTANT and message.doc), None)
        if question is None or question.doc is None:
            raise _chat_not_found("There is no such message to be answered again")
        return ChatTurn(question=msgspec.json.decode(question.doc), is_new=False, after=question.id)

    async def _answered_task(self, chat: Chat | None, slug: str, message: UIMessage, caller: Caller) -> str | None:
        """Return the task of the last answer if it waits for this message. Raises InvalidParams for an approval.

        An approval needs a decision (`data-reply` with `approved`), not a text. A reply whose `id` is not the question
        of the task raises UnsupportedOperation.
        """
        task = await self._asking_task(chat, slug, caller)
        check_question(ui_messages.answered_in(message), None if task is None else task.message)
        if task is None:
            return None
        if waiting_reason_of(task.state, task.message) == "approval" and not ui_messages.is_decision(message):
            raise invalid_field("message.parts", UNDECIDED)
        return task.id

    async def _asking_task(self, chat: Chat | None, slug: str, caller: Caller) -> ListedTask | None:
        """Return the task of the last answer if it waits for input."""
        last = await self._pair(caller.tenant, chat)
        if not last or last[-1].task_id is None or last[-1].agent != slug:
            return None
        rows = await queries.task_rows(self._server.store, caller.tenant, [last[-1].task_id])
        return next((task for task in rows if task.owner == caller.owner and task.state in lifecycle.INTERRUPTED), None)

    async def _start(self, chat_id: str, slug: str, turn: ChatTurn, answer_id: str, caller: Caller) -> Chat:
        """Store the message and its pending answer. Cancel the tasks of the answers that it replaces."""
        at = self._server.now_ms()
        new = Chat(
            id=chat_id,
            owner=caller.owner,
            context_id=new_id(),
            agent=slug,
            title=ui_messages.title_from(turn.question),
            created_at=at,
            updated_at=at,
        )
        stored_turn = NewChatTurn(
            chat=new,
            agent=slug,
            answer_id=answer_id,
            at=at,
            message_id=turn.question["id"],
            doc=_encode_message(turn.question) if turn.is_new else None,
            instead_of=turn.instead_of,
            after=turn.after,
        )
        try:
            started = await chats.start_turn(self._server.store, caller.tenant, stored_turn)
        except NoSuchChat:
            raise _chat_not_found() from None
        for dropped in started.dropped:
            await self._cancel(dropped, caller)
        return started.chat

    async def _send(
        self, chat: Chat, answer_id: str, question: UIMessage, answered: str | None, mode: Mode, caller: Caller
    ) -> None:
        """Send the message to the agent, and subscribe to its task."""
        tenant, store = caller.tenant, self._server.store
        answer = ChatMessage(seq=0, id=answer_id, role=ASSISTANT, agent=chat.agent, created_at=chat.updated_at)
        message_id = attempt_message_id((ChatMessage(seq=0, id=question["id"], role=USER),), answer)
        message = ui_messages.to_agent_message(question, message_id, chat.context_id, answered)
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        try:
            result = await self._server.services[chat.agent].send(request, caller)
        except AccordError:
            await chats.withdraw_answer(store, tenant, chat.id, answer_id)
            raise
        if isinstance(result, Message):
            about = await self._answers.about(tenant, chat, answer)
            await self._answers.give(tenant, chat, answer_id, ui_stream.message_answer(about, result))
            return
        linked = replace(answer, task_id=result.id, asked=message_id if answered else None)
        data = task_data_id(result.id)
        if not await chats.link_task(store, tenant, chat.id, answer_id, result.id, linked.asked, data):
            await self._cancel(linked, caller)  # another answer replaced it during the send
        if mode == "task":
            about = await self._answers.about(tenant, chat, linked)
            chunks = ui_stream.acknowledgement(about, LOWER[result.status.state])
            await self._answers.give(tenant, chat, answer_id, chunks)
        else:
            self._answers.follow(tenant, chat, linked)

    # --- pending answers ------------------------------------------------------------------------------------------

    @route("GET", f"{ANSWERS}/stream")
    async def resume(self, request: ApiRequest) -> ApiReply:
        """Stream the pending answer from its start, or return 204 without one.

        Chats of other owners and chats that do not exist yet also return 204, because `useChat` asks for those too.
        """
        caller = request.caller
        chat = await chats.find(self._server.store, caller.tenant, caller.owner, request.parts["chat"])
        active = [] if chat is None else await self._answers.active(caller.tenant, chat)
        return _stream(active[-1], request) if active else ApiReply(204)

    @route("POST", f"{ANSWERS}/stop", audited="StopAnswer", status=204)
    async def stop_answer(self, request: ApiRequest) -> None:
        """Cancel the task of the pending answer."""
        caller, tenant, store = request.caller, request.caller.tenant, self._server.store
        message_id = codec.decode(request.body, _stop).message_id if request.body else None
        chat = await self._find(request)
        for answer in await self._answers.active(tenant, chat):
            await answer.begins.wait()
        pending = [message.id for message in await chats.list_pending_answers(store, tenant, chat.id)]
        # A named answer may have ended already.
        stopped = pending[-1:] if message_id is None else [id for id in pending if id == message_id]
        for id in stopped:  # if another process is sending it, that process cancels the task
            await chats.withdraw_answer(store, tenant, chat.id, id)
        for message in await chats.list_pending_answers(store, tenant, chat.id):
            if message.id in stopped:
                await self._cancel(message, caller)

    async def _cancel(self, answer: ChatMessage, caller: Caller) -> None:
        service = self._server.services.get(answer.agent or "")
        if answer.task_id is not None and service is not None:
            with suppress(AccordError):  # it has ended, or belongs to another owner
                await service.cancel(CancelRequest(id=answer.task_id), caller)


def _encode_message(message: UIMessage) -> str:
    return msgspec.json.encode(message).decode()


def _stream(answer: ChatAnswer, request: ApiRequest) -> ApiReply:
    version = request.query.get("ui", ["5"])[0]
    return ApiReply(stream=answer.frames(6 if version in ("6", "7") else 5), headers=STREAM)
