"""Webhook configurations: address, authentication and events of a webhook.

`engine.webhook_delivery` delivers (retries, signatures, address checks). Dialects define the payload.
"""

from accord.model.base import A2AModel, Choice, NonEmpty


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
