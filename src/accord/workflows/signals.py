"""Signals for waiting steps: an event, or a decision about an approval.

A signal is stored for the waiting step, and any node resumes the run. The console and the CLI check permissions. A run
may also create a secret address for an event, and its bearer may send that event.
"""

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from accord.api import Context, Store, queries
from accord.errors import TaskNotFound
from accord.protocol.states import LOWER
from accord.workflows.attempts import signal_key
from accord.workflows.members import steps_of
from accord.workflows.state import FINAL, PlanNode
from accord.workflows.stored_run import StoredRun, encode_decision, load_stored_run

ADDRESS = "/api/events"
"""Path of the endpoint for events. A token in the query names the run and the event."""

URL = "flow-url:"
"""Prefix of the journal keys of event tokens, followed by the name of the event and the hash of the secret."""

SECRET_BYTES = 32

Wake = Callable[[str, str, str, Any], Awaitable[bool]]


class NotWaiting(Exception):
    """The step does not wait, not yet or not anymore."""


class RunSignals:
    """Sends signals to the runs of a store."""

    def __init__(self, store: Store, wake: Wake, agents: Collection[str]) -> None:
        """Handle the runs of `agents`, which are workflows."""
        self._store = store
        self._wake = wake
        self._agents = frozenset(agents)

    async def find(self, tenant: str, run: str) -> StoredRun:
        """Return a run of a tenant; raises TaskNotFound."""
        found = await load_stored_run(self._store, run)
        if found is None or found.task.tenant != tenant or found.task.agent not in self._agents:
            raise TaskNotFound(f"There is no run {run}")
        return found

    async def decide(self, run: StoredRun, step: str, *, approved: bool, comment: str = "") -> None:
        """Approve or reject a step; raises TaskNotFound, or NotWaiting if the step does not ask."""
        node = run.state().nodes.get(step)
        if node is None or node.step is None or not node.step.row.has_decision:
            raise TaskNotFound(f"The run has no approval {step}")
        _check_open(run)
        if node.status != "running":
            raise NotWaiting(f"{step} does not ask: it is {node.status}")
        value = encode_decision(is_approved=approved, comment=comment)
        if not await self._wake(run.task.tenant, run.task.task_id, signal_key(step, node.attempt), value):
            raise NotWaiting(f"{step} has been decided")

    async def tell(self, run: StoredRun, event: str, value: Any) -> None:
        """Send an event, also to a step that starts to wait for it later; raises like `decide`."""
        if not any(step.event == event for step in steps_of(run.plan.steps)):
            raise TaskNotFound(f"The run has no step that waits for {event}")
        _check_open(run)
        nodes = [node for node in run.state().nodes.values() if node.step is not None and node.step.event == event]
        open_ = {_attempt(node) for node in nodes if node.status not in FINAL}
        attempts = open_ if nodes else {1}  # a map without items yet will have such steps
        tenant, task_id = run.task.tenant, run.task.task_id
        keys = [signal_key(f"event/{event}", attempt) for attempt in sorted(attempts)]
        if not any([await self._wake(tenant, task_id, key, value) for key in keys]):
            raise NotWaiting(f"Nothing waits for {event} any more")

    async def is_shown(self, shown: "EventToken") -> bool:
        """Whether a run issued this token."""
        key = _key(shown.event, shown.secret)
        return await queries.find_step(self._store, shown.tenant, shown.run, key) is not None


def _check_open(run: StoredRun) -> None:
    if run.is_over:
        raise NotWaiting(f"{run.task.task_id} has ended: it is {LOWER[run.task.state]}")


def _attempt(node: PlanNode) -> int:
    return node.attempt if node.status == "running" else node.attempt + 1


# --- event addresses --------------------------------------------------------------------------------------------------


class EventToken(Struct, frozen=True, array_like=True):
    """The content of an event token. Only the holders of the address have its secret."""

    tenant: str
    run: str
    event: str
    secret: str

    def __repr__(self) -> str:
        return f"Shown(run={self.run!r}, event={self.event!r})"

    @property
    def token(self) -> str:
        """The token as text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def read(cls, token: str) -> "EventToken | None":
        """Return the content of a token, or None if it is not valid."""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=cls)
        except (ValueError, msgspec.DecodeError):
            return None


async def event_addresses(ctx: Context, events: Iterable[str], url: str) -> dict[str, str]:
    """Return an address for each event that a run mentions.

    A caller with the address can send the event. The secrets are new each time, and only their hashes are stored.
    Addresses issued earlier stay valid.
    """
    if not url:
        return {}
    tokens = [EventToken(ctx.tenant, ctx.task_id, event, secrets.token_urlsafe(SECRET_BYTES)) for event in events]
    await ctx.journal.write({_key(one.event, one.secret): "true" for one in tokens})
    return {one.event: f"{url}{ADDRESS}?token={one.token}" for one in tokens}


def _key(event: str, secret: str) -> str:
    return f"{URL}{event}:{hashlib.sha256(secret.encode()).hexdigest()}"
