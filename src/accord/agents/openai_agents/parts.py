"""Parts as items of OpenAI's Responses API, which the SDK speaks, and its outputs as parts.

It converts values and keeps nothing; `agent` stands above.
"""

import base64
from collections.abc import Iterable
from typing import Any

from accord.agents.content import data_url, described, is_linked, readable, sort_of
from accord.engine.messages import parts_of
from accord.model import Part


def user_item(parts: Iterable[Part]) -> dict[str, Any]:
    """Return what a caller says, as an item of a session."""
    return {"role": "user", "content": [_content(part) for part in parts]}


def _content(part: Part) -> dict[str, Any]:
    is_file = part.raw is not None or is_linked(part)
    if not is_file or readable(part) is not None:
        return {"type": "input_text", "text": described(part) if part.text is None else part.text}
    if sort_of(part) == "image":
        return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
    if part.url is not None:
        return {"type": "input_file", "file_url": part.url}
    return {"type": "input_file", "filename": part.filename or "file", "file_data": data_url(part)}


def output_parts(output: Any) -> tuple[Part, ...]:
    """Return a structured output as data."""
    import pydantic_core

    if output is None:
        return ()
    return parts_of(Part(data=pydantic_core.to_jsonable_python(output), media_type="application/json"))


def picture(item: Any) -> Part | None:
    """Return the picture that an item of a response carries, if it does."""
    if getattr(item, "type", None) != "image_generation_call" or not item.result:
        return None
    kind = getattr(item, "output_format", None) or "png"
    return Part(raw=base64.b64decode(item.result), media_type=f"image/{kind}")
