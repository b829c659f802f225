"""State that agents, workflows and the console store, each as a function of the store.

The rest of the port is in terms of tasks. This module is for adapters that need more: the fence of a task, checkpoint
tables, values of a workflow, schedules and sessions.
"""

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from accord.storage.commands import authentication, conversation_state, workflow_runs
from accord.storage.commands.authentication import NewSession, StoredSession
from accord.storage.commands.conversation_state import (
    ALL_TABLES,
    Checkpoint,
    CheckpointPlace,
    CheckpointWrites,
    EnteredThread,
    LoadedCheckpoint,
    NewCheckpoint,
    PendingWrite,
    TaskFence,
    TypedValue,
)
from accord.storage.commands.workflow_runs import ORIGIN_STEP, ValueNamespace
from accord.storage.store import Command, Store

# fmt: off
__all__ = [
    "ALL_TABLES", "ORIGIN_STEP", "Checkpoint", "CheckpointPlace", "CheckpointWrites", "EnteredThread",
    "LoadedCheckpoint", "NewCheckpoint", "NewSession", "PendingWrite", "StoreFunction", "StoredSession",
    "TaskFence", "TypedValue", "ValueNamespace", "advance_schedule", "checkpoint_namespaces",
    "claim_signed_delivery", "create_session", "delete_checkpoints", "end_session", "enter_thread", "find_session",
    "load_checkpoints", "load_values", "put_checkpoints", "put_delivery_run", "put_values", "reads",
    "schedule_positions", "trim_checkpoints", "writes",
]
# fmt: on

P = ParamSpec("P")
T = TypeVar("T")

StoreFunction = Callable[Concatenate[Store, P], Coroutine[Any, Any, T]]
"""Takes the store, then the arguments of one command."""


def reads(command: Command[P, T]) -> StoreFunction[P, T]:
    """Return a function that runs a read-only command on one consistent snapshot of a store."""

    def read(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return store.read(command, *args, **kwargs)

    update_wrapper(read, command)
    return read


def writes(command: Command[P, T]) -> StoreFunction[P, T]:
    """Return a function that runs a command in one durable transaction of a store."""

    def write(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return store.do(command, *args, **kwargs)

    update_wrapper(write, command)
    return write


# --- checkpoints of conversations -------------------------------------------------------------------------------------

enter_thread = writes(conversation_state.enter_thread)
put_checkpoints = writes(conversation_state.put_checkpoints)
trim_checkpoints = writes(conversation_state.trim_checkpoints)
delete_checkpoints = writes(conversation_state.delete_checkpoints)
load_checkpoints = reads(conversation_state.load_checkpoints)
checkpoint_namespaces = reads(conversation_state.checkpoint_namespaces)

# --- values and schedules of workflows --------------------------------------------------------------------------------

load_values = reads(workflow_runs.load_values)
put_values = writes(workflow_runs.put_values)
schedule_positions = writes(workflow_runs.schedule_positions)
advance_schedule = writes(workflow_runs.advance_schedule)

# --- sessions and signed deliveries of the console --------------------------------------------------------------------

create_session = writes(authentication.create_session)
end_session = writes(authentication.end_session)
find_session = reads(authentication.find_session)
claim_signed_delivery = writes(authentication.claim_signed_delivery)
put_delivery_run = writes(authentication.put_delivery_run)
