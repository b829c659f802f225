"""Behaves like `codex exec --json [resume ID] -`: threads, items, usage; `fail` fails the turn."""

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any


def say(kind: str, **event: Any) -> None:
    print(json.dumps({"type": kind, **event}), flush=True)


words = sys.argv[1:]
assert words[:2] == ["exec", "--json"], words
assert words[-1] == "-", words
threads = Path(os.environ["HOME"], "threads")
threads.mkdir(parents=True, exist_ok=True)
thread = words[words.index("resume") + 1] if "resume" in words else str(uuid.uuid4())
told = [*json.loads((threads / thread).read_text())] if "resume" in words else []
told.append(sys.stdin.read().partition("\n")[0])
(threads / thread).write_text(json.dumps(told))
print("WARN: this line is no event", flush=True)
say("thread.started", thread_id=thread)
say("turn.started")
if told[-1] == "fail":
    say("turn.failed", error={"message": "no such city"})
    sys.exit(1)
say("item.started", item={"id": "item_0", "type": "command_execution", "command": "ls", "status": "in_progress"})
say("item.completed", item={"id": "item_1", "type": "agent_message", "text": "you said " + " | ".join(told)})
say("turn.completed", usage={"input_tokens": 7, "cached_input_tokens": 2, "output_tokens": 5})
