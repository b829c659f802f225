"""What agents made, as files: with names that stay in their folder, and never over a file that is there.

Names come from strangers, so only the last piece of one is taken, without what a file system or a shell would read as
something else. Nothing is fetched here.
"""

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from mimetypes import guess_extension
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec import UNSET
from msgspec import json as msgspec_json

from accord.cli.exits import failed
from accord.model import Artifact, Part

LONGEST = 120
"""Characters of a name: file systems take 255 bytes, and a character may have four of them."""

_BAD = re.compile(r'[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff<>:"|?*\\/]')
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Devices of Windows, whatever their extension."""


class Found(NamedTuple):
    """A part that becomes a file; `content` is not known of what is only an address."""

    artifact: str
    name: str
    media_type: str | None
    content: bytes | None
    url: str | None = None


def files_of(artifacts: Iterable[Artifact]) -> Iterator[Found]:
    """Return the files that artifacts make; those without a name are called after their artifact."""
    for artifact in artifacts:
        text = ""
        for part in artifact.parts:
            if part.text is not None and part.filename is None:
                text += part.text  # pieces of one text, however they were streamed
            else:
                yield _found(artifact, part)
        if text:
            yield Found(artifact.artifact_id, _called(artifact, ".txt"), "text/plain", text.encode())


def _found(artifact: Artifact, part: Part) -> Found:
    if part.data is not UNSET:
        content: bytes | None = msgspec_json.format(msgspec_json.encode(part.data), indent=2) + b"\n"
        kind, ending = part.media_type or "application/json", ".json"
    else:
        content = part.raw if part.text is None else part.text.encode()
        kind, ending = part.media_type or "application/octet-stream", guess_extension(part.media_type or "") or ""
    named = part.filename or (part.url or "").partition("?")[0].rpartition("/")[2]
    return Found(artifact.artifact_id, named or _called(artifact, ending), kind, content, part.url)


def _called(artifact: Artifact, ending: str) -> str:
    name = artifact.name or artifact.artifact_id
    return name if "." in name[-6:] else name + ending


def safe_name(name: str) -> str:
    """Return a name that stays in its folder, is not hidden and means the same on every system."""
    last = re.split(r"[/\\]", name)[-1]
    plain = _BAD.sub("_", last).rstrip(" .").lstrip(" .-")  # a dash would begin an option
    if not plain or _RESERVED.fullmatch(plain):
        plain = f"_{plain}" if plain else "artifact"
    stem, dot, ending = plain.rpartition(".")
    if len(plain) > LONGEST and dot and len(ending) <= 16:
        return f"{stem[: LONGEST - len(ending) - 1]}.{ending}"
    return plain[:LONGEST]


def placed(found: Iterable[Found], folder: Path, *, force: bool) -> list[tuple[Found, Path]]:
    """Give each file its place, no two the same; refuse all if one is taken, unless it may be replaced."""
    taken: set[str] = set()
    places: list[tuple[Found, Path]] = []
    for one in found:
        name = _unused(safe_name(one.name), taken)
        taken.add(name.lower())  # some file systems do not tell A from a
        places.append((one, folder / name))
    there = [path for _, path in places if os.path.lexists(path)]
    if there and not force:
        raise failed(f"{there[0]} is there already", "--force replaces it, --to saves somewhere else")
    return places


def _unused(name: str, taken: set[str]) -> str:
    stem, dot, ending = name.rpartition(".") if "." in name else (name, "", "")
    number, found = 1, name
    while found.lower() in taken:
        number += 1
        found = f"{stem}-{number}{dot}{ending}"
    return found


@contextmanager
def saving(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file that is written whole, or not at all; a link that is there is replaced, never followed."""
    part = path.with_name(f".{secrets.token_hex(8)}.part") if force else path
    missing_folders = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "xb") as file:  # fails if there is something, and be it a link to nowhere
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
        raise failed(f"{path} cannot be written: {error.strerror}") from None
