"""Reading a webhook body of any dialect, told apart by its members.

A receiver knows which task it waits for, not what the sender speaks (B-10): a task, a stream event and
`{taskId, status, result}` are all welcome. Authentication and what the report means are the receiver's.
"""

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.json import Decoder

from accord.model import EventBody
from accord.protocol import codec
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName


class _Look(Struct):
    kind: Any | UnsetType = UNSET
    state: Any | UnsetType = UNSET
    status: Any | UnsetType = UNSET
    timestamp: Any | UnsetType = UNSET
    task_id: Any | UnsetType = UNSET
    task: Any | UnsetType = UNSET
    message: Any | UnsetType = UNSET
    status_update: Any | UnsetType = field(default=UNSET, name="statusUpdate")
    artifact_update: Any | UnsetType = field(default=UNSET, name="artifactUpdate")


_look = Decoder(_Look)


def decode_webhook(body: bytes) -> EventBody:
    """Read what a webhook reports: a task, or one change of it."""
    return DIALECTS[_dialect(codec.decode(body, _look))].decode_push(body)


def _dialect(look: _Look) -> DialectName:
    if look.kind is not UNSET:
        return DialectName.V03
    if look.task_id is not UNSET:
        return DialectName.GEN
    if look.state is not UNSET or (look.timestamp is not UNSET and look.status is UNSET):
        return DialectName.VAULT
    wrapped = (look.task, look.message, look.status_update, look.artifact_update)
    return DialectName.V1 if any(member is not UNSET for member in wrapped) else DialectName.V03
