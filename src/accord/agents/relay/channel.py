"""Relay channel over HTTP, and the search for answers (C-10).

A channel is shared: other clients ask in it, and agents answer late or talk among themselves. A request is tagged
`[a2a:<id>]`. An answer is accepted if it repeats the tag or is in the request's thread. An answer without either is
accepted only if it cannot be meant for another request, and is never an old one.
"""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.errors import InvalidAgentResponse
from accord.outbound import HttpReply, HttpRequest, HttpTransport, Policy, Unreachable, open_transport

DONE, FAILED, CANCEL = "DONE:", "FAILED:", "CANCEL:"
"""First words of messages that answer a request, report its failure (only with its tag), or cancel it."""

TAG = re.compile(r"\[a2a:([^\[\]\s]+)\]")

CONTEXT = re.compile(r"\[context:(\w[\w.:-]*)\]")
"""Tag of a conversation; all requests of one conversation have the same."""

THREADS = ("thread_id", "threadId", "parent_id", "parentId", "reply_to", "replyTo", "in_reply_to")
"""Members that may contain the id of the message that a message replies to."""


class ChannelMessage(Struct, frozen=True, kw_only=True):
    """A message of a channel; `key` is its id, or a hash of its content if it has none."""

    key: str
    text: str
    id: str | None = None
    sender: str | None = None
    thread: str | None = None

    @property
    def tag(self) -> str | None:
        """The tag that the message refers to: right after its first word, else the last one."""
        tags = TAG.findall(self.text)
        first = TAG.match(self.text, len(self.word)) or TAG.match(self.body)
        return first[1] if first else tags[-1] if tags else None

    @property
    def word(self) -> str:
        """The first word, if it is `DONE:`, `FAILED:` or `CANCEL:`."""
        return next((word for word in (DONE, FAILED, CANCEL) if self.text.startswith(word)), "")

    @property
    def body(self) -> str:
        """The stripped text after the first word."""
        return self.text.removeprefix(self.word).strip()

    @property
    def answer(self) -> str:
        """The text without first word and tags."""
        return _without_tags(self, self.body)

    @property
    def context(self) -> str | None:
        """The conversation's tag, or None."""
        tags = CONTEXT.findall(self.text)
        return tags[-1] if tags else None

    @property
    def is_request(self) -> bool:
        """Whether the message is a tagged request."""
        return not self.word and self.tag is not None


def format_request(text: str, tag: str, context: str | None = None) -> str:
    """Return the text of a request; tags and first words in the caller's text are made harmless."""
    harmless = CONTEXT.sub(r"(context:\1)", TAG.sub(r"(a2a:\1)", text))
    belongs = "" if context is None else f"[context:{context}]\n"
    if harmless.startswith((DONE, FAILED, CANCEL)):
        return f"{belongs}[a2a:{tag}]\n{harmless}"
    return f"{harmless}\n\n{belongs}[a2a:{tag}]"


def request_text(entry: ChannelMessage) -> str:
    """Return the text of a request without its tags."""
    return _without_tags(entry, entry.text)


def _without_tags(entry: ChannelMessage, text: str) -> str:
    for tag in (f"[context:{entry.context}]", f"[a2a:{entry.tag}]"):
        text = text.replace(tag, "")
    return text.strip()


def parse_messages(messages: Iterable[Any]) -> list[ChannelMessage]:
    """Return the messages of a page, without entries that have no text."""
    return [
        _entry(message) for message in messages if isinstance(message, dict) and isinstance(message.get("text"), str)
    ]


def _entry(message: dict[str, Any]) -> ChannelMessage:
    number = message.get("id")
    message_id = None if number is None else str(number)
    thread = next((message[member] for member in THREADS if message.get(member) is not None), None)
    sender = message.get("from")
    content_hash = hashlib.sha256(msgspec.json.encode(message, order="sorted")).hexdigest()[:32]
    return ChannelMessage(
        key=f"said:{content_hash}" if message_id is None else f"id:{message_id}",
        text=message["text"],
        id=message_id,
        sender=None if sender is None else str(sender),
        thread=None if thread is None else str(thread),
    )


class RelayRequest(Struct, frozen=True, kw_only=True):
    """A request: its text, its time and the earlier messages of the channel. It can be stored and resumed."""

    tag: str
    text: str
    at: float
    before: tuple[ChannelMessage, ...] = ()
    id: str | None = None


class AnswerSearch:
    """Searches pages of a channel for the answer to a request; the newest message may be first or last."""

    def __init__(self, asked: RelayRequest, target: str | None = None) -> None:
        """Search for an answer by `target`, or by any sender."""
        self._request = asked
        self._target = target
        self._known = Counter(entry.key for entry in asked.before)
        self._messages: list[ChannelMessage] = []

    def feed(self, page: Sequence[ChannelMessage]) -> list[ChannelMessage]:
        """Add a page, and return its new messages, oldest first."""
        unread = Counter(self._known)
        is_new = []
        for entry in page:
            is_new.append(unread[entry.key] <= 0)
            unread[entry.key] -= 1
        new = [entry for entry, fresh in zip(page, is_new, strict=True) if fresh]
        for key, count in Counter(entry.key for entry in page).items():
            self._known[key] = max(self._known[key], count)
        self._messages += _in_order(new, is_new, self._is_own)
        return self._messages[len(self._messages) - len(new) :]

    def answer(self) -> ChannelMessage | None:
        """Return the answer, or None."""
        for entry in self._messages:
            if entry.word in (DONE, FAILED) and self._can_answer(entry) and self._is_addressed(entry):
                return entry
        return self._untagged()

    def is_posted(self) -> bool:
        """Whether the request is in the channel."""
        return any(self._is_own(entry) for entry in self._messages)

    def is_about(self, entry: ChannelMessage) -> bool:
        """Whether a message is about the request, from its agent.

        A message without a tag counts if it cannot be about anything else. The target must have sent it, no other
        request may wait for an answer, and no other sender may have written since the request.
        """
        if entry.word or not self._can_answer(entry):
            return False
        if entry.tag is not None or entry.thread is not None:
            return self._is_addressed(entry)
        return self._target is not None and self._is_alone_at(entry)

    def _is_own(self, entry: ChannelMessage) -> bool:
        if self._request.id is not None and entry.id is not None:
            return entry.id == self._request.id
        return entry.text == self._request.text

    def _can_answer(self, entry: ChannelMessage) -> bool:
        return not self._is_own(entry) and (self._target is None or entry.sender == self._target)

    def _is_addressed(self, entry: ChannelMessage) -> bool:
        if entry.tag is not None:
            return entry.tag == self._request.tag
        return entry.thread is not None and entry.thread == self._request.id

    def _untagged(self) -> ChannelMessage | None:
        """Return an untagged answer, if it can be about only one request.

        It must follow the request while no other is open. If any sender may answer, no other sender may have written in
        between, since that sender could have asked or been asked.
        """
        is_visible = self.is_posted()
        is_ours, speakers = not is_visible, set[str | None]()
        waiting = {self._request.tag} if not is_visible else set[str]()
        for at, entry in enumerate((*self._request.before, *self._messages)):
            is_late = at >= len(self._request.before)
            if self._is_own(entry):
                is_ours = True
            elif is_ours and is_late and not entry.word and entry.tag is None:
                speakers.add(entry.sender)
            if self._closes(entry, waiting, is_ours=is_ours and is_late, speakers=speakers):
                return entry
        return None

    def _is_alone_at(self, entry: ChannelMessage) -> bool:
        """Whether only this request is open at a message, and only the target has written since the request."""
        is_ours = not self.is_posted()
        waiting, others = {self._request.tag} if is_ours else set[str](), set[str | None]()
        for earlier in (*self._request.before, *self._messages):
            if earlier is entry:
                break
            if is_ours and earlier.sender != self._target:
                others.add(earlier.sender)
            is_ours = is_ours or self._is_own(earlier)
            self._closes(earlier, waiting, is_ours=False, speakers=set())
        return waiting == {self._request.tag} and not others

    def _closes(self, entry: ChannelMessage, waiting: set[str], *, is_ours: bool, speakers: set[str | None]) -> bool:
        """Update the set of open requests; return whether this message answers this request."""
        if entry.is_request or self._is_own(entry):
            waiting.add(self._request.tag if self._is_own(entry) else entry.tag or "")
            return False
        if entry.tag is not None:
            waiting.discard(entry.tag)
            return False
        if entry.word != DONE or entry.thread is not None or not self._can_answer(entry) or len(waiting) != 1:
            return False
        if is_ours and waiting == {self._request.tag}:
            return self._target is not None or speakers <= {entry.sender}
        waiting.clear()
        return False


def _in_order(new: list[ChannelMessage], is_new: Sequence[bool], is_own: Any) -> list[ChannelMessage]:
    """Return new messages, oldest first.

    They are ordered by number, or else by their position relative to known messages or to the request.
    """
    if all(entry.id is not None and entry.id.isdecimal() for entry in new):
        return sorted(new, key=lambda entry: int(entry.id or 0))
    if not all(is_new):
        return new[::-1] if is_new[0] else new
    own = next((at for at, entry in enumerate(new) if is_own(entry)), 0)
    return new[::-1] if own and own == len(new) - 1 else new


PATH = "/channels/messages"

LATEST = 20
"""Maximum number of messages in each read."""

SECONDS = 30.0
"""Maximum time for a relay's reply, in seconds."""

MAX_BYTES = 32 * 1024 * 1024
NOT_FOUND = 404

log = logging.getLogger("accord.relay")


class RelayUnavailable(Exception):
    """The relay cannot be used.

    `may_pass` is true if the error may be temporary, and `was_posted` if a message may have arrived.
    """

    def __init__(self, reason: str, *, may_pass: bool, was_posted: bool = False) -> None:
        super().__init__(reason)
        self.may_pass = may_pass
        self.was_posted = was_posted


class RelayChannel:
    """Client of one channel."""

    def __init__(self, base_url: str, api_key: str, name: str) -> None:
        """Use the relay at `base_url`; the first request opens the connection."""
        self._url = base_url.rstrip("/") + PATH
        self._key = api_key
        self._name = name
        self._transport: HttpTransport | None = None

    async def post(self, text: str) -> str | None:
        """Post a message and return its id, or None if the relay does not return one."""
        body = msgspec.json.encode({"channel": self._name, "text": text})
        reply = await self._exchange("POST", self._url, body)
        reply_value = _json(reply)
        message = (
            reply_value.get("message", reply_value.get("data", reply_value)) if isinstance(reply_value, dict) else None
        )
        number = message.get("id") if isinstance(message, dict) else None
        return None if number is None else str(number)

    async def latest(self, limit: int = LATEST, **more: Any) -> list[ChannelMessage]:
        """Return the latest messages; `more` are parameters that only some relays support."""
        query = {"channel": self._name, "limit": limit} | more
        page = _json(await self._exchange("GET", f"{self._url}?{urlencode(query)}"))
        if isinstance(page, dict):
            page = page.get("messages", page.get("data"))
        if not isinstance(page, list):
            raise RelayUnavailable("The relay's answer is not a list of messages", may_pass=True)
        return parse_messages(page)

    async def close(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            await transport.close()

    async def _exchange(self, method: str, url: str, body: bytes | None = None) -> HttpReply:
        if self._transport is None:  # the operator names the relay, which may be on this machine
            self._transport = open_transport("aiohttp", policy=Policy(allow_private=True), max_bytes=MAX_BYTES)
        headers = (
            ("Authorization", f"Bearer {self._key}"),
            ("Accept", "application/json"),
            *(() if body is None else (("Content-Type", "application/json"),)),
        )
        request = HttpRequest(method=method, url=url, headers=headers, body=body, seconds=SECONDS)
        try:
            opened = await self._transport.open(request)
            reply = HttpReply(status=opened.status, headers=opened.headers, body=await opened.read())
        except Unreachable as error:
            sent = error.was_sent and body is not None
            raise RelayUnavailable(
                f"The relay cannot be reached: {error.reason}", may_pass=True, was_posted=sent
            ) from error
        except InvalidAgentResponse as error:
            raise RelayUnavailable(f"The relay's answer cannot be taken: {error}", may_pass=False) from error
        if reply.status == NOT_FOUND and body is None:
            return replace(reply, body=b"[]")  # the channel has no messages yet
        if not 200 <= reply.status < 300:
            log.warning("relay.refused", extra={"status": reply.status, "body": reply.body[:1024]})
            may_pass = reply.status >= 500 or reply.status == 429
            raise RelayUnavailable(f"The relay refused: HTTP {reply.status}", may_pass=may_pass)
        return reply


def _json(reply: HttpReply) -> Any:
    try:
        return msgspec.json.decode(reply.body) if reply.body.strip() else None
    except msgspec.DecodeError:
        return None
