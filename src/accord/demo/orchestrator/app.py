"""The orchestrator over HTTP: a card, `POST /jsonrpc`, and the webhook that says how a task ended.

Plain ASGI and JSON-RPC 2.0; what a task does is `jobs`.
"""

import asyncio
import json
import logging
from typing import Any

import aiohttp

from accord.demo.orchestrator.jobs import Job, Orchestrator

CARDS = ("/.well-known/agent.json", "/.well-known/agent-card.json")
NOT_FOUND, NO_METHOD, BAD_PARAMS, BAD_JSON = -32001, -32601, -32602, -32700
ATTEMPTS, FIRST_SECONDS = 6, 0.5

log = logging.getLogger("orchestrator")


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str) -> None:
        """Say what is wrong."""
        super().__init__(message)
        self.code = code


class App:
    """The ASGI application."""

    def __init__(self, url: str, *, seconds: float = 1.0) -> None:
        """Answer at `url`; each job takes so many seconds."""
        self.url = url.rstrip("/")
        self.orchestrator = Orchestrator(self._call_webhook, seconds=seconds)
        self._session: aiohttp.ClientSession | None = None
        self._methods = {"message/send": self._send, "tasks/get": self._get, "tasks/cancel": self._cancel}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request, or start and stop."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and scope["method"] == "GET" and scope["path"] in CARDS:
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
        """Who it is."""
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
                raise Refused(NO_METHOD, f"There is no method {call['method']}")
            result = await method(call.get("params") or {})
        except Refused as error:
            return {"jsonrpc": "2.0", "id": request_id, "error": {"code": error.code, "message": str(error)}}
        except (json.JSONDecodeError, AttributeError) as error:
            return {"jsonrpc": "2.0", "id": request_id, "error": {"code": BAD_JSON, "message": str(error)}}
        except KeyError as error:
            message = f"{error} is missing"
            return {"jsonrpc": "2.0", "id": request_id, "error": {"code": BAD_PARAMS, "message": message}}
        return {"jsonrpc": "2.0", "id": request_id, "result": result}

    async def _send(self, params: dict[str, Any]) -> dict[str, Any]:
        """Acknowledge a message; the work goes on by itself."""
        configuration = params.get("configuration") or {}
        return self.orchestrator.begin(params["message"], configuration.get("pushNotificationConfig")).as_task()

    async def _get(self, params: dict[str, Any]) -> dict[str, Any]:
        return self._job(params).as_task()

    async def _cancel(self, params: dict[str, Any]) -> dict[str, Any]:
        job = self._job(params)
        await self.orchestrator.cancel(job)
        return job.as_task()

    def _job(self, params: dict[str, Any]) -> Job:
        job = self.orchestrator.tasks.get(params["id"])
        if job is None:
            raise Refused(NOT_FOUND, "There is no such task")
        return job

    # --- the webhook ----------------------------------------------------------------------------------------------

    async def _call_webhook(self, job: Job) -> None:
        """Tell whoever asked for it how a task ended, until it is heard."""
        if not job.webhook or self._session is None:
            return
        headers = {"Authorization": f"Bearer {job.webhook.get('token', '')}"}
        for attempt in range(ATTEMPTS):
            try:
                async with self._session.post(job.webhook["url"], json=job.as_task(), headers=headers) as response:
                    if response.status < 300:
                        return
                    log.warning("the webhook of %s answers %s", job.id, response.status)
            except aiohttp.ClientError as error:
                log.warning("the webhook of %s is not reached: %s", job.id, error)
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
