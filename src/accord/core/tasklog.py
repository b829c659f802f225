"""A task's log as the run that writes it knows it: the task so far, when it is written down, and what is unread in it.

It does no I/O: `core.run` commits what is appended and reads what others added, and says so here. What an event does to
a task is `protocol.lifecycle`.
"""

from collections.abc import Mapping, Sequence

from accord.core.calls import child_of
from accord.model import Event, EventBody, Message, Role, StatusUpdate, Task, TaskState
from accord.protocol import lifecycle

SNAPSHOT_EVENTS = 100
"""A snapshot is written after so many events, and then whenever their number has doubled: linear in all."""

PARKED_SHARE = 16
"""A run that parks writes one whenever there is a sixteenth more, which is linear as well: at first every time, because
whoever reads or lists its task has nothing to fold then; but a long talk is not written down anew with every turn."""


class TaskLog:
    """What a run knows of its task's log."""

    def __init__(self, task: Task, seq: int, kept: int) -> None:
        """Begin with a task after event `seq`, of which the store has a snapshot after event `kept`."""
        self.seq = seq
        self._task = task
        self._since: list[EventBody] = []
        self._kept = kept
        self._fresh: Task | None = None
        self.last: EventBody | None = None
        """The event `seq`, if this run wrote it."""
        self.taken: Sequence[EventBody] = ()
        """Events that are being committed, and may yet be refused."""

    def now(self, bodies: Sequence[EventBody]) -> Task:
        """Return the task with all that was said: what is being committed, and then what still waits for that."""
        return self.after((*self.taken, *bodies))

    def after(self, bodies: Sequence[EventBody]) -> Task:
        """Return the task as it will be after events that are not committed."""
        if not bodies and not self._since:
            return self._task
        return lifecycle.extended(self._task, (*self._since, *bodies))

    def said(self, at: int) -> Message:
        """Return what was said at a place in the history; what was said before the run began is at hand."""
        history = self._task.history
        return history[at] if at < len(history) else self.after(()).history[at]

    def snapshot(self, bodies: Sequence[EventBody], *, parks: bool = False, ends: bool = False) -> Task | None:
        """Return the task after events that are about to be committed, if it is time to write it down."""
        due = max(1, self._kept // PARKED_SHARE) if parks else max(SNAPSHOT_EVENTS, self._kept)
        is_due = ends or self.seq + len(bodies) - self._kept >= due
        self._fresh = self.after(bodies) if is_due else None
        return self._fresh

    def committed(self, bodies: Sequence[EventBody]) -> None:
        """Take in events that were committed, with the snapshot that was returned for them."""
        self.taken = ()
        self.seq += len(bodies)
        self.last = bodies[-1] if bodies else self.last
        if self._fresh is None:
            self._since.extend(bodies)
        else:
            self._task, self._since, self._kept = self._fresh, [], self.seq

    def caught_up(self, events: Sequence[Event]) -> None:
        """Take in events that others added."""
        self.seq, self.last = events[-1].seq, None
        self._since.extend(event.body for event in events)


class Unread:
    """The caller's messages of a turn that have answered no question yet.

    An answer is noted by its place in the history, which only grows: what it says is kept there already, and ids may
    repeat.
    """

    def __init__(self, turn: str, history: Sequence[Message], steps: Mapping[str, str]) -> None:
        """Leave out what was said before the message that began the turn, and what is noted among its steps."""
        asked = f"{turn}/ask:"
        self._taken = {at for key, at in steps.items() if key.startswith(asked)}
        self._after = next((at for at, said in enumerate(history) if said.message_id == turn), 0)

    def take(self, history: Sequence[Message]) -> int | None:
        """Return the place of the oldest one, which from now on is read.

        What answers a question that was passed on is for whoever asked it.
        """
        user = Role.USER
        for at in range(self._after + 1, len(history)):
            if history[at].role is user and str(at) not in self._taken and child_of(history[at - 1]) is None:
                self._after = at
                return at
        return None


def last_state(bodies: Sequence[EventBody]) -> TaskState | None:
    """Return the state that events lead to, if any of them changes it."""
    for body in reversed(bodies):
        if isinstance(body, StatusUpdate):
            return body.status.state
    return None
