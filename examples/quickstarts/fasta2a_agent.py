"""A worker of fasta2a, as it is: its broker and storage are replaced when it is served."""

from typing import Any

from fasta2a import Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, TaskIdParams, TaskSendParams
from fasta2a.storage import InMemoryStorage


class Shouter(Worker[Any]):
    """Says it louder."""

    async def run_task(self, params: TaskSendParams) -> None:
        await self.storage.update_task(params["id"], state="working")
        artifacts = self.build_artifacts(params["message"]["parts"][0]["text"].upper())
        await self.publish_artifact(params["id"], params["context_id"], artifacts[0], last_chunk=True)
        await self.storage.update_task(params["id"], state="completed", new_artifacts=artifacts)

    async def cancel_task(self, params: TaskIdParams) -> None: ...

    def build_message_history(self, history: list[Any]) -> list[Any]:
        return history

    def build_artifacts(self, result: str) -> list[Artifact]:
        return [Artifact(artifact_id="shout", parts=[{"text": result}])]


worker = Shouter(broker=InMemoryBroker(), storage=InMemoryStorage())
