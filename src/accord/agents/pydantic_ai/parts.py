"""Parts as Pydantic AI takes them, and its outputs as parts.

It converts values and keeps nothing; `agent` stands above.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from accord.agents.content import OCTETS, described, is_linked, readable
from accord.engine.messages import parts_of
from accord.model import Part


def user_content(parts: Iterable[Part]) -> str | Sequence[Any]:
    """Return what a caller says, as the prompt of an agent."""
    found: list[Any] = []
    for part in parts:
        piece = _content(part)
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece if part.text is not None else f"\n{piece}"
        else:
            found.append(piece)
    return found[0] if len(found) == 1 and isinstance(found[0], str) else found


def _content(part: Part) -> Any:
    from pydantic_ai import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, VideoUrl

    urls = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
    if part.text is not None:
        return part.text
    if part.url is not None and is_linked(part):
        family = (part.media_type or "").partition("/")[0].lower()
        return urls.get(family, DocumentUrl)(part.url, media_type=part.media_type)
    if part.raw is not None and readable(part) is None:
        return BinaryContent(part.raw, media_type=part.media_type or OCTETS)
    return described(part)


def output_parts(output: Any) -> tuple[Part, ...]:
    """Return what an agent gave: text, a file, or data."""
    import pydantic_core

    if output is None or isinstance(output, str):
        return parts_of(output)
    if is_file(output):
        return (file_part(output),)
    return (Part(data=pydantic_core.to_jsonable_python(output), media_type="application/json"),)


def is_file(value: Any) -> bool:
    """Whether a value is one of the framework's files."""
    from pydantic_ai import BinaryContent

    return isinstance(value, BinaryContent)


def file_part(content: Any) -> Part:
    """Return one of the framework's files."""
    return Part(raw=content.data, media_type=content.media_type)
