"""Text form of tasks, messages and cards, and progress on a terminal.

Labels are fixed and control characters are replaced, so the text can be read, piped and parsed. Progress is drawn on
standard error and never changes standard output.
"""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from msgspec import UNSET
from msgspec import json as msgspec_json

from accord.cli.tables import escape_json, webhook_url
from accord.model import (
    AgentCard,
    Artifact,
    ArtifactUpdate,
    Event,
    Message,
    MessageUpdate,
    Part,
    PushConfig,
    Result,
    Role,
    StatusUpdate,
    Task,
    TaskPage,
    TaskStatus,
)
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName, Operation
from accord.protocol.states import LOWER

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.spinner import Spinner


V1 = DIALECTS[DialectName.V1]

_WHITESPACE = "\n\t"
_CONTROLS = {code: "?" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in _WHITESPACE}
_DIRECTION_MARKS = {code: "" for code in (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that reverse the direction of the text after them, and so disguise it."""

_REPLACED = _CONTROLS | _DIRECTION_MARKS | {0x2028: "\n", 0x2029: "\n"}


def write(text: str) -> None:
    """Print data without buffering, so that a pipe receives it as it comes."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def notice(text: str) -> None:
    """Print a message that is not data, on standard error."""
    print(text, file=sys.stderr, flush=True)


def document(operation: Operation, result: Result) -> None:
    """Print a result as one JSON document, in A2A 1.0's form."""
    write(escape_json(V1.encode_result(operation, result).decode()) + "\n")


def lines(found: Iterable[str]) -> None:
    """Print lines."""
    write("".join(f"{line}\n" for line in found))


def result(
    operation: Operation, value: Result, text: Iterable[str], next_page: str | None = None, *, is_json: bool
) -> None:
    """Print a result as one JSON document, or as these lines with a hint at the next page."""
    if is_json:
        document(operation, value)
        return
    lines(text)
    if next_page:
        notice(f"Next page: --page-token {line(next_page)}")


def safe(text: str) -> str:
    """Return foreign text without terminal control characters."""
    return text.replace("\r\n", "\n").translate(_REPLACED)


def answer_text(text: str) -> str:
    """Return an agent's text for standard output: unchanged in a pipe or a file, escaped on a terminal."""
    return safe(text) if sys.stdout.isatty() else text


def line(value: object) -> str:
    """Return a value in one line."""
    return " ".join(safe(str(value)).split())


def field(label: str, value: object) -> str:
    """Return a field as a line."""
    return f"{label}: {line(value)}"


def block(label: str, content: str) -> list[str]:
    """Return a block of lines."""
    return [f"{label}:", *safe(content).removesuffix("\n").split("\n"), ""]


# --- tasks and messages -----------------------------------------------------------------------------------------------


def state_of(task: Task) -> str:
    """Return the name of a task's state."""
    return LOWER[task.status.state]


def heading(task: Task) -> list[str]:
    """Yield the ids and the state of a task."""
    return [
        field("Task", task.id),
        *([field("Context", task.context_id)] if task.context_id else []),
        field("State", state_of(task)),
    ]


def of_task(task: Task, *, with_history: bool = False) -> Iterator[str]:
    """Yield a task: ids, status message, optionally its history, and artifacts."""
    yield from heading(task)
    if task.status.timestamp:
        yield field("Updated", task.status.timestamp)
    if task.status.message is not None:
        yield from of_parts(task.status.message.parts, "Status")
    for message in task.history if with_history else ():
        yield from of_parts(message.parts, "User" if message.role is Role.USER else "Agent")
    if not with_history:
        yield from of_last_message(task)
    for artifact in task.artifacts:
        yield from of_artifact(artifact)


def of_last_message(task: Task) -> Iterator[str]:
    """Yield the agent's last message, if the task has neither a status message nor artifacts."""
    is_silent = task.status.message is None and not task.artifacts
    if is_silent and task.history and task.history[-1].role is Role.AGENT:
        yield from of_parts(task.history[-1].parts, "Message")


def of_message(message: Message) -> Iterator[str]:
    """Yield a message that answers without a task."""
    if message.context_id:
        yield field("Context", message.context_id)
    yield from of_parts(message.parts, "Message")


def of_artifact(artifact: Artifact) -> Iterator[str]:
    """Yield an artifact."""
    yield field("Artifact", artifact.name or artifact.artifact_id)
    if artifact.description:
        yield field("Description", artifact.description)
    yield from of_parts(artifact.parts, "Text")


def of_parts(parts: Iterable[Part], label: str) -> Iterator[str]:
    """Yield parts. Adjacent texts are one block, and a file is described in a line."""
    text = ""
    for part in parts:
        if part.text is not None:
            text += part.text
            continue
        if text:
            yield from block(label, text)
            text = ""
        yield from block("Data", json(part.data)) if part.data is not UNSET else [field("File", of_file(part))]
    if text:
        yield from block(label, text)


def of_file(part: Part) -> str:
    """Return the description of a file, in one line."""
    where = part.url if part.url is not None else f"{len(part.raw or b'')} bytes"
    about = ", ".join(filter(None, (part.media_type, where)))
    return f"{part.filename} ({about})" if part.filename else about


def json(value: Any) -> str:
    """Return a value as JSON that people can read."""
    return msgspec_json.format(msgspec_json.encode(value), indent=2).decode()


def compact(value: Any) -> str:
    """Return a value as JSON in one line, for standard output."""
    return escape_json(msgspec_json.encode(value).decode())


def text_of(parts: Iterable[Part]) -> str:
    """Return the text of parts."""
    return "".join(part.text for part in parts if part.text is not None)


def of_page(page: TaskPage, *, with_history: bool = False) -> Iterator[str]:
    """Yield a page of tasks, separated by empty lines."""
    for task in page.tasks:
        found = list(of_task(task, with_history=with_history))
        yield from found
        if found[-1]:  # a block ends with one
            yield ""


# --- cards and webhooks -----------------------------------------------------------------------------------------------


def of_card(card: AgentCard) -> Iterator[str]:
    """Yield the content of an agent's card."""
    yield field("Name", card.name)
    yield field("Description", card.description)
    yield field("Version", card.version)
    if card.provider is not None:
        yield field("Provider", f"{card.provider.organization} ({card.provider.url})")
    for label, value in (("Documentation", card.documentation_url), ("Icon", card.icon_url)):
        if value:
            yield field(label, value)
    for interface in card.supported_interfaces:
        tenant = f" tenant {interface.tenant}" if interface.tenant else ""
        yield field("Interface", f"{interface.protocol_binding} {interface.protocol_version} {interface.url}{tenant}")
    offered = card.capabilities
    yield field("Streaming", _yes(offered.streaming))
    yield field("Push notifications", _yes(offered.push_notifications))
    yield field("Extended card", _yes(offered.extended_agent_card))
    for extension in offered.extensions:
        yield field("Extension", f"{extension.uri}{' (required)' if extension.required else ''}")
    yield field("Input", _listed(card.default_input_modes))
    yield field("Output", _listed(card.default_output_modes))
    yield from _security(card)
    for skill in card.skills:
        tags = f" [{_listed(skill.tags)}]" if skill.tags else ""
        yield field("Skill", f"{skill.id}: {skill.name}{tags}")
        if skill.description:
            yield field("Skill description", skill.description)


def _security(card: AgentCard) -> Iterator[str]:
    for name, scheme in card.security_schemes.items():
        (kind,) = [key for key in scheme.__struct_fields__ if getattr(scheme, key) is not None]
        stated = getattr(scheme, kind)
        about = " ".join(str(getattr(stated, key)) for key in ("scheme", "location", "name") if hasattr(stated, key))
        yield field("Security scheme", f"{name}: {kind.removesuffix('_security_scheme').replace('_', ' ')} {about}")
    for requirement in card.security_requirements:
        yield field("Security", " and ".join(requirement.schemes) or "none")


def of_push(config: PushConfig) -> Iterator[str]:
    """Yield a webhook, without its credentials."""
    yield field("Webhook", config.id or "-")
    if config.task_id:
        yield field("Task", config.task_id)
    yield field("URL", webhook_url(config.url))
    yield field("Token", _yes(config.token is not None))
    if config.authentication is not None:
        yield field("Authentication", config.authentication.scheme)


def _yes(value: bool | None) -> str:
    return "yes" if value else "no"


def _listed(values: Sequence[str]) -> str:
    return ", ".join(values) or "-"


TAIL_ROWS = 6
"""Rows of streamed text that are shown."""

TAIL_LENGTH = 4000
"""Characters of streamed text that are kept for that."""


class Progress:
    """Progress in the last rows of a terminal, or nothing without a terminal."""

    def __init__(self, activity: str = "waiting") -> None:
        """Create the display without drawing it."""
        self._is_seen = sys.stderr.isatty()
        self._activity, self._detail, self._text = activity, "", ""
        self._since = time.monotonic()
        self._live: Live | None = None
        self._spinner: Spinner | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start drawing, if there is a terminal."""
        if not self._is_seen or self._live is not None:
            return
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        console = Console(stderr=True)
        if not console.is_terminal or console.is_dumb_terminal:
            self._is_seen = False
            return
        self._spinner = self._spinner or Spinner("dots")
        self._live = Live(
            console=console,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._drawn,
        )
        self._live.start()

    def stop(self) -> None:
        """Stop drawing, and clear the rows."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, activity: str) -> None:
        """Show the current activity."""
        self._activity = activity

    def event(self, event: Event) -> None:
        """Show an event."""
        if not self._is_seen:
            return
        match event.body:
            case Task(status=status):
                self._status(status)
            case StatusUpdate(status=status, metadata=metadata):
                self._status(status, (metadata or {}).get("node"))
            case ArtifactUpdate(artifact=artifact):
                self._text = (self._text + safe(text_of(artifact.parts)))[-TAIL_LENGTH:]
            case Message() | MessageUpdate():
                pass
        self.start()

    def _status(self, status: TaskStatus, node: object = None) -> None:
        """Show a status: its message, or the node of a graph that ended."""
        self._activity = LOWER[status.state]
        if isinstance(node, str):
            self._detail = line(node)
        if status.message is not None:
            self._detail = " ".join(safe(text_of(status.message.parts)).split())

    def _drawn(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        if self._live is None or self._spinner is None:
            return ""
        seconds = time.monotonic() - self._since
        about = Text.assemble((self._activity, "bold"), (f"  {seconds:.0f}s  ", "dim"), self._detail)
        about.truncate(max(self._live.console.width - 4, 1), overflow="ellipsis")
        self._spinner.update(text=about)
        if not self._text:
            return self._spinner
        return Group(Text("\n".join(self._tail(self._live.console.width)), style="dim"), self._spinner)

    def _tail(self, width: int) -> list[str]:
        """Return the last rows of the text, none wider than the terminal."""
        rows = [row[at : at + width] for row in self._text.split("\n") for at in range(0, max(len(row), 1), width)]
        return rows[-TAIL_ROWS:]
