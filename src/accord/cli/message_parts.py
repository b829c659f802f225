"""Message parts from arguments, files and standard input, and artifacts saved as files with safe names.

A URL in an argument is not fetched but passed to the agent. A file is never overwritten without `force`. Names of
artifacts are foreign input, so only their last segment is used. A file on a private network is fetched only from
trusted hosts, or from an agent on this machine.
"""

import asyncio
import mimetypes
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec
import typer
from msgspec import UNSET

from accord.cli import agent_output
from accord.cli.agent_output import Progress
from accord.cli.connection import ConnectionOptions
from accord.cli.failures import command_error
from accord.model import AgentCard, Artifact, Part, Task
from accord.outbound import HttpRequest, HttpSession, Policy, Unreachable
from accord.protocol.urls import host_of, is_loopback, split_url

if TYPE_CHECKING:
    from accord.client import Client


STDIN = "-"

MAX_BYTES = 64 * 1024 * 1024
"""Maximum bytes of a part: it is in memory several times while it is sent, and few servers accept as much. Larger files
need a URL that the agent fetches."""


class GivenPart(NamedTuple):
    """A part from the command line: its flag, its value, and the media type given after it."""

    flag: str
    value: str
    media_type: str | None = None


def given_parts(order: Iterable[str], values: dict[str, list[str]]) -> list[GivenPart]:
    """Restore the order of the flags. A media type belongs to the part before it."""
    left = {flag: iter(found) for flag, found in values.items()}
    found: list[GivenPart] = []
    for flag in order:
        if flag not in left:
            continue
        value = next(left[flag])
        if flag != "media_type":
            found.append(GivenPart(flag, value))
        elif not found or found[-1].media_type is not None:
            raise typer.BadParameter("--media-type must follow the part that it describes", param_hint="--media-type")
        else:
            found[-1] = found[-1]._replace(media_type=value)
    return found


def parts_of(text: str | None, given: Iterable[GivenPart]) -> tuple[Part, ...]:
    """Return the parts of a message, its text first. Empty texts are dropped."""
    said = "" if text is None else _said(text, "TEXT")
    parts = [Part(text=said)] if said else []
    parts += [part for one in given if (part := _READERS[one.flag](one)).text != ""]
    if not parts:
        raise typer.BadParameter("The message is empty: set TEXT, --file or --data", param_hint="TEXT")
    return tuple(parts)


def parse_object(text: str) -> dict[str, Any]:
    """Parse the metadata of a message."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"The value is not a JSON object: {error}", param_hint="--metadata") from None


def _text(given: GivenPart) -> Part:
    return Part(text=_said(given.value, "--text"), media_type=given.media_type)


def _line(given: GivenPart) -> Part:
    """Read a line of a chat. A dash is text here."""
    return Part(text=_sendable(given.value, "TEXT"))


def _file(given: GivenPart) -> Part:
    if given.value == STDIN:
        return Part(raw=_stdin("--file"), media_type=given.media_type or _ANY)
    is_address = given.value.startswith(("https://", "http://"))
    name = (given.value.partition("?")[0] if is_address else given.value).rpartition("/")[2]
    kind = given.media_type or mimetypes.guess_type(name)[0]
    if is_address:
        return Part(url=given.value, filename=name or None, media_type=kind)
    return Part(raw=_read(given.value, "--file"), filename=Path(given.value).name, media_type=kind or _ANY)


def _data(given: GivenPart) -> Part:
    """Parse JSON: the value itself, a file, or standard input."""
    text = given.value.strip()
    is_json = text[:1] in ("{", "[", '"')
    stated = _stdin("--data") if text == STDIN else text if is_json else _read(given.value, "--data")
    try:
        return Part(data=msgspec.json.decode(stated), media_type=given.media_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"The value is not valid JSON: {error}", param_hint="--data") from None


_ANY = "application/octet-stream"
_READERS = {"texts": _text, "line": _line, "file": _file, "data": _data}


def _read(path: str, flag: str) -> bytes:
    """Read a regular file. A pipe or a device may never end."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise typer.BadParameter(f"{path} is not a regular file. Use - for standard input", param_hint=flag)
        with Path(path).open("rb") as file:
            return _bounded(file.read(MAX_BYTES + 1), path, flag)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint=flag) from None
    except ValueError as error:  # such as a name with a NUL in it
        raise typer.BadParameter(f"{path!r} cannot be read: {error}", param_hint=flag) from None


def _bounded(found: bytes, name: str, flag: str) -> bytes:
    if len(found) > MAX_BYTES:
        larger = f"{name} is larger than {MAX_BYTES >> 20} MiB. Send an https URL instead"
        raise typer.BadParameter(larger, param_hint=flag)
    return found


def _said(text: str, flag: str) -> str:
    if text != STDIN:
        return _sendable(text, flag)
    try:
        return _stdin(flag).decode()
    except UnicodeDecodeError:
        raise _no_text(flag) from None


def _sendable(text: str, flag: str) -> str:
    """Return a text that can be encoded: invalid UTF-8 in arguments becomes lone surrogates, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _no_text(flag) from None
    return text


def _no_text(flag: str) -> typer.BadParameter:
    return typer.BadParameter("The text is not valid UTF-8. Use --file for other data", param_hint=flag)


def _stdin(flag: str) -> bytes:
    return _bounded(sys.stdin.buffer.read(MAX_BYTES + 1), "Standard input", flag)


# --- artifacts as files -----------------------------------------------------------------------------------------------

LONGEST = 120
"""Maximum characters of a name: file systems take 255 bytes, and a character may have four of them."""

_BAD = re.compile(r'[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff<>:"|?*\\/]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Device names of Windows, with any extension."""


class ArtifactFile(NamedTuple):
    """A part to save as a file. Without `content`, `url` is fetched."""

    artifact: str
    name: str
    media_type: str | None
    content: bytes | None
    url: str | None = None


def files_of(artifacts: Iterable[Artifact]) -> Iterator[ArtifactFile]:
    """Yield the files of artifacts. Parts without a name are named after their artifact."""
    for artifact in artifacts:
        text = ""
        for part in artifact.parts:
            if part.text is not None and part.filename is None:
                text += part.text  # chunks of one text, regardless of streaming
            else:
                yield _artifact_file(artifact, part)
        if text:
            yield ArtifactFile(artifact.artifact_id, _default_name(artifact, ".txt"), "text/plain", text.encode())


def _artifact_file(artifact: Artifact, part: Part) -> ArtifactFile:
    if part.data is not UNSET:
        content: bytes | None = msgspec.json.format(msgspec.json.encode(part.data), indent=2) + b"\n"
        kind, ending = part.media_type or "application/json", ".json"
    else:
        content = part.raw if part.text is None else part.text.encode()
        kind, ending = (
            part.media_type or "application/octet-stream",
            mimetypes.guess_extension(part.media_type or "") or "",
        )
    named = part.filename or (part.url or "").partition("?")[0].rpartition("/")[2]
    return ArtifactFile(artifact.artifact_id, named or _default_name(artifact, ending), kind, content, part.url)


def _default_name(artifact: Artifact, ending: str) -> str:
    name = artifact.name or artifact.artifact_id
    return name if "." in name[-6:] else name + ending


def safe_name(name: str) -> str:
    """Return a name without a directory, not hidden, and valid on every system."""
    last = re.split(r"[/\\]", name)[-1]
    plain = _BAD.sub("_", last).rstrip(" .").lstrip(" .-")  # a leading dash would be an option
    if not plain or _RESERVED.fullmatch(plain):
        plain = f"_{plain}" if plain else "artifact"
    stem, dot, ending = plain.rpartition(".")
    if len(plain) > LONGEST and dot and len(ending) <= 16:
        return f"{stem[: LONGEST - len(ending) - 1]}.{ending}"
    return plain[:LONGEST]


def choose_paths(found: Iterable[ArtifactFile], folder: Path, *, force: bool) -> list[tuple[ArtifactFile, Path]]:
    """Assign each file a unique path. Raises an error if one exists, unless `force` is set."""
    taken: set[str] = set()
    places: list[tuple[ArtifactFile, Path]] = []
    for one in found:
        name = _unused(safe_name(one.name), taken)
        taken.add(name.lower())  # some file systems ignore case
        places.append((one, folder / name))
    there = [path for _, path in places if os.path.lexists(path)]
    if there and not force:
        raise command_error(f"{there[0]} already exists", "Use --force to replace it, or --to for another folder")
    return places


def _unused(name: str, taken: set[str]) -> str:
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    number, found = 1, name
    while found.lower() in taken:
        number += 1
        found = f"{stem}-{number}{dot}{ending}"
    return found


@contextmanager
def open_for_saving(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file that is written completely or not at all. An existing link is replaced, never followed."""
    part = path.with_name(f".{secrets.token_hex(8)}.part") if force else path
    missing_folders = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "xb") as file:  # fails for an existing path, even a broken link
            try:
                yield file
                file.flush()
            except BaseException:
                part.unlink()
                with suppress(OSError):  # another file was saved there meanwhile
                    for folder in missing_folders:
                        folder.rmdir()
                raise
        if force:
            part.replace(path)
    except OSError as error:
        raise command_error(f"{path} cannot be written: {error.strerror}") from None


MAX_FILE_BYTES = 64 * 1024**3
"""Maximum bytes of a fetched file: it is streamed to disk, and an agent must not fill the disk."""

SILENT_SECONDS = 60.0
"""Maximum seconds without data."""


class NotFetched(Exception):
    """A file of an artifact cannot be fetched."""


async def download(
    options: ConnectionOptions,
    client: "Client",
    progress: Progress,
    task: Task,
    folder: Path,
    *,
    force: bool,
    hosts: Iterable[str],
) -> None:
    """Save the artifacts of a task. Files may come from these `hosts` even on a private network.

    If a link cannot be fetched, the other files are still saved, and the command fails at the end.
    """
    places = choose_paths(files_of(task.artifacts), folder, force=force)
    policy = Policy(allow_hosts=_own_hosts(client.card, [found.url for found, _ in places if found.url]) | {*hosts})
    saved: list[dict[str, Any]] = []
    unfetched: list[str] = []
    async with HttpSession.strict(policy) as outbound:
        for found, path in places:
            try:
                with open_for_saving(path, force=force) as file:
                    if found.content is not None:
                        size = file.write(found.content)
                    else:
                        size = await _fetch(outbound, found.url or "", file)
            except NotFetched as error:
                progress.stop()
                unfetched.append(agent_output.line(error))
                agent_output.notice(f"accord: {unfetched[-1]}")
                continue
            progress.stop()
            saved.append(_file_report(options, found, path, size))
    progress.stop()
    failure = command_error("; ".join(unfetched)).failure if unfetched else None
    if options.is_json:
        document = {"files": saved} | (failure.document() if failure else {})
        agent_output.write(agent_output.compact(document) + "\n")
    if failure:
        raise typer.Exit(failure.exit)
    if not places:
        agent_output.notice("The task has no artifacts")


def _file_report(options: ConnectionOptions, found: ArtifactFile, path: Path, size: int) -> dict[str, Any]:
    if not options.is_json:
        agent_output.lines([agent_output.field("Saved", f"{path} ({found.media_type}, {size} bytes)")])
    return {"path": str(path), "artifactId": found.artifact, "mediaType": found.media_type, "bytes": size}


async def _fetch(outbound: HttpSession, url: str, file: BinaryIO) -> int:
    """Download a URL to a file, and return its size."""
    size = 0
    try:
        request = HttpRequest(method="GET", url=url, seconds=None, streams=True)
        async with await outbound.open(request) as answer, asyncio.timeout(SILENT_SECONDS) as silence:
            if answer.status != 200:
                raise NotFetched(f"{url} cannot be fetched: HTTP status {answer.status}")
            async for piece in answer.pieces():
                size += file.write(piece)
                if size > MAX_FILE_BYTES:
                    raise NotFetched(f"{url} cannot be fetched: larger than {MAX_FILE_BYTES} bytes")
                silence.reschedule(asyncio.get_running_loop().time() + SILENT_SECONDS)
    except Unreachable as error:
        raise NotFetched(f"{url} cannot be fetched: {error}") from None
    except TimeoutError:
        raise NotFetched(f"{url} cannot be fetched: no data for {SILENT_SECONDS:g} seconds") from None
    return size


def _own_hosts(card: AgentCard, urls: Iterable[str]) -> frozenset[str]:
    """Return the hosts of an agent that may serve its files on a private network.

    They are those on this machine, and those of files at an origin of the agent itself.
    """
    places = [one.url for one in card.supported_interfaces]
    origins = {split_url(place)[:2] for place in places}
    local = filter(is_loopback, map(host_of, places))
    return frozenset(local) | {host_of(url) for url in urls if split_url(url)[:2] in origins}
