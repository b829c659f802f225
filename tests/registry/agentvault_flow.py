"""AgentVault's own way from a registry to an answer; run by an interpreter that has its library.

One argument, a JSON object: the registry's `url`, the `name` of an agent, its `key`, and a `folder` for a file of keys.
The calls to the registry are those of its command line (`discover`, `run`), which has no library of its own for them.
One JSON object comes out.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx
from agentvault.agent_card_utils import parse_agent_card_from_dict
from agentvault.client import AgentVaultClient
from agentvault.key_manager import KeyManager
from agentvault.models import Message, TextPart


async def discover(http: httpx.AsyncClient, url: str, **more: Any) -> dict[str, Any]:
    """Ask for a page as `discover` does: without a slash at the end, with `offset`, and following no redirect."""
    answer = await http.get(f"{url}/api/v1/agent-cards", params={"active_only": True, **more})
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


async def lookup(http: httpx.AsyncClient, url: str) -> Any:
    """Read an agent's card out of what the registry has, and have the library judge it."""
    answer = await http.get(url)
    assert answer.status_code == 200, answer.text
    return parse_agent_card_from_dict(answer.json()["card_data"])


def keys_in(file: Path, name: str, key: str) -> Any:
    """Return a manager that has one key."""
    file.write_text(json.dumps({name: key}))
    return KeyManager(key_file_path=file, use_env_vars=False)


async def flow(url: str, name: str, key: str, folder: str) -> dict[str, Any]:
    """Discover, look up, find the credentials, call, and follow to the end."""
    async with httpx.AsyncClient() as http:
        pages = [await discover(http, url, limit=2, offset=offset) for offset in (0, 2)]
        searched = await discover(http, url, limit=25, offset=0, search="echo")
        card = await lookup(http, f"{url}/api/v1/agent-cards/id/{name}")
        same = await lookup(http, str(httpx.URL(f"{url}/api/v1/agent-cards/by-hri", params={"hri": name})))
        missing = await http.get(f"{url}/api/v1/agent-cards/id/no/body")
    keys = keys_in(Path(folder, "keys.json"), card.human_readable_id, key)
    states, texts = [], []
    async with AgentVaultClient() as client:
        message = Message(role="user", parts=[TextPart(content="hello there")])
        task_id = await client.initiate_task(card, message, keys)
        async for event in client.receive_messages(card, task_id, keys):
            if hasattr(event, "state"):
                states.append(event.state.value)
            if hasattr(event, "artifact"):
                texts.append(event.artifact.content)
    return {
        "pages": [[item["name"] for item in page["items"]] for page in pages],
        "pagination": [page["pagination"] for page in pages],
        "searched": [item["name"] for item in searched["items"]],
        "same": card == same,
        "card": [card.human_readable_id, card.tags],
        "missing": [missing.status_code, missing.json()["detail"]],
        "states": states,
        "text": "".join(texts),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(flow(**json.loads(sys.argv[1])))))
