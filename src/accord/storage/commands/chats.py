"""Chats of people with agents: messages as the clients' own JSON."""

from collections.abc import Sequence
from urllib.parse import quote, unquote

from msgspec import Struct

from accord.storage.store import Row, Tx, Value

USER, ASSISTANT = "user", "assistant"
"""Roles."""

TOPIC = "chat:"
"""What topics of hints about chats begin with."""


class NoSuchChat(Exception):
    """There is no such chat, or it is somebody else's; or no such message in it."""


class DuplicateMessage(Exception):
    """A message of this id has come to the chat in the meantime."""


class Chat(Struct, frozen=True, kw_only=True):
    """A chat; its tasks have its context. One that `is_active` has an answer whose task goes on."""

    id: str
    owner: str
    context_id: str
    agent: str
    title: str
    created_at: int
    updated_at: int
    is_active: bool = False


class ChatMessage(Struct, frozen=True, kw_only=True):
    """A message; `doc` is None while it is still coming.

    That is read from the log of its task: what follows the message `asked` there, or with None everything.
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
    """Something said, and the answer that is to come; `chat` is made of it if there is none of that id.

    Of a chat that exists, messages are removed from the one called `instead_of` on, or after the one called `after`;
    `doc`, the message said, comes next, unless it is said already. The answer is by `agent`.
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
    """A chat after a turn has begun, and the answers that made way for it: their tasks may still be open."""

    chat: Chat
    dropped: tuple[ChatMessage, ...] = ()


_CHAT_ROW = "id, owner, context_id, agent, title, created_at, updated_at"
_MESSAGE_ROW = ", ".join(ChatMessage.__struct_fields__)

_ACTIVE = """EXISTS (SELECT 1 FROM message JOIN task ON task.tenant = message.tenant AND task.id = message.task_id
                     WHERE message.tenant = chat.tenant AND message.chat_id = chat.id AND message.doc IS NULL
                     AND task.state IN ('submitted', 'working'))"""


def chat_topic(tenant: str, id: str) -> str:
    """Return the topic of hints that a chat has changed."""
    return f"{TOPIC}{quote(id, safe='')}:{tenant}"


def chat_of_topic(topic: str) -> tuple[str, str]:
    """Return the tenant and the chat that a topic is of."""
    id, _, tenant = topic.removeprefix(TOPIC).partition(":")
    return tenant, unquote(id)


async def start_turn(tx: Tx, tenant: str, turn: NewChatTurn) -> StartedTurn:
    """Keep something said, and that an answer to it is to come."""
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
    """Remove the messages that a turn takes the place of, and return the answers among them."""
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
    """Note which task gives an answer, and to which message in its log; false if the answer has made way."""
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
    """Keep an answer that has ended; false if it is kept already, or is not waited for any more."""
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
    """Wait no longer for an answer to which no task belongs yet."""
    await tx.run(
        """DELETE FROM message
           WHERE tenant = :tenant AND chat_id = :chat AND id = :id AND doc IS NULL AND task_id IS NULL""",
        tenant=tenant,
        chat=chat_id,
        id=id,
    )
    tx.signal(chat_topic(tenant, chat_id))


async def find(tx: Tx, tenant: str, owner: str, id: str) -> Chat | None:
    """Return a chat of somebody's."""
    row = await tx.one(
        f"SELECT {_CHAT_ROW}, {_ACTIVE} FROM chat WHERE tenant = :tenant AND id = :id AND owner = :owner",
        tenant=tenant,
        id=id,
        owner=owner,
    )
    return None if row is None else _chat(row)


async def rows(tx: Tx, tenant: str, ids: Sequence[str]) -> list[Chat]:
    """Return those of these chats that there are, whosever they are."""
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
    """Return the chat of somebody's whose tasks have this context."""
    row = await tx.one(
        "SELECT id FROM chat WHERE tenant = :tenant AND context_id = :context_id AND owner = :owner LIMIT 1",
        tenant=tenant,
        context_id=context_id,
        owner=owner,
    )
    return None if row is None else str(row[0])


async def list_messages(tx: Tx, tenant: str, chat_id: str) -> list[ChatMessage]:
    """Return what was said in a chat, in its order."""
    rows = await tx.all(
        f"SELECT {_MESSAGE_ROW} FROM message WHERE tenant = :tenant AND chat_id = :chat ORDER BY seq",
        tenant=tenant,
        chat=chat_id,
    )
    return [_message(row) for row in rows]


async def read_message_pair(tx: Tx, tenant: str, chat_id: str, id: str | None = None) -> list[ChatMessage]:
    """Return a message and the one before it, or without an id the last two, in their order."""
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
    """Return the answers that are still coming, in their order."""
    rows = await tx.all(
        f"SELECT {_MESSAGE_ROW} FROM message WHERE tenant = :tenant AND chat_id = :chat AND doc IS NULL ORDER BY seq",
        tenant=tenant,
        chat=chat_id,
    )
    return [_message(row) for row in rows]


async def list_chats(
    tx: Tx, tenant: str, owner: str, words: str = "", before: tuple[int, str] | None = None, limit: int = 50
) -> list[Chat]:
    """Return somebody's chats, the latest first, whose title or messages have some words in them."""
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
    """Give a chat another title; false if there is none."""
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
    """Remove a chat with all that was said in it; its tasks stay. False if there is none."""
    gone = await tx.run(
        "DELETE FROM chat WHERE tenant = :tenant AND id = :id AND owner = :owner", tenant=tenant, id=id, owner=owner
    )
    if gone:
        await tx.run("DELETE FROM message WHERE tenant = :tenant AND chat_id = :id", tenant=tenant, id=id)
    return gone == 1


def _chat(row: Row) -> Chat:
    known = dict(zip(Chat.__struct_fields__, row, strict=True))
    return Chat(**{**known, "is_active": bool(known["is_active"])})


def _message(row: Row) -> ChatMessage:
    return ChatMessage(**dict(zip(ChatMessage.__struct_fields__, row, strict=True)))
