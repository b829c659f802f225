"""Parts, messages and artifacts.

They validate themselves on construction. `protocol.lifecycle` defines how they change.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from accord.model import metadata_keys
from accord.model.base import A2AModel, Choice, Metadata, NonEmpty


class Role(Choice):
    """The sender of a message."""

    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Part(A2AModel, gc=False):
    """One piece of content: exactly one of `text`, `raw` (bytes), `url` or `data` (any JSON value)."""

    text: str | None = None
    raw: bytes | None = None
    url: str | None = None
    data: Any | UnsetType = UNSET
    filename: str | None = None
    media_type: str | None = None
    metadata: Metadata | None = None

    def __post_init__(self) -> None:
        """Refuse a part with no content or with two."""
        if self.text is not None:  # runs for every part read, so in few steps; counting takes more
            is_one = self.raw is None and self.url is None and self.data is UNSET
        elif self.raw is not None:
            is_one = self.url is None and self.data is UNSET
        else:
            is_one = (self.url is None) is not (self.data is UNSET)
        if not is_one:
            raise ValueError("A part needs exactly one of `text`, `raw`, `url`, `data`")

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema that belongs to `data`, if the sender gave one."""
        schema = (self.metadata or {}).get(metadata_keys.SCHEMA)
        return schema if isinstance(schema, dict) else None

    @property
    def is_reference(self) -> bool:
        """Whether a url part links to a resource rather than carrying a file."""
        return self.url is not None and (self.metadata or {}).get(metadata_keys.REFERENCE) is True


Parts = Annotated[tuple[Part, ...], Meta(min_length=1)]


class Message(A2AModel, gc=False):  # like parts: many are in memory, and JSON has no cycles to collect
    """One turn of a conversation."""

    message_id: NonEmpty
    role: Role
    parts: Parts
    context_id: str | None = None
    task_id: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class Artifact(A2AModel):
    """An output of an agent in a task."""

    artifact_id: NonEmpty
    parts: Parts
    name: str | None = None
    description: str | None = None
    metadata: Metadata | None = None
    extensions: tuple[str, ...] = ()
