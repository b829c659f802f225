"""How large and how deep a request may be, checked on the model, so that it holds for every binding and dialect.

It reads no bytes from the network: bodies are bounded where they are read, and JSON is refused there that recursion
could not take. How often something may be asked for is `core.quotas`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET

from accord.core.quotas import Quotas
from accord.errors import RequestTooLarge, Violation
from accord.model import CancelRequest, Message, Part, PushConfig, SendRequest
from accord.protocol import codec
from accord.protocol.operations import Operation

Check = Callable[[Any], None]


class Bounds:
    """The bounds of a server."""

    def __init__(self, quotas: Quotas) -> None:
        """Hold requests to `quotas`."""
        self._quotas = quotas
        self.checks: Mapping[Operation, Check] = {
            Operation.SEND: self._send,
            Operation.STREAM: self._send,
            Operation.CANCEL: self._cancel,
            Operation.PUSH_SET: self._push_set,
        }
        """The operations whose requests can be too large -> what refuses them."""

    def _send(self, request: SendRequest) -> None:
        message, configuration = request.message, request.configuration
        self._message(message)
        if request.metadata is not None:
            self._free("metadata", request.metadata, self._quotas.metadata)
        if configuration is not None:
            self._list("configuration.acceptedOutputModes", configuration.accepted_output_modes)
            if configuration.task_push_notification_config is not None:
                self._webhook("configuration.taskPushNotificationConfig.", configuration.task_push_notification_config)

    def _cancel(self, request: CancelRequest) -> None:
        if request.metadata is not None:
            self._free("metadata", request.metadata, self._quotas.metadata)

    def _push_set(self, request: PushConfig) -> None:
        self._webhook("", request)

    def _message(self, message: Message) -> None:
        self.line("message.messageId", message.message_id, self._quotas.identifier)
        if message.context_id is not None:
            self.line("message.contextId", message.context_id, self._quotas.identifier)
        if message.metadata is not None:
            self._free("message.metadata", message.metadata, self._quotas.metadata)
        self._list("message.parts", message.parts)
        self._list("message.extensions", message.extensions)
        self._list("message.referenceTaskIds", message.reference_task_ids)
        for position, part in enumerate(message.parts):
            self._part(position, part)

    def _part(self, position: int, part: Part) -> None:
        text = part.text if part.text is not None else part.url
        if text is not None and len(text) > self._quotas.text:
            raise _too_large(f"message.parts[{position}]", f"More than {self._quotas.text} characters")
        if part.data is not UNSET:
            self._free(f"message.parts[{position}].data", part.data, self._quotas.text)
        if part.metadata is not None:
            self._free(f"message.parts[{position}].metadata", part.metadata, self._quotas.metadata)

    def _webhook(self, where: str, config: PushConfig) -> None:
        size = self._quotas.webhook_field
        self.line(where + "id", config.id or "", self._quotas.identifier)
        self.line(where + "url", config.url, size)
        self.line(where + "token", config.token or "", size)
        self._list(where + "events", config.events)
        if config.authentication is not None:
            self.line(where + "authentication.scheme", config.authentication.scheme, size)
            self.line(where + "authentication.credentials", config.authentication.credentials or "", size)

    # --- what can be too large ------------------------------------------------------------------------------------

    def line(self, where: str, text: str, size: int) -> None:
        """Refuse a text that is too long."""
        if len(text) > size or (not text.isascii() and len(text.encode(errors="replace")) > size):
            raise _too_large(where, f"More than {size} bytes")

    def _list(self, where: str, members: tuple[object, ...]) -> None:
        if len(members) > self._quotas.parts:
            raise _too_large(where, f"More than {self._quotas.parts}")

    def _free(self, where: str, value: object, size: int) -> None:
        """Refuse data of any form that is too large or too deep, without recursion of our own."""
        try:
            written = codec.encode(value)
        except RecursionError:
            raise self._too_deep(where) from None
        if len(written) > size:
            raise _too_large(where, f"More than {size} bytes")
        if codec.is_too_deep(written, self._quotas.depth):
            raise self._too_deep(where)

    def _too_deep(self, where: str) -> RequestTooLarge:
        return _too_large(where, f"Nested more deeply than {self._quotas.depth} levels")


def _too_large(where: str, reason: str) -> RequestTooLarge:
    return RequestTooLarge(f"`{where}`: {reason}", violations=(Violation(where, reason),))
