"""AgentVault's server kit: its router and its store, with the card and the errors that it leaves to its users."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from agentvault.models import AgentCard, Artifact, Message, Task, TaskArtifactUpdateEvent, TaskState, TextPart
from agentvault_server_sdk import BaseA2AAgent, InMemoryTaskStore, TaskNotFoundError, create_a2a_router
from agentvault_server_sdk.fastapi_integration import task_not_found_handler, validation_exception_handler
from fastapi import FastAPI
from pydantic import ValidationError

from interop.servers import agent

ENDED = {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED}
REST = ENDED | {TaskState.INPUT_REQUIRED}


class Parrot(BaseA2AAgent):
    """The agent; the kit keeps states and tells them to followers, everything else is the agent's."""

    def __init__(self, store: Any) -> None:
        """Keep states in a store."""
        super().__init__()
        self._store = store
        self._messages: dict[str, list[Any]] = {}
        self._artifacts: dict[str, list[Any]] = {}
        self._followed: dict[str, asyncio.Event] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def handle_task_send(self, task_id: str | None, message: Any) -> str:
        """Begin a task, or go on with one."""
        if task_id is None:
            task_id = str(uuid4())
            await self._store.create_task(task_id)
        elif await self._store.get_task(task_id) is None:
            raise TaskNotFoundError(task_id)
        self._messages.setdefault(task_id, []).append(message)
        self._followed.setdefault(task_id, asyncio.Event())
        self._running[task_id] = asyncio.create_task(self._answer(task_id, message.parts[0].content))
        return task_id

    async def _answer(self, task_id: str, text: str) -> None:
        await self._store.update_task_state(task_id, TaskState.WORKING)
        if text == "hold":
            return
        if text == "ask":
            question = Message(role="assistant", parts=[TextPart(content=agent.QUESTION)])
            self._messages[task_id].append(question)
            await self._store.notify_message_event(task_id, question)
            await self._store.update_task_state(task_id, TaskState.INPUT_REQUIRED)
            return
        if text == agent.ECHO:
            answer = Message(role="assistant", parts=[TextPart(content=text)])
            self._messages[task_id].append(answer)
            await self._store.notify_message_event(task_id, answer)
            await self._store.update_task_state(task_id, TaskState.COMPLETED)
            return
        said = agent.pieces(text)
        if len(said) > 1:  # so that each piece is seen: who follows late is only told what comes then
            await self._followed[task_id].wait()
        for at in range(len(said)):
            artifact = Artifact(id="answer", type="text", content="".join(said[: at + 1]), mediaType="text/plain")
            self._artifacts[task_id] = [artifact]
            await self._store.notify_artifact_event(task_id, artifact)
        await self._store.update_task_state(task_id, TaskState.COMPLETED)

    async def handle_task_get(self, task_id: str) -> Any:
        """Return a task."""
        found = await self._known(task_id)
        return Task(
            id=task_id,
            state=found.current_state,
            createdAt=found.created_at,
            updatedAt=found.updated_at,
            messages=self._messages[task_id],
            artifacts=self._artifacts.get(task_id, []),
        )

    async def handle_task_cancel(self, task_id: str) -> bool:
        """End a task, if it has not ended."""
        await self._known(task_id)
        return await self._store.update_task_state(task_id, TaskState.CANCELED) is not None

    async def handle_subscribe_request(self, task_id: str) -> AsyncGenerator[Any, None]:
        """Tell what a task has made, and what happens to it until it rests."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        await self._store.add_listener(task_id, queue)
        try:
            found = await self._known(task_id)
            for artifact in self._artifacts.get(task_id, []):
                yield TaskArtifactUpdateEvent(task_id=task_id, artifact=artifact, timestamp=datetime.now(UTC))
            self._followed[task_id].set()
            if found.current_state in REST:
                await self._store.notify_status_update(task_id, found.current_state)
            while True:
                event = await queue.get()
                yield event
                if getattr(event, "state", None) in REST:
                    return
        finally:
            await self._store.remove_listener(task_id, queue)

    async def _known(self, task_id: str) -> Any:
        found = await self._store.get_task(task_id)
        if found is None:
            raise TaskNotFoundError(task_id)
        return found


def application(url: str) -> FastAPI:
    """Return the server."""
    card = AgentCard(
        schemaVersion="1.0",
        humanReadableId="tests/parrot",
        agentVersion="1.0.0",
        name=agent.NAME,
        description=agent.DESCRIPTION,
        url=f"{url}/a2a/",
        provider={"name": "Tests"},
        capabilities={"a2aVersion": "1.0", "supportedMessageParts": ["text"], "supportsPushNotifications": False},
        authSchemes=[{"scheme": "none"}],
    )
    store = InMemoryTaskStore()
    app = FastAPI()
    app.include_router(create_a2a_router(Parrot(store), prefix="/a2a", task_store=store))
    app.add_exception_handler(TaskNotFoundError, task_not_found_handler)
    for error in (ValidationError, ValueError, TypeError):
        app.add_exception_handler(error, validation_exception_handler)

    @app.get("/.well-known/agent.json")
    async def agent_card() -> Any:
        return card.model_dump(mode="json", by_alias=True, exclude_none=True)

    return app


if __name__ == "__main__":
    listener, url = agent.listening()
    agent.serve(application(url), listener, url)
