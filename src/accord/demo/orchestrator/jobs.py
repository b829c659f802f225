"""Tasks and the jobs that they are made of: what an orchestrator would hand to its workers, simulated.

It knows no HTTP: `app` takes messages in, and is called back when a task is done.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

FINAL = frozenset({"completed", "failed", "canceled"})

CallWebhook = Callable[["Job"], Awaitable[None]]


@dataclass
class Job:
    """One task: what was asked, where it stands, and who wants to know."""

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
        """The task as A2A 0.3 writes it."""
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
    """Plans jobs for a message and does them one after the other."""

    def __init__(self, call_webhook: CallWebhook, *, seconds: float = 1.0) -> None:
        """Take so long for each job."""
        self._call_webhook = call_webhook
        self._seconds = seconds
        self._by_message: dict[str, Job] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self.tasks: dict[str, Job] = {}

    def begin(self, message: dict[str, Any], webhook: dict[str, Any] | None) -> Job:
        """Accept a message; the same one twice is one task."""
        known = self._by_message.get(message["messageId"])
        if known is not None:
            return known
        text = "".join(part.get("text", "") for part in message["parts"])
        job = Job(text=text, context_id=message.get("contextId") or str(uuid4()), webhook=webhook)
        job.move("submitted")
        self.tasks[job.id] = self._by_message[message["messageId"]] = job
        self._working[job.id] = asyncio.create_task(self._execute(job))
        return job

    async def cancel(self, job: Job) -> None:
        """Stop what is left of a task."""
        if job.state not in FINAL:
            job.move("canceled")
            self._working[job.id].cancel()
            await self._call_webhook(job)

    async def close(self) -> None:
        """Stop everything."""
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def _execute(self, job: Job) -> None:
        """Do a task's jobs, then tell whoever wants to know; one that says `fail` fails."""
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
    """Return the jobs of a message: one for each line or each part between semicolons."""
    return [part.strip() for part in re.split(r"[\n;]+", text) if part.strip()] or ["nothing"]
