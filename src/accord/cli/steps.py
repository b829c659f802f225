"""The steps of a run as somebody watches them: what each event of its log says, and what all of them come to.

Only values: where events come from is `cli.watching`, and how steps look is `cli.shown` and `cli.tree`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from accord.model import Event, StatusUpdate
from accord.protocol.lifecycle import INTERRUPTED
from accord.workflows.channel import METADATA
from accord.workflows.state import FINAL

if TYPE_CHECKING:
    from accord.workflows.stored_run import StoredStep

ITEM = "["
"""What an item of a map is called begins, after its map's name, so."""


class News(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something that has happened: to a step, or, without one, to the run.

    `event` is started, ended, said, output or asks; `status` is what a step that ended is, `retrying` if it is tried
    again. `channels` are those that it was posted to.
    """

    event: str
    at: str | None = None
    step: str | None = None
    status: str | None = None
    attempt: int | None = None
    seconds: float | None = None
    exit_code: int | None = None
    reason: str | None = None
    error: str | None = None
    text: str | None = None
    channels: tuple[str, ...] = ()


def news_of(event: Event) -> Iterator[News]:
    """Yield what an event of a run's log says."""
    body = event.body
    if not isinstance(body, StatusUpdate):
        return
    said = body.status.message
    text = "".join(part.text or "" for part in said.parts) if said is not None else None
    if body.status.state in INTERRUPTED:
        about = ((said.metadata if said is not None else None) or {}).get(METADATA) or {}
        yield News(event="asks", at=event.at, step=about.get("step"), text=text)
        return
    about = (body.metadata or {}).get(METADATA)
    if not isinstance(about, dict):
        return
    if about.get("step") is not None:
        yield _about_step(about, text, event.at)
    for name in about.get("started") or ():
        yield News(event="started", at=event.at, step=name, channels=_channels(about))


def _about_step(about: dict[str, Any], text: str | None, at: str | None) -> News:
    step, channels = about["step"], _channels(about)
    if "status" in about:
        known = {name: about.get(name) for name in ("attempt", "seconds", "exit_code", "reason", "error")}
        return News(event="ended", at=at, step=step, status=about["status"], text=text, channels=channels, **known)
    if "output" in about:
        return News(event="output", at=at, step=step, text=str(about["output"]), channels=channels)
    said = (text or "").removeprefix(f"**[{step}]** ")
    return News(event="said", at=at, step=step, text=said, channels=channels)


def _channels(about: dict[str, Any]) -> tuple[str, ...]:
    return tuple(about.get("channels") or ())


class Row(Struct):
    """A step as it stands, with the last that was heard of it; times are milliseconds since 1970."""

    name: str
    depth: int = 0
    type: str = ""
    status: str = "pending"
    attempt: int = 0
    since: int | None = None
    seconds: float | None = None
    said: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.status in FINAL


class Steps:
    """All steps of a run, in the order of its plan; items of a map come after it."""

    def __init__(self) -> None:
        """Know none yet."""
        self._rows: dict[str, Row] = {}
        self._items: dict[str, list[str]] = {}
        self._starts: Counter[str] = Counter()

    def learn(self, lines: "Iterable[StoredStep]") -> None:
        """Take over how steps stand by what is written down."""
        for line in lines:
            row = self._row(line.name)
            row.type, row.status, row.attempt = line.type, line.status, line.attempts
            row.since, row.seconds = line.begun_at, line.seconds
            row.said = row.said or _last_line(line.error or line.output)

    def take(self, news: News) -> None:
        """Take in what has happened."""
        if news.step is None:
            return
        row = self._row(news.step)
        match news.event:
            case "started":
                self._starts[row.name] += 1  # what is written down may be ahead of what is told
                row.status, row.since, row.seconds, row.said = "running", _ms(news.at), None, ""
                row.attempt = max(row.attempt, self._starts[row.name])
            case "ended":
                row.status = "waiting" if news.status == "retrying" else news.status or row.status
                row.seconds, row.attempt = news.seconds, news.attempt or row.attempt
                row.said = _last_line(news.error) or row.said or _last_line((news.text or "").partition("\n")[2])
            case "asks":
                row.said = _last_line(news.text)
            case _:
                row.said = _last_line(news.text) or row.said

    def heard(self, step: str, text: str) -> None:
        """Take in what a step's agent is saying."""
        row = self._row(step)
        row.said = _last_line(text) or row.said

    def rows(self) -> Iterator[Row]:
        """Yield the steps."""
        for name, row in self._rows.items():
            if row.depth == 0:
                yield from self._with_items(name)

    def _with_items(self, name: str) -> Iterator[Row]:
        yield self._rows[name]
        for item in self._items.get(name, ()):
            yield from self._with_items(item)

    def _row(self, name: str) -> Row:
        found = self._rows.get(name)
        if found is None:
            parent = name.rpartition(ITEM)[0]
            found = self._rows[name] = Row(name)
            if parent:
                found.depth = self._row(parent).depth + 1
                self._items.setdefault(parent, []).append(name)
        return found


def _last_line(text: str | None) -> str:
    return next((line.strip() for line in reversed((text or "").splitlines()) if line.strip()), "")


def _ms(at: str | None) -> int | None:
    return None if at is None else round(datetime.fromisoformat(at).timestamp() * 1000)


def spelled(seconds: float) -> str:
    """Return a duration as people read it."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
