"""Administration of a store: its address, schema and backups, API keys, webhooks, and tasks changed without a node."""

import sys
from pathlib import Path

from accord.api.queries import list_remote_tasks, list_webhook_statuses
from accord.api.storage import reads, writes
from accord.storage import schema
from accord.storage.address import (
    Address,
    BadAddress,
    PostgresAddress,
    SqliteAddress,
    default_address,
    default_path,
    open_store,
    parse_address,
)
from accord.storage.commands import authentication, task_endings, task_lifecycle, webhook_deliveries, webhooks
from accord.storage.commands.authentication import NewApiKey
from accord.storage.commands.task_endings import EndRequest, TaskHasEnded
from accord.storage.commands.task_lifecycle import JobOptions, MessageRequest, TaskSignal
from accord.storage.schema import Migration, check_schema, known_migrations, upgrade_schema
from accord.storage.store import Store

# fmt: off
__all__ = [
    "Address", "BadAddress", "EndRequest", "JobOptions", "MessageRequest", "Migration", "NewApiKey",
    "PostgresAddress", "SqliteAddress", "TaskHasEnded", "TaskSignal", "add_message", "back_up", "check_schema",
    "create_api_key", "database_version", "default_address", "default_path", "deliver_signal", "end_task",
    "known_migrations", "open_store", "parse_address", "redeliver", "redeliver_dead", "redeliver_task",
    "redeliver_visible", "retry_remote_task", "revoke_api_key", "schema_version", "upgrade_schema",
]
# fmt: on


def back_up(path: Path, target: Path) -> int:
    """Copy a SQLite database that may be in use. Returns the size of the copy."""
    from accord.storage.sqlite.driver import back_up as copy

    return copy(path, target)


async def redeliver_task(store: Store, task_id: str, id: str) -> bool:
    """Redeliver a webhook of a task, in whichever tenant the task is. Returns whether there is one."""
    statuses = await list_webhook_statuses(store, "all", task_id, sys.maxsize)
    tenants = [webhook.tenant for webhook in statuses if webhook.id == id]
    for tenant in tenants:
        await redeliver(store, tenant, task_id, id)
    return bool(tenants)


async def retry_remote_task(store: Store, task_id: str) -> list[bool]:
    """Retry a remote task. Returns for each task with this ID, of any tenant, whether it had not ended."""
    from accord.engine.task_store import TaskStore
    from accord.remote.tasks import RemoteTasks

    remote_tasks = RemoteTasks(TaskStore(store))
    statuses = await list_remote_tasks(store, task_id, None, 2)
    return [await remote_tasks.retry(status.tenant, task_id) for status in statuses]


database_version = reads(schema.database_version)
schema_version = reads(schema.schema_version)

create_api_key = writes(authentication.create_api_key)
revoke_api_key = writes(authentication.revoke_api_key)

redeliver = writes(webhooks.redeliver)
redeliver_dead = writes(webhooks.redeliver_dead)
redeliver_visible = writes(webhook_deliveries.redeliver_visible)

end_task = writes(task_endings.end_task)
add_message = writes(task_lifecycle.add_message)
deliver_signal = writes(task_lifecycle.deliver_signal)
