"""The chats of whoever asks: a list to look through, and each with what was said in it.

An answer that is still coming is not among the messages; it is read at `/api/chat/ID/stream`. One that has ended while
nobody looked, or while the server was not there, is.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from accord.console.conversations.answers import Answers
from accord.console.house import House
from accord.console.pages import Token
from accord.console.routing import Asked, Reply, Route
from accord.console.rows import chat_row_of
from accord.console.views import ChatPage, ChatRow, ChatView, Limit
from accord.errors import TaskNotFound
from accord.protocol import codec
from accord.storage.commands import chats
from accord.storage.commands.chats import Chat

CHAT_ID = "(?P<chat>[^/]{1,200})"


class Listed(Struct, frozen=True, kw_only=True):
    """Which chats are wanted: `q` are words in their titles or messages, `page` is what an earlier page gave."""

    q: Annotated[str, Meta(max_length=200)] = ""
    page: Annotated[str, Meta(max_length=512)] | None = None
    limit: Limit = 50


class Renamed(Struct, frozen=True, kw_only=True):
    """Another title."""

    title: Annotated[str, Meta(min_length=1, max_length=200)]


_renamed = msgspec.json.Decoder(Renamed)


class ChatsApi:
    """The handlers."""

    def __init__(self, house: House, answers: Answers) -> None:
        """Show chats, whose answers come by `answers`."""
        self._house = house
        self._answers = answers

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        one = f"/api/chats/{CHAT_ID}"
        return (
            Route("GET", "/api/chats", self.listed, finds=Listed, gives=ChatPage),
            Route("GET", one, self.show, gives=ChatView),
            Route("PATCH", one, self.rename, takes=Renamed, gives=ChatRow),
            Route("DELETE", one, self.delete, status=204),
        )

    async def found(self, asked: Asked) -> Chat:
        """Return the chat that is asked about; one of somebody else looks as if it were not there."""
        caller = asked.known
        found = await self._house.store.read(chats.find, caller.tenant, caller.owner, asked.parts["chat"])
        if found is None:
            raise no_chat()
        return found

    async def listed(self, asked: Asked) -> Reply:
        """List one's chats, the latest first."""
        caller, wanted, feed = asked.known, asked.found(Listed), self._house.feed.seq
        before = Token.read(wanted.page, tuple[int, str])
        found = await self._house.store.read(
            chats.listed, caller.tenant, caller.owner, wanted.q.strip(), before, wanted.limit + 1
        )
        shown = found[: wanted.limit]
        following = Token.write((shown[-1].updated_at, shown[-1].id)) if len(found) > wanted.limit else None
        return Reply(body=ChatPage(items=[chat_row_of(chat) for chat in shown], next=following, feed=feed))

    async def show(self, asked: Asked) -> Reply:
        """Show a chat and its messages."""
        feed, tenant = self._house.feed.seq, asked.known.tenant
        chat = await self.found(asked)
        active = await self._answers.active(tenant, chat)
        said = await self._house.store.read(chats.messages, tenant, chat.id)
        shown = msgspec.structs.replace(chat, is_active=bool(active))
        messages = [msgspec.json.decode(one.doc) for one in said if one.doc is not None]
        return Reply(body=ChatView(chat=chat_row_of(shown), messages=messages, feed=feed))

    async def rename(self, asked: Asked) -> Reply:
        """Give a chat another title."""
        caller, chat = asked.known, await self.found(asked)
        title = codec.decode(asked.body, _renamed).title
        await self._house.store.do(chats.rename, caller.tenant, caller.owner, chat.id, title)
        return Reply(body=chat_row_of(msgspec.structs.replace(chat, title=title)))

    async def delete(self, asked: Asked) -> Reply:
        """Remove a chat; its tasks stay."""
        caller, chat = asked.known, await self.found(asked)
        await self._house.store.do(chats.delete, caller.tenant, caller.owner, chat.id)
        return Reply(204)


def no_chat(reason: str = "There is no such chat") -> TaskNotFound:
    """Return the refusal of what is not there, or somebody else's."""
    return TaskNotFound(reason)
