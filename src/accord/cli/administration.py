"""Commands about a server's store: `accord apikeys`, `accord audit`, `accord push` and `accord remotes`.

They work beside running servers, which notice changes within seconds.
"""

import os
import re
import time
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.database import StoreOption, open_existing_store, store_address
from accord.cli.failures import Exit, async_command
from accord.cli.tables import (
    OutputFormat,
    OutputOption,
    RowsOption,
    cell_text,
    echo_json,
    print_page,
    print_rows,
    printable,
    time_of,
)

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from accord.api.queries import RemoteTaskStatus, StoredApiKey, StoredAuditEntry, WebhookStatus


DONE, FAILED = Exit.DONE, Exit.FAILED
KEYS, AUDIT, PUSH, REMOTES = "accord apikeys", "accord audit", "accord push", "accord remotes"

# --- API keys ---------------------------------------------------------------------------------------------------------

DAY_MS = 24 * 3600 * 1000

keys_app = typer.Typer(no_args_is_help=True, help="Manage API keys of callers.")


@keys_app.command()
@async_command(KEYS)
async def create(
    name: Annotated[str, typer.Option(help="Name of the key, shown in lists.")] = "",
    owner: Annotated[str | None, typer.Option(help="Owner of the key's tasks [default: a new owner].")] = None,
    tenant: Annotated[str, typer.Option(help="Tenant of the key, or * for all tenants [default: none].")] = "",
    role: Annotated[list[str] | None, typer.Option(metavar="ROLE", help="Role of the key (repeatable).")] = None,
    expires_days: Annotated[
        float | None, typer.Option(min=0.001, help="Days until the key expires [default: never].")
    ] = None,
    output: OutputOption = OutputFormat.TEXT,
    store: StoreOption = None,
) -> int:
    """Create an API key and print it once. Only its hash is stored."""
    from accord.api import Grant, administration
    from accord.api.access import new_key
    from accord.api.administration import NewApiKey, SqliteAddress, open_store

    made = new_key()
    try:
        holder = Grant(owner=owner or f"key-{made.id}", tenant=tenant, roles=tuple(role or ())).identity()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _check_roles(holder.roles, store)
    new = NewApiKey(
        id=made.id,
        hash=made.hash,
        name=name,
        owner=holder.owner,
        tenant=holder.tenant,
        roles=sorted(holder.roles),
        lasts_ms=None if expires_days is None else round(expires_days * DAY_MS),
    )
    address = store_address(store)
    async with open_store(address) as opened:
        if isinstance(address, SqliteAddress):  # keys may be created before the first server starts
            await administration.upgrade_schema(opened)
        else:
            await administration.check_schema(opened)
        created = await administration.create_api_key(opened, new)
    shown = {"key": made.key, **_key_row(created)}
    if output is OutputFormat.JSON:
        echo_json(shown)
    else:
        for label, value in shown.items():
            typer.echo(f"{label:<8} {cell_text(value)}")
        typer.echo("Save the key now. It is not shown again.", err=True)
    return DONE


@keys_app.command("list")
@async_command(KEYS)
async def list_keys(output: OutputOption = OutputFormat.TEXT, store: StoreOption = None) -> int:
    """List API keys without secrets, newest first."""
    from accord.api import queries

    async with open_existing_store(store, read_only=True) as opened:
        found = await queries.list_api_keys(opened)
    columns = ("id", "state", "name", "owner", "tenant", "roles", "expires", "used")
    print_rows(list(map(_key_row, found)), columns, output)
    return DONE


@keys_app.command()
@async_command(KEYS)
async def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key: the part between the underscores.")],
    store: StoreOption = None,
) -> int:
    """Revoke an API key. Running servers reject it within seconds."""
    from accord.api import administration

    async with open_existing_store(store) as opened:
        is_known = await administration.revoke_api_key(opened, id)
    if not is_known:
        typer.echo(f"{KEYS}: unknown key {printable(id)}", err=True)
        return FAILED
    typer.echo(f"{printable(id)} is revoked")
    return DONE


def _check_roles(roles: "AbstractSet[str]", store: str | None) -> None:
    """Refuse unknown roles, which grant nothing. Only warn if the server's settings may define more."""
    known, is_all = _known_roles(store)
    unknown = sorted(roles - known)
    if not unknown:
        return
    listed = f"Unknown role {', '.join(map(printable, unknown))} (expected one of {', '.join(sorted(known))})"
    if is_all:
        raise typer.BadParameter(f"{listed}. Define more roles in the setting auth.roles", param_hint="--role")
    typer.echo(f"{KEYS}: {listed}. The server's settings were not found and may define more roles", err=True)


def _known_roles(store: str | None) -> "tuple[AbstractSet[str], bool]":
    """Return the known roles, and whether these are all: whether these settings are those of the store's server."""
    from accord.api.access import BUILT_IN
    from accord.server.settings_loader import CONFIG_VARIABLE, BadSettings, find_file, load

    built_in = {role.name for role in BUILT_IN}
    named = os.environ.get(CONFIG_VARIABLE)
    file = Path(named) if named else None
    try:
        settings, is_there = load(file, os.environ).settings, find_file(file) is not None
    except BadSettings:  # such as a secret that only the server has; the store alone may be known
        return built_in, False
    is_its_own = store is None or settings.store in (None, store)
    return built_in | {role.name for role in settings.auth.roles}, is_there and is_its_own


def _key_row(key: "StoredApiKey") -> dict[str, Any]:
    return {
        "id": key.id,
        "state": "live" if key.is_live else "revoked" if key.revoked_at is not None else "expired",
        "name": key.name,
        "owner": key.owner,
        "tenant": "*" if key.tenant is None else key.tenant,
        "roles": key.roles,
        "created": time_of(key.created_at),
        "expires": time_of(key.expires_at),
        "used": time_of(key.used_at),
    }


# --- the audit log ----------------------------------------------------------------------------------------------------

AUDIT_COLUMNS = ("at", "owner", "operation", "agent", "task", "outcome", "peer")

_AGO = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}

audit_app = typer.Typer(no_args_is_help=True, help="Read the audit log.")


@audit_app.callback()
def _audit_group() -> None:
    """Keep the name of the only command."""


@audit_app.command("list")
@async_command(AUDIT)
async def list_audit(
    owner: Annotated[str | None, typer.Option(help="Filter by owner of the request.")] = None,
    operation: Annotated[
        str | None, typer.Option(help="Filter by operation, e.g. SendMessage, or Authenticate for rejected callers.")
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="Filter by task id.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Filter by outcome: ok, or an error reason, e.g. PERMISSION_DENIED.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Earliest time: an age such as 90s, 15m, 2h or 7d, or an ISO 8601 time."),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Filter by tenant.", show_default="the tenant without a name")
    ] = None,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Include all tenants.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 100,
    output: RowsOption = OutputFormat.TEXT,
    store: StoreOption = None,
) -> int:
    """List audit entries, newest first."""
    from accord.api import queries
    from accord.api.queries import AuditLogQuery

    if all_tenants and tenant is not None:
        raise typer.BadParameter("--tenant and --all-tenants exclude each other", param_hint="--all-tenants")
    query = AuditLogQuery(
        owner=owner,
        operation=None if operation is None else _operation(operation),
        task_id=task,
        outcome=outcome if outcome is None or outcome == "ok" else outcome.upper(),
        since=None if since is None else _since(since),
        limit=limit + 1,
    )
    async with open_existing_store(store, read_only=True) as opened:
        found = await queries.find_audit(opened, None if all_tenants else tenant or "", query)
    columns = ("at", "tenant", *AUDIT_COLUMNS[1:]) if all_tenants else AUDIT_COLUMNS
    print_page(list(map(_audit_row, found)), limit, columns, output, "raise --limit or add filters")
    return DONE


def _audit_row(entry: "StoredAuditEntry") -> dict[str, Any]:
    return {
        "id": entry.id,
        "at": time_of(entry.at),
        "tenant": entry.tenant,
        "owner": entry.owner,
        "scheme": entry.scheme,
        "peer": entry.peer,
        "dialect": entry.dialect,
        "agent": entry.agent,
        "operation": entry.operation,
        "task": entry.task_id,
        "outcome": entry.outcome,
    }


def _operation(text: str) -> str:
    from accord.api.access import AUTHENTICATE, REGISTRY
    from accord.protocol.operations import Operation

    known = [*(operation.value for operation in Operation), AUTHENTICATE, *REGISTRY]
    for name in known:
        if name.lower() == text.lower():
            return name
    raise typer.BadParameter(f"{text!r} is not one of {', '.join(known)}", param_hint="--operation")


def _since(text: str) -> int:
    """Return the time of a text in milliseconds."""
    if ago := _AGO.fullmatch(text):
        return round((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a valid time (expected e.g. 90s, 15m, 2h, 7d or an ISO 8601 time)", param_hint="--since"
        ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


# --- webhooks and remote tasks ----------------------------------------------------------------------------------------

push_app = typer.Typer(no_args_is_help=True, help="Manage webhooks.")


class WebhookFilter(Enum):
    """Filter of webhooks by state."""

    DUE = "due"
    DEAD = "dead"
    ALL = "all"


@push_app.command("list")
@async_command(PUSH)
async def list_webhooks(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="Filter by task id.")] = None,
    state: Annotated[
        WebhookFilter, typer.Option(help="Filter by state: due (delivery pending), dead (retries exhausted) or all.")
    ] = WebhookFilter.ALL,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 100,
    output: RowsOption = OutputFormat.TEXT,
    store: StoreOption = None,
) -> int:
    """List webhooks and delivery states, without tokens and credentials."""
    from accord.api import queries

    async with open_existing_store(store, read_only=True) as opened:
        found = await queries.list_webhook_statuses(opened, state.value, task, limit + 1)
    columns = ("state", "tenant", "task", "config", "delivered", "attempts", "next", "url", "error")
    print_page(
        list(map(_webhook_row, found)),
        limit,
        columns,
        output,
        "raise --limit or filter with --task and --state",
    )
    return DONE


@push_app.command()
@async_command(PUSH)
async def redeliver(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="Id of the task.")] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="ID", help="Id of the webhook.")] = None,
    all_dead: Annotated[bool, typer.Option("--all-dead", help="Redeliver all dead letters.")] = False,
    store: StoreOption = None,
) -> int:
    """Redeliver a webhook, or all dead letters, from the first undelivered event."""
    from accord.api import administration

    if all_dead and task is None and config is None:
        async with open_existing_store(store) as opened:
            count = await administration.redeliver_dead(opened)
        typer.echo(f"{count} scheduled for redelivery")
        return DONE
    if all_dead or task is None or config is None:
        raise typer.BadParameter("Use either --task with --config, or --all-dead alone")
    async with open_existing_store(store) as opened:
        is_known = await administration.redeliver_task(opened, task, config)
    if not is_known:
        typer.echo(f"{PUSH}: task {printable(task)} has no webhook {printable(config)}", err=True)
        return FAILED
    typer.echo(f"{printable(config)} of task {printable(task)} is scheduled for redelivery")
    return DONE


@push_app.command()
@async_command(PUSH)
async def key(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="URL of the webhook endpoint. Only its host and port are used.")
    ],
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Tenant of the webhooks [default: none].")] = "",
) -> int:
    """Print the signature verification keys of a webhook endpoint, one per `push.signing_keys` entry, newest first."""
    from accord.protocol import http_headers, urls
    from accord.server.settings_loader import load

    if not urls.is_http_url(url):
        typer.echo(f"{PUSH}: {printable(url)!r} is not a valid URL (expected e.g. https://hooks.example)", err=True)
        return Exit.MISUSED
    config = os.environ.get("ACCORD_CONFIG")
    signing_keys = load(Path(config) if config else None, os.environ, {}).settings.push.signing_keys
    if not signing_keys:
        typer.echo(f"{PUSH}: missing setting push.signing_keys: webhooks are signed with their tokens only", err=True)
        return FAILED
    for signing_key in signing_keys:
        typer.echo(http_headers.receiver_key(signing_key, url, tenant))
    return DONE


def _webhook_row(webhook: "WebhookStatus") -> dict[str, Any]:
    """Return a webhook as a row, without secrets."""
    return {
        "state": "dead" if webhook.dead_at else "due" if webhook.due_at else "idle",
        "tenant": webhook.tenant,
        "task": webhook.task_id,
        "config": webhook.id,
        "delivered": f"{webhook.cursor}/{webhook.last_seq}",
        "attempts": webhook.attempts,
        "next": time_of(webhook.due_at),
        "dead_since": time_of(webhook.dead_at),
        "url": webhook.address,
        "error": webhook.last_error,
    }


remotes_app = typer.Typer(no_args_is_help=True, help="Manage tasks of remote agents.")


@remotes_app.command("list")
@async_command(REMOTES)
async def list_remote_tasks(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="Filter by task id.")] = None,
    unknown: Annotated[bool, typer.Option("--unknown", help="Include only tasks in an unknown state.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows.")] = 100,
    output: RowsOption = OutputFormat.TEXT,
    store: StoreOption = None,
) -> int:
    """List remote tasks, with the time of their last report."""
    from accord.api import queries
    from accord.model import TaskState

    async with open_existing_store(store, read_only=True) as opened:
        found = await queries.list_remote_tasks(opened, task, TaskState.UNKNOWN if unknown else None, limit + 1)
    columns = ("state", "agent", "tenant", "task", "remote_task", "remote_state", "by", "heard")
    print_page(
        list(map(_remote_task_row, found)),
        limit,
        columns,
        output,
        "raise --limit or filter with --task and --unknown",
    )
    return DONE


@remotes_app.command()
@async_command(REMOTES)
async def retry(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Id of the local task.")],
    store: StoreOption = None,
) -> int:
    """Retry a remote task: request its state, and resend undelivered messages."""
    from accord.api import administration

    async with open_existing_store(store) as opened:
        tried = await administration.retry_remote_task(opened, task)
    if not any(tried):
        why = "has ended" if tried else "is not a remote task"
        typer.echo(f"{REMOTES}: task {printable(task)} {why}", err=True)
        return FAILED
    typer.echo(f"{printable(task)} is scheduled for retry")
    return DONE


def _remote_task_row(standing: "RemoteTaskStatus") -> dict[str, Any]:
    link = standing.link
    return {
        "state": standing.here.name.lower(),
        "agent": link.agent,
        "tenant": standing.tenant,
        "task": link.task_id,
        "remote_task": link.remote_id,
        "remote_state": None if link.state is None else link.state.name.lower(),
        "by": link.mode,
        "heard": time_of(link.heard_at),
    }
