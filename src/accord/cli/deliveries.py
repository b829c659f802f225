"""Commands `accord push` and `accord remotes`: deliveries of webhooks, and remote tasks.

They list pending and given-up ones, and retry them.
"""

import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.database import MISUSED, StoreOption, open_existing_store, run_and_exit
from accord.cli.tables import OutputFormat, print_rows, printable, time_of

if TYPE_CHECKING:
    from accord.api.queries import RemoteTaskStatus as RemoteStanding
    from accord.api.queries import WebhookStatus as WebhookStanding


DONE, FAILED = 0, 1
PUSH = "accord push"

push_app = typer.Typer(no_args_is_help=True, help="Look after webhooks.")


class WebhookFilter(Enum):
    """Filter of webhooks by state."""

    DUE = "due"
    DEAD = "dead"
    ALL = "all"


@push_app.command("list")
def list_webhooks(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="Only webhooks of this task.")] = None,
    state: Annotated[
        WebhookFilter, typer.Option(help="due has something to deliver, dead was given up after many attempts.")
    ] = WebhookFilter.ALL,
    limit: Annotated[int, typer.Option(min=1, help="How many are listed at most.")] = 100,
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="How they are printed.")] = OutputFormat.TEXT,
    store: StoreOption = None,
) -> None:
    """List webhooks and the state of their deliveries, without tokens and credentials."""
    run_and_exit(PUSH, _list_webhooks(store, task, state, limit, output))


@push_app.command()
def redeliver(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="The webhook's task.")] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="ID", help="The webhook's own id.")] = None,
    all_dead: Annotated[bool, typer.Option("--all-dead", help="Every webhook that was given up.")] = False,
    store: StoreOption = None,
) -> None:
    """Redeliver a webhook now, or all dead letters, from the first event that was not delivered."""
    if all_dead and task is None and config is None:
        run_and_exit(PUSH, _redeliver_dead(store))
    elif not all_dead and task is not None and config is not None:
        run_and_exit(PUSH, _redeliver(store, task, config))
    else:
        raise typer.BadParameter("Give either --task and --config, or --all-dead alone")


@push_app.command()
def key(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the receiver; its host and port count.")],
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Tenant whose webhooks it gets [default: none].")] = "",
) -> None:
    """Print the keys for a receiver to verify signatures, one for each of `push.signing_keys`, newest first."""
    run_and_exit(PUSH, _key(url, tenant))


async def _key(url: str, tenant: str) -> int:
    from accord.protocol import http_headers, urls
    from accord.server.settings_loader import load

    if not urls.is_http_url(url):
        typer.echo(f"{PUSH}: {printable(url)!r} is not a valid URL (expected e.g. https://hooks.example)", err=True)
        return MISUSED
    config = os.environ.get("ACCORD_CONFIG")
    signing_keys = load(Path(config) if config else None, os.environ, {}).settings.push.signing_keys
    if not signing_keys:
        typer.echo(f"{PUSH}: no push.signing_keys are set: webhooks are signed with their tokens only", err=True)
        return FAILED
    for signing_key in signing_keys:
        typer.echo(http_headers.receiver_key(signing_key, url, tenant))
    return DONE


async def _list_webhooks(
    url: str | None, task: str | None, state: WebhookFilter, limit: int, output: OutputFormat
) -> int:
    from accord.api import queries

    async with open_existing_store(url, read_only=True) as store:
        found = await queries.list_webhook_statuses(store, state.value, task, limit + 1)
    columns = ("state", "tenant", "task", "config", "delivered", "attempts", "next", "url", "error")
    print_rows([_webhook_row(webhook) for webhook in found[:limit]], columns, output)
    if len(found) > limit:
        typer.echo(f"There are more than {limit}: --limit shows more, --task and --state fewer", err=True)
    return DONE


async def _redeliver(url: str | None, task: str, config: str) -> int:
    from accord.api import administration, queries

    async with open_existing_store(url) as store:
        known = await queries.list_webhook_statuses(store, WebhookFilter.ALL.value, task, sys.maxsize)
        found = [webhook for webhook in known if webhook.id == config]
        for webhook in found:
            await administration.redeliver(store, webhook.tenant, task, config)
    if not found:
        typer.echo(f"{PUSH}: task {printable(task)} has no webhook {printable(config)}", err=True)
        return FAILED
    typer.echo(f"{printable(config)} of task {printable(task)} is tried again")
    return DONE


async def _redeliver_dead(url: str | None) -> int:
    from accord.api import administration

    async with open_existing_store(url) as store:
        count = await administration.redeliver_dead(store)
    typer.echo(f"{count} tried again")
    return DONE


def _webhook_row(webhook: "WebhookStanding") -> dict[str, Any]:
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


REMOTES = "accord remotes"

remotes_app = typer.Typer(no_args_is_help=True, help="Look after tasks that agents elsewhere do.")


@remotes_app.command("list")
def list_remote_tasks(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="Only this task.")] = None,
    unknown: Annotated[bool, typer.Option("--unknown", help="Only tasks that were given up.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many are listed at most.")] = 100,
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="How they are printed.")] = OutputFormat.TEXT,
    store: StoreOption = None,
) -> None:
    """List remote tasks, with the time of their last report."""
    run_and_exit(REMOTES, _list_remote_tasks(store, task, unknown, limit, output))


@remotes_app.command()
def retry(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The id that the task has here.")],
    store: StoreOption = None,
) -> None:
    """Retry a remote task: ask its agent for the state, and send undelivered messages again."""
    run_and_exit(REMOTES, _retry(store, task))


async def _list_remote_tasks(url: str | None, task: str | None, unknown: bool, limit: int, output: OutputFormat) -> int:
    from accord.api import queries
    from accord.model import TaskState

    async with open_existing_store(url, read_only=True) as store:
        state = TaskState.UNKNOWN if unknown else None
        found = await queries.list_remote_tasks(store, task, state, limit + 1)
    columns = ("state", "agent", "tenant", "task", "remote_task", "remote_state", "by", "heard")
    print_rows([_remote_task_row(standing) for standing in found[:limit]], columns, output)
    if len(found) > limit:
        typer.echo(f"There are more than {limit}: --limit shows more, --task and --unknown fewer", err=True)
    return DONE


async def _retry(url: str | None, task: str) -> int:
    from accord.api import TaskStore, queries
    from accord.api.remote import RemoteTasks

    async with open_existing_store(url) as store:
        found = await queries.list_remote_tasks(store, task, None, 2)
        links = RemoteTasks(TaskStore(store))
        tried = [await links.retry(standing.tenant, task) for standing in found]
    if not any(tried):
        why = "has ended" if tried else "is not done by an agent elsewhere"
        typer.echo(f"{REMOTES}: task {printable(task)} {why}", err=True)
        return FAILED
    typer.echo(f"{printable(task)} is tried again")
    return DONE


def _remote_task_row(standing: "RemoteStanding") -> dict[str, Any]:
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
