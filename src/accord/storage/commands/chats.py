"""Chats of users with agents, with messages as the clients' own JSON."""

from collections.abc import Sequence
from urllib.parse import quote, unquote

from msgspec import Struct

from accord.storage.encoding import from_row
from accord.storage.store import Row, Tx, Value

USER, ASSISTANT = "user", "assistant"
"""Message roles."""

TOPIC = "chat:"
"""Prefix of notification topics about chats."""


class NoSuchChat(Exception):
    """The chat is missing or has another owner, or it has no such message."""


class DuplicateMessage(Exception):
    """The chat already has a message with this ID."""


class Chat(Struct, frozen=True, kw_only=True):
    """A chat. Its tasks share its context. `is_active` while the task of an answer is submitted or working."""

    id: str
    owner: str
    context_id: str
    agent: str
    title: str
    created_at: int
    updated_at: int
    is_active: bool = False


class ChatMessage(Struct, frozen=True, kw_only=True):
    """A chat message. A pending answer has no `doc`.

    A pending answer is read from its task's event log: the events after message `asked`, or all events if unset.
    """

    seq: int
    id: str
    role: str
    context_id: str | None = None
    agent: str | None = None
    task_id: str | None = None
    asked: str | None = None
    data: str | None = None
    doc: str | None = None
    created_at: int = 0


class NewChatTurn(Struct, frozen=True, kw_only=True):
    """A user message and its pending answer by `agent`. The first turn creates the chat from `chat`.

    In an existing chat, messages from `instead_of` on, or those after `after`, are removed. Then `doc`, the user's
    message, is added if set.
    """

    chat: Chat
    agent: str
    answer_id: str
    at: int
    message_id: str = ""
    doc: str | None = None
    instead_of: str | None = None
    after: str | None = None


class StartedTurn(Struct, frozen=True, kw_only=True):
    """A chat after the start of a turn, and the replaced answers. Their tasks may still be open."""

    chat: Chat
    dropped: tuple[ChatMessage, ...] = ()


_CHAT_ROW = "id, owner, context_id, agent, title, created_at, updated_at"
_MESSAGE_ROW = ", ".join(ChatMessage.__struct_fields__)

_ACTIVE = """EXISTS (SELECT 1 FROM message JOIN task ON task.tenant = message.tenant AND task.id = message.task_id
                     WHERE message.tenant = chat.tenant AND message.chat_id = chat.id AND message.doc IS NULL
                     AND task.state IN ('submitted', 'working'))"""


def chat_topic(tenant: str, id: str) -> str:
    """Return the notification topic of a changed chat."""
    return f"{TOPIC}{quote(id, safe='')}:{tenant}"


def chat_of_topic(topic: str) -> tuple[str, str]:
    """Return the tenant and the chat ID of a topic."""
    id, _, tenant = topic.removeprefix(TOPIC).partition(":")
    return tenant, unquote(id)


async def start_turn(tx: Tx, tenant: str, turn: NewChatTurn) -> StartedTurn:
    """Store a user message and its pending answer."""
    new = turn.chat
    await tx.run(
        f"""INSERT INTO chat (tenant, {_CHAT_ROW})
            VALUES (:tenant, :id, :owner, :context_id, :agent, :title, :created_at, :updated_at)
            ON CONFLICT (tenant, id) DO NOTHING""",
        tenant=tenant,
        **{name: getattr(new, name) for name in _CHAT_ROW.split(", ")},
    )
    row = await tx.one(
        "SELECT context_id, owner FROM chat WHERE tenant = :tenant AND id = :id {for_update}", tenant=tenant, id=new.id
    )
    if row is None or row[1] != new.owner:
        raise NoSuchChat(new.id)
    dropped = await _drop(tx, tenant, turn)
    if turn.doc is not None and await _is_there(tx, tenant, new.id, turn.message_id):
        raise DuplicateMessage(turn.message_id)
    last = await tx.one(
        "SELECT COALESCE(max(seq), 0) FROM message WHERE tenant = :tenant AND chat_id = :id", tenant=tenant, id=new.id
    )
    seq = int(last[0]) if last else 0
    given: dict[str, Value] = {"tenant": tenant, "chat_id": new.id, "context_id": row[0], "at": turn.at}
    said: list[dict[str, Value]] = []
    if turn.doc is not None:
        said.append({"seq": seq + 1, "id": turn.message_id, "role": USER, "agent": None, "doc": turn.doc})
    said.append({"seq": seq + 2, "id": turn.answer_id, "role": ASSISTANT, "agent": turn.agent, "doc": None})
    await tx.many(
        """INSERT INTO message (tenant, chat_id, seq, id, role, context_id, agent, doc, created_at)
           VALUES (:tenant, :chat_id, :seq, :id, :role, :context_id, :agent, :doc, :at)""",
        [{**given, **one} for one in said],
    )
    await tx.run(
        "UPDATE chat SET agent = :agent, updated_at = :at WHERE tenant = :tenant AND id = :id",
        tenant=tenant,
        id=new.id,
        agent=turn.agent,
        at=turn.at,
    )
    found = await find(tx, tenant, new.owner, new.id)
    if found is None:
        raise NoSuchChat(new.id)
    tx.signal(chat_topic(tenant, new.id))
    return StartedTurn(chat=found, dropped=dropped)


async def _is_there(tx: Tx, tenant: str, chat_id: str, id: str) -> bool:
    row = await tx.one(
        "SELECT 1 FROM message WHERE tenant = :tenant AND chat_id = :chat AND id = :id",
        tenant=tenant,
        chat=chat_id,
        id=id,
    )
    return row is not None


async def _drop(tx: Tx, tenant: str, turn: NewChatTurn) -> tuple[ChatMessage, ...]:
    """Delete the messages that a turn replaces, and return the answers among them."""
    named = turn.instead_of or turn.after
    if named is None:
        return ()
    row = await tx.one(
        "SELECT seq FROM message WHERE tenant = :tenant AND chat_id = :chat AND id = :id",
        tenant=tenant,
        chat=turn.chat.id,
        id=named,
    )
    if row is None:
        raise NoSuchChat(named)
    gone = await tx.all(
        f"DELETE FROM message WHERE tenant = :tenant AND chat_id = :chat AND seq >= :seq RETURNING {_MESSAGE_ROW}",
        tenant=tenant,
        chat=turn.chat.id,
        seq=row[0] + (turn.instead_of is None),
    )
    return tuple(one for one in map(_message, gone) if one.role == ASSISTANT)


async def link_task(tx: Tx, tenant: str, chat_id: str, id: str, task_id: str, asked: str | None, data: str) -> bool:
    """Record an answer's task and the message it answers. Return false if the answer was replaced."""
    linked = await tx.run(
        """UPDATE message SET task_id = :task_id, asked = :asked, data = :data
           WHERE tenant = :tenant AND chat_id = :chat AND id = :id AND doc IS NULL""",
        tenant=tenant,
        chat=chat_id,
        id=id,
        task_id=task_id,
        asked=asked,
        data=data,
    )
    tx.signal(chat_topic(tenant, chat_id))
    return linked == 1 or await _is_there(tx, tenant, chat_id, id)


async def finish_answer(tx: Tx, tenant: str, chat_id: str, id: str, doc: str) -> bool:
    """Store a finished answer. Return false if it is already stored or was replaced."""
    kept = await tx.run(
        "UPDATE message SET doc = :doc WHERE tenant = :tenant AND chat_id = :chat AND id = :id AND doc IS NULL",
        tenant=tenant,
        chat=chat_id,
        id=id,
        doc=doc,
    )
    tx.signal(chat_topic(tenant, chat_id))
    return kept == 1


async def withdraw_answer(tx: Tx, tenant: str, chat_id: str, id: str) -> None:
    """Delete a pending answer that has no task yet."""
    await tx.run(
        """DELETE FROM message
           WHERE tenant = :tenant AND chat_id = :chat AND id = :id AND doc IS NULL AND task_id IS NULL""",
        tenant=tenant,
        chat=chat_id,
        id=id,
    )
    tx.signal(chat_topic(tenant, chat_id))


async def find(tx: Tx, tenant: str, owner: str, id: str) -> Chat | None:
    """Return an owner's chat, or None."""
    row = await tx.one(
        f"SELECT {_CHAT_ROW}, {_ACTIVE} FROM chat WHERE tenant = :tenant AND id = :id AND owner = :owner",
        tenant=tenant,
        id=id,
        owner=owner,
    )
    return None if row is None else _chat(row)


async def rows(tx: Tx, tenant: str, ids: Sequence[str]) -> list[Chat]:
    """Return the existing chats among these IDs, of any owner."""
    if not ids:
        return []
    values: dict[str, Value] = {f"id{at}": id for at, id in enumerate(ids)}
    places = ", ".join(f":{name}" for name in values)
    found = await tx.all(
        f"SELECT {_CHAT_ROW}, {_ACTIVE} FROM chat WHERE tenant = :tenant AND id IN ({places})",
        tenant=tenant,
        **values,
    )
    return [_chat(row) for row in found]


async def find_by_context(tx: Tx, tenant: str, owner: str, context_id: str) -> str | None:
    """Return the ID of an owner's chat with this context, or None."""
    row = await tx.one(
        "SELECT id FROM chat WHERE tenant = :tenant AND context_id = :context_id AND owner = :owner LIMIT 1",
        tenant=tenant,
        context_id=context_id,
        owner=owner,
    )
    return None if row is None else str(row[0])


async def list_messages(tx: Tx, tenant: str, chat_id: str) -> list[ChatMessage]:
    """Return the messages of a chat, in order."""
    rows = await tx.all(
        f"SELECT {_MESSAGE_ROW} FROM message WHERE tenant = :tenant AND chat_id = :chat ORDER BY seq",
        tenant=tenant,
        chat=chat_id,
    )
    return [_message(row) for row in rows]


async def read_message_pair(tx: Tx, tenant: str, chat_id: str, id: str | None = None) -> list[ChatMessage]:
    """Return a message and its predecessor, or without an ID the last two messages, in order."""
    rows = await tx.all(
        f"""SELECT {_MESSAGE_ROW} FROM message WHERE tenant = :tenant AND chat_id = :chat AND seq <= COALESCE(
                (SELECT seq FROM message WHERE tenant = :tenant AND chat_id = :chat AND id = :id), :most)
            ORDER BY seq DESC LIMIT 2""",
        tenant=tenant,
        chat=chat_id,
        id=id,
        most=-1 if id is not None else 2**31,
    )
    return [_message(row) for row in reversed(rows)]


async def list_pending_answers(tx: Tx, tenant: str, chat_id: str) -> list[ChatMessage]:
    """Return the pending answers, in order."""
    rows = await tx.all(
        f"SELECT {_MESSAGE_ROW} FROM message WHERE tenant = :tenant AND chat_id = :chat AND doc IS NULL ORDER BY seq",
        tenant=tenant,
        chat=chat_id,
    )
    return [_message(row) for row in rows]


async def list_chats(
    tx: Tx, tenant: str, owner: str, words: str = "", before: tuple[int, str] | None = None, limit: int = 50
) -> list[Chat]:
    """Return an owner's chats, latest first, filtered by text in their title or messages."""
    conditions = ["tenant = :tenant", "owner = :owner"]
    values: dict[str, Value] = {"tenant": tenant, "owner": owner}
    if words:
        escaped = words.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        values["like"] = f"%{escaped}%"
        conditions.append(
            """(lower(title) LIKE :like ESCAPE '\\' OR EXISTS (
                   SELECT 1 FROM message WHERE message.tenant = chat.tenant AND message.chat_id = chat.id
                   AND lower(message.doc) LIKE :like ESCAPE '\\'))"""
        )
    if before is not None:
        conditions.append("(updated_at, id) < (:before_at, :before_id)")
        values |= {"before_at": before[0], "before_id": before[1]}
    rows = await tx.all(
        f"""SELECT {_CHAT_ROW}, {_ACTIVE} FROM chat WHERE {" AND ".join(conditions)}
            ORDER BY updated_at DESC, id DESC LIMIT :limit""",
        **values,
        limit=limit,
    )
    return [_chat(row) for row in rows]


async def rename(tx: Tx, tenant: str, owner: str, id: str, title: str) -> bool:
    """Rename a chat. Return false if it does not exist."""
    changed = await tx.run(
        "UPDATE chat SET title = :title WHERE tenant = :tenant AND id = :id AND owner = :owner",
        tenant=tenant,
        id=id,
        owner=owner,
        title=title,
    )
    tx.signal(chat_topic(tenant, id))
    return changed == 1


async def delete(tx: Tx, tenant: str, owner: str, id: str) -> bool:
    """Delete a chat and its messages, but not its tasks. Return false if it does not exist."""
    gone = await tx.run(
        "DELETE FROM chat WHERE tenant = :tenant AND id = :id AND owner = :owner", tenant=tenant, id=id, owner=owner
    )
    if gone:
        await tx.run("DELETE FROM message WHERE tenant = :tenant AND chat_id = :id", tenant=tenant, id=id)
    return gone == 1


def _chat(row: Row) -> Chat:
    return from_row(Chat, row, is_active=bool)


def _message(row: Row) -> ChatMessage:
    return from_row(ChatMessage, row)
