"""Whether those who stay are still let in: streams end with the key, session or token that they were opened with.

Who somebody is was settled by `core.access` when they came; this asks again, now and then, for as long as they stay,
and once for everybody who came with the same. It knows neither keys nor sessions: whoever gave them out says whether
they are good. Answers that are no streams are not looked after, so that they cost nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from accord.core.clock import SYSTEM
from accord.core.interface import Ticket
from accord.errors import AgentUnavailable, AuthenticationFailed

LOOK_SECONDS = 2.0
"""How often it is asked: a person who ends something sees it end, and a stream of hours costs a lookup now and then."""

MESSAGE = "What this was opened with is not good any more"

log = logging.getLogger("accord.access")

T = TypeVar("T")

Look = Callable[[str], Awaitable[bool]]
"""Finds out whether what somebody came with is good still, by its id."""


class Stay:
    """One stream, from when it is read in a task; `is_waiting` while that waits for what comes next."""

    __slots__ = ("_is_cancelled", "_task", "is_over", "is_waiting")

    def __init__(self) -> None:
        """Begin in the task that reads it."""
        self._task = asyncio.current_task()
        self._is_cancelled = False
        self.is_over = False
        self.is_waiting = True

    def end(self) -> None:
        """End it where it waits, or else when it would wait again: what its reader does meanwhile is not disturbed."""
        self.is_over = True
        if self.is_waiting and not self._is_cancelled and self._task is not None:
            self._is_cancelled = self._task.cancel()

    def was_ended(self) -> bool:
        """Whether that was why its task was cancelled, which is taken back then; others may have had reasons too."""
        return self._is_cancelled and self._task is not None and not self._task.uncancel()


class Standing:
    """Those who stay, by what they came with."""

    def __init__(self, looks: Mapping[str, Look] | None = None, now_ms: Callable[[], int] = SYSTEM.now_ms) -> None:
        """Ask `looks`, by the kinds of tickets; others end by their time alone."""
        self._looks = looks or {}
        self._now_ms = now_ms
        self._stays: dict[Ticket, set[Stay]] = {}
        self._task: asyncio.Task[None] | None = None

    def kept(self, items: AsyncIterator[T], ticket: Ticket | None) -> AsyncIterator[T]:
        """Return a stream that ends with AuthenticationFailed when a ticket does; where there is none, as it is."""
        return items if ticket is None else self._kept(items, ticket)

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _kept(self, items: AsyncIterator[T], ticket: Ticket) -> AsyncIterator[T]:
        stay = self._begun(ticket)
        try:
            while True:
                held = [await anext(items)]
                stay.is_waiting = False
                yield held.pop()  # which may be large, and is not held while its reader takes its time
                if stay.is_over:
                    raise AuthenticationFailed(MESSAGE)
                stay.is_waiting = True
        except StopAsyncIteration:
            return
        except asyncio.CancelledError:
            if stay.was_ended():
                raise AuthenticationFailed(MESSAGE) from None
            raise
        finally:
            self._left(ticket, stay)

    def _begun(self, ticket: Ticket) -> Stay:
        stay = Stay()
        self._stays.setdefault(ticket, set()).add(stay)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="standing")
        return stay

    def _left(self, ticket: Ticket, stay: Stay) -> None:
        stays = self._stays[ticket]
        stays.discard(stay)
        if not stays:
            del self._stays[ticket]

    async def _run(self) -> None:
        while self._stays:
            await asyncio.sleep(LOOK_SECONDS)
            for ticket in list(self._stays):
                if not await self._is_good(ticket):
                    for stay in list(self._stays.get(ticket, ())):
                        stay.end()

    async def _is_good(self, ticket: Ticket) -> bool:
        if ticket.until is not None and ticket.until <= self._now_ms():
            return False
        look = self._looks.get(ticket.kind)
        try:
            return look is None or await look(ticket.id)
        except AgentUnavailable:  # nobody knows at the moment: it is asked again
            return True
        except Exception:
            log.exception("a credential could not be looked up again", extra={"scheme": ticket.kind})
            return True
