"""What a conversation is called where others remember by its name: no caller gets into that of another by naming it."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Part as SdkPart
from fasta2a import Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage

from accord.a2a import Caller
from accord.agents import a2a_sdk, fasta2a, http, temporal
from accord.agents.adk import runner_ids
from accord.agents.http.flow import HttpOptions
from accord.agents.process import ProcessAgent, ProcessOptions
from accord.agents.turns import external_context, with_context_id
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent
from accord.model import Message, Part, Role, SendRequest, StatusUpdate, Task, TaskState, TaskStatus
from accord.testing import running
from tests.agents.http.webhook import says, webhook
from tests.agents.talk import saying, text

CONTEXT = "ctx-of-alice"
NOBODY = Caller()
CALLERS = {
    "alice": Caller(owner="alice"),
    "bob": Caller(owner="bob"),
    "alice of acme": Caller(tenant="acme", owner="alice"),
    "alice of globex": Caller(tenant="globex", owner="alice"),
    "nobody of acme": Caller(tenant="acme"),
    "nobody": NOBODY,
}

Heard = Callable[[], list[str]]
"""Returns what the other side was told that conversations are called, one after the other."""

Outside = Callable[[], AbstractAsyncContextManager[tuple[Agent, Heard]]]
"""Makes an agent that has another side."""


@asynccontextmanager
async def flow() -> AsyncIterator[tuple[Agent, Heard]]:
    async with webhook(says({"output": "done"})) as hook:
        options = HttpOptions(url=hook.url, payload_template={"sessionId": "{{contextId}}"})
        yield (
            http.AGENT_TYPE.make(AgentArguments(options=options, name="flow")),
            lambda: [asked.json["sessionId"] for asked in hook.asked],
        )


@asynccontextmanager
async def sdk() -> AsyncIterator[tuple[Agent, Heard]]:
    heard: list[str] = []

    class Remembers(AgentExecutor):
        async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
            assert context.message is not None
            assert context.message.context_id == context.context_id
            heard.append(context.context_id or "")
            updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
            await updater.complete(updater.new_agent_message([SdkPart(text="done")]))

        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
            raise NotImplementedError

    yield (
        a2a_sdk.AGENT_TYPE.make(AgentArguments(name="sdk", target=Remembers(), options=a2a_sdk.AGENT_TYPE.options())),
        lambda: heard,
    )


@asynccontextmanager
async def worker() -> AsyncIterator[tuple[Agent, Heard]]:
    heard: list[str] = []

    class Remembers(Worker[Any]):
        async def run_task(self, params: Any) -> None:
            task = await self.storage.load_task(params["id"])
            assert task is not None
            assert {task["context_id"], params["message"]["context_id"]} == {params["context_id"]}
            told = await self.storage.load_context(params["context_id"]) or []
            assert len(told) == heard.count(params["context_id"])
            await self.storage.update_context(params["context_id"], [*told, "x"])
            heard.append(params["context_id"])
            await self.storage.update_task(params["id"], state="completed")

        async def cancel_task(self, params: Any) -> None: ...
        def build_message_history(self, history: Any) -> list[Any]:
            return []

        def build_artifacts(self, result: Any) -> list[Any]:
            return []

    made = Remembers(broker=InMemoryBroker(), storage=InMemoryStorage())
    yield (
        fasta2a.AGENT_TYPE.make(AgentArguments(name="worker", target=made, options=fasta2a.AGENT_TYPE.options())),
        lambda: heard,
    )


@pytest.fixture
def command(tmp_path: Any) -> Outside:
    @asynccontextmanager
    async def make() -> AsyncIterator[tuple[Agent, Heard]]:
        file = tmp_path / "heard"
        told = f"import os; open({str(file)!r}, 'a').write(os.environ['CONTEXT_ID'] + chr(10))"
        said = {"root": str(tmp_path / "work"), "command": [sys.executable, "-I", "-c", told]}
        yield (
            ProcessAgent(AgentArguments(options=msgspec.convert(said, ProcessOptions), name="command")),
            lambda: file.read_text().split(),
        )

    return make


@pytest.mark.parametrize("kind", ["flow", "sdk", "worker", "command"])
async def test_conversations_are_private_to_their_owner(kind: str, command: Outside) -> None:
    outside = {"flow": flow, "sdk": sdk, "worker": worker, "command": command}[kind]
    async with outside() as (agent, heard), running(agent) as a2a:
        for caller in CALLERS.values():
            for _ in range(2):
                task = await a2a.service.send(SendRequest(message=saying("hi", context=CONTEXT)), caller)
                assert isinstance(task, Task)
                assert task.status.state is TaskState.COMPLETED, text(task)
                assert task.context_id == CONTEXT, "callers keep their own name"
                said = task.status.message
                assert said is None or said.context_id in (None, CONTEXT)
        found = heard()
    assert found[::2] == found[1::2], "a conversation has one name"
    assert len(set(found)) == len(CALLERS)
    assert found[-1] == CONTEXT, "where nobody is asked who they are, there is nobody to keep apart"


# --- kinds whose other side is not in this environment ----------------------------------------------------------------


def asking(caller: Caller, context_id: str = CONTEXT) -> Any:
    """As much of a context as names a conversation."""
    return SimpleNamespace(caller=caller, tenant=caller.tenant, context_id=context_id, task_id="t", history=())


def test_adk_sessions_belong_to_one_caller() -> None:
    named = {who: runner_ids(asking(caller)) for who, caller in CALLERS.items()}
    assert named["nobody"] == ("anybody", CONTEXT)
    assert (named["alice"][0], named["alice of acme"][0]) == ("alice", "acme/alice")
    for one, other in combinations(named.values(), 2):
        assert one[0] != other[0]
        assert one[1] != other[1]
    strange = Caller(owner="acme/alice")
    assert runner_ids(asking(strange))[0] != named["alice of acme"][0]


async def test_temporal_workflows_get_a_conversation_per_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_ctx: Any) -> list[Message]:
        return []

    monkeypatch.setattr(temporal, "conversation_history", nothing)
    told = [
        await temporal.workflow_input(asking(one), saying("hi", context=CONTEXT), "conversation")
        for one in CALLERS.values()
    ]
    assert len({one["contextId"] for one in told}) == len(CALLERS)
    assert [one["message"]["contextId"] for one in told] == [one["contextId"] for one in told]
    assert told[-1]["contextId"] == CONTEXT


# --- the name ---------------------------------------------------------------------------------------------------------


def test_names_cannot_be_put_together_otherwise() -> None:
    first = external_context(asking(Caller(owner="a"), 'b","c'))
    assert first != external_context(asking(Caller(owner='a","b'), "c"))
    assert external_context(asking(Caller(owner="a")), "shop") != external_context(asking(Caller(owner="a")), "bank")


def test_a_task_names_its_conversation_consistently() -> None:
    said = Message(message_id="m", role=Role.AGENT, parts=(Part(text="x"),), context_id="old")
    plain = Message(message_id="n", role=Role.USER, parts=(Part(text="x"),))
    status = TaskStatus(state=TaskState.WORKING, message=said)
    task = with_context_id(Task(id="t", context_id="old", status=status, history=(said, plain)), "new")
    assert task.status.message is not None
    assert [task.context_id, task.status.message.context_id] == ["new", "new"]
    assert [one.context_id for one in task.history] == ["new", None]
    update = with_context_id(StatusUpdate(task_id="t", context_id="old", status=status), "new")
    assert (update.context_id, update.status) == ("new", task.status)
