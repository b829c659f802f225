"""A receiver of webhooks, with nothing but Python: `WEBHOOK_KEY=... python examples/webhook.py 9100`.

It takes only what is signed with a key that it knows and is not old, passes over what it has seen, and prints the rest.
"""

import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

KEY = os.environ["WEBHOOK_KEY"]
OLDEST_SECONDS = 300
seen: set[str] = set()  # keep it where it outlives the process


def is_genuine(signature: str, body: bytes) -> bool:
    """Whether a body was signed with our key, within the last five minutes."""
    members = [member.partition("=")[::2] for member in signature.split(",")]
    said = next((value for name, value in members if name == "t"), "")
    if not said.isdecimal() or abs(time.time() - int(said)) > OLDEST_SECONDS:
        return False
    ours = hmac.new(KEY.encode(), f"{said}.".encode() + body, hashlib.sha256).hexdigest()
    return any(name == "v1" and hmac.compare_digest(value, ours) for name, value in members)


def in_a_line(told: dict[str, Any]) -> str:
    """What an event of A2A 1.0 tells: what was made, or the state of the task."""
    if "artifactUpdate" in told:
        return "".join(part.get("text", "") for part in told["artifactUpdate"]["artifact"]["parts"])
    state: str = (told.get("statusUpdate") or told["task"])["status"]["state"]
    return state


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not is_genuine(self.headers["X-A2A-Signature"] or "", body):
            self.send_error(403)  # it is tried again: the key may just be changing
            return
        event = self.headers["X-A2A-Event-Id"]
        if event not in seen:
            print(self.headers["X-A2A-Task-Id"], in_a_line(json.loads(body)), flush=True)
            seen.add(event)  # after the work is done: what fails comes again
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
