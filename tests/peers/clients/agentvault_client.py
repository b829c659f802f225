"""AgentVault's own client against a server; run by an interpreter that has it.

One argument, a JSON object: the server's `url`, an API `key`, a webhook, `hook`, and a `folder` for a file of keys.
One JSON object comes out: what the client made of each answer.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agentvault.agent_card_utils import fetch_agent_card_from_url
from agentvault.client import AgentVaultClient
from agentvault.exceptions import A2ARemoteAgentError
from agentvault.key_manager import KeyManager
from agentvault.models import Message, TextPart


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

    async def cancel(self, task_id: str) -> Any:
        """Cancel a task."""
        return await self._client.terminate_task(self._card, task_id, self._keys)

    async def follow(self, task_id: str, until: str = "") -> list[Any]:
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
        return [names, states, "".join(texts)]


def keys(file: Path, card: Any, key: str) -> Any:
    """Return a manager that has one key, for the agent of a card."""
    file.write_text(json.dumps({card.human_readable_id: key}))
    return KeyManager(key_file_path=file, use_env_vars=False)


async def talk(url: str, key: str, hook: str, folder: str) -> dict[str, Any]:
    """Use every method of the client."""
    card = await fetch_agent_card_from_url(f"{url}/.well-known/agent-card.json")
    async with AgentVaultClient() as client:
        here = Talk(client, card, keys(Path(folder, "keys.json"), card, key))
        nobody = Talk(client, card, keys(Path(folder, "wrong.json"), card, "not a key"))
        made = await here.begin("tck-stream-artifact-chunked")
        followed = await here.follow(made)
        done = await here.read(made)
        asked = await here.begin("tck-input-required")
        question = await here.follow(asked, until="INPUT_REQUIRED")
        replied = await here.reply(asked, "tck-complete-task")
        waits = await here.begin("tck-cancel")
        return {
            "card": [card.human_readable_id, [scheme.scheme for scheme in card.auth_schemes]],
            "followed": followed,
            "read": [done.id == made, done.state.value, [artifact.content for artifact in done.artifacts]],
            "spoken": [[message.role, message.parts[0].content] for message in done.messages],
            "turns": [question[1][-1], replied, (await here.follow(asked))[1][-1]],
            "cancelled": [await here.cancel(waits), (await here.read(waits)).state.value],
            "pushed": await here.begin("tck-artifact-text", hook),
            "missing": await refused(here.read("nope")),
            "ended": await refused(here.cancel(made)),
            "late": await refused(here.reply(made, "tck-complete-task")),
            "nobody": await refused(nobody.read(made)),
        }


print(json.dumps(asyncio.run(talk(**json.loads(sys.argv[1])))))
