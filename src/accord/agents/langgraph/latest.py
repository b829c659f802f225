"""The latest step of a graph as its run knows it, so that a run need not read what it has written.

Nobody else writes to a thread while a task has it. Whatever could not be told for sure is not known, and has to be
read. Graphs within the graph are not followed: there may be many of them. Above is `checkpoints`.
"""

from msgspec.structs import replace

from accord.storage.commands.checkpoints import Given, Loaded, Place, Step, Typed, Write


class Latest:
    """What is known about the latest steps of threads."""

    def __init__(self) -> None:
        """Know nothing."""
        self._known: dict[Place, Loaded | None] = {}
        self.added = 0

    def knows(self, place: Place, checkpoint_id: str | None) -> bool:
        """Whether it can tell the latest step there, or the one with this id."""
        if place not in self._known:
            return False
        found = self._known[place]
        return checkpoint_id is None or (found is not None and found.checkpoint.id == checkpoint_id)

    def at(self, place: Place) -> Loaded | None:
        """Return the latest step at a place that it knows; None if there is none."""
        return self._known[place]

    def note(self, place: Place, found: Loaded | None) -> None:
        """Remember what was read."""
        if not place.space:
            self._known[place] = found

    def forget(self) -> None:
        """Know nothing any more."""
        self._known.clear()

    def add(self, one: Step | Given) -> None:
        """Follow what is about to be kept."""
        self.added += 1
        if one.place not in self._known:
            return
        before = self._known.pop(one.place)
        after = _stepped(before, one) if isinstance(one, Step) else _given(before, one)
        if after is not None:
            self._known[one.place] = after


def _stepped(before: Loaded | None, step: Step) -> Loaded | None:
    """Return what is there after a step; None if something of it was kept long ago."""
    new = {(channel, version): value for channel, version, value in step.values}
    old = {} if before is None else before.checkpoint.versions
    values: dict[str, Typed] = {}
    for channel, version in step.checkpoint.versions.items():
        if (channel, version) in new:
            values[channel] = new[channel, version]
        elif before is None or old.get(channel) != version:
            return None
        elif channel in before.values:
            values[channel] = before.values[channel]
    if before is None or before.checkpoint.id < step.checkpoint.id:
        return Loaded(step.checkpoint, values, [])
    if before.checkpoint.id > step.checkpoint.id:
        return None
    return Loaded(step.checkpoint, values, before.writes)


def _given(before: Loaded | None, given: Given) -> Loaded | None:
    """Return what is there after nodes gave something; None if that is for a step which is not known yet."""
    if before is None or before.checkpoint.id != given.checkpoint_id:
        return None
    writes: dict[tuple[str, int], Write] = {(one.task, one.position): one for one in before.writes}
    for one in given.writes:
        if one.position < 0 or (one.task, one.position) not in writes:
            writes[one.task, one.position] = one
    return replace(before, writes=sorted(writes.values(), key=lambda one: (one.path, one.task, one.position)))
