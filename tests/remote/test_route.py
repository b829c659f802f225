"""What travels with work that is passed on: the servers that it has passed, and what is left of its budget and time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accord.agents.remote import RemoteTerms, ReportMode
from accord.model import Message, Part, Role, TaskState, TaskStatus
from accord.protocol.extensions import ROUTE, TaskRoute, route_of
from tests.engine.conftest import ALICE, AT_ONCE, saying
from tests.engine.doubles import reaches, sent
from tests.ports import free_port
from tests.remote.conftest import Joining, Scripted, there
from tests.remote.test_gateway import SHOP
from tests.serve.flowing import written
from tests.serve.running import Server, running, text_of

FAILED = "TASK_STATE_FAILED"
FLOW = """
version: "1.0"
name: flow
swarm: {{pattern: dag}}
agents: [{{name: peer, runtime: a2a, url: "http://localhost:{port}"}}]
workflows: [{{name: main, steps: [{{name: step, type: a2a, agent: peer, task: "{{{{input}}}}"}}]}}]
"""
POLLING = RemoteTerms(mode=ReportMode.POLL, first_poll=0.01, most_poll=0.02)


@contextmanager
def each_other(folder: Path, there: str = "", *agents: str) -> Iterator[tuple[Server, Server]]:
    """Two servers, each with the other as a remote agent; the second one calls the path `there` of the first."""
    ports = free_port(), free_port()
    folders = folder / "one", folder / "two"
    for each in folders:
        each.mkdir()
    with (
        running(folders[0], *agents, "--remote", f"two=http://localhost:{ports[1]}", port=ports[0]) as one,
        running(folders[1], "--remote", f"one=http://localhost:{ports[0]}{there}", port=ports[1]) as two,
    ):
        yield one, two


def said_of(server: Server) -> tuple[str, int]:
    """The end of the only task of a server, and how many there are."""
    page = server.post("ListTasks").json()["result"]
    return page["tasks"][0]["status"]["message"]["parts"][0]["text"], page["totalSize"]


def test_servers_that_call_each_other_are_stopped(tmp_path: Path) -> None:
    with each_other(tmp_path) as (one, two):
        task = one.send("hello")
        assert task["status"]["state"] == FAILED
        (first, ones), (second, twos) = said_of(one), said_of(two)
        assert (ones, twos) == (1, 1)
        assert "The message has passed agent 'two' of this server before" in second
        assert "/two -> " in first


@pytest.mark.parametrize("dialect", ["v1", "v03", "vault", "gen"])
def test_steps_in_a_loop_are_stopped_in_every_dialect(tmp_path: Path, dialect: str) -> None:
    ports = free_port(), free_port()
    folders = tmp_path / "one", tmp_path / "two"
    for folder, port in zip(folders, reversed(ports), strict=True):
        written(folder, FLOW.format(port=port))
    with (
        running(folders[0], "flow.yaml", port=ports[0]) as one,
        running(folders[1], "flow.yaml", "--dialects", dialect, port=ports[1]),
    ):
        assert one.send("hello")["status"]["state"] == FAILED
        end, tasks = said_of(one)
        assert "The message has passed agent 'flow/peer' of this server before" in end
        assert tasks == 2, "the first one, and the one that came back"


def test_servers_can_call_each_other(tmp_path: Path) -> None:
    with each_other(tmp_path, "/agents/shop", SHOP) as (one, _):
        task = one.send("hello", path="/agents/two")
        assert text_of(task) == "you said hello"


def test_more_servers_than_the_setting_allows_are_refused(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("shop", "middle", "front")]
    for folder in folders:
        folder.mkdir()
    with (
        running(folders[0], SHOP, ACCORD_ENGINE__HOPS="1") as shop,
        running(folders[1], "--remote", f"shop={shop.url}") as middle,
        running(folders[2], "--remote", f"middle={middle.url}") as front,
    ):
        assert text_of(middle.send("hello")) == "you said hello"
        task = front.send("hello")
        assert task["status"]["state"] == FAILED
        assert "2 servers have passed the message on, and at most 1 may" in str(task["status"]["message"])


def test_metadata_that_is_not_a_route_counts_as_none() -> None:
    def said(value: object, role: Role = Role.USER) -> Message:
        return Message(message_id="m", role=role, parts=(Part(text="x"),), metadata={ROUTE: value})

    assert route_of((said("x"), said({"hops": "many"}), said({"hops": 3}, Role.AGENT))) is None
    assert route_of((said({"hops": 1.0, "servers": ["a/b"]}),)) == TaskRoute(1, ("a/b",))
    assert TaskRoute(4, ("a/b",)).after("c/d") == TaskRoute(5, ("a/b", "c/d"))


async def test_remaining_budget_and_time_are_passed_on(joining: Joining) -> None:
    peer = Scripted(push=False)
    here = await joining(peer, POLLING)
    asks = TaskStatus(
        state=TaskState.INPUT_REQUIRED, message=Message(message_id="q", role=Role.AGENT, parts=(Part(text="?"),))
    )
    peer.answer = lambda _: there(status=asks, metadata={"usage": {"inputTokens": 30, "outputTokens": 0, "cost": 0}})
    stated = {"budget": {"maxTokens": 100, "deadline": 500}}
    task = await sent(here.service, saying("hello", configuration=AT_ONCE, metadata=stated), ALICE)

    await reaches(here.service, task.id, TaskState.INPUT_REQUIRED, ALICE)
    peer.answer = lambda _: there(TaskState.COMPLETED)
    await sent(here.service, saying("yes", task_id=task.id), ALICE)
    first, second = (request.message.metadata or {} for request in peer.sent)
    assert first["budget"]["maxTokens"] == 100
    assert 0 < first["budget"]["deadline"] <= 500
    assert second["budget"]["maxTokens"] == 70
    assert second["budget"]["deadline"] <= first["budget"]["deadline"]
    assert [said[ROUTE]["hops"] for said in (first, second)] == [1, 1]
