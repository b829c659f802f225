"""Files that a crew receives, and files that its tasks write.

Crews write below the server's working directory, where two executions may write the same file. Each execution delivers
its own version.
"""

import json
import logging
import mimetypes
import threading
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from accord.agents.messages import OCTETS, readable_text
from accord.engine.context import Failed, Rejected
from accord.model import Part

PACKAGE = "crewai_files"

NEEDED = "pip install 'crewai[file-processing]'"

log = logging.getLogger("accord.agents.crewai")


# --- input ------------------------------------------------------------------------------------------------------------


def takes_files() -> bool:
    """Whether crews can receive files, which needs an optional package of CrewAI."""
    return find_spec(PACKAGE) is not None


def input_files(parts: Iterable[Part]) -> dict[str, Any]:
    """Return files as CrewAI takes them, by name, without text files, which are part of the prompt."""
    sent = [part for part in parts if part.raw is not None and readable_text(part) is None]
    if not sent:
        return {}
    if not takes_files():
        log.warning("crewai.no_files", extra={"reason": NEEDED})
        names = ", ".join(part.filename or part.media_type or "unnamed" for part in sent)
        raise Rejected(f"This agent takes text and data, and no other files: {names}")
    crewai_files: Any = import_module(PACKAGE)
    found: dict[str, Any] = {}
    for number, part in enumerate(sent, 1):
        name = part.filename or f"file-{number}"
        unique = name if name not in found else f"{number}-{name}"
        found[unique] = crewai_files.File(source=crewai_files.FileBytes(data=part.raw, filename=name))
    return found


# --- output -----------------------------------------------------------------------------------------------------------


class WrittenFiles:
    """The files of one kickoff, from the first write until `taken` is called."""

    _live: "set[WrittenFiles]" = set()  # noqa: RUF012  # shared on purpose
    _lock = threading.Lock()

    def __init__(self) -> None:
        """Start with no files."""
        self._paths: set[Path] = set()
        self._shared: set[Path] = set()

    def __enter__(self) -> Self:
        with self._lock:
            self._live.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._live.discard(self)

    def expect(self, name: str) -> None:
        """Record a file that is about to be written. Callers may choose parts of its name, as values of variables."""
        path = _path_below(name)
        if path is None:
            raise Failed("The crew would write a file outside of its working directory")
        with self._lock:
            others = [one for one in self._live if one is not self and path in one._paths]
            self._paths.add(path)
            if others:
                for one in (self, *others):
                    one._shared.add(path)

    def taken(self, tasks: Iterable[Any], most: int) -> tuple[dict[str, Part], list[str]]:
        """Return files of finished crew tasks by path, and paths of files that are too large.

        A file that this execution did not write, or that another one wrote too, is replaced by the task's output, as
        CrewAI writes it.
        """
        found: dict[str, Part] = {}
        left: list[str] = []
        for task in tasks:
            path = _path_below(task.output_file) if task.output_file and task.output is not None else None
            if path is None:
                continue
            is_own = path in self._paths and path not in self._shared and path.is_file()
            name = path.relative_to(Path.cwd().resolve()).as_posix()
            if is_own and path.stat().st_size > most:
                left.append(name)
                continue
            content = path.read_bytes() if is_own else _content(task.output)
            if len(content) > most:
                left.append(name)
                continue
            found[name] = Part(raw=content, media_type=mimetypes.guess_type(name)[0] or OCTETS, filename=path.name)
        return found, left


def _path_below(name: str) -> Path | None:
    """Return a file's path with links resolved, or None if it is outside of the working directory."""
    path = Path(name).expanduser().resolve()
    return path if path.is_relative_to(Path.cwd().resolve()) else None


def _content(output: Any) -> bytes:
    if output.json_dict:
        return json.dumps(output.json_dict, ensure_ascii=False, indent=2).encode()
    if output.pydantic is not None:
        return str(output.pydantic.model_dump_json()).encode()
    return str(output.raw).encode()
