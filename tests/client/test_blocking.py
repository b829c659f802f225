"""The client for scripts: without async, and from within it."""

import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from accord.a2a import A2A
from accord.client import BlockingClient, Unreachable
from accord.model import (
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Role,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskState,
)
from tests.cases import each
from tests.ports import free_port
from tests.serve.running import Server

AGENTS = Path(__file__).parent / "agents.py"


@contextmanager
def serving(folder: Path, agent: str) -> Iterator[Server]:
    server = Server(folder, f"{AGENTS}:{agent}", "--store", f"sqlite:///{folder}/accord.db")
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.proves("1-10", "1-11", "1-12", "1-13")
def test_a_script_talks_to_an_agent(tmp_path: Path) -> None:
    before = threading.active_count()
    with serving(tmp_path, "asking") as server:
        with BlockingClient(server.url) as client:
            assert client.card.name == "asking"
            asked = client.send_text("paint")
            assert asked.is_question
            assert asked.task_id is not None
            task = client.task(asked.task_id)
            assert task.reply("red").result().text == "paint: red"
            assert [type(event.body) for event in task] == [Task]
            assert "".join(client.stream_text("paint")) == "which colour?"
            other = client.start("paint")
            assert other.refresh().id == other.id
            other.result()
            assert other.cancel().status.state is TaskState.CANCELED
            left = client.stream_text("paint")
            next(left)
            left.close()
        with pytest.raises(RuntimeError):
            client.send_text("after its end")
    assert threading.active_count() <= before + 1, "its thread has ended with it"


def test_failed_connections_leave_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(Unreachable):
        BlockingClient(f"http://127.0.0.1:{free_port()}")
    assert threading.active_count() == before


async def test_it_works_where_a_loop_runs_already(tmp_path: Path) -> None:
    with serving(tmp_path, "echo") as server, BlockingClient(server.url) as client:
        assert client.send_text("a b").text == "a b "


# --- the interface ----------------------------------------------------------------------------------------------------

OPERATIONS = {name for name, _ in inspect.getmembers(A2A, inspect.isfunction) if not name.startswith("_")}


def asking(text: str, message_id: str) -> SendRequest:
    return SendRequest(message=Message(message_id=message_id, role=Role.USER, parts=(Part(text=text),)))


@each("name", sorted(OPERATIONS))
def test_blocking_operations_match_the_interface(name: str) -> None:
    own, stated = get_type_hints(getattr(BlockingClient, name)), get_type_hints(getattr(A2A, name))
    assert own["request"] == stated["request"]
    assert own.get("after") == stated.get("after")
    if get_origin(stated["return"]) is AsyncIterator:
        assert get_origin(own["return"]) is AsyncGenerator  # of the method behind it
        assert get_args(own["return"])[0] == get_args(stated["return"])[0]
    else:
        assert own["return"] == stated["return"]


def test_every_operation_works_on_a_server(tmp_path: Path) -> None:
    with serving(tmp_path, "asking") as server, BlockingClient(server.url) as client:
        first = client.send(asking("paint", "m-1"))
        assert isinstance(first, Task)
        hook = PushConfig(task_id=first.id, id="h", url="https://hooks.example/a2a")
        called: dict[str, Callable[[], Any]] = {
            "send": lambda: client.send(asking("paint", "m-1")),
            "stream": lambda: states(client.stream(asking("paint", "m-2")))[-1],
            "get": lambda: client.get(GetRequest(id=first.id)).status.state,
            "list": lambda: client.list(TaskFilter()).total_size,
            "push_set": lambda: client.push_set(hook).url,
            "push_get": lambda: client.push_get(PushGetRequest(task_id=first.id, id="h")).url,
            "push_list": lambda: [one.id for one in client.push_list(PushListRequest(task_id=first.id)).configs],
            "push_delete": lambda: client.push_delete(PushDeleteRequest(task_id=first.id, id="h")),
            "extended_card": lambda: [skill.name for skill in client.extended_card(CardRequest()).skills],
            "cancel": lambda: client.cancel(CancelRequest(id=first.id)).status.state,
            "subscribe": lambda: states(client.subscribe(SubscribeRequest(id=first.id), after=0))[-1],
        }
        assert set(called) == OPERATIONS
        assert {name: call() for name, call in called.items()} == {
            "send": first,
            "stream": TaskState.INPUT_REQUIRED,
            "get": TaskState.INPUT_REQUIRED,
            "list": 2,
            "push_set": hook.url,
            "push_get": hook.url,
            "push_list": ["h"],
            "push_delete": 1,
            "extended_card": ["asking", "mix"],
            "cancel": TaskState.CANCELED,
            "subscribe": TaskState.CANCELED,
        }


def test_a_stream_that_is_left_early_can_be_closed(tmp_path: Path) -> None:
    with serving(tmp_path, "endless") as server, BlockingClient(server.url) as client:
        events = client.stream(asking("go", "m-1"))
        task = next(events).body
        assert isinstance(task, Task)
        events.close()
        assert next(events, None) is None
        assert client.cancel(CancelRequest(id=task.id)).status.state is TaskState.CANCELED


def states(events: Iterator[Event]) -> list[TaskState]:
    """Return the states that a stream tells of, to its end."""
    return [event.body.status.state for event in events if isinstance(event.body, Task | StatusUpdate)]
