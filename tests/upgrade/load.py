"""Callers who do not notice an upgrade: they send, follow, and when a node goes away go on at another one."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from tests.serve.running import BOUND_SECONDS, V1, events, rpc, said

COUNT, PAUSE = 40, 0.05
ORDER = f"{COUNT} {PAUSE}"
"""Two seconds: longer than a node that leaves lets anybody finish, so that streams break off."""

ENDS = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}
PATIENCE_SECONDS = 0.05
"""Between two attempts of a caller who finds nobody."""


class Followed(NamedTuple):
    """A task as one caller saw it: the numbers of its events, and how often the stream broke off."""

    task: str
    numbers: list[int]
    text: str
    state: str
    breaks: int


class Following:
    """One caller's task, from the message to its end, through as many streams as it takes."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._task: str | None = None
        self._numbers: list[int] = []
        self._texts: list[str] = []
        self._state: str | None = None

    def through(self, urls: Callable[[], list[str]], turn: int) -> Followed:
        """Follow it to its end, at whichever node answers."""
        end, breaks = time.monotonic() + BOUND_SECONDS, 0
        while self._state is None:
            assert time.monotonic() < end, f"{self._task} never ended, after {self._numbers}"
            there = urls()
            try:
                self._stream(there[(turn + breaks) % len(there)])
            except httpx.TransportError:
                time.sleep(PATIENCE_SECONDS)
            breaks += self._state is None
        assert self._task is not None
        self._repeat(urls, turn + breaks)
        return Followed(self._task, self._numbers, "".join(self._texts), self._state, breaks)

    def _repeat(self, urls: Callable[[], list[str]], turn: int) -> None:
        """Send the message under its key once more, to another node: it is the same task."""
        end = time.monotonic() + BOUND_SECONDS
        body = rpc("SendMessage", message=said(ORDER, f"{self._message_id}-again"))
        headers = V1 | {"Idempotency-Key": self._message_id}
        while True:
            assert time.monotonic() < end, f"nobody answers for {self._task}"
            turn += 1
            there = urls()
            try:
                answer = httpx.post(f"{there[turn % len(there)]}/", json=body, headers=headers, timeout=BOUND_SECONDS)
            except httpx.TransportError:
                time.sleep(PATIENCE_SECONDS)
                continue
            if answer.status_code != 503:
                assert answer.json()["result"]["task"]["id"] == self._task, answer.text
                return

    def _stream(self, url: str) -> None:
        """Read one stream until it ends; the message is said again as long as nobody has heard of its task."""
        headers = V1 | ({"Last-Event-ID": str(self._numbers[-1])} if self._numbers else {})
        headers |= {} if self._task else {"Idempotency-Key": self._message_id}
        again = rpc("SubscribeToTask", id=self._task)
        body = again if self._task else rpc("SendStreamingMessage", message=said(ORDER, self._message_id))
        with httpx.stream("POST", f"{url}/", json=body, headers=headers, timeout=BOUND_SECONDS) as response:
            if response.status_code == 503:
                return
            assert response.status_code == 200, response.read()
            for number, event in events(response):
                self._see(number, event)

    def _see(self, number: int, event: dict[str, Any]) -> None:
        if "task" in event:  # how a stream begins; what it tells of is known, or is the beginning
            if self._task is None:
                self._task = event["task"]["id"]
                self._numbers.append(number)
            self._ends(event["task"]["status"]["state"])
            return
        self._numbers.append(number)
        if "artifactUpdate" in event:
            self._texts += [part.get("text", "") for part in event["artifactUpdate"]["artifact"]["parts"]]
        else:
            self._ends(event["statusUpdate"]["status"]["state"])

    def _ends(self, state: str) -> None:
        if state in ENDS:
            self._state = state


class Load:
    """Callers at work, until they are told to finish."""

    def __init__(self, urls: list[str]) -> None:
        self.urls = urls
        self.followed: list[Followed] = []
        self._stop = threading.Event()
        self._news = threading.Condition()

    def work(self, caller: int) -> None:
        """Have one task after the other done."""
        turn = 0
        while not self._stop.is_set():
            found = Following(f"{caller}-{turn}").through(lambda: list(self.urls), caller + turn)
            with self._news:
                self.followed.append(found)
                self._news.notify_all()
            turn += 1

    def more(self, count: int) -> None:
        """Wait until so many more tasks are done."""
        with self._news:
            wanted = len(self.followed) + count
            assert self._news.wait_for(lambda: len(self.followed) >= wanted, BOUND_SECONDS), "nobody gets anything done"

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def loaded(urls: list[str], callers: int) -> Iterator[Load]:
    """Have callers at work while the block runs; `urls` may be changed meanwhile. All end well, or it is an error."""
    load = Load(urls)
    with ThreadPoolExecutor(callers) as pool:
        working = [pool.submit(load.work, caller) for caller in range(callers)]
        try:
            yield load
        finally:
            load.stop()
        for caller in working:
            caller.result(timeout=BOUND_SECONDS)


def checked(load: Load) -> None:
    """Every task was done, and everybody saw each event once."""
    whole = "".join(f"{number} " for number in range(COUNT))
    for one in load.followed:
        assert one.state == "TASK_STATE_COMPLETED", one
        assert one.numbers == list(range(one.numbers[0], one.numbers[0] + len(one.numbers))), one
        assert one.text == whole, one
    assert len({one.task for one in load.followed}) == len(load.followed)
