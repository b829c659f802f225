"""Large response bodies: written in pieces, and limited while clients have not read them.

A body of up to `PIECE` bytes is written at once and not counted. A larger one counts until its client has read it:
against the limit of its caller and that of the process (`limits.caller_answers` and `limits.answers`). Where a limit is
reached, clients that have stopped reading are disconnected. If that is not enough, the new body is refused. Streams
that send the same snapshot hold its bytes once.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from accord.a2a import Caller
from accord.auth.rate_limits import Quotas
from accord.errors import AgentUnavailable, RateLimited
from accord.http import timers

log = logging.getLogger("accord.answers")

PIECE = 64 * 1024
"""Bytes written at a time: what a transport buffers before `send` waits for the client."""

STALLED_SECONDS = 5.0
"""Seconds without reading after which a client may be disconnected to make room for others."""

BODY_RETRY_SECONDS = 2

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class ClientGone(Exception):
    """The client closed the connection before its request was read or answered, or was disconnected."""


def account_of(caller: Caller | None) -> Hashable:
    """Return the account whose limit applies, None for the one caller of a server without authentication."""
    return caller.account if caller is not None and caller.owner else None


class ResponseBody:
    """Bytes that responses are writing, which several may share."""

    __slots__ = ("accounts", "data")

    def __init__(self, data: bytes) -> None:
        """Hold `data` for no answer yet."""
        self.data = data
        self.accounts: Counter[Hashable] = Counter()


class UnreadBody:
    """A body that is being written to one client."""

    __slots__ = ("account", "body", "is_ended", "late", "moved_at", "sent", "task")

    def __init__(self, body: ResponseBody, account: Hashable, task: "asyncio.Task[Any] | None", now: float) -> None:
        """Start with nothing sent; `task` is canceled to disconnect the client, None for a body still assembled."""
        self.body = body
        self.account = account
        self.task = task
        self.moved_at = now
        self.sent = self.late = 0
        self.is_ended = False


class ResponseBodies:
    """The large bodies of a process that clients have not read."""

    def __init__(self) -> None:
        """Begin with none."""
        self.held = 0
        self._by_account: Counter[Hashable] = Counter()
        self._shared: dict[bytes, ResponseBody] = {}
        self._pending: dict[UnreadBody, None] = {}

    def held_by(self, account: Hashable) -> int:
        """Return the bytes that an account has not read."""
        return self._by_account[account]

    @contextmanager
    def hold(
        self, data: bytes, account: Hashable, quotas: Quotas, *, shares: bool = False, is_written: bool = True
    ) -> Iterator[UnreadBody]:
        """Count a body while the block writes it, or refuse it.

        An `account` of None has only the limit of the process. With `shares`, an equal body that is being written
        provides the bytes. Without `is_written`, the body is part of a response still being assembled: its client
        cannot be blamed for not reading.
        """
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop) if is_written else None
        body = (self._shared.get(data) if shares else None) or ResponseBody(data)
        del data  # an equal body that is being written replaces it
        self._make_room(body, account, quotas, loop.time())
        if shares:
            self._shared[body.data] = body
        pending = UnreadBody(body, account, task, loop.time())
        self._add(pending)
        alarm = timers.timers_of(loop)
        if task is not None:
            self._watch(pending, alarm, quotas)
        try:
            yield pending
        except asyncio.CancelledError:
            if pending.is_ended and task is not None and not task.uncancel():
                raise ClientGone from None
            raise
        finally:
            alarm.clear(pending.late)
            self._drop(pending)

    def _watch(self, pending: UnreadBody, alarm: timers.CoarseTimers, quotas: Quotas) -> None:
        """Check after a while whether enough was read; no reference cycle may keep the bytes after that."""
        sent = pending.sent

        def check_progress() -> None:
            if pending.sent - sent < quotas.unread_seconds * quotas.body_rate:
                self._end(pending)
            else:
                self._watch(pending, alarm, quotas)

        pending.late = alarm.set(quotas.unread_seconds, check_progress)

    async def write(
        self, send: Send, pending: UnreadBody, before: bytes = b"", after: bytes = b"", *, more: bool = False
    ) -> None:
        """Write a body piece by piece, each after the client has read enough of the previous ones."""
        data, loop = pending.body.data, asyncio.get_running_loop()
        size = len(data)
        for at in range(0, size, PIECE):
            piece, is_last = data[at : at + PIECE], at + PIECE >= size
            if at == 0 and before:
                piece = before + piece
            if is_last and after:
                piece += after
            await send({"type": "http.response.body", "body": piece, "more_body": more or not is_last})
            pending.sent, pending.moved_at = at + PIECE, loop.time()

    # --- the limits ---------------------------------------------------------------------------------------------------

    def _make_room(self, body: ResponseBody, account: Hashable, quotas: Quotas, now: float) -> None:
        """Disconnect clients that have stopped reading as far as needed, or refuse the body.

        A body that is larger than a limit by itself is written while nothing else counts against that limit.
        """
        size = len(body.data)
        if (
            account is not None
            and account not in body.accounts
            and not self._frees(
                lambda: self._by_account[account], size, quotas.caller_answers, self._stalled(now, account)
            )
        ):
            log.warning("answer.refused", extra={"limit": "caller_answers", "size": size})
            message = f"More than {quotas.caller_answers} bytes of your answers are unread; read them first"
            raise RateLimited(message, retry_after=BODY_RETRY_SECONDS, metadata={"limit": "caller_answers"})
        if not body.accounts and not self._frees(lambda: self.held, size, quotas.answers, self._stalled(now)):
            log.warning("answer.refused", extra={"limit": "answers", "size": size})
            raise AgentUnavailable("Too many large answers are unread; try again", retry_after=BODY_RETRY_SECONDS)

    def _frees(self, held: Callable[[], int], size: int, limit: int, stalled: Iterable[UnreadBody]) -> bool:
        """Disconnect stalled clients until a body fits, and return whether it does."""
        for pending in stalled:
            if not held() or held() + size <= limit:
                break
            self._end(pending)
        return not held() or held() + size <= limit

    def _stalled(self, now: float, account: Hashable = None) -> Iterable[UnreadBody]:
        """Return the clients that have read nothing for a while, the longest first."""
        found = [
            pending
            for pending in self._pending
            if pending.task is not None
            and now - pending.moved_at >= STALLED_SECONDS
            and (account is None or pending.account == account)
        ]
        return sorted(found, key=attrgetter("moved_at"))

    def _end(self, pending: UnreadBody) -> None:
        if pending.task is not None and not pending.is_ended:
            log.warning(
                "answer.not_read",
                extra={"size": len(pending.body.data), "sent": pending.sent},
            )
            pending.is_ended = True
            self._drop(pending)
            pending.task.cancel()

    # --- the counts ---------------------------------------------------------------------------------------------------

    def _add(self, pending: UnreadBody) -> None:
        body, account = pending.body, pending.account
        if not body.accounts:
            self.held += len(body.data)
        if not body.accounts[account]:
            self._by_account[account] += len(body.data)
        body.accounts[account] += 1
        self._pending[pending] = None

    def _drop(self, pending: UnreadBody) -> None:
        """Stop counting a body, unless it was dropped when its client was disconnected."""
        if pending not in self._pending:
            return
        del self._pending[pending]
        body, account = pending.body, pending.account
        body.accounts[account] -= 1
        if not body.accounts[account]:
            del body.accounts[account]
            self._by_account[account] -= len(body.data)
            if not self._by_account[account]:
                del self._by_account[account]
        if not body.accounts:
            self.held -= len(body.data)
            if self._shared.get(body.data) is body:
                del self._shared[body.data]


RESPONSE_BODIES = ResponseBodies()
"""The response bodies of this process."""
