"""Probes of a server's behaviour over A2A 1.0, each with words for what happens: the table of the page on comparison.

What is asked is the order of things and not how long they take, but for one: that nothing happens any more.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import httpx

from tests.serve.running import BOUND_SECONDS, TRUST, V1, rpc, said

Serve = Callable[[], AbstractContextManager[str]]
"""Serves the counting agent on the store that it had before, kills it in the end, and gives its address."""

LONG = "80"
"""Pieces of a task that takes a few seconds."""

STILL_SECONDS = 6.0
"""A task without news for so long has been forgotten; one of ours is taken up when its lease, a second, is over."""


# --- asking -----------------------------------------------------------------------------------------------------------


def ask(url: str, method: str, /, **params: Any) -> dict[str, Any]:
    """Call a method and return the answer, be it an error."""
    answer = httpx.post(url, json=rpc(method, **params), headers=V1, timeout=BOUND_SECONDS, verify=TRUST)
    found: dict[str, Any] = answer.json()
    return found


def begin(url: str, text: str, message_id: str) -> str:
    """Begin a task, and return its id while it works."""
    configuration = {"returnImmediately": True}
    answer = ask(url, "SendMessage", message=said(text, message_id), configuration=configuration)
    task_id: str = answer["result"]["task"]["id"]
    return task_id


def state(url: str, task_id: str) -> str:
    """Return the state of a task in lower case; some servers write it so in 1.0 as well."""
    name: str = ask(url, "GetTask", id=task_id)["result"]["status"]["state"]
    return name.lower().removeprefix("task_state_")


def text(url: str, task_id: str) -> str:
    """Return what a task has said."""
    artifacts = ask(url, "GetTask", id=task_id)["result"].get("artifacts", [])
    return "".join(part["text"] for artifact in artifacts for part in artifact["parts"])


def until(is_so: Callable[[], object]) -> None:
    """Ask until it is so."""
    end = time.monotonic() + BOUND_SECONDS
    while not is_so():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


class Seen(NamedTuple):
    """An event, and its number if it has one."""

    number: int | None
    result: dict[str, Any]


@contextmanager
def streaming(url: str, method: str, headers: Mapping[str, str] = {}, /, **params: Any) -> Iterator[Iterator[Seen]]:
    """Call a method that streams, and give its events."""
    body = rpc(method, **params)
    with httpx.stream(
        "POST", url, json=body, headers=V1 | dict(headers), timeout=BOUND_SECONDS, verify=TRUST
    ) as answer:
        yield _events(answer)


def _events(answer: httpx.Response) -> Iterator[Seen]:
    number = None
    for line in answer.iter_lines():
        if line.startswith("id:"):
            number = int(line.removeprefix("id:"))
        elif line.startswith("data:"):
            yield Seen(number, json.loads(line.removeprefix("data:"))["result"])


def spoken(event: Seen) -> int | None:
    """Return which piece of the answer an event has, if it has one."""
    update = event.result.get("artifactUpdate")
    return None if update is None else int(update["artifact"]["parts"][0]["text"])


def heard(seen: Iterator[Seen], piece: int) -> tuple[str, int | None]:
    """Listen until a piece has been said; return the task's id and the number of that event."""
    task_id = ""
    for event in seen:
        task_id = event.result["task"]["id"] if "task" in event.result else task_id
        if (spoken(event) or 0) >= piece:
            return task_id, event.number
    raise AssertionError("the stream ended before")


# --- probes -----------------------------------------------------------------------------------------------------------


@contextmanager
def killed(serve: Serve) -> Iterator[tuple[str, str]]:
    """`kill -9` while a task works and its caller has seen twenty pieces, and a new start on the same store.

    The second server is there while the block runs, so it gives its address beside what it finds.
    """
    with serve() as url, streaming(url, "SendStreamingMessage", message=said(LONG, "m-killed")) as seen:
        task_id, _ = heard(seen, 20)
    with serve() as url:
        yield _left(url, task_id), url


def _left(url: str, task_id: str) -> str:
    """Return what has become of a task whose server was killed."""
    if "error" in ask(url, "GetTask", id=task_id):
        return "is gone"
    last, at = None, time.monotonic()
    while time.monotonic() - at < STILL_SECONDS:
        now = (state(url, task_id), text(url, task_id))
        if now[0] == "completed":
            return "continues and completes"
        if now != last:
            last, at = now, time.monotonic()
        time.sleep(0.25)
    return f"stays {state(url, task_id)}"


def broken_stream(url: str) -> str:
    """A stream that broke off, asked for again with the number of its last event after more has been said."""
    with streaming(url, "SendStreamingMessage", message=said(LONG, "m-stream")) as seen:
        task_id, number = heard(seen, 3)
    with streaming(url, "SubscribeToTask", id=task_id) as seen:
        heard(seen, 13)
    headers = {} if number is None else {"Last-Event-ID": str(number)}
    with streaming(url, "SubscribeToTask", headers, id=task_id) as seen:
        first = next(piece for piece in map(spoken, seen) if piece is not None)
    return "continues with the next event" if first == 4 else "starts with the current task"


def sent_twice(url: str) -> str:
    """The same message, with the same `messageId`, sent twice."""
    return "is one task" if begin(url, "1", "m-same") == begin(url, "1", "m-same") else "is two tasks"


def second_send(url: str) -> str:
    """A second message while a task works."""
    first = begin(url, LONG, "m-first")
    until(lambda: state(url, first) == "working")
    begin(url, "1", "m-second")
    return "is answered meanwhile" if state(url, first) == "working" else "is answered when the first has ended"


def cancelled(url: str) -> str:
    """A cancel while a task works."""
    task_id = begin(url, LONG, "m-cancelled")
    until(lambda: state(url, task_id) == "working")
    ask(url, "CancelTask", id=task_id)
    return "ends it" if state(url, task_id) == "canceled" else "is answered when the work has ended"


def malformed(url: str) -> str:
    """A body with invalid JSON."""
    answer = httpx.post(
        url, content=b"{", headers=V1 | {"content-type": "application/json"}, timeout=BOUND_SECONDS, verify=TRUST
    )
    return f"is answered {answer.json()['error']['code']}" if answer.is_success else f"is answered {answer.status_code}"


def large(url: str) -> str:
    """A body of 30 MB."""
    body = rpc("SendMessage", message=said("1", "m-large"), metadata={"padding": "x" * 30_000_000})
    answer = httpx.post(url, json=body, headers=V1, timeout=BOUND_SECONDS, verify=TRUST)
    return "is accepted" if answer.is_success and "result" in answer.json() else f"is refused ({answer.status_code})"


def webhook(url: str) -> str:
    """A webhook at an address of this machine."""
    task_id = begin(url, "1", "m-webhook")
    address = "http://127.0.0.1:9/hook"
    body = rpc("CreateTaskPushNotificationConfig", taskId=task_id, id="c", url=address)
    answer = httpx.post(url, json=body, headers=V1, timeout=BOUND_SECONDS, verify=TRUST)
    if not answer.is_success:
        return f"is answered {answer.status_code}"
    return "is accepted" if "result" in answer.json() else f"is refused ({answer.json()['error']['code']})"


ALIVE: dict[str, Callable[[str], str]] = {
    "a broken stream, subscribed again": broken_stream,
    "the same `messageId` twice": sent_twice,
    "a second message while a task works": second_send,
    "a cancel while a task works": cancelled,
    "a body with invalid JSON": malformed,
    "a body of 30 MB": large,
    "a webhook at an address of this machine": webhook,
}
"""What is asked of one server while it runs."""

KILLED = "a task, when the server is killed (`kill -9`) and started again"
