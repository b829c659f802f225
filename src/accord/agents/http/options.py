"""What settings may say about an agent of the kind `http`.

The names and defaults are those of a2a-adapter's n8n adapter, so that what was set for it can be set here; what differs
has its reason beside it. Nothing is sent or read here; `payload`, `flow` and `callback` act on it.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from accord.agents.kinds import Options, Seconds
from accord.client.wire import MAX_BYTES
from accord.protocol import hosts


class HttpOptions(Options, frozen=True, kw_only=True):
    """A flow: where it is, how it is told what a caller says, and how it answers.

    With the mode `callback` it only acknowledges, and reports to the `callbackUrl` that it is given; its task waits
    without holding anything. `timeout` is for one answer of the flow, or in a stream for its next word; `task_timeout`
    for the whole task.
    """

    url: str | None = None
    webhook_url: str | None = None
    """Another name for `url`."""

    mode: Literal["answer", "callback"] = "answer"
    timeout: Seconds | None = 30.0
    task_timeout: Seconds | None = None
    headers: dict[str, str] = field(default_factory=dict)
    max_retries: Annotated[int, Meta(ge=0)] = 2
    backoff: Annotated[float, Meta(ge=0)] = 0.25
    max_bytes: Annotated[int, Meta(ge=1)] = MAX_BYTES

    payload_template: dict[str, Any] = field(default_factory=dict)
    message_field: str = "message"
    default_inputs: dict[str, Any] = field(default_factory=dict)
    input_mapper: str | None = None
    parse_json_input: bool = False
    """Off, unlike there: a caller's text that happens to be JSON must not become the flow's input unless that is
    wanted."""

    multimodal_mode: bool = False
    file_field: str = "files"
    image_field: str = "images"
    encode_files_base64: bool = True

    callback_field: str = "callbackUrl"
    callback_url: str | None = None
    """Where the flow reaches this server's `/api/callbacks`, where that is not the server's own address."""

    sla_seconds: Annotated[float, Meta(gt=0)] = 1800.0
    """How long a flow may report nothing before its task is given up as unknown: as for agents elsewhere."""

    @property
    def address(self) -> str:
        """Where the flow is."""
        if bool(self.url) == bool(self.webhook_url):
            raise ValueError("url: An HTTP agent needs the address of its webhook, as url or as webhook_url")
        address = self.url or self.webhook_url or ""
        if not hosts.is_web(address):
            raise ValueError("url: The address of a webhook begins with http:// or https://, and has a host")
        return address

    def __repr__(self) -> str:
        return f"HttpOptions(url={(self.url or self.webhook_url or '').partition('?')[0]!r})"  # the rest may be secret
