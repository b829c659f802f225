"""Queries of a store: tasks, workflow runs, webhook deliveries, the audit log, API keys and stored amounts."""

from accord.api.storage import reads
from accord.engine.webhook_delivery import MAX_ATTEMPTS, ExchangeSide
from accord.service.storage_quotas import IDLE_FACTOR
from accord.storage.commands import (
    authentication,
    monitoring,
    remote_tasks,
    steps,
    task_lists,
    tasks,
    webhook_deliveries,
    webhooks,
    workflow_runs,
)
from accord.storage.commands.authentication import StoredApiKey
from accord.storage.commands.monitoring import AuditLogQuery, StoredAuditEntry, StoredTotal
from accord.storage.commands.remote_tasks import RemoteTaskStatus
from accord.storage.commands.steps import FAILURE_STEP
from accord.storage.commands.task_lists import (
    ListedTask,
    ListedTaskPage,
    StatusChange,
    TaskChanges,
    TaskListQuery,
    VisibleTasks,
)
from accord.storage.commands.tasks import StoredTask, TaskHead
from accord.storage.commands.webhook_deliveries import DeliveryListQuery, ListedDelivery
from accord.storage.commands.webhooks import StoredAttempt, WebhookStatus
from accord.storage.commands.workflow_runs import ListedRun, RunListQuery
from accord.storage.encoding import decode_event, state_of

# fmt: off
__all__ = [
    "FAILURE_STEP", "IDLE_FACTOR", "MAX_ATTEMPTS", "AuditLogQuery", "DeliveryListQuery", "ExchangeSide",
    "ListedDelivery", "ListedRun", "ListedTask", "ListedTaskPage", "RemoteTaskStatus", "RunListQuery",
    "StatusChange", "StoredApiKey",
    "StoredAttempt", "StoredAuditEntry", "StoredTask", "StoredTotal", "TaskChanges", "TaskHead", "TaskListQuery",
    "VisibleTasks", "WebhookStatus", "activity_by_agent", "decode_event", "events_after",
    "find_audit", "find_step", "job_status", "list_api_keys", "list_deliveries", "list_delivery_attempts",
    "list_remote_tasks", "list_runs", "list_task_page", "list_tasks", "list_waiting_tasks", "list_webhook_statuses",
    "load_steps", "read_task", "read_task_head", "read_task_with_row", "recently_changed_tasks", "state_of",
    "stored_by_owner", "stored_total", "task_changes_since", "task_rows", "task_statuses",
]
# fmt: on

# --- one task ---------------------------------------------------------------------------------------------------------

read_task = reads(tasks.read_task)
read_task_head = reads(tasks.read_head)
read_task_with_row = reads(task_lists.read_with_row)
events_after = reads(tasks.events_after)
job_status = reads(workflow_runs.job_status)
find_step = reads(steps.find_step)
load_steps = reads(steps.load_steps)

# --- lists of tasks and runs ------------------------------------------------------------------------------------------

list_tasks = reads(task_lists.list_tasks)
list_task_page = reads(task_lists.list_page)
list_waiting_tasks = reads(task_lists.list_waiting)
task_rows = reads(task_lists.rows)
task_statuses = reads(task_lists.statuses)
task_changes_since = reads(task_lists.changes_since)
recently_changed_tasks = reads(task_lists.recently_changed)
list_runs = reads(workflow_runs.list_runs)

# --- webhooks and remote tasks ----------------------------------------------------------------------------------------

list_webhook_statuses = reads(webhooks.list_statuses)
list_delivery_attempts = reads(webhooks.list_attempts)
list_deliveries = reads(webhook_deliveries.list_deliveries)
list_remote_tasks = reads(remote_tasks.list_remote_tasks)

# --- operation --------------------------------------------------------------------------------------------------------

find_audit = reads(monitoring.find_audit)
activity_by_agent = reads(monitoring.activity_by_agent)
stored_total = reads(monitoring.stored_total)
stored_by_owner = reads(monitoring.stored_by_owner)
list_api_keys = reads(authentication.list_api_keys)
