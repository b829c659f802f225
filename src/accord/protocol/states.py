"""Names of the nine task states in each dialect with its own names.

There is one table for each spelling, for both directions. A coarser dialect adds the exact state as metadata.
"""

from collections.abc import Mapping

from accord.model import TaskState
from accord.protocol.codec import invalid_field

S = TaskState

LOWER: Mapping[TaskState, str] = {
    S.SUBMITTED: "submitted",
    S.WORKING: "working",
    S.INPUT_REQUIRED: "input-required",
    S.AUTH_REQUIRED: "auth-required",
    S.COMPLETED: "completed",
    S.FAILED: "failed",
    S.CANCELED: "canceled",
    S.REJECTED: "rejected",
    S.UNKNOWN: "unknown",
}
"""A2A 0.2 and 0.3, relay, the simple webhook body, the `tasks` table."""

VAULT: Mapping[TaskState, str] = {
    S.SUBMITTED: "SUBMITTED",
    S.WORKING: "WORKING",
    S.INPUT_REQUIRED: "INPUT_REQUIRED",
    S.AUTH_REQUIRED: "INPUT_REQUIRED",
    S.COMPLETED: "COMPLETED",
    S.FAILED: "FAILED",
    S.CANCELED: "CANCELED",
    S.REJECTED: "FAILED",
    S.UNKNOWN: "FAILED",
}
"""AgentVault's profile: six states, so three of ours share a name."""

GEN: Mapping[TaskState, str] = {
    S.SUBMITTED: "pending",
    S.WORKING: "running",
    S.INPUT_REQUIRED: "running",
    S.AUTH_REQUIRED: "running",
    S.COMPLETED: "completed",
    S.FAILED: "failed",
    S.CANCELED: "cancelled",
    S.REJECTED: "failed",
    S.UNKNOWN: "failed",
}
"""The generic dialect: five states, with two l in cancelled."""

PROTO_03: Mapping[TaskState, str] = {state: state.value for state in S} | {S.CANCELED: "TASK_STATE_CANCELLED"}
"""A2A 0.3's protobuf JSON: the names of 1.0, but with two l in cancelled."""

_FROM_LOWER: Mapping[str, TaskState] = {name: state for state, name in LOWER.items()}
_FROM_ANY: Mapping[str, TaskState] = {
    **_FROM_LOWER,
    "cancelled": S.CANCELED,
    **{name: state for state, name in PROTO_03.items()},
    **{state.value: state for state in S},
}


def from_lower(name: str, field: str) -> TaskState:
    """Return the state with a lower-case name; `cancelled` is read as well."""
    state = _FROM_LOWER.get("canceled" if name == "cancelled" else name)
    if state is None:
        raise invalid_field(field, f"Unknown state {name[:40]!r}")
    return state


def from_any(name: str, field: str) -> TaskState:
    """Return the state with a name of any A2A version: lower-case, protobuf JSON of 0.3 or 1.0."""
    state = _FROM_ANY.get(name)
    if state is None:
        raise invalid_field(field, f"Unknown state {name[:40]!r}")
    return state


def from_vault(name: str, field: str) -> TaskState:
    """Return the state with an upper-case name; all nine are read, although the profile writes six."""
    state = TaskState.__members__.get(name.upper().replace("-", "_"))
    if state is None:
        raise invalid_field(field, f"Unknown state {name[:40]!r}")
    return state


def from_gen(name: str, field: str) -> TaskState:
    """Return the state with a name of the generic dialect, in any case; the finer lower-case names are read as well."""
    return _FROM_GEN.get(name.lower()) or from_lower(name.lower(), field)


_FROM_GEN: Mapping[str, TaskState] = {"pending": S.SUBMITTED, "running": S.WORKING}
