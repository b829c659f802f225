"""Command `accord audit`: entries of the audit log."""

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.database import StoreOption, open_existing_store, run_and_exit
from accord.cli.tables import OutputFormat, print_rows, time_of

if TYPE_CHECKING:
    from accord.api.queries import AuditLogQuery, StoredAuditEntry


DONE = 0
NAME = "accord audit"
COLUMNS = ("at", "owner", "operation", "agent", "task", "outcome", "peer")

_AGO = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}

app = typer.Typer(no_args_is_help=True, help="Look through the audit log.")


@app.callback()
def _family() -> None:
    """Keep the name of the only command."""


@app.command("list")
def list_(
    owner: Annotated[str | None, typer.Option(help="Only what this caller asked for.")] = None,
    operation: Annotated[
        str | None, typer.Option(help="Only this operation, such as SendMessage; Authenticate for who was not let in.")
    ] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="Only what concerns this task.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="Only this outcome: ok, or the reason of an error, such as PERMISSION_DENIED.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only from this time on: 90s, 15m, 2h, 7d ago, or an ISO time.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.", show_default="the one without a name")] = None,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="The entries of every tenant.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many are listed at most.")] = 100,
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="How they are printed.")] = OutputFormat.TEXT,
    store: StoreOption = None,
) -> None:
    """List audit entries, newest first."""
    from accord.api.queries import AuditLogQuery

    if all_tenants and tenant is not None:
        raise typer.BadParameter("Give a tenant or all of them, not both", param_hint="--all-tenants")
    query = AuditLogQuery(
        owner=owner,
        operation=None if operation is None else _operation(operation),
        task_id=task,
        outcome=outcome if outcome is None or outcome == "ok" else outcome.upper(),
        since=None if since is None else _since(since),
        limit=limit + 1,
    )
    run_and_exit(NAME, _list(store, None if all_tenants else tenant or "", query, output))


async def _list(url: str | None, tenant: str | None, query: "AuditLogQuery", output: OutputFormat) -> int:
    from accord.api import queries

    async with open_existing_store(url, read_only=True) as store:
        found = await queries.find_audit(store, tenant, query)
    limit = query.limit - 1
    columns = COLUMNS if tenant is not None else ("at", "tenant", *COLUMNS[1:])
    print_rows([_shown(entry) for entry in found[:limit]], columns, output)
    if len(found) > limit:
        typer.echo(f"There are more than {limit}: --limit shows more, other options fewer", err=True)
    return DONE


def _shown(entry: "StoredAuditEntry") -> dict[str, Any]:
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
        raise typer.BadParameter(f"{text!r} is no time", param_hint="--since") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
