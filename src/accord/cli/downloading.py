"""Fetching and saving what a task made, and saying where it is.

Names and places are `cli.saving`'s. What an artifact only names by its address is fetched like a webhook is called:
never from a private network, unless the user trusts the host or the agent itself is on this machine.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from accord.cli import output
from accord.cli.exits import failed
from accord.cli.progress import Progress
from accord.cli.reaching import Reach
from accord.cli.saving import Found, files_of, placed, saving
from accord.model import AgentCard, Task
from accord.outbound import HostUnreachable, Outbound, Policy, TargetRefused
from accord.protocol.urls import host_of, is_loopback, split_url

if TYPE_CHECKING:
    from accord.client import Client

LARGEST = 64 * 1024**3
"""Bytes of a file that is fetched: it is written as it comes, and an agent must not fill the disk."""

SILENT_SECONDS = 60.0
"""How long a file may bring nothing."""


async def download(
    reach: Reach, client: "Client", progress: Progress, task: Task, folder: Path, *, force: bool, hosts: Iterable[str]
) -> None:
    """Save what a task made; files may come from these `hosts` even on a private network."""
    places = placed(files_of(task.artifacts), folder, force=force)
    policy = Policy(allow_hosts=_own(client.card, [found.url for found, _ in places if found.url]) | {*hosts})
    saved: list[dict[str, Any]] = []
    async with Outbound(policy) as outbound:
        for found, path in places:
            with saving(path, force=force) as file:
                if found.content is not None:
                    size = file.write(found.content)
                else:
                    size = await _fetch(outbound, found.url or "", file)
            progress.stop()
            saved.append(_shown(reach, found, path, size))
    progress.stop()
    if reach.is_json:
        output.write(output.compact({"files": saved}) + "\n")
    if not places:
        output.tell("The task has made nothing")


def _shown(reach: Reach, found: Found, path: Path, size: int) -> dict[str, Any]:
    if not reach.is_json:
        output.lines([output.field("Saved", f"{path} ({found.media_type}, {size} bytes)")])
    return {"path": str(path), "artifactId": found.artifact, "mediaType": found.media_type, "bytes": size}


async def _fetch(outbound: Outbound, url: str, file: BinaryIO) -> int:
    """Write what is at an address to a file as it comes, and return its size."""
    size = 0
    try:
        async with outbound.open("GET", url) as answer, asyncio.timeout(SILENT_SECONDS) as silence:
            if answer.status != 200:
                raise failed(f"{url} cannot be fetched: it answers {answer.status}")
            async for piece in answer.pieces():
                size += file.write(piece)
                if size > LARGEST:
                    raise failed(f"{url} cannot be fetched: it is larger than {LARGEST} bytes")
                silence.reschedule(asyncio.get_running_loop().time() + SILENT_SECONDS)
    except (TargetRefused, HostUnreachable) as error:
        raise failed(f"{url} cannot be fetched: {error}") from None
    return size


def _own(card: AgentCard, urls: Iterable[str]) -> frozenset[str]:
    """Return the hosts of an agent that its files may come from on a private network.

    They are those on this machine, and of files at an origin at which the agent itself is called.
    """
    places = [one.url for one in card.supported_interfaces]
    origins = {split_url(place)[:2] for place in places}
    local = filter(is_loopback, map(host_of, places))
    return frozenset(local) | {host_of(url) for url in urls if split_url(url)[:2] in origins}
