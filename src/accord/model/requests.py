"""Requests of the A2A operations, pages of results, and webhook configurations.

`service.service` executes and authorizes them. `engine.webhook_delivery` delivers to webhooks.
"""

from typing import Annotated, Any, get_args

from msgspec import Meta
from msgspec.structs import fields, force_setattr

from accord.model import metadata_keys
from accord.model.base import A2AModel, Choice, Count, Metadata, NonEmpty, Timestamp, named_timestamp
from accord.model.card import AgentCard
from accord.model.message import Message
from accord.model.task import Task, TaskState

MAX_PAGE_SIZE = 100
"""The largest page of tasks that A2A 1.0 allows (3.1.4)."""


class PushFormat(Choice):
    """The content of a webhook body: the whole task, one stream event, or `{taskId, status, result}`."""

    TASK = "task"
    EVENT = "event"
    SIMPLE = "simple"


class Authentication(A2AModel):
    """The `Authorization` header of a webhook's deliveries: `{scheme} {credentials}`."""

    scheme: NonEmpty
    credentials: str | None = None


class PushConfig(A2AModel):
    """One webhook of one task.

    `payload_format` and `events` are Accord's own, accepted in every dialect and never sent in one without them.
    Without `events` a webhook gets every change of state and, if its format is `event`, artifacts. With `events`, it
    gets only those named: `status`, `artifact`, `message`, `*`, or a state.
    """

    url: NonEmpty
    id: str | None = None
    task_id: str | None = None
    token: str | None = None
    authentication: Authentication | None = None
    tenant: str | None = None
    payload_format: PushFormat | None = None
    events: tuple[str, ...] = ()


class PushPage(A2AModel):
    """One page of a task's webhooks."""

    configs: tuple[PushConfig, ...] = ()
    next_page_token: str = ""


class SendConfiguration(A2AModel):
    """The caller's settings for the response to a send."""

    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: PushConfig | None = None
    history_length: Count | None = None
    return_immediately: bool = False


class SendRequest(A2AModel, gc=False):  # like the message that it carries
    """Send a message, to a new task or to the one it names."""

    message: Message
    configuration: SendConfiguration | None = None
    metadata: Metadata | None = None
    tenant: str | None = None

    @property
    def timeout_ms(self) -> int | None:
        """The caller's time limit for the task in milliseconds, if any."""
        timeout = self._hints(metadata_keys.TASK_CONFIG).get("timeout")
        return timeout if isinstance(timeout, int) and not isinstance(timeout, bool) and timeout > 0 else None

    @property
    def priority(self) -> str:
        """The caller's priority: `low`, `normal` or `high`."""
        priority = self._hints(metadata_keys.TASK_CONFIG).get("priority")
        return priority if isinstance(priority, str) and priority in {"low", "high"} else "normal"

    @property
    def is_held(self) -> bool:
        """Whether to create a held task. A message to an open task creates none."""
        return self.metadata is not None and self.metadata.get(metadata_keys.HOLD) is True and not self.message.task_id

    @property
    def include_intermediates(self) -> bool:
        """Whether a stream should carry more than its final events."""
        return self._hints(metadata_keys.STREAM_CONFIG).get("include_intermediates") is not False

    @property
    def buffer_size(self) -> int | None:
        """The largest chunk of text, in bytes, that the caller wants in one stream event."""
        size = self._hints(metadata_keys.STREAM_CONFIG).get("buffer_size")
        return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None

    def _hints(self, key: str) -> dict[str, Any]:
        hints = None if self.metadata is None else self.metadata.get(key)
        return hints if isinstance(hints, dict) else {}


class GetRequest(A2AModel):
    """Read one task."""

    id: NonEmpty
    history_length: Count | None = None
    tenant: str | None = None


class TaskFilter(A2AModel):
    """List tasks, newest status first."""

    context_id: str | None = None
    status: TaskState | None = None
    page_size: Annotated[int, Meta(ge=1, le=MAX_PAGE_SIZE)] | None = None
    page_token: str | None = None
    history_length: Count | None = None
    status_timestamp_after: Timestamp | None = None
    include_artifacts: bool = False
    tenant: str | None = None

    def __post_init__(self) -> None:
        """Normalize the times, or refuse them."""
        for name, written in FILTER_TIMES.items():
            if (text := getattr(self, name)) is not None:
                force_setattr(self, name, named_timestamp(written, text))


FILTER_TIMES = {field.name: field.encode_name for field in fields(TaskFilter) if Timestamp in get_args(field.type)}
"""The filters that are times, and their names in A2A 1.0."""


class TaskPage(A2AModel, omit_defaults=False):
    """One page of tasks; every field is required on the wire, also when empty."""

    tasks: tuple[Task, ...]
    next_page_token: str
    page_size: int
    total_size: int


class CancelRequest(A2AModel):
    """Cancel one task."""

    id: NonEmpty
    metadata: Metadata | None = None
    tenant: str | None = None

    @property
    def reason(self) -> str | None:
        """The caller's reason for the cancellation, if any."""
        reason = (self.metadata or {}).get(metadata_keys.REASON)
        return reason if isinstance(reason, str) else None


class SubscribeRequest(A2AModel):
    """Subscribe to one task."""

    id: NonEmpty
    tenant: str | None = None


class PushGetRequest(A2AModel):
    """Read one webhook of a task."""

    task_id: NonEmpty
    id: str | None = None
    tenant: str | None = None


class PushListRequest(A2AModel):
    """List the webhooks of a task."""

    task_id: NonEmpty
    page_size: Count | None = None
    page_token: str | None = None
    tenant: str | None = None


class PushDeleteRequest(A2AModel):
    """Remove webhooks of a task: the one with this id, those with this url, or, with neither, all of them."""

    task_id: NonEmpty
    id: str | None = None
    url: str | None = None
    tenant: str | None = None


class CardRequest(A2AModel):
    """Read the extended card, which is only for authenticated callers."""

    tenant: str | None = None


Request = (
    SendRequest
    | GetRequest
    | TaskFilter
    | CancelRequest
    | SubscribeRequest
    | PushConfig
    | PushGetRequest
    | PushListRequest
    | PushDeleteRequest
    | CardRequest
)

Result = Task | Message | TaskPage | PushConfig | PushPage | AgentCard | int
"""Result of a unary operation; deleting webhooks returns their number."""
