"""Command `accord agents`: publish agents, search for them and check them.

It uses the registry in the settings (`--registry`, `ACCORD_REGISTRY_URL`), or else the one in the store.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accord.cli.database import StoreOption
from accord.cli.failures import Exit, async_command, command_error
from accord.cli.tables import OutputFormat, OutputOption, cell_text, echo_json, print_rows, printable

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from accord.api.directory import RemoteRegistry


NAME = "accord agents"
COLUMNS = ("name", "title", "health", "visibility", "description")
MAX_SHOWN = 60
"""Maximum characters of a description in a table."""

CARD_PATHS = ("/.well-known/agent-card.json", "/.well-known/agent.json")

app = typer.Typer(no_args_is_help=True, help="Publish and search agents in a registry.")

RegistryOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="URL of the registry, or `store` for the store's own.",
        show_default="$ACCORD_REGISTRY_URL, else the store's own",
    ),
]


@app.command()
@async_command(NAME)
async def publish(
    card: Annotated[str, typer.Argument(metavar="CARD", help="Agent card: a file, a URL, or - for standard input.")],
    name: Annotated[
        str | None, typer.Option(metavar="ORG/AGENT", help="Name of the agent [default: from the card].")
    ] = None,
    visibility: Annotated[
        str | None, typer.Option(help="Visibility: private, tenant or public.", show_default="tenant")
    ] = None,
    owner: Annotated[str, typer.Option(help="Owner of the agent (local registry only).")] = "",
    tenant: Annotated[str, typer.Option(help="Tenant of the agent (local registry only).")] = "",
    output: OutputOption = OutputFormat.TEXT,
    registry: RegistryOption = None,
    store: StoreOption = None,
) -> int:
    """Publish an agent, or update its published card."""
    from msgspec import DecodeError
    from msgspec.json import decode

    try:
        body: dict[str, Any] = {"card_data": decode(await _read_card(card))}
    except DecodeError as error:
        raise command_error(f"The card is not valid JSON: {error}") from None
    body |= {"human_readable_id": name} if name else {}
    body |= {"visibility": visibility} if visibility else {}
    async with _open_registry(store, registry, owner, tenant, writes=True) as found:
        _show(await found.publish(body), output)
    return Exit.DONE


@app.command()
@async_command(NAME)
async def search(
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORDS]", help="Search terms. All must match.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Filter by tag (repeatable). All must match.")] = None,
    tee: Annotated[
        bool | None, typer.Option("--tee/--no-tee", help="Filter by trusted execution environment (TEE).")
    ] = None,
    tee_type: Annotated[str | None, typer.Option(help="Filter by TEE type, e.g. 'Intel SGX'.")] = None,
    owned: Annotated[bool, typer.Option("--owned", help="Include only your own agents.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Include removed agents.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=250, help="Maximum number of agents.")] = 25,
    skip: Annotated[int, typer.Option("--skip", "--offset", min=0, help="Number of agents to skip.")] = 0,
    tenant: Annotated[str, typer.Option(help="Tenant to search (local registry only).")] = "",
    output: OutputOption = OutputFormat.TEXT,
    registry: RegistryOption = None,
    store: StoreOption = None,
) -> int:
    """Search agents, newest change first."""
    query = [("limit", str(limit)), ("skip", str(skip)), ("active_only", str(not all_).lower())]
    query += [("search", " ".join(words))] if words else []
    query += [("tags", one) for one in tag or ()]
    query += [("has_tee", str(tee).lower())] if tee is not None else []
    query += [("tee_type", tee_type)] if tee_type else []
    query += [("owned_only", "true")] if owned else []
    async with _open_registry(store, registry, tenant=tenant) as found:
        page = await found.search(query)
    items = page.get("items", [])
    print_rows(items if output is OutputFormat.JSON else [_row(item) for item in items], COLUMNS, output)
    more = page.get("pagination", {}).get("total_items", 0) - skip - len(items)
    if more > 0:
        typer.echo(f"{more} more: --skip {skip + len(items)} shows the next", err=True)
    return Exit.DONE


@app.command("show")
@async_command(NAME)
async def show_(
    name: Annotated[str, typer.Argument(metavar="ORG/AGENT", help="Name of the agent.")],
    card: Annotated[bool, typer.Option("--card", help="Print only the card.")] = False,
    tenant: Annotated[str, typer.Option(help="Tenant to search (local registry only).")] = "",
    output: OutputOption = OutputFormat.TEXT,
    registry: RegistryOption = None,
    store: StoreOption = None,
) -> int:
    """Show an agent: its card, signature and health."""
    async with _open_registry(store, registry, tenant=tenant) as found:
        known = await found.named(name)
    if card:
        echo_json(known.get("card_data"), indent=2)
    else:
        _show(known, output)
    return Exit.DONE


@app.command()
@async_command(NAME)
async def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="AGENT", help="Name to look up, or a card to validate: a file, a URL, or - for standard input."
        ),
    ],
    owner: Annotated[str, typer.Option(help="Owner of the agent (local registry only).")] = "",
    tenant: Annotated[str, typer.Option(help="Tenant of the agent (local registry only).")] = "",
    output: OutputOption = OutputFormat.TEXT,
    registry: RegistryOption = None,
    store: StoreOption = None,
) -> int:
    """Check an agent's availability, or validate a card for publishing. Exit with 0 on success."""
    if not _is_published_name(target):
        return _check_card(await _read_card(target), output)
    async with _open_registry(store, registry, owner, tenant, writes=True) as found:
        known = await found.check(target)
    _show(known, output)
    return Exit.DONE if known.get("health", {}).get("state") == "up" else Exit.FAILED


def _is_published_name(target: str) -> bool:
    from accord.api.directory import is_name

    return is_name(target) and not Path(target).exists()


# --- shared helpers ---------------------------------------------------------------------------------------------------


def _open_registry(
    store: str | None, registry: str | None, owner: str = "", tenant: str = "", *, writes: bool = False
) -> "AbstractAsyncContextManager[RemoteRegistry]":
    from accord.a2a import Caller
    from accord.server.registry import open_registry

    return open_registry(
        os.environ, store=store, registry=registry, caller=Caller(owner=owner, tenant=tenant), writes=writes
    )


async def _read_card(target: str) -> bytes:
    """Read a card as written: signatures cover all of it."""
    from asyncio import to_thread

    from accord.api.directory import CardObjection, InvalidCard

    if target == "-":
        return await to_thread(sys.stdin.buffer.read)
    if "://" in target:
        return await _fetch_card(target)
    try:
        return await to_thread(Path(target).read_bytes)
    except OSError as error:
        raise InvalidCard((CardObjection("", f"{target} cannot be read: {error.strerror}"),)) from None


async def _fetch_card(url: str) -> bytes:
    """Fetch a card from its own URL, or from the well-known paths below an agent's."""
    from accord.api.directory import UnreachableServer
    from accord.outbound import HttpSession, Policy
    from accord.server.optional_services import registry_requester

    base = url.rstrip("/")
    places = [url] if base.endswith(".json") else [base + path for path in CARD_PATHS]
    async with HttpSession.strict(Policy(allow_private=True)) as outbound:
        ask = registry_requester(outbound)
        for place in places:
            answer = await ask("GET", place)
            if answer.status == 200:
                return answer.body
    raise UnreachableServer(f"No agent card at {' or '.join(places)}")


def _check_card(document: bytes, output: OutputFormat) -> int:
    from accord.api.directory import cards
    from accord.server.optional_services import trusted_signers
    from accord.server.settings_loader import registry_of

    try:
        name = cards.read(document).facts.handle
    except cards.InvalidCard as error:
        found = [finding._asdict() for finding in error.findings]
        if output is OutputFormat.JSON:
            echo_json({"is_valid": False, "findings": found})
        for field, problem in error.findings if output is OutputFormat.TEXT else ():
            typer.echo(f"{printable(field)}: {printable(problem)}")
        return Exit.FAILED
    verdict = trusted_signers(registry_of(os.environ)).judge(document)
    if output is OutputFormat.JSON:
        echo_json({"is_valid": True, "human_readable_id": name, "signature": verdict, "findings": []})
    else:
        typer.echo(f"The card can be published as {printable(name)}. {printable(verdict.detail)}.")
    return Exit.DONE


def _show(known: dict[str, Any], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        echo_json(known)
        return
    health, signature, card = (known.get(part) or {} for part in ("health", "signature", "card_data"))
    places = [one.get("url") for one in card.get("supportedInterfaces") or [card]]
    fields = {
        "Name": known.get("human_readable_id") or card.get("humanReadableId"),
        "Title": known.get("name"),
        "Description": known.get("description"),
        "Id": known.get("id"),
        "Visibility": known.get("visibility"),
        "Active": "yes" if known.get("is_active") else "no",
        "Address": tuple(dict.fromkeys(place for place in places if place)),
        "Signature": _stated(signature),
        "Health": _stated(health) or "not checked yet",
        "Checked": health.get("checked_at"),
        "Updated": known.get("updated_at"),
    }
    for label, value in fields.items():
        if value:
            typer.echo(f"{label}: {cell_text(value)}")


def _stated(part: dict[str, Any]) -> str | None:
    state = part.get("state")
    return f"{state} ({part['detail']})" if state and part.get("detail") else state


def _row(item: dict[str, Any]) -> dict[str, Any]:
    """Return an agent as a row of a table. Other registries have fewer fields."""
    line = " ".join((item.get("description") or "").split())
    return {
        "name": item.get("human_readable_id") or item.get("id"),
        "title": item.get("name"),
        "health": item.get("health"),
        "visibility": item.get("visibility"),
        "description": line if len(line) <= MAX_SHOWN else line[: MAX_SHOWN - 3] + "...",
    }
