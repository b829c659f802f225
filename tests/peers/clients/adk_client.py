"""Google's Agent Development Kit with the server's agent as one of its own; run by an interpreter that has it.

One argument, a JSON object: the server's `url` and an API `key`. One JSON object comes out: for each turn of one
session what the kit was told, whole and in pieces, by which task.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

TURNS = ("tck-artifact-text", "tck-stream-artifact-chunked", "tck-input-required", "tck-complete-task")


async def turn(runner: Any, session: str, text: str) -> dict[str, Any]:
    """Say something and return what comes of it."""
    message = types.Content(role="user", parts=[types.Part(text=text)])
    found: dict[str, Any] = {"pieces": [], "errors": [], "tasks": []}
    async for event in runner.run_async(user_id="u", session_id=session, new_message=message):
        found["pieces"] += [part.text for part in (event.content.parts or [] if event.content else []) if part.text]
        found["errors"] += [event.error_message] if event.error_message else []
        task_id = (event.custom_metadata or {}).get("a2a:task_id")
        found["tasks"] += [task_id] if task_id else []
    return found


async def talk(url: str, key: str) -> dict[str, Any]:
    """Have one conversation with a key, and one turn without."""
    found: dict[str, Any] = {}
    for name, headers, turns in (("alice", {"X-API-Key": key}, TURNS), ("nobody", {}, TURNS[:1])):
        async with httpx.AsyncClient(headers=headers, timeout=20) as http:
            card = f"{url}/.well-known/agent-card.json"
            sessions = InMemorySessionService()
            agent = RemoteA2aAgent(name="remote", agent_card=card, httpx_client=http)
            runner = Runner(app_name="app", agent=agent, session_service=sessions)
            session = await sessions.create_session(app_name="app", user_id="u")
            found[name] = {text: await turn(runner, session.id, text) for text in turns}
    return found


print(json.dumps(asyncio.run(talk(**json.loads(sys.argv[1])))))
