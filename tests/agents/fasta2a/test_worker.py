"""Workers of fasta2a: what their storage and broker are here, and how their tasks end."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from fasta2a import Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.pydantic_ai import AgentWorker
from fasta2a.schema import Artifact, Message, Part, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage
from pydantic import BaseModel
from pydantic_ai import Agent, ModelMessage, ModelRequest
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from accord import model
from accord.agents.fasta2a import AGENT_TYPE, WorkerAgent
from accord.api.agent_types import AgentArguments, agent_type_of
from accord.testing import running
from accord.testing.inprocess import text_in
from tests.engine.conftest import ALICE, AT_ONCE, BOB, Hosting, hosting, postgres, saying
from tests.engine.doubles import sent

__all__ = ["hosting", "postgres"]

S = model.TaskState
Run = Callable[["Doing", TaskSendParams], Awaitable[None]]


@dataclass
class Doing(Worker[Any]):
    """Does what a test says."""

    do: Run
    cancelled: list[TaskIdParams] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def run_task(self, params: TaskSendParams) -> None:
        self.begun.set()
        try:
            await self.do(self, params)
        except asyncio.CancelledError:
            self.stopped.append(params["id"])
            raise

    async def cancel_task(self, params: TaskIdParams) -> None:
        assert not self.stopped, "it is asked first"
        self.cancelled.append(params)

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return list(history)

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return [Artifact(artifact_id="a", parts=[Part(text=str(result))])]


def worker(do: Run) -> Doing:
    return Doing(broker=InMemoryBroker(), storage=InMemoryStorage(), do=do)


def agent(thing: Worker[Any], name: str = "worker") -> WorkerAgent:
    made = AGENT_TYPE.make(AgentArguments(name=name, target=thing, options=AGENT_TYPE.options()))
    assert isinstance(made, WorkerAgent)
    return made


def agent_worker(about: Agent[None, Any]) -> AgentWorker[Any, None]:
    return AgentWorker(agent=about, broker=InMemoryBroker(), storage=InMemoryStorage())


def words(text: str, message_id: str = "w-1") -> Message:
    return Message(role="agent", parts=[Part(text=text)], message_id=message_id)


def status_text(task: model.Task) -> str:
    return "".join(part.text or "" for part in task.status.message.parts) if task.status.message else ""


# --- what it is -------------------------------------------------------------------------------------------------------


async def test_a_worker_is_recognized() -> None:
    async def nothing(_worker: Doing, _params: TaskSendParams) -> None: ...

    found = worker(nothing)
    assert agent_type_of(found) is AGENT_TYPE
    profile = AGENT_TYPE.make(AgentArguments(target=found, options=AGENT_TYPE.options())).profile
    assert (profile.name, profile.description) == ("Doing", "Does what a test says.")
    assert agent(agent_worker(Agent(TestModel()))).profile.name == "worker"


def test_missing_frameworks_are_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fasta2a.jsonrpc_v1", None)
    with pytest.raises(ImportError, match=r"pip install 'accord\[fasta2a\]'"):
        AGENT_TYPE.make(AgentArguments(target=object(), options=AGENT_TYPE.options()))


# --- pydantic-ai's worker ---------------------------------------------------------------------------------------------


async def test_pydantic_ai_workers_stream_and_resume_on_any_node(hosting: Hosting) -> None:
    async def answer(messages: list[ModelMessage], _info: AgentInfo) -> Any:
        said = [str(part.content) for one in messages if isinstance(one, ModelRequest) for part in one.parts]  # type: ignore[union-attr]
        for piece in ("heard: ", " and ".join(said)):
            yield piece

    about: Agent[None, str] = Agent(FunctionModel(stream_function=answer))
    here, there = await hosting(agent(agent_worker(about))), await hosting(agent(agent_worker(about)))
    first = await sent(here.default, saying("I am Ada"), ALICE)
    assert (first.status.state, text_in(first)) == (S.COMPLETED, "heard: I am Ada")
    (artifact,) = first.artifacts
    assert (artifact.name, [part.text for part in artifact.parts]) == ("result", ["heard: ", "I am Ada"])
    again = await sent(there.default, saying("who?", context_id=first.context_id), ALICE)
    assert text_in(again) == "heard: I am Ada and who?"
    other = await sent(there.default, saying("who?", context_id=first.context_id), BOB)
    assert text_in(other) == "heard: who?"


async def test_pydantic_ai_workers_return_data_and_hide_errors(caplog: pytest.LogCaptureFixture) -> None:
    class City(BaseModel):
        name: str

    about: Agent[None, City] = Agent(TestModel(custom_output_args={"name": "Rome"}), output_type=City)
    async with running(agent(agent_worker(about))) as a2a:
        task = await a2a.send_text("which?")
    assert task.status.state is S.COMPLETED
    assert task.artifacts[0].parts[0].data == {"result": {"name": "Rome"}}

    def breaks(_messages: list[ModelMessage], _info: AgentInfo) -> Any:
        raise ValueError("the key is hunter2")

    failing: Agent[None, str] = Agent(FunctionModel(breaks))
    async with running(agent(agent_worker(failing))) as a2a:
        task = await a2a.send_text("which?")
    assert (task.status.state, "hunter2" in status_text(task)) == (S.FAILED, False)
    assert "hunter2" in caplog.text


# --- its storage ------------------------------------------------------------------------------------------------------


async def test_the_storage_has_the_task_and_no_other() -> None:
    seen: list[Any] = []

    async def look(self: Doing, params: TaskSendParams) -> None:
        storage = self.storage
        seen.append(await storage.load_task(params["id"]))
        await storage.update_task(params["id"], "working", new_messages=[words("one", "w-1"), words("two", "w-2")])
        seen.append(await storage.load_task(params["id"], history_length=2))
        assert await storage.load_task("another") is None
        assert await storage.load_context("another") is None
        for call in (storage.update_task("another", "working"), storage.update_context("another", 1)):
            with pytest.raises(KeyError):
                await call
        with pytest.raises(NotImplementedError):
            await storage.submit_task("c", words("new"))

    async with running(agent(worker(look))) as a2a:
        message = model.Message(
            message_id="m-1",
            role=model.Role.USER,
            parts=(
                model.Part(text="hi"),
                model.Part(data=[1]),
                model.Part(raw=b"\x00", filename="f", media_type="a/b"),
            ),
        )
        task = await a2a.service.send(model.SendRequest(message=message, metadata={"k": "v"}), a2a.caller)
    assert isinstance(task, model.Task)
    assert task.status.state is S.COMPLETED
    before, after = seen
    assert (before["id"], before["context_id"], before["metadata"]) == (task.id, task.context_id, {"k": "v"})
    assert (before["status"]["state"], after["status"]["state"]) == ("submitted", "working")
    (first,) = before["history"]
    assert (first["role"], first["message_id"]) == ("user", "m-1")
    assert first["parts"] == [{"text": "hi"}, {"data": [1]}, {"raw": "AA==", "filename": "f", "media_type": "a/b"}]
    assert [(one["role"], one["parts"][0]["text"]) for one in after["history"]] == [("agent", "one"), ("agent", "two")]
    assert [one.parts[0].text for one in task.history] == ["hi", "one", "two"]


async def test_non_json_conversations_are_refused() -> None:
    async def keep(self: Doing, params: TaskSendParams) -> None:
        await self.storage.update_context(params["context_id"], {"x": object()})

    async with running(agent(worker(keep))) as a2a:
        task = await a2a.send_text("go")
    assert (task.status.state, "JSON" in status_text(task)) == (S.FAILED, True)


# --- what it reports --------------------------------------------------------------------------------------------------


async def test_stored_and_published_updates_appear_once_in_order() -> None:
    async def work(self: Doing, params: TaskSendParams) -> None:
        ids = (params["id"], params["context_id"])
        await self.storage.update_task(params["id"], "working")
        await self.publish_status(*ids, "working", words("thinking"))
        for text in ("one ", "two"):
            chunk = Artifact(artifact_id="a", parts=[Part(text=text)])
            await self.publish_artifact(*ids, chunk, append=True, last_chunk=False)
        whole = Artifact(artifact_id="a", name="words", parts=[Part(text="one two")])
        await self.storage.update_task(params["id"], "completed", new_artifacts=[whole])
        await self.publish_artifact(*ids, whole)
        await self.publish_status(*ids, "completed")
        other = Artifact(artifact_id="b", parts=[Part(data={"n": 1})])
        await self.publish_artifact(*ids, other)

    async with running(agent(worker(work))) as a2a:
        bodies = [event.body async for event in a2a.stream_text("go")]
        assert isinstance(bodies[0], model.Task)
        task = await a2a.get(bodies[0])
    chunks = [body for body in bodies if isinstance(body, model.ArtifactUpdate)]
    texts = ["".join(part.text or "" for part in chunk.artifact.parts) for chunk in chunks]
    assert [text for text in texts if text] == ["one ", "two"]
    assert task.artifacts[0].name == "words"
    assert task.artifacts[1].parts[0].data == {"n": 1}
    assert isinstance(bodies[-1], model.StatusUpdate)
    assert bodies[-1].status.state is S.COMPLETED
    assert [one.parts[0].text for one in task.history] == ["go", "thinking"]


@pytest.mark.parametrize(
    ("state", "expected"), [("failed", S.FAILED), ("rejected", S.REJECTED), ("completed", S.COMPLETED)]
)
async def test_the_last_message_is_the_answer_if_there_is_no_other(state: Any, expected: model.TaskState) -> None:
    async def work(self: Doing, params: TaskSendParams) -> None:
        said = [words("first", "w-1"), words("no such city", "w-2")]
        await self.storage.update_task(params["id"], state, new_messages=said)

    async with running(agent(worker(work))) as a2a:
        task = await a2a.send_text("go")
    assert (task.status.state, status_text(task)) == (expected, "no such city")
    assert [one.parts[0].text for one in task.history] == ["go", "first"]


async def test_a_worker_that_asks_is_run_again_with_the_answer(hosting: Hosting) -> None:
    async def work(self: Doing, params: TaskSendParams) -> None:
        said = params["message"]["parts"][0]["text"]
        if said == "go":
            await self.storage.update_task(
                params["id"], "auth-required", self.build_artifacts("a draft"), [words("Who are you?")]
            )
        else:
            await self.storage.update_task(params["id"], "completed", new_artifacts=self.build_artifacts(f"hi {said}"))

    doing = worker(work)
    host = await hosting(agent(doing))
    asked = await sent(host.default, saying("go"), ALICE)
    assert (asked.status.state, status_text(asked)) == (S.AUTH_REQUIRED, "Who are you?")
    task = await sent(host.default, saying("Ada", task_id=asked.id), ALICE)
    assert (task.status.state, text_in(task)) == (S.COMPLETED, "hi Ada")


# --- stopping, and many at a time -------------------------------------------------------------------------------------


async def test_cancelled_its_own_cancel_is_called_and_it_is_stopped() -> None:
    async def work(self: Doing, params: TaskSendParams) -> None:
        await asyncio.Event().wait()

    doing = worker(work)
    async with running(agent(doing)) as a2a:
        task = await a2a.send_text("go", at_once=True)
        await asyncio.wait_for(doing.begun.wait(), 30)
        assert (await a2a.cancel(task)).status.state is S.CANCELED
        async with asyncio.timeout(30):
            while not doing.stopped:  # noqa: ASYNC110  # a worker has nothing to set
                await asyncio.sleep(0.01)
    assert doing.cancelled == [{"id": task.id}]


async def test_one_worker_runs_many_tasks_at_a_time_and_mixes_none(hosting: Hosting) -> None:
    everybody = asyncio.Barrier(5)

    async def work(self: Doing, params: TaskSendParams) -> None:
        await everybody.wait()
        task = await self.storage.load_task(params["id"])
        assert task is not None
        said = task["history"][0]["parts"][0]["text"]
        await self.storage.update_context(params["context_id"], said)
        await everybody.wait()
        assert await self.storage.load_context(params["context_id"]) == said
        await self.storage.update_task(params["id"], "completed", new_artifacts=self.build_artifacts(said))

    host = await hosting(agent(worker(work)))
    answers = await asyncio.gather(*(sent(host.default, saying(f"n-{n}"), ALICE) for n in range(5)))
    assert [text_in(task) for task in answers] == [f"n-{n}" for n in range(5)]


async def test_lost_executions_restart(hosting: Hosting) -> None:
    runs: list[str] = []

    async def work(self: Doing, params: TaskSendParams) -> None:
        runs.append(params["id"])
        await self.storage.update_task(params["id"], "working")
        if len(runs) == 1:
            await asyncio.Event().wait()
        await self.storage.update_task(params["id"], "completed", new_artifacts=self.build_artifacts("done"))

    doing = worker(work)
    first = await hosting(agent(doing))
    task = await sent(first.default, saying("go", configuration=AT_ONCE), ALICE)
    await asyncio.wait_for(doing.begun.wait(), 30)
    await first.stop(0)
    assert (doing.stopped, doing.cancelled) == ([task.id], []), "the task goes on elsewhere"
    other = await hosting(agent(doing))
    async with asyncio.timeout(30):
        found = await other.default.get(model.GetRequest(id=task.id), ALICE)
        while found.status.state is not S.COMPLETED:
            await asyncio.sleep(0.05)
            found = await other.default.get(model.GetRequest(id=task.id), ALICE)
    assert (runs, text_in(found)) == ([task.id, task.id], "done")
