"""AgentVault's own client against a server.

Arguments: the server's `url` and an API `key`.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentvault.agent_card_utils import fetch_agent_card_from_url
from agentvault.client import AgentVaultClient
from agentvault.exceptions import A2ARemoteAgentError
from agentvault.key_manager import KeyManager
from agentvault.models import Message, TextPart

from interop.clients import telling
from interop.hook import Hook, mentions
from interop.outcome import Operation, same

EVENTS = [
    "TaskStatusUpdateEvent",
    "TaskStatusUpdateEvent",
    "TaskArtifactUpdateEvent",
    "TaskArtifactUpdateEvent",
    "TaskStatusUpdateEvent",
]


def saying(text: str) -> Any:
    """Return a message."""
    return Message(role="user", parts=[TextPart(content=text)])


async def refused(asking: Any) -> Any:
    """Return the code of a refusal."""
    try:
        return await asking
    except A2ARemoteAgentError as error:
        return error.status_code


class Talk:
    """A conversation with the agent of a card."""

    def __init__(self, client: Any, card: Any, keys: Any) -> None:
        """Talk with the keys of a manager."""
        self._client, self._card, self._keys = client, card, keys

    async def begin(self, text: str, hook: str | None = None) -> str:
        """Start a task."""
        task_id: str = await self._client.initiate_task(self._card, saying(text), self._keys, webhook_url=hook)
        return task_id

    async def reply(self, task_id: str, text: str) -> Any:
        """Send another message."""
        return await self._client.send_message(self._card, task_id, saying(text), self._keys)

    async def read(self, task_id: str) -> Any:
        """Read a task."""
        return await self._client.get_task_status(self._card, task_id, self._keys)

    async def stop(self, task_id: str) -> Any:
        """Cancel a task."""
        return await self._client.terminate_task(self._card, task_id, self._keys)

    async def follow(self, task_id: str, until: str = "") -> tuple[list[str], list[str], str]:
        """Follow a task to its end or a state: the events' names, the states and the text of the artifacts."""
        names, states, texts = [], [], []
        async for event in self._client.receive_messages(self._card, task_id, self._keys):
            names.append(type(event).__name__)
            if hasattr(event, "state"):
                states.append(event.state.value)
            if hasattr(event, "artifact"):
                texts.append(event.artifact.content)
            if states and states[-1] == until:
                break
        return names, states, "".join(texts)

    async def card_is_read(self) -> None:
        """The card says who the agent is and how to be known."""
        found = [self._card.human_readable_id, [scheme.scheme for scheme in self._card.auth_schemes]]
        same(found, ["localhost/conformance", ["apiKey"]])

    async def send(self) -> None:
        """A text becomes a task."""
        _, states, text = await self.follow(await self.begin("tck-artifact-text"))
        same([states[-1], text], ["COMPLETED", "Generated text content"])

    async def stream(self) -> None:
        """A task is seen as it became: it had ended before it could be followed, and nothing was missed."""
        found = await self.follow(await self.begin("tck-stream-artifact-chunked"))
        same(found, (EVENTS, ["SUBMITTED", "WORKING", "COMPLETED"], "chunk-1 chunk-2"))

    async def resume(self) -> None:
        """A task that waits is followed, left, and followed again until it is cancelled."""
        waits = await self.begin("tck-cancel")
        await self.follow(waits, until="WORKING")
        same(await self.stop(waits), True)
        same((await self.follow(waits))[1][-1], "CANCELED")

    async def get(self) -> None:
        """A task is read, with what was said and made."""
        made = await self.begin("tck-stream-artifact-chunked")
        await self.follow(made)
        done = await self.read(made)
        found = [done.id, done.state.value, [artifact.content for artifact in done.artifacts]]
        same(found, [made, "COMPLETED", ["chunk-1 chunk-2"]])
        spoken = [[message.role, message.parts[0].content] for message in done.messages]
        same(spoken, [["user", "tck-stream-artifact-chunked"]])

    async def cancel(self) -> None:
        """A task that waits is cancelled."""
        waits = await self.begin("tck-cancel")
        same([await self.stop(waits), (await self.read(waits)).state.value], [True, "CANCELED"])

    async def answer(self) -> None:
        """A question is answered."""
        asked = await self.begin("tck-input-required")
        _, states, _ = await self.follow(asked, until="INPUT_REQUIRED")
        replied = await self.reply(asked, "tck-complete-task")
        same([states[-1], replied, (await self.follow(asked))[1][-1]], ["INPUT_REQUIRED", True, "COMPLETED"])

    async def push(self) -> None:
        """A webhook is told of the end."""
        async with Hook() as hook:
            task_id = await self.begin("tck-artifact-text", hook.url)
            same(mentions(await hook.completed(), task_id), True)

    async def errors(self) -> None:
        """Refusals come with their codes."""
        made = await self.begin("tck-stream-artifact-chunked")
        await self.follow(made)
        found = [await refused(self.read("nope")), await refused(self.reply(made, "tck-complete-task"))]
        same(found, [-32001, -32004])
        # That it could not be cancelled is a result, which this client takes for a yes.
        same(await refused(self.stop(made)), True)

    async def is_refused(self) -> None:
        """Who brings a wrong key is refused; everything else was done with a good one."""
        same(await refused(self.read("nope")), 401)


def keys(file: Path, card: Any, key: str) -> Any:
    """Return a manager that has one key, for the agent of a card."""
    file.write_text(json.dumps({card.human_readable_id: key}))
    return KeyManager(key_file_path=file, use_env_vars=False)


@asynccontextmanager
async def talking(url: str, key: str) -> AsyncIterator[telling.Steps]:
    """Give every method of the client, while it is connected."""
    card = await fetch_agent_card_from_url(f"{url}/.well-known/agent-card.json")
    with TemporaryDirectory() as folder:
        async with AgentVaultClient() as client:
            here = Talk(client, card, keys(Path(folder, "keys.json"), card, key))
            nobody = Talk(client, card, keys(Path(folder, "wrong.json"), card, "not a key"))
            yield {
                Operation.CARD: here.card_is_read,
                Operation.SEND: here.send,
                Operation.STREAM: here.stream,
                Operation.RESUME: here.resume,
                Operation.GET: here.get,
                Operation.CANCEL: here.cancel,
                Operation.INPUT: here.answer,
                Operation.PUSH: here.push,
                Operation.ERRORS: here.errors,
                Operation.AUTH: nobody.is_refused,
            }


if __name__ == "__main__":
    telling.run(talking)
