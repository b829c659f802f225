"""Availability checks of published agents, and the port that calls other servers.

Any node may check. The store decides which node does.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from accord.errors import AccordError
from accord.model import AgentCard
from accord.protocol.cards import decode_card
from accord.retries import RetryPolicy
from accord.storage.commands import published_agents
from accord.storage.commands.published_agents import DueCheck, LastCheck
from accord.storage.store import Store, StoreUnavailable


class UnreachableServer(Exception):
    """A server did not answer. A later attempt may succeed. The message contains the reason."""


class ForbiddenAddress(UnreachableServer):
    """An address may not be requested. The message contains the reason."""


class ServerAnswer(Struct, frozen=True, kw_only=True):
    """A server's answer."""

    status: int
    body: bytes


class AskPort(Protocol):
    """Sends requests to other servers."""

    async def __call__(self, method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        """Send a request with an optional JSON body and return the answer, or raise UnreachableServer."""


JITTER = (0.9, 1.1)
RETRIES = RetryPolicy(first_seconds=60.0, max_seconds=6 * 3600.0, jitter=JITTER)
"""Backoff after a failed check."""

LOOK_SECONDS = 20.0
"""Timeout of one check, in seconds."""

HOLD_MS = 60_000
"""Lease of a check, in milliseconds: well above its timeout."""

AT_ONCE = 8
"""Concurrent checks of one node."""

REST_SECONDS = 30.0
"""Maximum seconds between two reads of the store, because other nodes publish too."""

_CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")

log = logging.getLogger("accord.registry")


class Availability(Enum):
    """The result of a check: the agent is reachable, is not, or may not be requested."""

    UP = "up"
    DOWN = "down"
    UNCHECKED = "unchecked"


class CheckResult(NamedTuple):
    """The result of a check, with a readable detail."""

    state: Availability
    detail: str


async def check_agent(card: AgentCard, ask: AskPort) -> CheckResult:
    """Check an agent. It is up if its card is served, or if its address answers with a status below 500."""
    place = next((one.url for one in card.supported_interfaces if "://" in one.url), None)
    if place is None:
        return CheckResult(Availability.UNCHECKED, "The agent has only gRPC addresses, which are not checked")
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            for url in _card_urls(place):
                if (served_card := _as_card(await ask("GET", url))) is not None:
                    other = "" if served_card.name == card.name else f", which calls itself {served_card.name[:80]!r}"
                    return CheckResult(Availability.UP, f"Its card is there{other}")
            answer = await ask("GET", place)
    except TimeoutError:
        return CheckResult(Availability.DOWN, f"No answer within {LOOK_SECONDS:g} seconds")
    except ForbiddenAddress as error:
        return CheckResult(Availability.UNCHECKED, str(error))
    except UnreachableServer as error:
        return CheckResult(Availability.DOWN, str(error))
    if answer.status >= 500:
        return CheckResult(Availability.DOWN, f"It answers {answer.status}")
    return CheckResult(Availability.UP, f"It answers {answer.status}, without a card at the usual places")


def _card_urls(place: str) -> Iterator[str]:
    """Yield the possible addresses of a card: below the agent's address, and at the root of its host."""
    parts = urlsplit(place)
    origin = f"{parts.scheme}://{parts.netloc}"
    below = f"{origin}{parts.path.rstrip('/')}"
    yield from dict.fromkeys((below + _CARDS[0], origin + _CARDS[0], origin + _CARDS[1]))


def _as_card(answer: ServerAnswer) -> AgentCard | None:
    try:
        return decode_card(answer.body) if answer.status == 200 else None
    except AccordError:
        return None


class AvailabilityChecks:
    """Checks the published agents of a store while it is started."""

    def __init__(
        self, store: Store, ask: AskPort, *, every: float, chance: Callable[[], float] = random.random
    ) -> None:
        """Check with `ask`, about every `every` seconds. `chance` spreads the checks over time."""
        self._store = store
        self._ask = ask
        self._interval = RetryPolicy(first_seconds=every, jitter=JITTER)
        self._chance = chance
        self._wakeup = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    # --- startup, loop, shutdown ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start checking."""
        self._loop = asyncio.create_task(self._work(), name="registry-checks")

    async def stop(self) -> None:
        """Stop. Checks in progress become due again soon."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    def wake(self) -> None:
        """Check soon, because an agent was published or changed."""
        self._wakeup.set()

    async def _work(self) -> None:
        while True:
            self._wakeup.clear()
            try:
                while await self.once():
                    pass
                wait = await self._store.read(published_agents.next_check_ms)
            except StoreUnavailable as error:
                log.warning("store.unavailable", extra={"reason": str(error)})
                wait = None
            except Exception:  # the node continues without it; the log contains the error
                log.exception("registry.loop_failed")
                wait = None
            seconds = REST_SECONDS if wait is None else min(REST_SECONDS, wait / 1000 + 0.01)
            try:
                async with asyncio.timeout(seconds):
                    await self._wakeup.wait()
            except TimeoutError:
                continue

    # --- checks ---------------------------------------------------------------------------------------------------

    async def once(self) -> int:
        """Run some of the due checks, and return their number."""
        due = await self._store.do(published_agents.claim_checks, AT_ONCE, HOLD_MS)
        outcomes = await asyncio.gather(*map(self._settle, due), return_exceptions=True)
        for outcome in outcomes:  # a result that could not be stored does not prevent storing the others
            if isinstance(outcome, BaseException):
                raise outcome
        return len(due)

    async def now(self, tenant: str, id: str) -> LastCheck:
        """Check one agent immediately."""
        due = await self._store.do(published_agents.claim_check, tenant, id, HOLD_MS)
        return LastCheck() if due is None else await self._settle(due)

    async def _settle(self, due: DueCheck) -> LastCheck:
        try:
            result = await check_agent(decode_card(due.card.encode()), self._ask)
        except AccordError as error:  # it was readable by the version that published it
            result = CheckResult(Availability.UNCHECKED, f"Its card cannot be read: {error.message}")
        is_up = result.state is Availability.UP
        policy, failures = (self._interval, 1) if is_up else (RETRIES, due.failures + 1)
        again_ms = round(policy.delay(failures, draw=self._chance) * 1000)
        args = (due, result.state.value, result.detail[:500])
        return await self._store.do(published_agents.settle_check, *args, is_up=is_up, again_ms=again_ms)
