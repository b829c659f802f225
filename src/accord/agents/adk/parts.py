"""Parts of A2A as contents of ADK, and back.

Files go both ways with their bytes; data is text to a model. It is imported when an agent is made, by `agent`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from google.genai import types

from accord.agents.adk.calls import Call
from accord.agents.content import OCTETS, described
from accord.model import Part


def content(parts: Iterable[Part]) -> types.Content:
    """Return what a caller says."""
    return types.Content(role="user", parts=[_part(part) for part in parts])


def responses(given: Iterable[tuple[Call, dict[str, Any]]]) -> types.Content:
    """Return what calls gave."""
    made = [types.FunctionResponse(id=call.id, name=call.name, response=response) for call, response in given]
    return types.Content(role="user", parts=[types.Part(function_response=one) for one in made])


def call(made: types.FunctionCall) -> Call:
    """Return a call as it is kept."""
    return Call(id=made.id or "", name=made.name or "", args=msgspec.to_builtins(made.args or {}))


def file(part: types.Part) -> Part | None:
    """Return the file that a part has, if it has one."""
    if part.inline_data is not None:
        blob = part.inline_data
        return Part(raw=blob.data or b"", media_type=blob.mime_type or OCTETS, filename=blob.display_name)
    if part.file_data is not None:
        link = part.file_data
        return Part(url=link.file_uri, media_type=link.mime_type, filename=link.display_name)
    return None


def _part(part: Part) -> types.Part:
    if part.text is not None:
        return types.Part(text=part.text)
    kind = part.media_type or OCTETS
    if part.raw is not None:
        return types.Part(inline_data=types.Blob(data=part.raw, mime_type=kind, display_name=part.filename))
    if part.url is not None:
        return types.Part(file_data=types.FileData(file_uri=part.url, mime_type=kind, display_name=part.filename))
    return types.Part(text=described(part))
