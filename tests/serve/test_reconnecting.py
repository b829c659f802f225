"""A server is killed amid streams and started again: who reconnects misses nothing and sees nothing twice."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple

import httpx
import pytest

from tests.serve.running import AGENTS, BOUND_SECONDS, V1, Server, events, rpc, running, said, text_of

LEASE = {"ACCORD_ENGINE__LEASE_SECONDS": "1.5", "ACCORD_ENGINE__POLL_SECONDS": "0.2"}
LAST, PAUSE, SEEN = 40, 25, 10
"""How far the agent counts, where it waits, and how many events a client has seen when the server is killed."""

Seen = list[tuple[int, dict[str, Any]]]


class Way(NamedTuple):
    """How a client streams, and how it comes back: with the task's id, or with the same message."""

    binding: str
    again: str

    @property
    def name(self) -> str:
        return f"{self.binding}-{self.again}"

    def begin(self, go: Path) -> tuple[str, str, dict[str, Any]]:
        """The request that begins a stream: verb, path and body."""
        message = said(f"{LAST} {PAUSE} {go}", self.name)
        if self.binding == "rest":
            return "POST", "/message:stream", {"message": message}
        return "POST", "/", rpc("SendStreamingMessage", message=message)

    def resume(self, go: Path, task: str) -> tuple[str, str, dict[str, Any] | None]:
        """The request that goes on with it."""
        if self.again == "send":
            return self.begin(go)
        if self.binding == "rest":
            return "GET", f"/tasks/{task}:subscribe", None
        return "POST", "/", rpc("SubscribeToTask", id=task)


WAYS = [Way(binding, again) for binding in ("rpc", "rest") for again in ("subscribe", "send")]


def following(server: Server, request: tuple[str, str, Any], **headers: str) -> Iterator[tuple[int, dict[str, Any]]]:
    verb, path, body = request
    with httpx.stream(verb, f"{server.url}{path}", json=body, headers=V1 | headers, timeout=BOUND_SECONDS) as response:
        assert response.status_code == 200, response.read()
        yield from events(response)


def text_in(seen: Seen) -> str:
    """What a client has put together from events."""
    said: dict[str, list[str]] = {}
    for _, event in seen:
        if "artifactUpdate" in event:
            update = event["artifactUpdate"]
            texts = [part.get("text", "") for part in update["artifact"]["parts"]]
            known = said.setdefault(update["artifact"]["artifactId"], [])
            said[update["artifact"]["artifactId"]] = [*known, *texts] if update.get("append") else texts
    return "".join(text for texts in said.values() for text in texts)


@pytest.mark.proves("3-39", "C-01", "C-12", "STREAM-ORDER-001", "4-13")
def test_broken_streams_resume_at_the_next_event(store_url: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    target = f"{AGENTS}:counting"
    with running(tmp_path, target, "--store", store_url, **LEASE) as first:
        all_have_seen = Barrier(len(WAYS), action=first.kill, timeout=BOUND_SECONDS)

        def watch(way: Way) -> Seen:
            stream = following(first, way.begin(go))
            seen = list(islice(stream, SEEN))
            all_have_seen.wait()
            with pytest.raises(httpx.TransportError):
                list(stream)  # what was on its way, which this client was too slow for
            return seen

        with ThreadPoolExecutor(len(WAYS)) as clients:
            before = dict(zip(WAYS, clients.map(watch, WAYS), strict=True))

    with running(tmp_path, target, "--store", store_url, port=first.port, **LEASE) as second:
        go.touch()

        def go_on(way: Way) -> Seen:
            last = before[way][-1][0]
            request = way.resume(go, before[way][0][1]["task"]["id"])
            return list(following(second, request, **{"Last-Event-ID": str(last)}))

        with ThreadPoolExecutor(len(WAYS)) as clients:
            after = dict(zip(WAYS, clients.map(go_on, WAYS), strict=True))
        for way in WAYS:
            task = before[way][0][1]["task"]["id"]
            last = before[way][-1][0]
            (at, snapshot), *rest = after[way]
            assert (at, snapshot["task"]["id"]) == (last, task), "it begins with the task as it was then"
            assert text_of(snapshot["task"]) == text_in(before[way])
            numbers = [number for number, _ in before[way] + rest]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "each event once, none missing"
            assert rest[-1][1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
            whole = "".join(f"{number} " for number in range(1, LAST + 1))
            assert text_in(before[way] + rest) == text_of(second.get(task)) == whole
        listed = second.post("ListTasks").json()["result"]
        assert listed["totalSize"] == len(WAYS), "a message that was sent again began no other task"
