"""`accord push`: how the deliveries of webhooks go, and trying again what was given up."""

import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.db import MISUSED, StoreOption, exit_with, opened
from accord.cli.tables import Output, plain, show, time_of

if TYPE_CHECKING:
    from accord.storage.commands.pushes import Standing as WebhookStanding

DONE, FAILED = 0, 1
NAME = "accord push"

push_app = typer.Typer(no_args_is_help=True, help="Look after webhooks.")


class State(Enum):
    """Which webhooks are listed."""

    DUE = "due"
    DEAD = "dead"
    ALL = "all"


@push_app.command("list")
def list_(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="Only webhooks of this task.")] = None,
    state: Annotated[
        State, typer.Option(help="due has something to deliver, dead was given up after many attempts.")
    ] = State.ALL,
    limit: Annotated[int, typer.Option(min=1, help="How many are listed at most.")] = 100,
    output: Annotated[Output, typer.Option("-o", "--output", help="How they are printed.")] = Output.TEXT,
    store: StoreOption = None,
) -> None:
    """List webhooks and how their deliveries go; tokens and credentials are never shown."""
    exit_with(NAME, _list(store, task, state, limit, output))


@push_app.command()
def redeliver(
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="The webhook's task.")] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="ID", help="The webhook's own id.")] = None,
    all_dead: Annotated[bool, typer.Option("--all-dead", help="Every webhook that was given up.")] = False,
    store: StoreOption = None,
) -> None:
    """Try a webhook again at once, or all that were given up, from the first event that was not delivered."""
    if all_dead and task is None and config is None:
        exit_with(NAME, _redeliver_dead(store))
    elif not all_dead and task is not None and config is not None:
        exit_with(NAME, _redeliver(store, task, config))
    else:
        raise typer.BadParameter("Give either --task and --config, or --all-dead alone")


@push_app.command()
def key(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the receiver; its host and port count.")],
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Tenant whose webhooks it gets [default: none].")] = "",
) -> None:
    """Print the keys that a receiver checks signatures with, one for each of `push.signing_keys`, the newest first."""
    exit_with(NAME, _key(url, tenant))


async def _key(url: str, tenant: str) -> int:
    from accord.config import load
    from accord.protocol import http_headers, urls

    if not urls.is_http_url(url):
        typer.echo(f"{NAME}: {plain(url)!r} is not a valid URL (expected e.g. https://hooks.example)", err=True)
        return MISUSED
    config = os.environ.get("ACCORD_CONFIG")
    signing_keys = load(Path(config) if config else None, os.environ, {}).settings.push.signing_keys
    if not signing_keys:
        typer.echo(f"{NAME}: no push.signing_keys are set: webhooks are signed with their tokens only", err=True)
        return FAILED
    for signing_key in signing_keys:
        typer.echo(http_headers.receiver_key(signing_key, url, tenant))
    return DONE


async def _list(url: str | None, task: str | None, state: State, limit: int, output: Output) -> int:
    from accord.storage.commands import pushes

    async with opened(url, read_only=True) as store:
        found = await store.read(pushes.standings, state.value, task, limit + 1)
    columns = ("state", "tenant", "task", "config", "delivered", "attempts", "next", "url", "error")
    show([_shown(webhook) for webhook in found[:limit]], columns, output)
    if len(found) > limit:
        typer.echo(f"There are more than {limit}: --limit shows more, --task and --state fewer", err=True)
    return DONE


async def _redeliver(url: str | None, task: str, config: str) -> int:
    from accord.storage.commands import pushes

    async with opened(url) as store:
        known = await store.read(pushes.standings, State.ALL.value, task, sys.maxsize)
        found = [webhook for webhook in known if webhook.id == config]
        for webhook in found:
            await store.do(pushes.redeliver, webhook.tenant, task, config)
    if not found:
        typer.echo(f"{NAME}: task {plain(task)} has no webhook {plain(config)}", err=True)
        return FAILED
    typer.echo(f"{plain(config)} of task {plain(task)} is tried again")
    return DONE


async def _redeliver_dead(url: str | None) -> int:
    from accord.storage.commands import pushes

    async with opened(url) as store:
        count = await store.do(pushes.redeliver_dead)
    typer.echo(f"{count} tried again")
    return DONE


def _shown(webhook: "WebhookStanding") -> dict[str, Any]:
    """Return what an operator sees of a webhook."""
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
