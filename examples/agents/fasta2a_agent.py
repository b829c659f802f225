"""A worker of fasta2a, unchanged: `accord serve examples/agents/fasta2a_agent.py:worker`.

It is made with a broker and a storage, as fasta2a wants it. Served here it has others in their place: what it stores of
a task is the task's log, and what it keeps of a conversation, a list of texts as its class says, is durable.
"""

from dataclasses import dataclass
from typing import Any

from fasta2a import Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage


@dataclass
class Listener(Worker[list[str]]):
    """Remembers what it was told."""

    async def run_task(self, params: TaskSendParams) -> None:
        task = await self.storage.load_task(params["id"])
        assert task is not None
        await self.storage.update_task(params["id"], state="working")
        told = await self.storage.load_context(params["context_id"]) or []
        told += self.build_message_history(task.get("history", []))
        await self.storage.update_context(params["context_id"], told)
        await self.storage.update_task(params["id"], state="completed", new_artifacts=self.build_artifacts(told))

    async def cancel_task(self, params: TaskIdParams) -> None: ...

    def build_message_history(self, history: list[Message]) -> list[Any]:
        return [part["text"] for message in history for part in message["parts"] if "text" in part]

    def build_artifacts(self, result: list[str]) -> list[Artifact]:
        return [Artifact(artifact_id="told", parts=[Part(text=", then ".join(result))])]


worker = Listener(broker=InMemoryBroker(), storage=InMemoryStorage())
