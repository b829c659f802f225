"""Google's Agent Development Kit with the server's agent as one of its own.

Arguments: the server's `url` and an API `key`. The kit is no client that one calls: it has a conversation, and what it
was told in each turn is judged.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from interop.clients import telling
from interop.outcome import Operation, Wrong, same


class Turn:
    """What one turn came to."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.pieces: list[str] = []
        self.errors: list[str] = []
        self.tasks: set[str] = set()


class Talk:
    """Conversations with the remote agent."""

    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        """Talk through an HTTP client."""
        self._sessions = InMemorySessionService()
        self._agent = RemoteA2aAgent(name="remote", agent_card=f"{url}/.well-known/agent-card.json", httpx_client=http)
        self._runner = Runner(app_name="app", agent=self._agent, session_service=self._sessions)

    async def turns(self, *texts: str) -> list[Turn]:
        """Have a conversation of its own."""
        session = await self._sessions.create_session(app_name="app", user_id="u")
        return [await self._turn(session.id, text) for text in texts]

    async def _turn(self, session: str, text: str) -> Turn:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        found = Turn()
        events: Any = self._runner.run_async(user_id="u", session_id=session, new_message=message)
        async for event in events:
            found.pieces += [part.text for part in (event.content.parts or [] if event.content else []) if part.text]
            found.errors += [event.error_message] if event.error_message else []
            task_id = (event.custom_metadata or {}).get("a2a:task_id")
            found.tasks |= {task_id} if task_id else set()
        return found

    async def card_is_read(self) -> None:
        """The kit has found how to call the agent."""
        (turn,) = await self.turns("tck-complete-task")
        same(turn.errors, [])

    async def send(self) -> None:
        """A text is answered, by one task."""
        (turn,) = await self.turns("tck-artifact-text")
        same([turn.errors, turn.pieces, len(turn.tasks)], [[], ["Generated text content"], 1])

    async def stream(self) -> None:
        """An answer comes in its pieces."""
        (turn,) = await self.turns("tck-stream-artifact-chunked")
        same([turn.errors, turn.pieces, len(turn.tasks)], [[], ["chunk-1 ", "chunk-2"], 1])

    async def answer(self) -> None:
        """What follows a question is its answer."""
        asked, answered = await self.turns("tck-input-required", "tck-complete-task")
        same([asked.errors, answered.errors, answered.pieces], [[], [], ["Hello from TCK"]])
        same([len(asked.tasks), answered.tasks], [1, asked.tasks])

    async def errors(self) -> None:
        """A task that fails is told with its reason."""
        (turn,) = await self.turns("tck-task-failure")
        if not any("Failed on request" in text for text in (*turn.errors, *turn.pieces)):
            raise Wrong(f"it was told {turn.errors!r} and {turn.pieces!r}")

    async def is_refused(self) -> None:
        """Who brings no key is refused; everything else was done with one."""
        (turn,) = await self.turns("tck-artifact-text")
        if not any("401" in text for text in turn.errors):
            raise Wrong(f"without credentials it was told {turn.errors!r}")


@asynccontextmanager
async def talking(url: str, key: str) -> AsyncIterator[telling.Steps]:
    """Give what the kit does, with a key and without."""
    async with httpx.AsyncClient(headers={"X-API-Key": key}, timeout=20) as http, httpx.AsyncClient(timeout=20) as bare:
        here, nobody = Talk(url, http), Talk(url, bare)
        yield {
            Operation.CARD: here.card_is_read,
            Operation.SEND: here.send,
            Operation.STREAM: here.stream,
            Operation.INPUT: here.answer,
            Operation.ERRORS: here.errors,
            Operation.AUTH: nobody.is_refused,
        }


if __name__ == "__main__":
    telling.run(talking)
