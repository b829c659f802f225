"""fasta2a's server, which is Pydantic AI's, with its own store and broker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.storage import InMemoryStorage

from interop.servers import agent

ENDED = {"completed", "canceled", "failed", "rejected"}


class Parrot(Worker[Any]):
    """The agent as a worker; it works on one thing after the other, so that it returns from what it leaves open."""

    async def run_task(self, params: Any) -> None:
        """Answer a message."""
        task_id, context_id = params["id"], params["context_id"]
        text = params["message"]["parts"][0]["text"]
        await self.storage.update_task(task_id, state="working")
        await self.publish_status(task_id, context_id, "working")
        if text == "hold":
            return
        if text == "ask":
            question: Any = {"role": "agent", "parts": [{"text": agent.QUESTION}], "message_id": str(uuid4())}
            await self.storage.update_task(task_id, state="input-required", new_messages=[question])
            await self.publish_status(task_id, context_id, "input-required", question)
            return
        said = agent.pieces(text)
        for at, piece in enumerate(said):
            artifact: Any = {"artifact_id": "answer", "parts": [{"text": piece}]}
            last = at == len(said) - 1
            await self.publish_artifact(task_id, context_id, artifact, append=at > 0, last_chunk=last)
        whole: Any = {"artifact_id": "answer", "parts": [{"text": "".join(said)}]}
        await self.storage.update_task(task_id, state="completed", new_artifacts=[whole])

    async def cancel_task(self, params: Any) -> None:
        """End a task that has not ended; to raise would end the server."""
        task = await self.storage.load_task(params["id"])
        if task is not None and task["status"]["state"] not in ENDED:
            await self.storage.update_task(params["id"], state="canceled")

    def build_message_history(self, history: list[Any]) -> list[Any]:
        """Return messages as they are."""
        return history

    def build_artifacts(self, result: Any) -> list[Any]:
        """Return an artifact as it is."""
        return [result]


def application(url: str) -> FastA2A:
    """Return the server, whose worker runs while it does."""
    storage: Any = InMemoryStorage()
    broker = InMemoryBroker()
    worker = Parrot(broker=broker, storage=storage)

    @asynccontextmanager
    async def lifespan(app: FastA2A) -> AsyncIterator[None]:
        async with app.task_manager, worker.run():
            yield

    return FastA2A(
        storage=storage, broker=broker, name=agent.NAME, description=agent.DESCRIPTION, url=url, lifespan=lifespan
    )


if __name__ == "__main__":
    listener, url = agent.listening()
    agent.serve(application(url), listener, url)
