"""fasta2a's server with the only store and broker that it has: `python -m tests.guides.probed.fasta2a_server`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage

from tests.guides.probed.counting import pieces

PORT = int(os.environ["PORT"])


class Counting(Worker[Any]):
    """Counts up."""

    async def run_task(self, params: Any) -> None:
        task_id, context_id = params["id"], params["context_id"]
        await self.storage.update_task(task_id, state="working")
        said = ""
        async for piece in pieces(params["message"]["parts"][0]["text"]):
            artifact: Any = {"artifact_id": "answer", "parts": [{"text": piece}]}
            await self.publish_artifact(task_id, context_id, artifact, append=bool(said))
            said += piece
        await self.storage.update_task(task_id, state="completed", new_artifacts=self.build_artifacts(said))

    async def cancel_task(self, params: Any) -> None:
        task = await self.storage.load_task(params["id"])
        if task is not None and task["status"]["state"] == "working":
            await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history: list[Any]) -> list[Any]:
        return history

    def build_artifacts(self, result: str) -> list[Any]:
        return [{"artifact_id": "answer", "parts": [{"text": result}]}]


worker = Counting(broker=InMemoryBroker(), storage=InMemoryStorage())


@asynccontextmanager
async def lifespan(app: FastA2A) -> AsyncIterator[None]:
    async with app.task_manager, worker.run():
        yield


app = FastA2A(
    storage=worker.storage, broker=worker.broker, name="counting", url=f"http://localhost:{PORT}", lifespan=lifespan
)

if __name__ == "__main__":
    uvicorn.run(app, host="localhost", port=PORT, log_level="warning")
