"""CrewAI's delegation to a remote agent, without a crew around it: what an agent of it does once its model decided to.

Arguments: the server's `url` and an API `key`.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")

from crewai.a2a.auth.client_schemes import APIKeyAuth
from crewai.a2a.updates import PollingConfig, StreamingConfig
from crewai.a2a.utils.agent_card import afetch_agent_card
from crewai.a2a.utils.delegation import aexecute_a2a_delegation

from interop.clients import telling
from interop.outcome import Operation, Wrong, same

SECONDS = 20


class Talk:
    """Delegations to one agent."""

    def __init__(self, url: str, auth: Any) -> None:
        """Delegate with credentials, or with none."""
        self._card = f"{url}/.well-known/agent-card.json"
        self._auth = auth

    async def delegate(self, text: str, updates: Any, **more: Any) -> Any:
        """Delegate a task, as an agent would."""
        found: Any = await aexecute_a2a_delegation(
            endpoint=self._card, auth=self._auth, timeout=SECONDS, task_description=text, updates=updates, **more
        )
        return found

    async def card_is_read(self) -> None:
        """The card has the agent's name."""
        same((await afetch_agent_card(self._card, auth=self._auth, timeout=SECONDS)).name, "Conformance")

    async def send(self) -> None:
        """A task is delegated and looked at until it has ended."""
        found = await self.delegate("tck-artifact-text", PollingConfig(interval=0.1))
        same([found["status"].value, found["result"]], ["completed", "Generated text content"])

    async def stream(self) -> None:
        """A task is delegated and followed."""
        found = await self.delegate("tck-stream-artifact-chunked", StreamingConfig())
        same(found["status"].value, "completed")
        same("".join(found["result"].split()), "chunk-1chunk-2")

    async def answer(self) -> None:
        """A question is answered, in the same task."""
        asked = await self.delegate("tck-input-required", StreamingConfig())
        same(asked["status"].value, "input-required")
        said = asked["history"]
        task_id = said[-1].task_id if said else None
        context_id = said[-1].context_id if said else None
        found = await self.delegate(
            "tck-complete-task",
            StreamingConfig(),
            task_id=task_id,
            context_id=context_id,
            conversation_history=said,
        )
        same([found["status"].value, found["result"]], ["completed", "Hello from TCK"])

    async def errors(self) -> None:
        """A task that fails is told with its reason."""
        found = await self.delegate("tck-task-failure", StreamingConfig())
        same([found["status"].value, "Failed on request" in str(found.get("error"))], ["failed", True])

    async def is_refused(self) -> None:
        """Who brings no key is refused; everything else was done with one."""
        try:
            found = await self.delegate("tck-artifact-text", StreamingConfig())
        except Exception as error:  # whatever it raises for it
            said = str(error)
        else:
            said = str(found.get("error"))
        if "401" not in said:
            raise Wrong(f"without credentials it was told {said!r}")


@asynccontextmanager
async def talking(url: str, key: str) -> AsyncIterator[telling.Steps]:
    """Give what a delegation does, with a key and without."""
    here, nobody = Talk(url, APIKeyAuth(api_key=key, location="header", name="X-API-Key")), Talk(url, None)
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
