"""Workers of fasta2a."""

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fasta2a import Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage

from accord.agents.fasta2a import AGENT_TYPE
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject

Do = Callable[["Doing", TaskSendParams], Awaitable[None]]


@dataclass
class Doing(Worker[list[str]]):
    """Does one thing."""

    do: Do

    async def run_task(self, params: TaskSendParams) -> None:
        await self.storage.update_task(params["id"], state="working")
        await self.do(self, params)

    async def cancel_task(self, params: TaskIdParams) -> None:
        await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return [part.get("text", "") for message in history for part in message["parts"]]

    def build_artifacts(self, result: Any) -> list[Artifact]:
        return [Artifact(artifact_id="answer", parts=[Part(text=result)])]

    async def answer(self, params: TaskSendParams, text: str) -> None:
        await self.storage.update_task(params["id"], state="completed", new_artifacts=self.build_artifacts(text))


def behaviours(scratch: Path) -> dict[str, Do]:
    """Return what a worker may do."""

    async def echo(worker: Doing, params: TaskSendParams) -> None:
        await worker.answer(params, f"you said {params['message']['parts'][0]['text']}")

    async def chunk(worker: Doing, params: TaskSendParams, text: str) -> None:
        artifact = Artifact(artifact_id="answer", parts=[Part(text=text)])
        await worker.publish_artifact(params["id"], params["context_id"], artifact, append=True, last_chunk=False)

    async def stream(worker: Doing, params: TaskSendParams) -> None:
        for word in ("one ", "two ", "three "):
            await chunk(worker, params, word)
        await worker.answer(params, "one two three ")

    async def held(worker: Doing, params: TaskSendParams) -> None:
        await chunk(worker, params, "one ")
        await marks.held(scratch)
        await chunk(worker, params, "two ")
        await worker.answer(params, "one two ")

    async def remember(worker: Doing, params: TaskSendParams) -> None:
        said = await worker.storage.load_context(params["context_id"]) or []
        task = await worker.storage.load_task(params["id"])
        assert task is not None
        said.extend(worker.build_message_history(task.get("history", [])))
        await worker.storage.update_context(params["context_id"], said)
        await worker.answer(params, " ".join(said))

    async def slow(worker: Doing, params: TaskSendParams) -> None:
        await marks.work(scratch)

    async def fail(worker: Doing, params: TaskSendParams) -> None:
        why = Message(role="agent", parts=[Part(text="no such city")], message_id="why")
        await worker.storage.update_task(params["id"], state="failed", new_messages=[why])

    async def ask(worker: Doing, params: TaskSendParams) -> None:
        task = await worker.storage.load_task(params["id"])
        assert task is not None
        if len(task.get("history", [])) == 1:
            question = Message(role="agent", parts=[Part(text="Which city?")], message_id="which")
            await worker.storage.update_task(params["id"], state="input-required", new_messages=[question])
        else:
            await worker.answer(params, f"to {params['message']['parts'][0]['text']}")

    async def file(worker: Doing, params: TaskSendParams) -> None:
        given = next(part for part in params["message"]["parts"] if "raw" in part)
        content = base64.b64encode(base64.b64decode(given["raw"]) + b"!").decode()
        made = Artifact(artifact_id="file", parts=[Part(raw=content, filename=given["filename"])])
        await worker.storage.update_task(params["id"], state="completed", new_artifacts=[made])

    return {do.__name__: do for do in (echo, stream, held, remember, slow, fail, ask, file)}


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    worker = Doing(broker=InMemoryBroker(), storage=InMemoryStorage(), do=behaviours(scratch)[behaviour])
    return AGENT_TYPE.make(AgentArguments(name="subject", target=worker, options=AGENT_TYPE.options()))


SUBJECT = Subject(kind="fasta2a", make=make, has=frozenset(behaviours(Path())), crash=Crash.RESTART)
