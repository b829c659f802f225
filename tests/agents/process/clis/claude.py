"""Behaves like `claude -p --output-format stream-json`: sessions by directory, permissions, partial messages, costs.

What it is told decides what it does: `run COMMAND` needs permission, `sleep` hangs after its first words, `break` ends
with an error; whatever else is said back, with all that was said before in the session.
"""

import argparse
import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("-p", action="store_true", required=True)
parser.add_argument("--output-format", required=True, choices=["stream-json"])
parser.add_argument("--verbose", action="store_true", required=True)
parser.add_argument("--include-partial-messages", action="store_true")
parser.add_argument("--resume")
parser.add_argument("--allowedTools", nargs="+", default=[])
parser.add_argument("--model", default="claude-stand-in")
parser.add_argument("--permission-mode")


def say(**event: Any) -> None:
    print(json.dumps({**event, "session_id": session}), flush=True)


def message(text: str) -> None:
    say(type="stream_event", event={"type": "content_block_start", "content_block": {"type": "text", "text": ""}})
    for word in text.split(" "):
        delta = {"type": "text_delta", "text": word + " "}
        say(type="stream_event", event={"type": "content_block_delta", "delta": delta})
    usage = {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1}
    content = [{"type": "text", "text": text + " "}]
    say(type="assistant", message={"id": f"msg_{uuid.uuid4().hex}", "content": content, "usage": usage})


def result(text: str, **more: Any) -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5}
    say(type="result", subtype="success", **{"is_error": False, "result": text, "usage": usage, **more})


given = parser.parse_args()
sessions = Path(os.environ["HOME"], "sessions", str(Path.cwd()).replace("/", "-"))
sessions.mkdir(parents=True, exist_ok=True)
session = given.resume or str(uuid.uuid4())
file = sessions / session
if given.resume and not file.exists():
    sys.exit(f"No conversation found with session ID: {given.resume}")
prompt = sys.stdin.read()
told = [*(json.loads(file.read_text()) if file.exists() else []), prompt]
file.write_text(json.dumps(told))
say(type="system", subtype="init", model=given.model, tools=["Bash"], cwd=os.getcwd())
first = prompt.partition("\n")[0]
wanted = next((line[4:] for said in reversed(told) for line in said.splitlines() if line.startswith("run ")), None)
if first == "sleep":
    message("I begin")
    time.sleep(1000)
elif first == "break":
    result("the credit is used up", is_error=True)
    sys.exit(1)
elif wanted is not None and f"Bash({wanted})" in given.allowedTools:
    tool = {"type": "tool_use", "name": "Bash", "input": {"command": wanted}}
    say(type="assistant", message={"id": "msg_tool", "content": [tool]})
    message(f"ran {wanted}")
    result(f"ran {wanted}", total_cost_usd=0.5)
elif wanted is not None and "not allowed" not in prompt:
    denial = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": wanted}}
    message("I may not")
    result("I may not", permission_denials=[denial], total_cost_usd=0.25)
else:
    message(" | ".join(said.partition("\n")[0] for said in told))
    result("said", total_cost_usd=0.25)
