"""A2A 0.3 as in agent-relay's workflows: parts have `type` instead of `kind`, messages no `kind` at all.

It is a variant of `v03` and defines only the differences. It also reads requests of Google's A2A 0.1 (`tasks/send`),
the origin of this spelling.
"""

from typing import Any, ClassVar

from msgspec.json import Decoder
from msgspec.structs import replace

from accord.model import AgentCard, SendConfiguration, SendRequest
from accord.model.base import Count
from accord.protocol import codec
from accord.protocol.dialects.v03 import V03
from accord.protocol.dialects.v03.params import V03PushIn, V03SendIn, read_configuration, read_push
from accord.protocol.dialects.v03.reader import V03Reader
from accord.protocol.dialects.v03.writer import UNTAGGED_MESSAGE, V03Writer, part_shapes
from accord.protocol.operations import DialectName


class RelaySendIn(V03SendIn, rename="camel"):
    """Parameters of a send, also those of 0.1's `tasks/send`, which has no `configuration`."""

    session_id: str | None = None
    history_length: Count | None = None
    accepted_output_modes: tuple[str, ...] | None = None
    push_notification: V03PushIn | None = None


_SEND = Decoder(RelaySendIn)


class RelayWriter(V03Writer):
    """Converts the model to relay's shapes."""

    text_part, file_part, data_part = part_shapes("type")
    message_shape: ClassVar = UNTAGGED_MESSAGE


class RelayDialect(V03):
    """Agent-relay's variant of 0.3."""

    name: ClassVar = DialectName.RELAY
    reader: ClassVar = V03Reader(ids_required=False, tag="type")
    writer: ClassVar = RelayWriter()

    def knows_messages(self, method: str) -> bool:
        """Return False for methods of 0.1, which all return a task."""
        return not method.startswith("tasks/")

    def read_send(self, params: bytes) -> SendRequest:
        """Read the parameters of a send; in 0.1 the session is outside the message.

        In 0.1 the client creates the task's id, here the server does (3.4.1). Such an `id` is ignored, and the next
        message finds its conversation by the session.
        """
        wire = codec.decode(params, _SEND)
        request = self.send_request(wire, _configuration(wire))
        context = request.message.context_id or wire.session_id or None
        return replace(request, message=replace(request.message, context_id=context))

    def encode_card(self, card: AgentCard) -> dict[str, Any]:
        """Write a card with an explicit `streaming` flag, which relay's client requires."""
        document = super().encode_card(card)
        document["capabilities"].setdefault("streaming", False)
        return document


def _configuration(wire: RelaySendIn) -> SendConfiguration | None:
    if wire.configuration is not None:
        return read_configuration(wire.configuration)
    if wire.history_length is None and not wire.accepted_output_modes and wire.push_notification is None:
        return None
    push = wire.push_notification
    return SendConfiguration(
        accepted_output_modes=wire.accepted_output_modes or (),
        task_push_notification_config=None if push is None else read_push(push),
        history_length=wire.history_length,
    )
