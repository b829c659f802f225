"""The other nodes of a store, and the store's clock.

A node is dead when its heartbeats have stopped for a whole lease, counted by this node's monotonic clock. A process of
the same host that has ended is detected at once.
"""

import asyncio
import logging
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from accord.engine.hooks import Hooks, LeaseLost, NodeReaped
from accord.storage.commands import jobs, task_endings
from accord.storage.commands.jobs import PeerNode
from accord.storage.store import Store

log = logging.getLogger("accord.engine")

PROC = Path("/proc")
"""Only Linux reports a process's start time, which tells reused process IDs apart."""

_BEGAN = 19
"""The index of the start time in `/proc/PID/stat`, counted after the process name."""


JUMP_SECONDS = 5.0
"""A change of the store's clock in seconds that exceeds its usual corrections."""

SKEW_SECONDS = 60.0
"""A clock difference between node and store in seconds that is logged for operators."""

SLOW_SECONDS = 1.0
"""A slower answer reveals only jumps that are longer than the answer took."""


class HostProcess(Struct, frozen=True, kw_only=True):
    """A process that other processes of its host can check."""

    host: str
    """Boot ID, PID namespace and host name, which the processes of one host share."""

    pid: int
    """The process ID in that namespace."""

    began: int
    """The start time in clock ticks, because process IDs are reused."""

    @property
    def has_ended(self) -> bool:
        """Whether the process has certainly ended. Only valid for processes of this host."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # the process belongs to another user
        found = _stat(self.pid)
        return found is not None and (found.began != self.began or found.state in "ZX")


class _Stat(NamedTuple):
    state: str
    began: int


def _stat(pid: int) -> _Stat | None:
    """Return the state and start time of a process from `/proc`, or None if unavailable."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return _Stat(fields[0], int(fields[_BEGAN]))
    except (OSError, IndexError, ValueError):
        return None


@cache
def _host() -> str | None:
    """Return an ID shared by all processes that can see each other, or None if it is unknown."""
    try:
        if os.readlink(PROC / "self") != str(os.getpid()):
            return None  # `/proc` belongs to another PID namespace
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink(PROC / 'self/ns/pid')} {socket.gethostname()}"
    except OSError:
        return None


def this_process() -> HostProcess | None:
    """Return this process, or None if others cannot check it."""
    host, found = _host(), _stat(os.getpid())
    return None if host is None or found is None else HostProcess(host=host, pid=os.getpid(), began=found.began)


class _Heartbeat(NamedTuple):
    """The last heartbeat of a node: its number, and the time of its arrival."""

    beats: int
    since: float


class Peers:
    """The nodes that this node has seen, and their heartbeats."""

    def __init__(self, lease_seconds: float) -> None:
        """Create an empty set of peers."""
        self.lease_seconds = lease_seconds
        self.process = this_process()
        self._signs: dict[str, _Heartbeat] = {}
        self._neighbors: dict[str, HostProcess] = {}

    @property
    def info(self) -> str:
        """The information that this node publishes for its peers."""
        return "{}" if self.process is None else msgspec.json.encode(self.process).decode()

    def observe(self, peers: Sequence[PeerNode], now: float) -> None:
        """Record all nodes in the store. `now` is this node's monotonic time."""
        signs = {}
        for peer in peers:
            sign = self._signs.get(peer.id)
            signs[peer.id] = sign if sign is not None and sign.beats == peer.beats else _Heartbeat(peer.beats, now)
        self._signs = signs
        self._neighbors = {peer.id: found for peer in peers if (found := self._neighbor(peer)) is not None}

    def _neighbor(self, peer: PeerNode) -> HostProcess | None:
        """Return the process of a node on this host, or None for other nodes."""
        try:
            found = msgspec.json.decode(peer.info, type=HostProcess)
        except msgspec.DecodeError:  # without process information
            return None
        return found if self.process is not None and found.host == self.process.host else None

    def forget(self) -> None:
        """Restart the count. While this node was silent, all others were too if the store was unavailable."""
        self._signs = {}

    def drop(self, node: str) -> None:
        """Remove a node that was taken over."""
        self._signs.pop(node, None)
        self._neighbors.pop(node, None)

    def silent(self, now: float) -> dict[str, int]:
        """Return the nodes without a heartbeat for a lease, with the number of their last heartbeat."""
        return {id: sign.beats for id, sign in self._signs.items() if now - sign.since >= self.lease_seconds}

    def ended(self) -> dict[str, int]:
        """Return the nodes of this host whose process has ended, with the number of their last heartbeat."""
        ended = [id for id, process in self._neighbors.items() if process.has_ended]
        return {id: self._signs[id].beats for id in ended if id in self._signs}

    @property
    def next_expiry(self) -> float | None:
        """The earliest lease expiry without further heartbeats, or None."""
        return min((sign.since + self.lease_seconds for sign in self._signs.values()), default=None)


class StoreClock:
    """Compares the store's clock with this node's clocks, to detect jumps and differences."""

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        """Start without a measurement."""
        self._store = store
        self._now_ms = now_ms
        self._offset: float | None = None
        self._differs = False
        self.has_jumped = False

    async def left_until(self, timer: jobs.ClaimedJob, deadline_ms: int | None) -> int:
        """Return the milliseconds left of a due timer. Zero unless the store's clock has ever jumped."""
        if not self.has_jumped:
            return 0
        due_ms = deadline_ms if timer.kind == jobs.DEADLINE else await self._store.read(jobs.limit_of, timer)
        return 0 if due_ms is None else due_ms - self._now_ms()

    async def compare(self) -> None:
        """Read the store's time. If its clock jumped since the last time, correct the due times."""
        loop = asyncio.get_running_loop()
        before = loop.time()
        store_ms = await self._store.read(jobs.store_time)
        after = loop.time()
        known, offset, slack = self._offset, store_ms / 1000 - after, after - before
        if slack <= SLOW_SECONDS:
            self._offset = offset
        elif known is None or abs(offset - known) < JUMP_SECONDS + slack:
            return  # the answer was too slow to measure the clock
        skew = store_ms / 1000 - self._now_ms() / 1000
        if (differs := abs(skew) > SKEW_SECONDS) and not self._differs:
            log.warning("store.clock_differs", extra={"seconds": round(-skew)})
        self._differs = differs
        if known is None or abs(jump := offset - known) < JUMP_SECONDS:
            return
        self.has_jumped = True
        log.warning("store.clock_jumped", extra={"seconds": round(jump)})
        await self._store.do(jobs.align_due_times, self._now_ms())


class Membership:
    """A node's heartbeats, and its takeover from dead nodes."""

    def __init__(self, store: Store, node: str, lease_seconds: float, hooks: Hooks, now_ms: Callable[[], int]) -> None:
        """Join as `node`, before its first heartbeat."""
        self._store = store
        self._node = node
        self._hooks = hooks
        self._peers = Peers(lease_seconds)
        self.clock = StoreClock(store, now_ms)
        self._beats = self._kept = 0
        self.lost = 0
        """Heartbeats of this node that the store acknowledged and then lost."""
        self._beaten = math.inf

    async def beat(self) -> dict[int, int]:
        """Send a heartbeat. Return the claims of this node: job ID -> epoch."""
        lease_seconds = self._peers.lease_seconds
        self._beats += 1
        beat = await self._store.do(
            jobs.heartbeat, self._node, round(lease_seconds * 1000), self._beats, self._peers.info
        )
        now = asyncio.get_running_loop().time()
        self.lost = self._kept - beat.before if beat.before is not None else 0
        self._kept = self._beats
        if now - self._beaten > lease_seconds:
            self._peers.forget()
            self._hooks.emit(LeaseLost(tenant="", task_id="", agent="", node=self._node))
        self._beaten = now
        self._peers.observe(beat.peers, now)
        await self.clock.compare()
        return beat.held

    async def take_over(self) -> None:
        """Take over from all dead nodes."""
        await self._reap(self._peers.silent(asyncio.get_running_loop().time()) | self._peers.ended())

    async def take_over_here(self) -> None:
        """Take over from ended processes of this host. Finding them needs no store."""
        if ended := self._peers.ended():
            await self._reap(ended)

    async def _reap(self, gone: Mapping[str, int]) -> None:
        reaped = await self._store.do(task_endings.reap_nodes, gone)
        self._hooks.emit_ended(reaped.ended)
        for node in reaped.nodes:
            self._peers.drop(node)
            log.warning("node.reaped", extra={"node": node})
            self._hooks.emit(NodeReaped(tenant="", task_id="", agent="", node=node))

    def call_at_expiry(self, callback: Callable[[], None], *, within: float) -> None:
        """Schedule a callback for the next lease expiry, if it is less than `within` seconds away."""
        loop, due = asyncio.get_running_loop(), self._peers.next_expiry
        if due is not None and loop.time() < due < loop.time() + within:
            loop.call_at(due, callback)
