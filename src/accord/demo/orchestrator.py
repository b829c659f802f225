"""An orchestrator that acknowledges at once and reports by webhook, to try `accord serve --remote` with.

It is an A2A 0.3 agent without any of Accord's code, so that the way from acknowledgement to webhook can be tried on one
machine: `python -m accord.demo.orchestrator`.
"""

import argparse
import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aiohttp
from aiohttp import web

FINAL_STATES = frozenset({"completed", "failed", "canceled"})
CARD_PATHS = ("/.well-known/agent.json", "/.well-known/agent-card.json")
NOT_FOUND, NO_METHOD, BAD_PARAMS, BAD_JSON = -32001, -32601, -32602, -32700
ATTEMPTS, FIRST_SECONDS = 6, 0.5

log = logging.getLogger("orchestrator")


@dataclass
class OrchestratorJob:
    """One task: its text, state, results and webhook."""

    text: str
    context_id: str
    webhook: dict[str, Any] | None
    id: str = field(default_factory=lambda: str(uuid4()))
    state: str = "submitted"
    changed_at: str = ""
    results: list[dict[str, str]] = field(default_factory=list)
    reason: str | None = None

    def move(self, state: str) -> None:
        """Enter a state."""
        self.state, self.changed_at = state, datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def as_task(self) -> dict[str, Any]:
        """Return the task in the form of A2A 0.3."""
        status: dict[str, Any] = {"state": self.state, "timestamp": self.changed_at}
        if self.reason:
            parts = [{"kind": "text", "text": self.reason}]
            status["message"] = {"kind": "message", "messageId": f"{self.id}-why", "role": "agent", "parts": parts}
        task: dict[str, Any] = {"id": self.id, "contextId": self.context_id, "kind": "task", "status": status}
        if self.state == "completed":
            data = {"result": "; ".join(result["result"] for result in self.results), "jobs": self.results}
            task["artifacts"] = [{"artifactId": f"{self.id}-result", "parts": [{"kind": "data", "data": data}]}]
        return task


def plan(text: str) -> list[str]:
    """Return the jobs of a message: one for each line, or each part between semicolons."""
    return [part.strip() for part in re.split(r"[\n;]+", text) if part.strip()] or ["nothing"]


class RpcRefusal(Exception):
    """A request that is answered with an error: its code and message."""


class Orchestrator:
    """Plans jobs for a message, runs them one after the other, and answers A2A requests at `url`."""

    def __init__(self, url: str, *, seconds: float = 1.0) -> None:
        """Spend `seconds` on each job."""
        self._url, self._seconds = url.rstrip("/"), seconds
        self._tasks: dict[str, OrchestratorJob] = {}
        self._by_message: dict[str, OrchestratorJob] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._methods = {"message/send": self._send, "tasks/get": self._get, "tasks/cancel": self._cancel}
        self._session: aiohttp.ClientSession

    def application(self) -> web.Application:
        """Return the HTTP application."""
        app = web.Application()
        app.router.add_post("/jsonrpc", self._call)
        for path in CARD_PATHS:
            app.router.add_get(path, self._card)
        app.cleanup_ctx.append(self._live)
        return app

    async def _live(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as self._session:
            yield
            for work in self._working.values():
                work.cancel()
            await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def _card(self, _: web.Request) -> web.Response:
        card = {
            "protocolVersion": "0.3.0",
            "name": "Orchestrator",
            "description": "Does the jobs that a message lists, and calls back when they are done",
            "version": "1.0.0",
            "url": f"{self._url}/jsonrpc",
            "preferredTransport": "JSONRPC",
            "capabilities": {"streaming": False, "pushNotifications": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["application/json"],
            "skills": [{"id": "jobs", "name": "Jobs", "description": "Does jobs", "tags": ["jobs"]}],
        }
        return web.json_response(card)

    # --- JSON-RPC -----------------------------------------------------------------------------------------------------

    async def _call(self, request: web.Request) -> web.Response:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": None}
        try:
            call = json.loads(await request.read())
            answer["id"] = call.get("id")
            method = self._methods.get(call["method"])
            if method is None:
                raise RpcRefusal(NO_METHOD, f"There is no method {call['method']}")
            answer["result"] = (await method(call.get("params") or {})).as_task()
        except RpcRefusal as error:
            answer["error"] = dict(zip(("code", "message"), error.args, strict=True))
        except (json.JSONDecodeError, AttributeError) as error:
            answer["error"] = {"code": BAD_JSON, "message": str(error)}
        except KeyError as error:
            answer["error"] = {"code": BAD_PARAMS, "message": f"{error} is missing"}
        return web.json_response(answer)

    async def _send(self, params: dict[str, Any]) -> OrchestratorJob:
        """Acknowledge a message. The work continues in the background, and a duplicate returns the same task."""
        message = params["message"]
        job = self._by_message.get(message["messageId"])
        if job is None:
            text = "".join(part.get("text", "") for part in message["parts"])
            webhook = (params.get("configuration") or {}).get("pushNotificationConfig")
            job = OrchestratorJob(text, message.get("contextId") or str(uuid4()), webhook)
            job.move("submitted")
            self._tasks[job.id] = self._by_message[message["messageId"]] = job
            self._working[job.id] = asyncio.create_task(self._execute(job))
        return job

    async def _get(self, params: dict[str, Any]) -> OrchestratorJob:
        job = self._tasks.get(params["id"])
        if job is None:
            raise RpcRefusal(NOT_FOUND, "There is no such task")
        return job

    async def _cancel(self, params: dict[str, Any]) -> OrchestratorJob:
        job = await self._get(params)
        if job.state not in FINAL_STATES:
            job.move("canceled")
            self._working[job.id].cancel()
            await self._call_webhook(job)
        return job

    # --- work ---------------------------------------------------------------------------------------------------------

    async def _execute(self, job: OrchestratorJob) -> None:
        """Run a task's jobs, then call its webhook. A job whose name contains `fail` fails."""
        job.move("working")
        for name in plan(job.text):
            await asyncio.sleep(self._seconds)
            if "fail" in name.lower():
                job.reason = f"The job {name!r} failed"
                job.move("failed")
                break
            job.results.append({"job": name, "result": f"{name}: done"})
        else:
            job.move("completed")
        await self._call_webhook(job)

    async def _call_webhook(self, job: OrchestratorJob) -> None:
        """Report a task to its webhook, with retries until it accepts."""
        if not job.webhook:
            return
        headers = {"Authorization": f"Bearer {job.webhook.get('token', '')}"}
        for attempt in range(ATTEMPTS):
            try:
                async with self._session.post(job.webhook["url"], json=job.as_task(), headers=headers) as response:
                    if response.status < 300:
                        return
                    log.warning("demo.webhook_failed", extra={"job": job.id, "status": response.status})
            except aiohttp.ClientError as error:
                log.warning("demo.webhook_not_reached", extra={"job": job.id, "reason": str(error)})
            await asyncio.sleep(FIRST_SECONDS * 2**attempt)


def main() -> None:
    """Serve until a signal arrives."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=9999)
    options.add_argument("--seconds", type=float, default=1.0, help="how long each job takes")
    given = options.parse_args()
    orchestrator = Orchestrator(f"http://localhost:{given.port}", seconds=given.seconds)
    web.run_app(orchestrator.application(), host="127.0.0.1", port=given.port, print=None)


if __name__ == "__main__":
    main()
