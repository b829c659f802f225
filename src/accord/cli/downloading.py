"""Fetching and saving what a task made, and saying where it is.

Names and places are `cli.saving`'s. What an artifact only names by its address is fetched like a webhook is called:
never from a private network, unless the user trusts the host or the agent itself is on this machine.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accord.cli import output
from accord.cli.exits import failed
from accord.cli.progress import Progress
from accord.cli.reaching import Reach
from accord.cli.saving import Found, files_of, placed, save
from accord.model import AgentCard, Task
from accord.outbound import Outbound, Policy, Refused, Unreachable
from accord.protocol.hosts import host_of, is_loopback

if TYPE_CHECKING:
    from accord.client import Client

LARGEST = 256 * 1024 * 1024
"""Bytes of a file that is fetched: it is in memory until it is saved."""

SECONDS = 600.0
"""How long one file may take."""


async def download(
    reach: Reach, client: "Client", progress: Progress, task: Task, folder: Path, *, force: bool, hosts: Iterable[str]
) -> None:
    """Save what a task made; files may come from these `hosts` even on a private network."""
    places = placed(files_of(task.artifacts), folder, force=force)
    policy = Policy(allow_hosts=_local(client.card) | {*hosts})
    saved: list[dict[str, Any]] = []
    async with Outbound(policy, total_seconds=SECONDS) as outbound:
        for found, path in places:
            content = await _fetched(outbound, found.url) if found.content is None else found.content
            save(path, content, force=force)
            progress.stop()
            saved.append(_shown(reach, found, path, len(content)))
    progress.stop()
    if reach.is_json:
        output.write(output.compact({"files": saved}) + "\n")
    if not places:
        output.tell("The task has made nothing")


def _shown(reach: Reach, found: Found, path: Path, size: int) -> dict[str, Any]:
    if not reach.is_json:
        output.lines([output.field("Saved", f"{path} ({found.media_type}, {size} bytes)")])
    return {"path": str(path), "artifactId": found.artifact, "mediaType": found.media_type, "bytes": size}


async def _fetched(outbound: Outbound, url: str | None) -> bytes:
    try:
        answer = await outbound.request("GET", url or "", max_bytes=LARGEST)
    except (Refused, Unreachable) as error:
        raise failed(f"{url} cannot be fetched: {error}") from None
    if answer.status != 200:
        raise failed(f"{url} cannot be fetched: it answers {answer.status}")
    if not answer.is_whole:
        raise failed(f"{url} cannot be fetched: it is larger than {LARGEST} bytes, or broke off")
    return answer.body


def _local(card: AgentCard) -> frozenset[str]:
    """Return where the agent is, if that is here: a name could mean this machine now and another one before."""
    return frozenset(filter(is_loopback, (host_of(one.url) for one in card.supported_interfaces)))
