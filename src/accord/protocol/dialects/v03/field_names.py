"""Field names of A2A 0.3's protobuf definition, and their JSON names."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from msgspec.json import Decoder

from accord.errors import InvalidParams
from accord.protocol import codec

_JSON_NAMES = {
    "accepted_output_modes": "acceptedOutputModes",
    "config_id": "configId",
    "context_id": "contextId",
    "file_with_bytes": "fileWithBytes",
    "file_with_uri": "fileWithUri",
    "history_length": "historyLength",
    "message_id": "messageId",
    "mime_type": "mimeType",
    "page_size": "pageSize",
    "page_token": "pageToken",
    "push_notification": "pushNotification",
    "push_notification_config": "pushNotificationConfig",
    "task_id": "taskId",
}
"""The definition's fields and their JSON names; readers of protobuf JSON take both, and some clients send the first."""

_FREE = frozenset({"data", "metadata"})
_HAS_FIELD_NAME = re.compile(rb'"(?:request|%b)"\s*:' % "|".join(_JSON_NAMES).encode())
_CAPITAL = re.compile("[A-Z]")
_ANY: Decoder[Any] = Decoder(Any)


def with_json_names(params: bytes) -> bytes:
    """Return the parameters under their JSON names, whichever they came under; free data is left alone."""
    if not _HAS_FIELD_NAME.search(params):
        return params
    if codec.is_too_deep(params):
        raise InvalidParams("The JSON is nested too deeply")
    stated = _renamed(codec.decode(params, _ANY), _json_name)
    if isinstance(stated, dict) and "request" in stated:
        stated.setdefault("message", stated.pop("request"))  # the field of a send whose JSON name is another word
    return codec.encode(stated)


def has_field_names(params: bytes) -> bool:
    """Whether parameters have field names of the definition, not their JSON names."""
    if not _HAS_FIELD_NAME.search(params):
        return False
    stated = codec.decode(params, _ANY)
    return bool(_renamed(stated, _json_name) != stated)


def with_field_names(answer: bytes) -> bytes:
    """Return an answer under the names of the definition, except where that is another word: readers take both."""
    return codec.encode(_renamed(codec.decode(answer, _ANY), _field_name))


def _json_name(name: str) -> str:
    return _JSON_NAMES.get(name, name)


@lru_cache(256)  # answers have names of ours only, outside of what is free
def _field_name(name: str) -> str:
    return _CAPITAL.sub(lambda found: "_" + found[0].lower(), name)


def _renamed(value: Any, named: Callable[[str], str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, named) for item in value]
    if not isinstance(value, dict):
        return value
    return {named(name): item if name in _FREE else _renamed(item, named) for name, item in value.items()}
