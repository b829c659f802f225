"""An orchestrator that acknowledges at once and reports by webhook, to try `accord serve --remote` with.

It is an A2A 0.3 agent without any of Accord's code, so that the way from acknowledgement to webhook can be tried on one
machine: `python -m accord.demo.orchestrator`.
"""

import argparse
import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aiohttp
import uvicorn

FINAL_STATES = frozenset({"completed", "failed", "canceled"})

CallWebhook = Callable[["OrchestratorJob"], Awaitable[None]]


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
            said = [{"kind": "text", "text": self.reason}]
            status["message"] = {"kind": "message", "messageId": f"{self.id}-why", "role": "agent", "parts": said}
        task: dict[str, Any] = {"id": self.id, "contextId": self.context_id, "kind": "task", "status": status}
        if self.state == "completed":
            data = {"result": "; ".join(one["result"] for one in self.results), "jobs": self.results}
            task["artifacts"] = [{"artifactId": f"{self.id}-result", "parts": [{"kind": "data", "data": data}]}]
        return task


class Orchestrator:
    """Plans jobs for a message and runs them one after the other."""

    def __init__(self, call_webhook: CallWebhook, *, seconds: float = 1.0) -> None:
        """Spend `seconds` on each job."""
        self._call_webhook = call_webhook
        self._seconds = seconds
        self._by_message: dict[str, OrchestratorJob] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self.tasks: dict[str, OrchestratorJob] = {}

    def begin(self, message: dict[str, Any], webhook: dict[str, Any] | None) -> OrchestratorJob:
        """Accept a message. A duplicate returns the same task."""
        known = self._by_message.get(message["messageId"])
        if known is not None:
            return known
        text = "".join(part.get("text", "") for part in message["parts"])
        job = OrchestratorJob(text=text, context_id=message.get("contextId") or str(uuid4()), webhook=webhook)
        job.move("submitted")
        self.tasks[job.id] = self._by_message[message["messageId"]] = job
        self._working[job.id] = asyncio.create_task(self._execute(job))
        return job

    async def cancel(self, job: OrchestratorJob) -> None:
        """Cancel a task and its remaining jobs."""
        if job.state not in FINAL_STATES:
            job.move("canceled")
            self._working[job.id].cancel()
            await self._call_webhook(job)

    async def close(self) -> None:
        """Cancel all tasks."""
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)

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


def plan(text: str) -> list[str]:
    """Return the jobs of a message: one for each line, or each part between semicolons."""
    return [part.strip() for part in re.split(r"[\n;]+", text) if part.strip()] or ["nothing"]


CARD_PATHS = ("/.well-known/agent.json", "/.well-known/agent-card.json")
NOT_FOUND, NO_METHOD, BAD_PARAMS, BAD_JSON = -32001, -32601, -32602, -32700
ATTEMPTS, FIRST_SECONDS = 6, 0.5

log = logging.getLogger("orchestrator")


class RpcRefusal(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        """Store the error code and the message."""
        super().__init__(message)
        self.code = code


class OrchestratorApp:
    """The ASGI application."""

    def __init__(self, url: str, *, seconds: float = 1.0) -> None:
        """Serve at `url`. Each job takes `seconds`."""
        self.url = url.rstrip("/")
        self.orchestrator = Orchestrator(self._call_webhook, seconds=seconds)
        self._session: aiohttp.ClientSession | None = None
        self._methods = {"message/send": self._send, "tasks/get": self._get, "tasks/cancel": self._cancel}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request, or handle startup and shutdown."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and scope["method"] == "GET" and scope["path"] in CARD_PATHS:
            await _answer(send, 200, self.card())
        elif scope["type"] == "http" and scope["method"] == "POST" and scope["path"] == "/jsonrpc":
            await _answer(send, 200, await self._called(await _body(receive)))
        elif scope["type"] == "http":
            await _answer(send, 404, {"error": "There is nothing here but /jsonrpc and the card"})

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as self._session:
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.orchestrator.close()
        await send({"type": "lifespan.shutdown.complete"})

    def card(self) -> dict[str, Any]:
        """Return the agent card."""
        return {
            "protocolVersion": "0.3.0",
            "name": "Orchestrator",
            "description": "Does the jobs that a message lists, and calls back when they are done",
            "version": "1.0.0",
            "url": f"{self.url}/jsonrpc",
            "preferredTransport": "JSONRPC",
            "capabilities": {"streaming": False, "pushNotifications": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["application/json"],
            "skills": [{"id": "jobs", "name": "Jobs", "description": "Does jobs", "tags": ["jobs"]}],
        }

    # --- JSON-RPC -------------------------------------------------------------------------------------------------

    async def _called(self, body: bytes) -> dict[str, Any]:
        request_id = None
        try:
            call = json.loads(body)
            request_id = call.get("id")
            method = self._methods.get(call["method"])
            if method is None:
                raise RpcRefusal(NO_METHOD, f"There is no method {call['method']}")
            result = await method(call.get("params") or {})
        except RpcRefusal as error:
            return {"jsonrpc": "2.0", "id": request_id, "error": {"code": error.code, "message": str(error)}}
        except (json.JSONDecodeError, AttributeError) as error:
            return {"jsonrpc": "2.0", "id": request_id, "error": {"code": BAD_JSON, "message": str(error)}}
        except KeyError as error:
            message = f"{error} is missing"
            return {"jsonrpc": "2.0", "id": request_id, "error": {"code": BAD_PARAMS, "message": message}}
        return {"jsonrpc": "2.0", "id": request_id, "result": result}

    async def _send(self, params: dict[str, Any]) -> dict[str, Any]:
        """Acknowledge a message. The work continues in the background."""
        configuration = params.get("configuration") or {}
        return self.orchestrator.begin(params["message"], configuration.get("pushNotificationConfig")).as_task()

    async def _get(self, params: dict[str, Any]) -> dict[str, Any]:
        return self._job(params).as_task()

    async def _cancel(self, params: dict[str, Any]) -> dict[str, Any]:
        job = self._job(params)
        await self.orchestrator.cancel(job)
        return job.as_task()

    def _job(self, params: dict[str, Any]) -> OrchestratorJob:
        job = self.orchestrator.tasks.get(params["id"])
        if job is None:
            raise RpcRefusal(NOT_FOUND, "There is no such task")
        return job

    # --- the webhook ----------------------------------------------------------------------------------------------

    async def _call_webhook(self, job: OrchestratorJob) -> None:
        """Report a task to its webhook, with retries until it accepts."""
        if not job.webhook or self._session is None:
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


async def _body(receive: Any) -> bytes:
    whole: bytes = b""
    while True:
        message = await receive()
        whole += message.get("body", b"")
        if not message.get("more_body"):
            return whole


async def _answer(send: Any, status: int, value: dict[str, Any]) -> None:
    body = json.dumps(value).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Serve until a signal arrives."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=9999)
    options.add_argument("--seconds", type=float, default=1.0, help="how long each job takes")
    given = options.parse_args()
    app = OrchestratorApp(f"http://localhost:{given.port}", seconds=given.seconds)
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
